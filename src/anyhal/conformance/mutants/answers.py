"""A process that holds one backend and calls its ops: the ordinary test, or raw bytes to compare.
SPDX-License-Identifier: Apache-2.0

`main` runs in the child: a broken backend may end it. `ordinary_test` and `digests` ask from
outside.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from anyhal.dtypes import dtype
from anyhal.errors import HalError
from anyhal.ops import BY_NAME
from anyhal.ops._spec import Blocks, OpSpec, Sample
from anyhal.settings import BACKEND_PATH, FAKE, PROBE

_COMMAND = "from anyhal.conformance.mutants.answers import main; main()"
_SECONDS = 120.0
_SHOWN = 160
LOST = "the process of the backend ended"


def environ(folder: Path) -> dict[str, str]:
    """In which the backend in `folder` is found, and no other is played. It is no stranger:
    what one is asked at first contact is for the suite to find out."""
    given = {k: v for k, v in os.environ.items() if k != FAKE.name}
    path = os.pathsep.join(os.path.abspath(part) for part in sys.path if part)
    own = {BACKEND_PATH.name: str(folder.resolve()), PROBE.name: "off", "PYTHONPATH": path}
    return given | own


def ordinary_test(folder: Path, device: str, ops: Sequence[str]) -> dict[str, str]:
    """By op: "" where the ordinary test passes, else what it said."""
    found = _ask(folder, device, {"kind": "ordinary", "ops": list(ops)})
    return {op: found.get(op, LOST) for op in ops}


def digests(folder: Path, device: str, op: str, first: int, count: int) -> list[str]:
    """A hash of all that each of `count` random cases wrote; LOST from where the process ended."""
    words = {"kind": "digests", "op": op, "first": first, "count": count}
    found = _ask(folder, device, words)
    return [found.get(str(first + i), LOST) for i in range(count)]


def _ask(folder: Path, device: str, words: Mapping[str, Any]) -> dict[str, str]:
    command = [sys.executable, "-P", "-c", _COMMAND, device, json.dumps(words)]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=_SECONDS, env=environ(folder)
        )
        said = done.stdout
    except subprocess.TimeoutExpired as late:
        said = late.stdout.decode() if isinstance(late.stdout, bytes) else late.stdout or ""
    rows = [line.split("\t", 1) for line in said.split("\n")[:-1] if line.count("\t")]
    return {key: json.loads(value) for key, value in rows}


def main() -> None:
    """Arguments: device, what to do as JSON. One line for each answer."""
    import anyhal as hal

    name, words = sys.argv[1], json.loads(sys.argv[2])
    hal.device(name).tested = False  # it is judged here
    with hal.use(device=name):
        if words["kind"] == "ordinary":
            for op in words["ops"]:
                _tell(op, _ordinary(op, name))
        else:
            for seed in range(words["first"], words["first"] + words["count"]):
                _tell(str(seed), _digest(words["op"], seed, name))


def _tell(key: str, value: str) -> None:
    print(f"{key}\t{json.dumps(value)}", flush=True)


def _ordinary(op: str, device: str) -> str:
    from anyhal.conformance.mutants.ordinary import ORDINARY, RTOL

    spec = BY_NAME[op]
    for made_up in ORDINARY[op](np.random.default_rng(0)):
        absent = (None,) * (0 if spec.inputs[0].variadic else len(spec.inputs))
        inputs = (*made_up.inputs, *absent[len(made_up.inputs) :])
        sample = Sample("", inputs, made_up.attrs)
        try:
            arrays = [None if x is None else _placed(x, device) for x in sample.inputs]
            made = _call(spec, arrays, dict(sample.attrs))
        except HalError as why:
            return str(why)
        if spec.aliasing == "required":
            made = tuple(arrays[: len(spec.outputs)])
        results = made if isinstance(made, tuple) else (made,)
        with np.errstate(all="ignore"):
            wanted = spec.reference_outs(*sample.inputs, **sample.attrs)
        for result, want in zip(results, _present(spec, sample, wanted), strict=True):
            found = np.asarray(result.numpy(), np.float64)
            want = np.asarray(want, np.float64)
            if found.shape != want.shape:
                return f"shape {found.shape} instead of {want.shape}"
            if not np.allclose(found, want, rtol=RTOL, equal_nan=True):
                return f"{dict(sample.attrs)}: not close"[:_SHOWN]
    return ""


def _present(spec: OpSpec, sample: Sample, wanted: Sequence[Any]) -> list[Any]:
    """The references of the outputs that this call has."""
    full = {a.name: sample.attrs.get(a.name, a.default) for a in spec.attrs}
    outs = spec.infer_outs([_spec(x) for x in sample.inputs], full)
    return [want for want, out in zip(wanted, outs, strict=True) if out is not None]


def _digest(op: str, seed: int, device: str) -> str:
    """All that one random case leaves behind: outputs, what lies around them, the inputs."""
    from anyhal.conformance.cases import random_case

    spec, sample = BY_NAME[op], random_case(op, seed)
    found = hashlib.sha256()
    try:
        gaps = seed % 2 == 1
        arrays = [None if x is None else _placed(x, device, gaps) for x in sample.inputs]
        frames = _run(spec, sample, arrays, device, gaps)
        for array in (*frames, *arrays):
            if array is not None and not dtype(array.dtype).is_block:
                found.update(array.numpy().tobytes())
    except HalError as why:
        found.update(f"{type(why).__name__} {why.code}".encode())
    return found.hexdigest()


def _run(spec: OpSpec, sample: Sample, arrays: list[Any], device: str, gaps: bool) -> list[Any]:
    import anyhal as hal

    attrs = dict(sample.attrs)
    if spec.aliasing == "required":
        _call(spec, arrays, attrs)
        return []
    full = {a.name: attrs.get(a.name, a.default) for a in spec.attrs}
    frames: list[Any] = []
    views: list[Any] = []
    for out in spec.infer_outs([_spec(x) for x in sample.inputs], full):
        if out is None or out.dtype.is_block:
            if out is not None:  # moved, and read as the numbers that it holds
                made = _call(spec, arrays, attrs)
                return [hal.astype(made, dtype="float64")]
            views.append(None)
            continue
        shape, window = _frame(out.shape, gaps)
        frames.append(hal.asarray(np.full(shape, 91).astype(out.dtype.numpy), device=device))
        views.append(frames[-1][window])
    _call(spec, arrays, attrs | {"out": tuple(views) if spec.more_outputs else views[0]})
    return frames


def _frame(shape: tuple[int, ...], gaps: bool) -> tuple[tuple[int, ...], tuple[slice, ...]]:
    """A larger shape and the part of it that has `shape`: every other element, or shifted."""
    if gaps:
        return tuple(2 * n + 1 for n in shape), tuple(slice(1, 2 * n, 2) for n in shape)
    return tuple(n + 3 for n in shape), tuple(slice(2, n + 2) for n in shape)


def _placed(x: Any, device: str, gaps: bool = False) -> Any:
    import anyhal as hal

    if isinstance(x, Blocks):
        data = np.ascontiguousarray(x.data).reshape(-1)
        return hal.frombuffer(data, x.dtype.name, x.shape, device=device)
    x = np.asarray(x)
    if not gaps or not x.ndim:
        return hal.asarray(x, device=device)
    shape, window = _frame(x.shape, True)
    base = np.ones(shape, x.dtype)
    base[window] = x
    return hal.asarray(base, device=device)[window]


def _spec(x: Any) -> Any:
    from anyhal.ops._spec import TensorSpec

    if x is None:
        return None
    return TensorSpec.dense(x.dtype if isinstance(x, Blocks) else dtype(x.dtype), x.shape)


def _call(spec: OpSpec, arrays: Sequence[Any], attrs: Mapping[str, Any]) -> Any:
    """Through the public function whose presets these attributes meet."""
    import anyhal as hal

    for name, preset in spec.functions.items():
        if all(attrs.get(k) == v for k, v in preset.items()):
            operands: list[Any] = [list(arrays)] if spec.inputs[0].variadic else list(arrays)
            while operands and operands[-1] is None:
                operands.pop()
            left = {k: v for k, v in attrs.items() if k not in preset}
            return getattr(hal, name)(*operands, **left)
    raise AssertionError(f"{spec.name} has no public function for {attrs}")
