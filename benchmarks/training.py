"""Steps of the training examples: per second, by op, and against the same model in PyTorch.
SPDX-License-Identifier: Apache-2.0

    python benchmarks/training.py [--json] [--profile] [--blocks N] [--width N] [--device NAME]

With --profile the wall time of each public op within a step and its share are shown. Without it
PyTorch is the peer where it is installed: same shapes, AdamW in its fused form, on all threads or
one, whichever is faster. --width and --context make the transformer larger than the example.
"""

from __future__ import annotations

import argparse
import importlib
import json
import statistics
import sys
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from timing import Figure, compare, show, threads

import anyhal as hal

sys.path.insert(0, str(Path(__file__).parents[1] / "examples"))
RATES = {"train_mlp": 0.02, "train_gpt": 0.01}
PER_BLOCK = {"train_mlp": 50, "train_gpt": 10}


def example(name: str, device: str) -> Callable[[], float]:
    """One step of an example; its value is the loss."""
    module, run = importlib.import_module(name), importlib.import_module("training_run")
    where = hal.select_backend(device)
    state, compute = run.State(module.initial(), where), module.loss(where)

    def step() -> float:
        state.losses.append(run.step(state, compute, RATES[name]))
        return state.losses[-1]

    return step


# ------------------------------------------------------------------------------------- by op


class Timed:
    """An op that adds up how long its calls took."""

    def __init__(self, op: Any, spent: dict[str, float], calls: dict[str, int]) -> None:
        self.op, self.spec, self.spent, self.calls = op, getattr(op, "spec", None), spent, calls

    def __call__(self, *operands: Any, **attrs: Any) -> Any:
        started = time.perf_counter()
        made = self.op(*operands, **attrs)
        self.spent[self.op.__name__] += time.perf_counter() - started
        self.calls[self.op.__name__] += 1
        return made


def profile(name: str, device: str, steps: int) -> list[dict[str, Any]]:
    """Rows of op, calls per step, microseconds per step, share of the step: medians over the steps.
    The device must be synchronous, as cpu is: a call then ends when its work does."""
    spent: dict[str, float] = defaultdict(float)
    calls: dict[str, int] = defaultdict(int)
    step, rest = example(name, device), "(Python and the rest)"
    for _ in range(20):
        step()
    ops = {n: getattr(hal, n) for n in dir(hal) if hasattr(getattr(hal, n), "spec")}
    ops |= {n: getattr(hal, n) for n in ("asarray", "zeros", "ones", "reshape", "permute_dims")}
    for n, op in ops.items():
        setattr(hal, n, Timed(op, spent, calls))
    seen: dict[str, list[float]] = defaultdict(list)
    for _ in range(steps):
        spent.clear()
        started = time.perf_counter()
        step()
        whole = time.perf_counter() - started
        for op, seconds in spent.items():
            seen[op].append(seconds)
        seen[rest].append(whole - sum(spent.values()))
    for n, op in ops.items():
        setattr(hal, n, op)
    medians = {op: statistics.median(times) for op, times in seen.items()}
    total = sum(medians.values())
    return [
        {
            "example": name,
            "op": op,
            "calls_per_step": calls[op] / steps,
            "us_per_step": 1e6 * seconds,
            "share": seconds / total,
        }
        for op, seconds in sorted(medians.items(), key=lambda item: -item[1])
    ]


# ---------------------------------------------------------------------------- the same in torch


def torch_mlp(torch: Any, module: Any, p: dict[str, Any], number: int) -> Any:
    points, arms = module.spirals(number)
    x = torch.from_numpy(points)
    for i in range(3):
        x = x @ p[f"weight{i}"] + p[f"bias{i}"]
        x = torch.nn.functional.gelu(x) if i < 2 else x
    return torch.nn.functional.cross_entropy(x, torch.from_numpy(arms))


def torch_gpt(torch: Any, module: Any, p: dict[str, Any], number: int) -> Any:
    f, heads, size = torch.nn.functional, module.HEADS, module.WIDTH // module.HEADS
    ids, targets = (torch.from_numpy(x) for x in module.batch(number))
    half = size // 2
    angle = torch.arange(module.CONTEXT)[:, None] * 10000.0 ** (-torch.arange(half) / half)
    cos, sin = torch.cos(angle), torch.sin(angle)

    def split(x: Any) -> Any:
        return x.view(module.BATCH, module.CONTEXT, heads, size).transpose(1, 2)

    def turned(x: Any) -> Any:
        a, b = x[..., :half], x[..., half:]
        return torch.cat((a * cos - b * sin, b * cos + a * sin), dim=-1)

    x = f.embedding(ids, p["letters"])
    for i in range(module.LAYERS):
        y = f.rms_norm(x, (module.WIDTH,), p[f"{i}.attention_norm"], 1e-5)
        q, k = (turned(split(y @ p[f"{i}.{n}"])) for n in ("query", "key"))
        y = f.scaled_dot_product_attention(q, k, split(y @ p[f"{i}.value"]), is_causal=True)
        x = x + y.transpose(1, 2).reshape(x.shape) @ p[f"{i}.out"]
        y = f.rms_norm(x, (module.WIDTH,), p[f"{i}.mlp_norm"], 1e-5) @ p[f"{i}.up"]
        x = x + f.gelu(y, approximate="tanh") @ p[f"{i}.down"]
    x = f.rms_norm(x, (module.WIDTH,), p["norm"], 1e-5) @ p["letters"].T
    return f.cross_entropy(x.flatten(0, 1), targets.flatten())


