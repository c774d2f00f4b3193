"""The one meeting point of a new call signature: validation → facts → decision → plan.
SPDX-License-Identifier: Apache-2.0

A warm call never comes here: the native Op object finds its plan by key. On a miss `resolve` checks
the call, asks the candidates that policy names, prepares the choice and hands the plan back.
"""

from __future__ import annotations

import inspect
import math
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any, TypeVar, cast

import numpy as np

from anyhal import _core
from anyhal.dispatch import recording
from anyhal.dispatch.lowering import (
    Aliases,
    OperandInfo,
    OutInfos,
    prepare_call,
    query_call,
    required_aliases,
)
from anyhal.dispatch.signature import check_signature
from anyhal.dtypes import ALL, DType, dtype, of_value
from anyhal.errors import (
    HalError,
    InvalidArgumentError,
    InvalidTypeError,
    UnsupportedError,
    typed_call,
)
from anyhal.ops import BY_NAME
from anyhal.ops._checks import FP8
from anyhal.ops._spec import ALIASING, REQUIRED, Arg, Attr, OpSpec, Outs, TensorSpec, describe
from anyhal.printable import get_close_matches
from anyhal.records import replace
from anyhal.routing import policy as routing
from anyhal.routing.facts import CallFact, Candidate, Decision, Kernel, OperandFact, Verdict, Work
from anyhal.runtime import array as arrays
from anyhal.runtime import context, copies, device, placement
from anyhal.runtime.context import queue_of
from anyhal.runtime.device import Device

_F32_MAX = float(np.finfo(np.float32).max)
_F64_MAX = int(np.finfo(np.float64).max)
_KINDS = {
    "i64": "i",
    "ints": "n",
    "f32": "f",
    "bool": "b",
    "axis": "a",
    "axes": "x",
    "enum": "e",
    "dtype": "d",
}
_DTYPE_WORDS = {n: d.value for d in ALL for n in (d.name, d.short)}
_ops_made: list[Any] = []
_Function = TypeVar("_Function", bound=Callable[..., Any])


def op(name: str, **preset: Any) -> Callable[[_Function], _Function]:
    """Replaces a documented signature by the native Op object that runs it; to a type checker it
    stays the signature. The op's file is read when it is first called or asked for its `spec`."""

    def make(function: _Function) -> _Function:
        native = _core.Op(function.__name__, len(_ops_made), _shape, resolve, coerce)
        native.op, native.preset = name, preset
        native.__name__ = native.__qualname__ = function.__name__
        native.__doc__, native.__module__ = function.__doc__, function.__module__
        native.__wrapped__ = function
        _ops_made.append(native)
        arrays.OPS[function.__name__] = native
        return cast("_Function", native)

    return make


# Computed when asked for: 130 of them would make every import slower.
_core.Op.spec = property(lambda native: BY_NAME[native.op])
_core.Op.__signature__ = property(lambda native: inspect.signature(native.__wrapped__))


def _shape(native: Any) -> tuple[Any, ...]:
    """What the native side needs to parse a call of the op."""
    spec: OpSpec = native.spec
    return (
        tuple(a.name for a in spec.inputs),
        sum(not a.optional for a in spec.inputs),
        any(a.variadic for a in spec.inputs),
        spec.aliasing == "required",
        len(spec.outputs),
        tuple(_slot(a) for a in spec.attrs if a.name not in native.preset),
    )


def _slot(a: Attr) -> tuple[str, str, Any, int, Any]:
    table: Any = {"enum": dict(a.choices), "dtype": _DTYPE_WORDS}.get(a.kind)
    required = a.default is REQUIRED
    return (a.name, _KINDS[a.kind], table, int(required), None if required else a.default)


# ------------------------------------------------------------------------------------ validation


def _attributes(
    spec: OpSpec, preset: Mapping[str, Any], given: Mapping[str, Any]
) -> dict[str, Any]:
    """All attributes, checked and in the registry's form."""
    called = next((name for name, p in spec.functions.items() if p == preset), spec.name)
    out: dict[str, Any] = {}
    for a in spec.attrs:
        value = preset.get(a.name, given.get(a.name, a.default))
        out[a.name] = _attribute(called, a, value)
    return out


