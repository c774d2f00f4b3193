"""Ops of training, indices and random numbers against PyTorch, or NumPy, in the same run.
SPDX-License-Identifier: Apache-2.0

    python benchmarks/ops.py [--json] [--rounds N] [--device NAME] [OP...]

Sides alternate; the figure is the least time of each, the ratio theirs over ours. PyTorch is timed
on all threads and on one, since its threads suffer most from others on the machine. Without it only
what NumPy has is measured.
"""

from __future__ import annotations

import argparse
import importlib
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from timing import Figure, show, threads

import anyhal as hal

ROWS, WIDTH, CLASSES, COUNT = 1024, 1024, 8192, 1 << 24
INDEXED = 1 << 22
Sides = tuple[str, str, Callable[[], Any], Callable[[], Any]]


def normal(*shape: int) -> Any:
    return np.random.default_rng(7).standard_normal(shape).astype(np.float32)


def random_ops(device: str) -> Iterator[Sides]:
    """Against the generator of the same family; NumPy's is on one thread."""
    key = hal.asarray(np.array([1, 2], np.uint64), device=device)
    rng, buffer = np.random.Generator(np.random.Philox(1)), np.empty(COUNT, np.float32)
    count: Any = {"shape": (COUNT,)}
    peer = "NumPy Philox"
    yield (
        *("random_uniform", peer, lambda: hal.random_uniform(key, **count)),
        lambda: rng.random(out=buffer, dtype=np.float32),
    )
    yield (
        *("random_normal", peer, lambda: hal.random_normal(key, **count)),
        lambda: rng.standard_normal(out=buffer, dtype=np.float32),
    )
    yield (
        *("random_integers", peer, lambda: hal.random_integers(key, low=0, high=1000, **count)),
        lambda: rng.integers(0, 1000, COUNT),
    )


def index_ops(device: str) -> Iterator[Sides]:
    """Slices of one element, where each index costs most, and running sums; NumPy's one thread."""
    x, count = normal(INDEXED), INDEXED // 4
    fourth = np.arange(0, INDEXED, 4)
    places = np.random.default_rng(1).integers(0, INDEXED, count)
    few, columns, table = places % WIDTH, np.arange(0, WIDTH, 2), x.reshape(-1, WIDTH)
    sums, ones = np.zeros(WIDTH, np.float32), np.ones(count, np.float32)
    hx, hf, hp, hw, hc, ht, hs, ho = (
        hal.asarray(a, device=device) for a in (x, fourth, places, few, columns, table, sums, ones)
    )
    along: Any = {"axis": 0}
    peer = "NumPy"
    yield "take every 4th", peer, lambda: hal.take(hx, hf, **along), lambda: x[fourth]
    yield "take at random", peer, lambda: hal.take(hx, hp, **along), lambda: x[places]
    yield "take columns", peer, lambda: hal.take(ht, hc, axis=1), lambda: table[:, columns]
    yield (
        *("take_along_axis", peer, lambda: hal.take_along_axis(hx, hp, **along)),
        lambda: np.take_along_axis(x, places, 0),
    )
    yield (
        *("scatter_add", peer, lambda: hal.scatter_add(hs, hw, ho, **along)),
        lambda: np.add.at(sums, few, ones),
    )
    yield "cumsum", peer, lambda: hal.cumsum(hx, **along), lambda: np.cumsum(x)
    yield "cumsum of columns", peer, lambda: hal.cumsum(ht, **along), lambda: np.cumsum(table, 0)


def both_sides(torch: Any, device: str) -> tuple[Callable[..., list[Any]], ...]:
    def ours(*arrays: Any) -> list[Any]:
        return [hal.asarray(a, device=device) for a in arrays]

    def theirs(*arrays: Any) -> list[Any]:
        return [torch.from_numpy(a) for a in arrays]

    return ours, theirs


