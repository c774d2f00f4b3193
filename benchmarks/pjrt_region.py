"""PJRT: a decode step compiled as one region, over the same recording replayed call by call.
SPDX-License-Identifier: Apache-2.0

    python benchmarks/pjrt_region.py [--json] [--check] [--blocks N] [--tokens N] [--model NAME]

Every plugin that PJRT_TEST_PLUGINS or ANYHAL_PJRT_PLUGINS names, or that is installed, is opened
twice in one process: as it is, and with the instance setting graphs=off, which makes the core
replay. Blocks of the two alternate. --check ends with status 1 where a region is less than ten
times as fast.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pjrt_call import plugins
from timing import Figure, compare, show, threads

import anyhal as hal
from anyhal.frontends.gguf.fetch import locate_model
from anyhal.frontends.gguf.llama import LlamaModel
from anyhal.frontends.gguf.reader import open_gguf
from anyhal.frontends.gguf.session import Session

AIM = 10.0  # a region is at least this many times as fast as the calls it was made of
CAPACITY = 64
FIRST = 504  # a token that no tokenizer reserves


def open_device(name: str, path: Path, **settings: str) -> Any:
    (device,) = hal.load_backend("pjrt", instance=name, settings={"plugins": str(path), **settings})
    return device


def decoder(device: Any, model: str, tokens: int) -> tuple[Session, Callable[[], None]]:
    """A text on this device, and what continues it from its first token by so many others."""
    with hal.use(device=device):
        session = Session(LlamaModel(open_gguf(model), device), CAPACITY)

    def decode() -> None:
        session.resume([FIRST, FIRST])
        token = FIRST
        for _ in range(tokens):
            session.feed([token])
            token = session.best()

    return session, decode


def measure(number: int, path: Path, model: str, tokens: int, blocks: int) -> Figure:
    region = open_device(f"region{number}", path)
    calls = open_device(f"calls{number}", path, graphs="off")
    step, ours = decoder(region, model, tokens)
    list_of_calls, theirs = decoder(calls, model, tokens)
    forms = step._graph.form, list_of_calls._graph.form
    if forms != ("compiled", "replayed"):
        sys.exit(f"{path.name}: the graphs are {forms[0]} and {forms[1]}; nothing to compare")
    mine, other, (low, high) = compare(ours, theirs, blocks)
    details: dict[str, object] = {"threads": threads(), "file": region.fact.identity}
    return Figure(
        f"decode as one region, {path.name}",
        1e3 * mine / tokens,
        "ms/token",
        "call by call",
        1e3 * other / tokens,
        other / mine,
        (1 / high, 1 / low),
        details,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--check", action="store_true", help="status 1 where a ratio is under 10")
    parser.add_argument("--blocks", type=int, default=9)
    parser.add_argument("--tokens", type=int, default=4)
    parser.add_argument("--model", default="smollm2")
    given = parser.parse_args()
    paths = [Path(p) for p in plugins()]
    if not paths:
        parser.error("no plugin; pip install --no-deps lammps-jax-pjrt-cpu xla-cpu-pjrt")
    model = str(locate_model(given.model))
    figures = [measure(i, path, model, given.tokens, given.blocks) for i, path in enumerate(paths)]
    show(figures, given.json)
    slow = [figure for figure in figures if figure.ratio < AIM]
    for figure in slow:
        print(f"under {AIM:g} times: {figure.name}, {figure.ratio:.1f}", file=sys.stderr)
    sys.exit(1 if given.check and slow else 0)


if __name__ == "__main__":
    main()
