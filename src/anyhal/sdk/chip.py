"""Between the native table and a PythonBackend: questions, plans, exceptions, the file itself.
SPDX-License-Identifier: Apache-2.0

`core/bindings/python_backend.cc` calls what is here, with the interpreter's lock and under no lock
of the core.
"""

from __future__ import annotations

import atexit
import contextlib
import hashlib
import inspect
import sys
import threading
import traceback
import types
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from anyhal import _core
from anyhal.dtypes import dtype, of_value
from anyhal.errors import BackendLoadError, HalError, InternalError, InvalidArgumentError
from anyhal.ops import BY_ID, lookup
from anyhal.ops._record import fields, unpack
from anyhal.ops._spec import TensorSpec
from anyhal.runtime.in_kernel import enter_kernel, in_backend
from anyhal.sdk.backend import REASONS, No, PythonBackend, Row

# By number of anyhal_status in backend.h; a test compares them.
STATUSES = (
    *("ok", "invalid_argument", "unsupported", "out_of_memory", "device_lost", "timeout"),
    *("not_found", "abi_mismatch", "cancelled", "execution_failed", "internal"),
)

# (dtype number or 0 where absent, dims, strides, alias_of) of each operand, as the table sees it.
Operand = tuple[int, tuple[int, ...], tuple[int, ...], int]


def load(path: str, sha256: str, instance: str, settings: Sequence[tuple[str, str]]) -> Any:
    """The native instance of the chip in the file at `path`, whose bytes had that hash when it was
    trusted. Runs exactly those bytes, never a cached compilation."""
    source = Path(path).read_bytes()
    if sha256 and hashlib.sha256(source).hexdigest() != sha256:
        raise BackendLoadError(
            f"backend '{instance}' was not loaded from {path}: it was changed after it was found;"
            " start again",
            stage="trust",
            path=path,
        )

    def make(given: dict[str, str]) -> _Chip:
        # Standard output belongs to the program.
        with contextlib.redirect_stdout(sys.stderr):
            return made(source, Path(path), instance, given, sha256)

    def told(why: BaseException, otherwise: int) -> tuple[int, int, str]:
        return said(why, otherwise, path)

    return _core.load_python(path, instance, list(settings), make, told)


def made(
    source: bytes, path: Path, instance: str, settings: Mapping[str, str], sha256: str
) -> _Chip:
    """The chip of a file's bytes, which runs them."""
    backend = _run(source, path, instance)(_Settings(settings))
    return _Chip(backend, f"{instance} {sha256[:12]}")


@atexit.register  # after that of the runtime, so that it comes before it
def _end() -> None:
    _core.end_python()


def _run(source: bytes, path: Path, instance: str) -> type[PythonBackend]:
    module = types.ModuleType(f"anyhal_backend_{instance}")
    module.__file__ = str(path)
    sys.modules[module.__name__] = module  # dataclasses and pickle look there
    exec(compile(source, str(path), "exec", dont_inherit=True), module.__dict__)
    found = [
        value
        for value in vars(module).values()
        if isinstance(value, type)
        and issubclass(value, PythonBackend)
        and value.__module__ == module.__name__
    ]
    if len(found) != 1:
        raise InternalError(
            f"it defines {len(found)} subclasses of PythonBackend; define one in the file"
        )
    return found[0]


class _Settings(dict[str, str]):
    """Remembers what was asked for: the core warns of the rest."""

    def __init__(self, given: Mapping[str, str]) -> None:
        super().__init__(given)
        self.asked: set[str] = set()

    def __getitem__(self, name: str) -> str:
        self.asked.add(name)
        return super().__getitem__(name)

    def get(self, name: str, default: Any = None) -> Any:
        self.asked.add(name)
        return super().get(name, default)

    def __contains__(self, name: object) -> bool:
        self.asked.add(str(name))
        return super().__contains__(name)