def _attribute(op_name: str, a: Attr, value: Any) -> Any:
    def refuse(what: str, hint: str) -> InvalidArgumentError:
        return InvalidArgumentError(f"{op_name}: {a.name}={value!r} {what}; {hint}")

    if a.kind == "dtype":
        if value is None and a.default is REQUIRED:
            raise refuse("is no dtype, and there is no default", "pass one, such as 'float32'")
        try:
            return None if value is None else dtype(value).name
        except InvalidArgumentError as why:
            raise InvalidArgumentError(f"{op_name}: {why}") from None
    if a.kind == "enum":
        if not isinstance(value, str) or value not in a.choices:
            near = get_close_matches(str(value), list(a.choices), n=1)
            hint = f"did you mean {near[0]!r}?" if near else "use " + ", ".join(a.choices)
            raise refuse("is not one of its choices", hint)
        return value
    if a.kind == "f32":
        if isinstance(value, bool) or not isinstance(value, int | float | np.integer | np.floating):
            raise refuse("is not a number", "pass a float")
        value = value.item() if isinstance(value, np.generic) else value
        size = abs(cast("int | float", value))
        if _F32_MAX < size != math.inf:  # integers of any length, and NaN passes
            raise refuse("is beyond float32", "pass a smaller number")
        return float(value)
    if a.kind == "bool":
        if not isinstance(value, bool | np.bool_):
            raise refuse("is not a bool", "pass True or False")
        return bool(value)
    if a.kind == "ints":
        if value is None and a.default is None:
            return None
        if not isinstance(value, tuple | list) or any(not _is_int(v) for v in value):
            raise refuse("is not a tuple of integers", "pass a tuple of ints")
        return tuple(int(v) for v in value)
    if a.kind == "axes" and (value is None or isinstance(value, tuple | list)):
        if value is not None and any(not _is_int(v) for v in value):
            raise refuse("holds something that is no integer", "pass None, an int or ints")
        return None if value is None else tuple(int(v) for v in value)
    if not _is_int(value):
        raise refuse("is not an integer", "pass an int")
    return int(value)


def _may_overlap_itself(spec: TensorSpec) -> bool:
    """Whether two positions may be one element: a step that the smaller steps can add up to.

    Never so for slices and transposes of dense arrays; windows that others export can be.
    """
    if 0 in spec.shape:
        return False
    reach = 0
    for step, n in sorted(zip(spec.strides, _blocks(spec), strict=True)):
        if n > 1 and step <= reach:
            return True
        reach += step * (n - 1)
    return False


