"""Source mutation: one operator, bound or index of a kernel is flipped, at random by seed.
SPDX-License-Identifier: Apache-2.0

    python -m anyhal.conformance.mutants.flips [--count 200] [--seed N] [--json]

A flip that does not compile is drawn again. Of those that change any result, over many more inputs
than certification uses, the suite must refuse 95 %. Exit 0 if so, 1 if not, 2 if it could not run.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import secrets
import shutil
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from anyhal.conformance.cases import CASES
from anyhal.conformance.mutants.answers import digests
from anyhal.conformance.mutants.building import BuildFailedError, CannotBuildError, Workshop
from anyhal.conformance.mutants.catalogue import Edit, Mutant
from anyhal.conformance.mutants.judging import DEVICE, judge
from anyhal.records import record

REQUIRED = 0.95
INPUTS = 400  # random cases that decide whether a flip changes anything
_TRIES = 20  # draws for one flip that compiles

# The formatter puts spaces around binary operators and none around brackets of templates, pointers
# and signs, which is all that tells them apart here.
_BINARY = {
    " + ": (" - ",),
    " - ": (" + ",),
    " * ": (" + ",),
    " / ": (" * ",),
    " % ": (" / ",),
    " < ": (" <= ",),
    " <= ": (" < ",),
    " > ": (" >= ",),
    " >= ": (" > ",),
    " == ": (" != ",),
    " != ": (" == ",),
    " && ": (" || ",),
    " || ": (" && ",),
    " += ": (" -= ",),
}
_WORDS = {
    "max": ("min",),
    "min": ("max",),
    "fmax": ("fmin",),
    "true": ("false",),
    "false": ("true",),
    "0": ("1",),
    "1": ("0", "2"),
    "2": ("1",),
}
_TOKEN = re.compile(
    r'(?P<skip>//[^\n]*|"(?:[^"\\\n]|\\.)*"|^\s*#[^\n]*|\'.\'|static_assert[^;]*;)'
    r"|(?P<binary> (?:[-+*/%<>]|[<>=!]=|&&|\|\||\+=) )"
    r"|(?P<word>(?<![\w.:])(?:fmax|max|min|true|false|[012])(?![\w.]))"
    r"|(?P<std>(?<=std::)(?:fmax|max|min)\b)"
    r"|(?P<index>(?<=\[)[a-z](?=[\]]))",
    re.MULTILINE,
)


@record
class Flip:
    """One change: the text at `start` becomes `new`."""

    unit: str
    start: int
    old: str
    new: str

    def applied(self, text: str) -> str:
        return text[: self.start] + self.new + text[self.start + len(self.old) :]

    def told(self, text: str) -> str:
        """File, line, and what changed, as a message has it."""
        line = text.count("\n", 0, self.start) + 1
        return f"{self.unit}:{line}: {self.old.strip()!r} becomes {self.new.strip()!r}"


def flips_of(unit: str, text: str) -> Iterator[Flip]:
    """All single flips of a source file."""
    for found in _TOKEN.finditer(text):
        kind, old = str(found.lastgroup), found.group()
        if kind == "skip":
            continue
        changes = (
            _BINARY[old]
            if kind == "binary"
            else (f"{old} + 1",)
            if kind == "index"
            else _WORDS[old]
        )
        for new in changes:
            yield Flip(unit, found.start(), old, new)


@record
class Result:
    """What one flip did: `changed` any result, and which case then refused it ("" for none)."""

    told: str
    op: str
    changed: bool
    failed: str


class Flipping:
    """Flips kernels of one backend; two at a time."""

    def __init__(self, workshop: Workshop, backend: str, seed: int) -> None:
        self._workshop, self._backend = workshop, backend
        self._seed, self._nonce = seed, f"{seed:032x}"
        self._lock = threading.Lock()
        self._right: dict[str, list[str]] = {}
        self._control: Path | None = None
        workshop.objects(backend)
        ops = {op: workshop.unit_of(backend, op) for op in sorted(CASES)}
        self._texts = {unit: workshop.text(backend, unit) for unit in sorted(set(ops.values()))}
        self._ops = {unit: [op for op, u in ops.items() if u == unit] for unit in self._texts}
        every = [f for unit, text in self._texts.items() for f in flips_of(unit, text)]
        # Numbers are the most by far: kinds take turns.
        kinds = (_BINARY, _WORDS)
        self._kinds = [[f for f in every if f.old in kind] for kind in kinds]
        self._kinds.append([f for f in every if not any(f.old in kind for kind in kinds)])

    def run(self, count: int, jobs: int, done: Callable[[int], None]) -> list[Result]:
        control = Mutant("control", "flips", self._backend, "the unchanged library", ())
        self._control = self._workshop.build(control)
        results: list[Result] = []

        def one(number: int) -> None:
            result = self._one(number)
            with self._lock:
                results.append(result)
                done(len(results))

        pool = ThreadPoolExecutor(jobs)
        try:
            for task in [pool.submit(one, i) for i in range(count)]:
                task.result()
        finally:
            self._workshop.stop()
            pool.shutdown(cancel_futures=True)
        return results

    def _one(self, number: int) -> Result:
        rng = random.Random(f"{self._seed} {number}")
        for attempt in range(_TRIES):
            flip = rng.choice(self._kinds[number % len(self._kinds)])
            op = rng.choice(self._ops[flip.unit])
            text = self._texts[flip.unit]
            edit, name = Edit(flip.unit, text, flip.applied(text)), f"flip-{number}-{attempt}"
            mutant = Mutant(name, "flips", self._backend, flip.told(text), (edit,))
            try:
                folder = self._workshop.build(mutant)
            except BuildFailedError:
                continue
            try:
                return self._judged(folder, flip.told(text), op)
            finally:
                shutil.rmtree(folder.parent, ignore_errors=True)
        raise CannotBuildError(f"flipping {self._backend}: {_TRIES} flips in a row do not compile")

    def _judged(self, folder: Path, told: str, op: str) -> Result:
        if digests(folder, DEVICE, op, 0, INPUTS) == self._answers(op):
            return Result(told, op, False, "")
        found = judge(folder, ops=(op,), nonce=self._nonce, stopped=lambda: self._workshop.stopped)
        return Result(told, op, True, found.failed)

    def _answers(self, op: str) -> list[str]:
        with self._lock:
            if op not in self._right:
                assert self._control is not None
                self._right[op] = digests(self._control, DEVICE, op, 0, INPUTS)
            return self._right[op]


def summary(results: Sequence[Result], seed: int) -> dict[str, Any]:
    changed = [r for r in results if r.changed]
    survivors = [r for r in changed if not r.failed]
    share = 1 - len(survivors) / len(changed) if changed else 0.0
    return {
        "schema": 1,
        "seed": seed,
        "flips": len(results),
        "changed": len(changed),
        "refused": len(changed) - len(survivors),
        "share": round(share, 4),
        "survivors": [f"{r.op}: {r.told}" for r in survivors],
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--backend", default="cpu_ref", help="whose kernels are flipped")
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--json", action="store_true", help="figures as one JSON object")
    given = parser.parse_args()
    seed = secrets.randbits(32) if given.seed is None else given.seed
    try:
        with tempfile.TemporaryDirectory(prefix="anyhal-flips-") as folder:
            flipping = Flipping(Workshop(Path(folder)), given.backend, seed)
            results = flipping.run(
                given.count, 2, lambda n: print(f"\r{n} of {given.count}", end="", file=sys.stderr)
            )
    except CannotBuildError as why:
        print(why, file=sys.stderr)
        return 2
    finally:
        print(file=sys.stderr)
    found = summary(results, seed)
    if given.json:
        print(json.dumps(found))
    else:
        for line in found["survivors"]:
            print(f"survived: {line}")
        print(
            f"seed {seed}: {found['changed']} of {found['flips']} flips change a result, of which"
            f" {found['refused']} are refused ({100 * found['share']:.1f} %)"
        )
    return 0 if found["share"] >= REQUIRED else 1


if __name__ == "__main__":
    sys.exit(main())