class _Plan:
    """One operation, ready to run: takes a memoryview, or None, for each operand."""

    def __init__(self, row: Row, specs: list[TensorSpec | None], alias: list[int], attrs: Any):
        self.name = f"{row.op}: {getattr(row.kernel, '__name__', 'kernel')}"
        self._kernel, self._attrs = row.kernel, attrs
        required = lookup(row.op).aliasing == "required"
        self._makers: list[Any] = []
        self._apart: list[int] = []  # outputs that are an input's memory, and are written last
        for i, spec in enumerate(specs):
            if spec is None:
                self._makers.append(None)
                continue
            kind = spec.dtype.numpy
            assert kind is not None
            strides = tuple(s * kind.itemsize for s in spec.strides)
            self._makers.append((spec.shape, kind, strides))
            if alias[i] and not required:
                self._apart.append(i)

    def __call__(self, *memory: memoryview | None) -> None:
        enter_kernel()
        operands = [
            None if view is None else np.ndarray(how[0], how[1], view, 0, how[2])
            for view, how in zip(memory, self._makers, strict=True)
        ]
        given = list(operands)
        for i in self._apart:
            given[i] = np.empty(operands[i].shape, operands[i].dtype)  # type: ignore[union-attr]
        with np.errstate(all="ignore"):  # NaN and infinities are values like others
            self._kernel(*given, **self._attrs)
        for i in self._apart:
            np.copyto(operands[i], given[i])  # type: ignore[arg-type]


class _Chip:
    """A PythonBackend as the native table sees it."""

    def __init__(self, backend: PythonBackend, build_id: str) -> None:
        self._backend = backend
        self._build_id = build_id
        self._started = False
        self._starting = threading.Lock()
        self._rows: dict[int, list[tuple[Row, frozenset[int]]]] = {}
        for row in backend.rows:
            numbers = frozenset(dtype(name).value for name in row.dtypes)
            _check_kernel(row)
            self._rows.setdefault(lookup(row.op).id, []).append((row, numbers))

    @property
    def _asked(self) -> list[str]:
        return sorted(getattr(self._backend.settings, "asked", ()))

    def _devices(self) -> list[tuple[str, str, str, bool]]:
        return [(d.name, d.arch, d.driver, d.simulated) for d in self._backend.devices()]

    def _notes(self) -> str:
        return self._backend.notes()

    def _capabilities(self) -> list[tuple[int, list[int]]]:
        return [(op, sorted(numbers)) for op, rows in self._rows.items() for _, numbers in rows]

    def _refusal(self, *question: Any) -> tuple[int, int, str] | None:
        found = self._find(*question)
        if not isinstance(found, No):
            return None
        return REASONS.index(found.reason), found.operand, found.why

    def _prepare(self, device: int, op: int, inputs: int, operands: Any, record: bytes) -> _Plan:
        found = self._find(device, op, inputs, operands, record)
        if isinstance(found, No):
            raise InternalError(f"it refuses what it took before: {found.why}; report this defect")
        row, attrs = found
        with self._starting:
            if not self._started:
                with in_backend():
                    self._backend.start()
            self._started = True
        return _Plan(row, list(_specs(operands)), [o[3] for o in operands], attrs)

    def _find(
        self, device: int, op: int, inputs: int, operands: Sequence[Operand], record: bytes
    ) -> tuple[Row, dict[str, Any]] | No:
        """The row that runs a description, and its attributes; else the nearest row's refusal."""
        nearest = No("op", "this op is not among those this device has; let it decompose")
        for row, numbers in self._rows.get(op, ()):
            main = operands[row.main][0] if row.main < len(operands) else 0
            if main not in numbers:
                nearest = No("dtype", "this dtype is not among those of the op; cast it", row.main)
                continue
            answer = _fits(row, op, inputs, operands, record)
            if not isinstance(answer, No):
                return row, answer
            nearest = answer
        return nearest