def _blocks(spec: TensorSpec) -> list[int]:
    """The sizes as strides count them: the last one in blocks."""
    return [*spec.shape[:-1], *(n // spec.dtype.block_elements for n in spec.shape[-1:])]


def _is_int(v: Any) -> bool:
    return isinstance(v, int | np.integer) and not isinstance(v, bool)


def _infer(spec: OpSpec, specs: Sequence[TensorSpec | None], attrs: Mapping[str, Any]) -> Outs:
    """The outputs; sizes that no memory and no contract can hold are refused."""
    wanted = spec.infer_outs(specs, attrs)
    check_sizes(spec.name, [s for s in wanted if s is not None])
    return wanted


def check_sizes(op_name: str, specs: Sequence[TensorSpec]) -> None:
    for s in specs:
        if math.prod(max(n, 1) for n in s.shape) * s.dtype.block_bytes >= 1 << 63:
            raise InvalidArgumentError(
                f"{op_name}: {describe(s)} would take 2^63 bytes or more; use smaller sizes"
            )


def _check_outs(spec: OpSpec, inputs: Sequence[Any], outs: Sequence[Any], wanted: Outs) -> None:
    for n, (out, want) in enumerate(zip(outs, wanted, strict=True)):
        if out is None:
            continue
        if want is None:
            raise InvalidArgumentError(
                f"{spec.name} on {out._device_name}: this call has no {spec.outputs[n].name}; pass"
                " None in its place in out"
            )
        _check_out(spec, inputs, n, out, want)
        for other in outs[:n]:
            if other is not None and _overlap(other, out):
                raise InvalidArgumentError(
                    f"{spec.name} on {out._device_name}: two outputs share memory; pass arrays that"
                    " do not overlap"
                )


def _check_out(spec: OpSpec, inputs: Sequence[Any], n: int, out: Any, want: TensorSpec) -> None:
    have = arrays.spec_of(out)
    where = f"{spec.name} on {out._device_name}"
    if have.shape != want.shape or have.dtype != want.dtype:
        raise InvalidArgumentError(
            f"{where}: out is {describe(have)}, the result is {describe(want)}; pass an out of that"
            " shape and dtype, or none"
        )
    if out.constant:
        raise InvalidArgumentError(
            f"{where}: out {describe(have)} is constant, which is never written; pass another out"
        )
    if _may_overlap_itself(have):
        raise InvalidArgumentError(
            f"{where}: out {describe(have)} overlaps itself (its strides"
            f" {list(have.strides)} meet); pass a dense out"
        )
    for i, x in enumerate(inputs):
        if x is None or not _overlap(x, out):
            continue
        exact = _same(x, out)
        allowed = {
            "none": False,
            "elementwise": exact,
            "first": exact and i == 0,
            "required": exact and i == n,
        }[spec.aliasing]
        if not allowed:
            raise InvalidArgumentError(
                f"{where}: out overlaps operand {i} {describe(arrays.spec_of(x))}, it shares memory"
                f" with it: {ALIASING[spec.aliasing]}; pass another out"
            )


def _address(a: Any) -> tuple[int, int]:
    begin = _core.array_address(a)
    return begin, begin + a._span_bytes


def _overlap(a: Any, b: Any) -> bool:
    if not a.size or not b.size or not _core.same_memory(a, b):
        return False
    (first, last), (begin, end) = _address(a), _address(b)
    return begin < last and first < end


def _same(a: Any, b: Any) -> bool:
    # Where blocks have no addresses, two of them may hold different arrays at one offset.
    if not _core.same_memory(a, b) or _address(a) != _address(b):
        return False
    return bool(arrays.spec_of(a) == arrays.spec_of(b))


# -------------------------------------------------------------------------------------- decision


def _info(a: Any) -> OperandInfo | None:
    if a is None:
        return None
    cell, block_bytes, offset = _core.block_range(a)
    return OperandInfo(
        arrays.spec_of(a),
        constant=a.constant,
        alignment=_core.alignment(a),
        block_bytes=block_bytes if cell else 0,
        base_offset=offset if cell else 0,
    )


def _call_fact(
    spec: OpSpec,
    infos: Sequence[OperandInfo | None],
    attrs: Mapping[str, Any],
    outs: OutInfos,
    on: Sequence[str],
) -> CallFact:
    operands = tuple(
        OperandFact(describe(i.spec if i else None), d if i else "", i.spec.nbytes if i else 0)
        for i, d in zip(infos, on, strict=True)
    )
    default = context.current().device
    home = default.name if default is not None else next((d for d in on if d), "")
    shown = {k: v for k, v in attrs.items() if k in {a.name for a in spec.attrs}}
    work = Work(
        *spec.cost_outs(
            [None if i is None else i.spec for i in infos],
            attrs,
            tuple(None if o is None else o.spec for o in outs),
        )
    )
    return CallFact(spec.name, operands, shown, home, work)


def _copied(info: OperandInfo | None) -> OperandInfo | None:
    """The operand as it will be on another device: dense, in a block of its own."""
    if info is None:
        return None
    return OperandInfo(TensorSpec.dense(info.spec.dtype, info.spec.shape), info.constant)


def _weigh(
    spec: OpSpec,
    infos: Sequence[OperandInfo | None],
    attrs: Mapping[str, Any],
    outs: OutInfos,
    aliases: Aliases,
    on: Sequence[str],
    every: bool = False,
) -> tuple[CallFact, Decision]:
    """Asks candidate after candidate, stage by stage, until one stage has a taker; or every one."""
    chosen = context.current()
    call = _call_fact(spec, infos, attrs, outs, on)
    known = device.facts(every=every or chosen.contract.fallback == "any")
    asked: list[Candidate] = []
    stage, decision = -1, None
    steps = routing.every_step if every else routing.steps
    for step in steps(call, known, chosen.contract, chosen.policy):
        if not every and step.stage != stage and decision is not None and decision.choice:
            break
        stage = step.stage
        verdicts: tuple[Any, ...] = ()
        if step.device.why_not and not every:
            device.require_alive(step.device.name)
        if not step.device.why_not:
            target = device.device(step.device.name) if known else None
            # Elsewhere the operands are copied first: in place only what the op itself demands.
            at_home = all(d in ("", step.device.name) for d in on)
            there = aliases if at_home else required_aliases(spec)
            here = [
                i if d == step.device.name else _copied(i) for i, d in zip(infos, on, strict=True)
            ]
            made = outs if at_home else tuple(map(_copied, outs))
            core_only = chosen.policy.prefer_decomposed
            try:
                verdicts = query_call(target, spec, here, attrs, made, there, step.form, core_only)
            except HalError as why:
                # What an explanation asks only for the record may not spoil it.
                if not every or step.device.name == call.device:
                    raise
                verdicts = ((spec.name, Verdict("no", "driver", text=str(why))),)
        asked.append(Candidate(step.device, step.form, verdicts))
        decision = routing.weigh(call, asked, chosen.contract, chosen.policy)
    assert decision is not None
    if every:
        recording.add(call, asked)
    return call, decision


def resolve(
    native: Any, inputs: tuple[Any, ...], given: Mapping[str, Any], outs: tuple[Any, ...]
) -> Any:
    """The plan for a call that the cache does not know, or the result of a call that no plan can
    express (operands on another device)."""
    spec: OpSpec = native.spec
    attrs = _attributes(spec, native.preset, given)
    specs = [None if a is None else arrays.spec_of(a) for a in inputs]
    wanted: Outs
    if spec.shape_from_out and outs[0] is not None:
        first = arrays.spec_of(outs[0])
        wanted = (TensorSpec.dense(first.dtype, first.shape),)
    else:
        wanted = _infer(spec, specs, attrs)
    on = ["" if a is None else a._device_name for a in inputs]
    homes = set(filter(None, [*on, *(o._device_name for o in outs if o is not None)]))
    _check_outs(spec, inputs, outs, wanted)
    infos = [_info(a) for a in inputs]
    targets = tuple(
        _info(o) if o is not None else None if w is None else OperandInfo(w)
        for o, w in zip(outs, wanted, strict=True)
    )
    aliases = tuple(
        next((i for i, a in enumerate(inputs) if a is not None and o.size and _same(a, o)), None)
        if o is not None
        else None
        for o in outs
    )
    call, decision = _weigh(spec, infos, attrs, targets, aliases, on)
    if not decision.choice:
        reason = decision.refusals[0].reason if decision.refusals else "policy"
        instead = _dtypes_instead(spec, infos, call) if reason == "dtype" else ""
        raise UnsupportedError(
            decision.sentence + instead, reason=reason, refusals=decision.refusals, call=call
        )
    where = device.device(decision.choice)
    if homes != {where.name}:
        home = device.device(routing.home(call, context.current().contract))
        result = _run_elsewhere(native, inputs, given, outs, wanted, where, home)
        if where is not home:
            said = [r.reason for r in decision.refusals if r.device == home.name]
            placement.note(home.name, where.name, spec.name, said[0] if said else "policy")
        return result
    return prepare_call(
        where,
        spec,
        infos,
        attrs,
        targets,
        aliases,
        decision,
        str(call),
        context.current().policy.prefer_decomposed,
    )


def _dtypes_instead(spec: OpSpec, infos: Sequence[OperandInfo | None], call: Any) -> str:
    """Which dtypes the call's device has for the op, those of the operands' kind first."""
    home = device.device(routing.home(call, context.current().contract))
    kinds = {i.spec.dtype.kind for i in infos if i is not None}
    there = sorted(home.dtypes_of(spec.name), key=lambda d: d.kind not in kinds)
    if not there:
        return ""
    return (
        f"; cast to one that {home.name} has for {spec.name}: {', '.join(d.short for d in there)}"
    )


def _run_elsewhere(
    native: Any,
    inputs: tuple[Any, ...],
    given: Mapping[str, Any],
    outs: Sequence[Any],
    wanted: Outs,
    where: Device,
    home: Device,
) -> Any:
    """Copies the operands to `where`, runs there, copies the result to the call's home:
    fallback="any"."""
    for place in {home.name, where.name, *(a._device_name for a in inputs if a is not None)}:
        if queue_of(device.device(place)).capturing:
            raise InvalidArgumentError(
                f"{native.spec.name}: a graph is being captured on {place}, and copies between"
                " devices are made at once, not recorded; copy the operands to one device first"
            )
    moved = [_brought(a, where) for a in inputs]
    with context.use(device=where):
        variadic = any(a.variadic for a in native.spec.inputs)
        result = native(moved, **given) if variadic else native(*moved, **given)
    if native.spec.aliasing == "required" and outs[0] is None:
        outs = inputs[: len(native.spec.outputs)]
    results = result if isinstance(result, tuple) else (result,)
    places = [o for o, w in zip(outs, wanted, strict=True) if w is not None]
    back = tuple(
        _into(place, r)
        if place is not None
        else (arrays.asarray(r, device=home) if home is not where else r)
        for place, r in zip(places, results, strict=True)
    )
    return back if isinstance(result, tuple) else back[0]


def _brought(a: Any, where: Device) -> Any:
    if a is None or a._device_name == where.name:
        return a
    return arrays.asarray(a, device=where, constant=a.constant)


def _into(place: Any, result: Any) -> Any:
    if place._device_name != result._device_name:
        copies.note(result._device_name, place._device_name, arrays.spec_of(result).nbytes)
    return arrays.set_values(place, arrays.numpy(result))


@typed_call("explain")
def explain(text: str) -> Decision:
    """Where a call would run and why, without running it: explain("matmul f32[4,8] f32[8,16]").

    Every candidate is asked and the choice is prepared, so that its kernels can be named. The
    operands are taken to be dense arrays on the scope's device (else the best one), or each on the
    device that is named behind it: "add f32[4]@cpu:0 f32[4]@opencl:0".
    """
    if not isinstance(text, str):
        raise InvalidTypeError(
            f"explain: a {type(text).__name__} is no call; write it as text, such as"
            ' "matmul f32[4,8] f32[8,16]"'
        )
    from anyhal.routing.explain import parse  # what a program that only computes has no use for

    parsed = parse(text)
    where = device.device()
    check_sizes(parsed.spec.name, [s for s in (*parsed.inputs, *parsed.outs) if s is not None])
    infos = [None if s is None else OperandInfo(s) for s in parsed.inputs]
    named = [device.device(name).name if name else where.name for name in parsed.on]
    on = [name if i else "" for name, i in zip(named, infos, strict=True)]
    outs = tuple(None if s is None else OperandInfo(s) for s in parsed.outs)
    attrs = dict(parsed.attrs)
    aliases = required_aliases(parsed.spec)
    call, decision = _weigh(parsed.spec, infos, attrs, outs, aliases, on, every=True)
    if not decision.choice:
        return decision
    used: list[Kernel] = []
    core_only = context.current().policy.prefer_decomposed
    target = device.device(decision.choice)
    prepare_call(
        target, parsed.spec, infos, attrs, outs, aliases, decision, str(call), core_only, used
    )
    return replace(decision, kernels=tuple(used))


@typed_call("facts")
def facts(path: str | os.PathLike[str] | None = None, *, calls: Sequence[str] = ()) -> Any:
    """What this process knows about its devices, and what each answered about `calls` and about the
    calls explained before: enough to make the same decisions elsewhere.

    Returns it as plain data (`"schema": 1`); with `path` it is also written there as JSON, whole or
    not at all, for `anyhal explain CALL --facts FILE`. Raises what `explain` raises for a bad call.
    """
    if isinstance(calls, str) or not isinstance(calls, Iterable):
        raise InvalidTypeError(
            f"facts: calls is a {type(calls).__name__}; pass a list of texts, such as"
            ' ["matmul f32[4,8] f32[8,16]"]'
        )
    if path is not None and not isinstance(path, str | os.PathLike):
        raise InvalidTypeError(
            f"facts: path is a {type(path).__name__}; pass the name of the file to write"
        )
    for call in calls:
        explain(call)
    from anyhal.routing import replay

    data = replay.to_data(device.facts(), recording.calls())
    if path is not None:
        recording.write(path, data)
    return data


# -------------------------------------------------------------------------------------- coercion


def coerce(native: Any, positional: tuple[Any, ...], named: dict[str, Any]) -> Any:
    """A call with operands that are not arrays: numbers take the arrays' dtype, host arrays are
    copied to the arrays' device (all of them host values: the scope's device). A call that does
    not fit the signature comes here too, to be refused with a sentence."""
    spec: OpSpec = native.spec
    check_signature(native, positional, named)
    args = {a.name: a for a in spec.inputs}
    variadic = any(a.variadic for a in spec.inputs)
    given = list(positional[0]) if variadic and positional else list(positional)
    operands = given + ([] if variadic else [named[n] for n in args if n in named])
    model = next((a for a in operands if isinstance(a, arrays.Array)), None)
    out = named.get("out")
    places = out if isinstance(out, tuple) else (out,)
    if any(o is not None and not isinstance(o, arrays.Array) for o in places):
        return _into_host(native, positional, named, places)
    on = arrays.device_of(model) if model is not None else device.device()
    at = [spec.inputs[0]] * len(given) if variadic else list(spec.inputs[: len(given)])
    at += [Arg("", "")] * (len(given) - len(at))  # one too many is the call's own error
    pairs = list(zip(at, given, strict=True))
    pairs += [(args[k], v) for k, v in named.items() if k in args and not variadic]
    kind = next(
        (of_value(v._dtype_value) for a, v in pairs if isinstance(v, arrays.Array) and not a.own),
        None,
    )

    if variadic and any(v is None for v in given):
        raise InvalidArgumentError(
            f"{spec.name}: operand {given.index(None)} is None; leave it out of the list"
        )

    def convert(arg: Arg, value: Any) -> Any:
        if value is None or isinstance(value, arrays.Array):
            return value
        takes = dtype(arg.own) if arg.own else kind
        if isinstance(value, bool | int | float) and takes is not None:
            return _scalar(on.name, takes, value, spec.name)
        try:
            return arrays.asarray(_own_values(arg, value), device=on)
        except InvalidArgumentError as why:
            said = str(why).removeprefix("asarray: ")
            raise type(why)(f"{native.__name__}: operand {arg.name}: {said}") from None

    given = [convert(a, v) for a, v in zip(at, given, strict=True)]
    named = {k: convert(args[k], v) if k in args and not variadic else v for k, v in named.items()}
    if variadic and len(given) >= 20:
        # The contract's calls have a bounded number of operands: join in two steps.
        inner = {k: v for k, v in named.items() if k != "out"}
        parts = [native(given[i : i + 16], **inner) for i in range(0, len(given), 16)]
        return arrays.OPS["concat"](parts, **named)
    return native(given, **named) if variadic else native(*given, **named)


def _own_values(arg: Arg, value: Any) -> Any:
    """A list of integers in the integer dtype that the operand has of its own; all else as it is.

    NumPy would make i64 of a list, and float64 where some are beyond it.
    """
    if not arg.own or dtype(arg.own).kind not in ("int", "uint"):
        return value
    if not isinstance(value, list | tuple) or not value or not all(map(_is_int, value)):
        return value
    limits = np.iinfo(cast("Any", dtype(arg.own).numpy))
    for number in value:
        if not limits.min <= number <= limits.max:
            raise InvalidArgumentError(
                f"{number} does not fit {arg.own}; use {limits.min}..{limits.max}"
            )
    return np.array([int(n) for n in value], limits.dtype)


def _into_host(
    native: Any, positional: tuple[Any, ...], named: dict[str, Any], places: tuple[Any, ...]
) -> Any:
    for out in places:
        if out is not None and not isinstance(out, np.ndarray | arrays.Array):
            raise InvalidTypeError(
                f"{native.__name__}: out is a {type(out).__name__}; pass an Array or an ndarray"
            )
    result = native(*positional, **{k: v for k, v in named.items() if k != "out"})
    results = result if isinstance(result, tuple) else (result,)
    if len(results) != len(places):
        raise InvalidArgumentError(
            f"{native.__name__}: out has {len(places)} places and this call gives {len(results)}"
            " arrays; leave out the places that it does not fill"
        )
    filled = tuple(
        r if out is None else _fill(native.__name__, out, r)
        for out, r in zip(places, results, strict=True)
    )
    return filled if isinstance(result, tuple) else filled[0]


def _fill(name: str, out: Any, result: Any) -> Any:
    """The result's values in the caller's memory."""
    if isinstance(out, arrays.Array):
        return arrays.set_values(out, result)
    values = arrays.numpy(result)
    if values.shape != out.shape or values.dtype != out.dtype:
        raise InvalidArgumentError(
            f"{name}: out is {out.dtype}{list(out.shape)}, the result is"
            f" {values.dtype}{list(values.shape)}; pass an out of that shape and dtype"
        )
    np.copyto(out, values)
    return out


@lru_cache(maxsize=512)
def _scalar_cached(on: str, kind: DType, value: Any, _type: str, _sign: bool) -> Any:
    with np.errstate(all="ignore"):  # `_scalar` has judged the value
        made = np.asarray(value).astype(kind.numpy)
    return arrays.asarray(made, device=on, constant=True)


def _in_range(kind: DType, value: float) -> bool:
    """Whether a finite number stays one in that dtype, after rounding."""
    with np.errstate(all="ignore"):
        return bool(np.isfinite(np.asarray(value).astype(kind.numpy)))


def _scalar(on: str, kind: DType, value: Any, op_name: str) -> Any:
    """A number as a 0-d constant of the arrays' dtype; refused where its kind would change."""
    fits = (kind.kind == "bool") == isinstance(value, bool)
    if (
        kind.is_block
        or kind.short in FP8
        or not fits
        or (kind.kind != "float" and isinstance(value, float))
    ):
        raise InvalidArgumentError(
            f"{op_name}: the number {value!r} does not go with {kind.short} operands; cast the"
            " array with astype or the number yourself"
        )
    if kind.kind in ("int", "uint"):
        limits = np.iinfo(kind.numpy)
        if not limits.min <= value <= limits.max:
            raise InvalidArgumentError(
                f"{op_name}: the number {value} does not fit {kind.short}; use a wider dtype"
            )
    elif isinstance(value, int) and abs(value) > _F64_MAX:
        raise InvalidArgumentError(
            f"{op_name}: an integer of {value.bit_length()} bits is beyond every float; use a"
            " smaller number"
        )
    elif kind.kind == "float" and math.isfinite(value) and not _in_range(kind, float(value)):
        raise InvalidArgumentError(
            f"{op_name}: the number {value} does not fit {kind.short}; use a wider dtype, or inf"
        )
    negative_zero = isinstance(value, float) and value == 0 and str(value).startswith("-")
    return _scalar_cached(on, kind, value, type(value).__name__, negative_zero)