def faster_threads(torch: Any, step: Callable[[], float]) -> int:
    """All threads or one: small steps are slower on several."""
    took = {}
    for count in (threads(), 1):
        torch.set_num_threads(count)
        step()
        started = time.perf_counter()
        for _ in range(10):
            step()
        took[count] = time.perf_counter() - started
    return min(took, key=lambda count: took[count])


def torch_example(torch: Any, name: str) -> Callable[[], float]:
    module = importlib.import_module(name)
    model = {"train_mlp": torch_mlp, "train_gpt": torch_gpt}[name]
    p = {n: torch.tensor(x, requires_grad=True) for n, x in module.initial().items()}
    settings = {"betas": (0.9, 0.99), "eps": 1e-8, "weight_decay": 0.01, "fused": True}
    adamw = torch.optim.AdamW(p.values(), lr=RATES[name], **settings)
    number = 0

    def step() -> float:
        nonlocal number
        loss = model(torch, module, p, number)
        adamw.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(p.values(), 1.0)
        for group in adamw.param_groups:
            group["lr"] = RATES[name] * min(1.0, (number + 1) / 10)
        adamw.step()
        number += 1
        return loss.item()

    return step


def against_torch(torch: Any, name: str, device: str, blocks: int) -> Figure:
    ours, theirs = example(name, device), torch_example(torch, name)
    losses = np.array([(ours(), theirs()) for _ in range(5)])
    if not np.allclose(losses[:, 0], losses[:, 1], rtol=1e-3):
        sys.exit(f"{name}: the losses of the two differ: {losses.tolist()}; fix that first")
    count = PER_BLOCK[name]
    used = faster_threads(torch, theirs)
    torch.set_num_threads(used)

    def many(step: Callable[[], float]) -> Callable[[], None]:
        return lambda: [step() for _ in range(count)][-1] and None

    mine, other, (low, high) = compare(many(ours), many(theirs), blocks)
    details = {"peer_version": torch.__version__, "threads": threads(), "peer_threads": used}
    value, baseline = count / mine, count / other
    ratio, interval = other / mine, (1 / high, 1 / low)
    return Figure(name, value, "steps/s", "torch", baseline, ratio, interval, details)


def alone(name: str, device: str, blocks: int) -> Figure:
    """The figure where there is no peer: the best block."""
    step, best = example(name, device), np.inf
    for _ in range(blocks):
        started = time.perf_counter()
        for _ in range(PER_BLOCK[name]):
            step()
        best = min(best, time.perf_counter() - started)
    value = PER_BLOCK[name] / float(best)
    return Figure(name, value, "steps/s", "none", value, 1.0, (1.0, 1.0))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--profile", action="store_true", help="time by op instead")
    parser.add_argument("--blocks", type=int, default=15)
    parser.add_argument("--width", type=int, help="of the transformer, a multiple of 8")
    parser.add_argument("--context", type=int, help="of the transformer")
    parser.add_argument("--device", default="cpu:0")
    chosen = parser.parse_args()
    gpt = importlib.import_module("train_gpt")
    gpt.WIDTH, gpt.CONTEXT = chosen.width or gpt.WIDTH, chosen.context or gpt.CONTEXT
    if chosen.profile:
        rows = [r for n in RATES for r in profile(n, chosen.device, 4 * PER_BLOCK[n])]
        if chosen.json:
            print(json.dumps({"schema": 1, "rows": rows}))
        else:
            for r in rows:
                line = f"{r['example']:10} {r['op']:24} {r['calls_per_step']:6.1f} calls"
                print(f"{line} {r['us_per_step']:9.1f} us {100 * r['share']:5.1f} %")
        return
    try:
        torch = importlib.import_module("torch")
    except ImportError:
        show([alone(n, chosen.device, chosen.blocks) for n in RATES], chosen.json)
        return
    show([against_torch(torch, n, chosen.device, chosen.blocks) for n in RATES], chosen.json)


if __name__ == "__main__":
    main()