def _check_kernel(row: Row) -> None:
    """InternalError where the op's operands cannot be given to the row's kernel."""
    spec = lookup(row.op)
    try:
        signature = inspect.signature(row.kernel)
    except (TypeError, ValueError):
        return  # of a function in C, which does not tell
    if any(operand.variadic for operand in (*spec.inputs, *spec.outputs)):
        return
    count = len(spec.inputs) + len(spec.outputs)
    attributes = {attr.name: None for _, _, attr in fields(spec) if attr is not None}
    try:
        signature.bind(*[None] * count, **attributes)
    except TypeError as why:
        kinds = [p.kind for p in signature.parameters.values()]
        takes = sum(kind in (_PLAIN, inspect.Parameter.POSITIONAL_ONLY) for kind in kinds)
        if takes != count and inspect.Parameter.VAR_POSITIONAL not in kinds:
            text = f"its kernel takes {takes} operands, the op gives {count}"
        else:
            given = ", ".join(attributes) or "none"
            text = f"its kernel does not take what the op gives ({why}; attributes: {given})"
        where = inspect.unwrap(row.kernel)
        line = getattr(getattr(where, "__code__", None), "co_firstlineno", 0)
        place = f" (line {line})" if line else ""
        raise InternalError(f"the row of {row.op}: {text}{place}; correct the kernel") from None


_PLAIN = inspect.Parameter.POSITIONAL_OR_KEYWORD


def _check_present(row: Row, inputs: int, operands: Sequence[Operand]) -> None:
    """InvalidArgumentError where an operand is absent that the op requires."""
    spec = lookup(row.op)
    variadic = spec.inputs[0].variadic if spec.inputs else False
    wanted = [*([spec.inputs[0]] * inputs if variadic else spec.inputs), *spec.outputs]
    if len(wanted) != len(operands):
        raise InvalidArgumentError(
            f"{row.op} with {len(operands)} operands: the op has {len(wanted)}; pass each of them"
        )
    wanted = wanted[: len(wanted) - len(spec.more_outputs)]  # whether those are there, calls say
    for arg, (number, *_) in zip(wanted, operands, strict=False):
        if not number and not arg.optional:
            raise InvalidArgumentError(
                f"{row.op} without {arg.name}: this operand is required; pass it"
            )


def _fits(
    row: Row, op: int, inputs: int, operands: Sequence[Operand], record: bytes
) -> dict[str, Any] | No:
    for i, (number, *_) in enumerate(operands):
        if number and of_value(number).numpy is None:
            return No("dtype", "NumPy has no such dtype; use another device", i)
    _check_present(row, inputs, operands)
    try:
        attrs = unpack(BY_ID[op], record)
    except ValueError as why:
        return No("attribute", f"{why}; rebuild the backend with this anyhal")
    if row.accepts is not None:
        with in_backend():
            answer = row.accepts(*_specs(operands), **attrs)
        if answer is not None:
            return No(*answer)
    return attrs


def _specs(operands: Sequence[Operand]) -> Iterator[TensorSpec | None]:
    for number, dims, strides, _ in operands:
        yield TensorSpec(of_value(number), dims, strides) if number else None


def said(why: BaseException, otherwise: int, file: str = "") -> tuple[int, int, str]:
    """What an exception of the chip in `file` means: (anyhal_status, anyhal_reason, text)."""
    frames = traceback.extract_tb(why.__traceback__)
    own = [frame for frame in frames if frame.filename == file]
    where = f" ({Path(file).name}, line {own[-1].lineno})" if own else ""
    if isinstance(why, HalError):
        code = why.code if why.code in STATUSES else "internal"
        if code == "not_found" and not (frames and frames[-1].filename == file):
            # Not the chip's word that hardware is absent, but a mistake in what it asked for.
            what, _, hint = str(why).rpartition("; ")
            return STATUSES.index("internal"), 0, f"{what or hint}{where}; {hint}"
        reason = getattr(why, "reason", "none")
        number = REASONS.index(reason) if reason in REASONS else 0
        return STATUSES.index(code), number, str(why)
    if isinstance(why, MemoryError):
        text = str(why) or "the host is out of memory"
        return STATUSES.index("out_of_memory"), 0, f"{text}; free arrays"
    if isinstance(why, ModuleNotFoundError) and str(why.name).partition(".")[0] != "anyhal":
        text = f"it imports {why.name}, which is not installed; pip install {why.name}"
        return STATUSES.index("not_found"), 0, text
    text = " ".join(f"{type(why).__name__}: {why}".split())
    return otherwise, 0, f"{text[:150]}{where}; correct the backend's Python code"