def row_ops(torch: Any, device: str) -> Iterator[Sides]:
    f, aten = torch.nn.functional, torch.ops.aten
    x, d, w = normal(ROWS, WIDTH), normal(ROWS, WIDTH)[::-1].copy(), normal(WIDTH)
    logits, classes = normal(ROWS, CLASSES), np.arange(ROWS) % CLASSES
    ours, theirs = both_sides(torch, device)
    (hx, hd, hw, hl, hc), (tx, td, tw, tl, tc) = (
        s(x, d, w, logits, classes) for s in (ours, theirs)
    )
    mean: Any = {"reduction": "mean"}
    yield (
        *("layer_norm", "torch", lambda: hal.layer_norm(hx, hw, hw, eps=1e-5)),
        lambda: f.layer_norm(tx, (WIDTH,), tw, tw, 1e-5),
    )
    stats = torch.native_layer_norm(tx, (WIDTH,), tw, tw, 1e-5)[1:]
    yield (
        *("layer_norm_backward", "torch", lambda: hal.layer_norm_backward(hd, hx, hw, eps=1e-5)),
        lambda: aten.native_layer_norm_backward(td, tx, (WIDTH,), *stats, tw, tw, [True] * 3),
    )
    yield "softmax", "torch", lambda: hal.softmax(hl), lambda: torch.softmax(tl, -1)
    yield "log_softmax", "torch", lambda: hal.log_softmax(hl), lambda: torch.log_softmax(tl, -1)
    hy, ty = hal.softmax(hx), torch.softmax(tx, -1)
    yield (
        *("softmax_backward", "torch", lambda: hal.softmax_backward(hd, hy)),
        lambda: aten._softmax_backward_data(td, ty, -1, torch.float32),
    )
    yield (
        *("cross_entropy", "torch", lambda: hal.cross_entropy(hl, hc, **mean)),
        lambda: f.cross_entropy(tl, tc),
    )
    leaf, one = tl.clone().requires_grad_(), hal.ones((), device=device)

    def both() -> Any:
        return torch.autograd.grad(f.cross_entropy(leaf, tc), leaf)

    def both_ours() -> Any:
        hal.cross_entropy(hl, hc, **mean)
        return hal.cross_entropy_backward(hl, hc, one, **mean)

    yield "cross_entropy and its gradient", "torch", both_ours, both


def step_ops(torch: Any, device: str) -> Iterator[Sides]:
    f, (ours, theirs) = torch.nn.functional, both_sides(torch, device)
    x, d = normal(ROWS, WIDTH), normal(ROWS, WIDTH)[::-1].copy()
    heads = [normal(2, 8, 256, 64) + i for i in range(4)]
    (hx,), (tx, td) = ours(x), theirs(x, d)
    state, settings = ours(x, 0 * x, 0 * x, d), {"beta1": 0.9, "beta2": 0.99, "eps": 1e-8}
    now = ours(np.float32(1e-3), np.int64(3))
    parameter = torch.from_numpy(x.copy()).requires_grad_()
    parameter.grad = td
    adamw = torch.optim.AdamW([parameter], lr=1e-3, fused=True)
    yield (
        *("adamw_step", "torch fused"),
        lambda: hal.adamw_step(*state, *now, **settings, weight_decay=0.01),
        adamw.step,
    )
    hh = ours(*heads)
    inputs = [t.requires_grad_() for t in theirs(*heads[1:])]
    made = f.scaled_dot_product_attention(*inputs, is_causal=True)
    gradient = theirs(heads[0])[0]
    yield (
        *("attention_backward", "torch"),
        lambda: hal.attention_backward(*hh, scale=0.125, causal="first_key"),
        lambda: torch.autograd.grad(made, inputs, gradient, retain_graph=True),
    )
    yield "gelu", "torch", lambda: hal.gelu(hx), lambda: f.gelu(tx)
    key = hal.asarray(np.array([1, 2], np.uint64), device=device)
    yield "dropout", "torch", lambda: hal.dropout(hx, key, p=0.1), lambda: f.dropout(tx, 0.1)


def measure(sides: Sides, rounds: int, torch: Any, details: dict[str, object]) -> Figure:
    name, peer, ours, theirs = sides
    best = {ours: np.inf, theirs: np.inf}
    for i in range(2 * rounds + 2):
        if torch is not None and i % 2 == 0:
            torch.set_num_threads(1 if i % 4 == 0 else threads())
        for call in (ours, theirs) if i % 2 == 0 else (theirs, ours):
            started = time.perf_counter()
            call()
            took = time.perf_counter() - started
            best[call] = min(best[call], took) if i > 1 else np.inf  # the first prepare
    mine, other = 1e3 * float(best[ours]), 1e3 * float(best[theirs])
    return Figure(name, mine, "ms", peer, other, other / mine, (other / mine,) * 2, details)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("ops", nargs="*")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--device", default="cpu:0")
    chosen = parser.parse_args()
    sides, torch = [*random_ops(chosen.device), *index_ops(chosen.device)], None
    details: dict[str, object] = {"threads": threads(), "numpy": np.__version__}
    try:
        torch = importlib.import_module("torch")
        sides += [*row_ops(torch, chosen.device), *step_ops(torch, chosen.device)]
        details["torch"] = torch.__version__
    except ImportError:
        pass
    wanted = [s for s in sides if not chosen.ops or s[0] in chosen.ops]
    show([measure(s, chosen.rounds, torch, details) for s in wanted], chosen.json)


if __name__ == "__main__":
    main()
