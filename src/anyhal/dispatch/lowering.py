"""From an op of the registry to native plans: fused, with layout copies, or decomposed.
SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import Any

from anyhal import _core
from anyhal.dispatch.selftest import cell_refusal
from anyhal.dtypes import of_value
from anyhal.errors import OutOfMemoryError, UnsupportedError
from anyhal.ops import lookup
from anyhal.ops._record import pack
from anyhal.ops._spec import OpSpec, TensorSpec, describe
from anyhal.ops._trace import Call, Trace, Value
from anyhal.records import mutable_record, record, replace
from anyhal.routing.facts import (
    DETERMINISM,
    NUMERICS,
    Contract,
    Decision,
    Form,
    Kernel,
    Verdict,
    Want,
)
from anyhal.runtime import array as arrays
from anyhal.runtime import context
from anyhal.runtime.device import Device

_CONSTANT, _ABSENT = 1, 4  # anyhal_tensor_desc flags
_SUPPORT = ("no", "yes", "prepare_knows")
_LAYOUTS = ("any", "dense", "dense_inner")
_TEMP_ALIGNMENT = 64
_MAX_PLANS = 4096
# Below this a released GIL costs more than it gives (docs/adr/0013).
_RELEASE_GIL_ABOVE_NS = 20_000
# For estimates only, where a backend gives none: one core's flops and bytes per ns.
_FLOPS_PER_NS, _BYTES_PER_NS = 20.0, 10.0


@record
class OperandInfo:
    """An operand as prepare sees it: all that is known before the bytes are."""

    spec: TensorSpec
    constant: bool = False
    alignment: int = _TEMP_ALIGNMENT
    block_bytes: int = 0  # cells
    base_offset: int = 0


OutInfos = tuple[OperandInfo | None, ...]  # None: an output that the call does not have
Aliases = tuple[int | None, ...]  # for each output the input that it exactly is


@record
class _Native:
    """One op in the contract's form, ready for query and prepare."""

    spec: OpSpec
    operands: tuple[Any, ...]
    input_count: int
    attributes: bytes
    cost_ns: float
    signature: str
    contract: Contract
    called: str  # as messages name it

    def query(self, device: Device) -> Verdict:
        """The backend's answer; a cell that gave wrong answers is a no whatever it claims. Who does
        not offer the allowed accumulation is asked again for the finer ones down to strict, which
        are always enough."""
        allowed = list(NUMERICS)[: NUMERICS[self.contract.numerics] + 1]
        for numerics in reversed(allowed):
            verdict = self._ask(device, numerics)
            if verdict.accepts or verdict.reason != "numerics":
                break
        if not verdict.accepts:
            return verdict
        main = next(o[0] for o in self.operands if not o[4] & _ABSENT)
        words = self.words(verdict.numerics)
        wrong = cell_refusal(device, self.spec, of_value(main), words, self.called)
        return Verdict("no", "policy", text=wrong) if wrong else verdict

    def _ask(self, device: Device, numerics: str) -> Verdict:
        record = _core.query(
            device.native,
            self.spec.id,
            self.input_count,
            list(self.operands),
            self.attributes,
            self.words(numerics),
            self.called,
        )
        return replace(_verdict(record), numerics=numerics)

    def words(self, numerics: str) -> list[int]:
        """The contract's `numerics`."""
        return [NUMERICS[numerics], 0, 0, DETERMINISM[self.contract.determinism]]


def _operand(info: OperandInfo | None, view: TensorSpec | None, alias_of: int = 0) -> Any:
    if info is None or view is None:
        return (0, [], [], 1, _ABSENT, 0, 0, 0, 0)
    return (
        view.dtype.value,
        list(view.shape),
        list(view.strides),
        info.alignment,
        _CONSTANT if info.constant else 0,
        alias_of,
        info.block_bytes,
        info.base_offset,
        0,
    )


def _native(
    spec: OpSpec,
    infos: Sequence[OperandInfo | None],
    attrs: Mapping[str, Any],
    outs: OutInfos,
    aliases: Aliases,
) -> _Native:
    specs = [None if i is None else i.spec for i in infos]
    results = tuple(None if o is None else o.spec for o in outs)
    views, lowered, targets = spec.lower_outs(specs, attrs, results)
    flops, moved = spec.cost_outs(specs, attrs, results)
    operands = [_operand(i, v) for i, v in zip(infos, views, strict=True)]
    operands += [
        _operand(o, v, 0 if a is None else a + 1)
        for o, v, a in zip(outs, targets, aliases, strict=True)
    ]
    shown = " ".join(describe(s) for s in specs)
    made = ", ".join(describe(s) for s in results if s is not None)
    return _Native(
        spec,
        tuple(operands),
        len(infos),
        pack(spec, lowered),
        flops / _FLOPS_PER_NS + moved / _BYTES_PER_NS,
        f"{spec.name} {shown} -> {made}",
        context.current().contract,
        spec.called(attrs),
    )


def _verdict(record: Mapping[str, Any]) -> Verdict:
    wants = tuple(
        Want(i, _LAYOUTS[layout], alignment)
        for i, (layout, alignment) in enumerate(record["wants"])
        if layout or alignment
    )
    return Verdict(
        support=_SUPPORT[record["support"]],  # type: ignore[arg-type]
        reason="" if record["support"] else record["reason"],
        operand=record["operand"],
        cost_ns=record["cost_ns"],
        wants=wants,
        text=record["text"],
    )


# ---------------------------------------------------------------------------------- decomposition


@mutable_record
class _Leaf:
    """A call that a backend takes as it is."""

    call: Call
    native: _Native
    verdict: Verdict


class _Expansion:
    """A decomposition down to calls that the device takes."""

    def __init__(
        self, device: Device, infos: Sequence[OperandInfo | None], core_only: bool
    ) -> None:
        self.device, self.infos, self.core_only = device, infos, core_only
        self.trace = Trace(lookup)
        self.leaves: list[_Leaf] = []

    def info(self, value: Value | None) -> OperandInfo | None:
        if value is None:
            return None
        if value.kind != "operand":
            alignment = _lowest_bit(value.offset, _TEMP_ALIGNMENT)
            made = OperandInfo(value.spec, value.kind == "constant", alignment)
            if not self.device.native.cells:
                return made
            blocks = self.trace.temps if value.kind == "temp" else self.trace.constants
            return replace(
                made,
                block_bytes=max(1, blocks[value.index].nbytes),
                base_offset=value.offset,
            )
        base = self.infos[value.index]
        assert base is not None
        return replace(
            base,
            spec=value.spec,
            alignment=_lowest_bit(value.offset, base.alignment),
            base_offset=base.base_offset + value.offset,
        )

    def expand(self, calls: Sequence[Call]) -> None:
        for call in calls:
            spec = lookup(call.op)
            infos = [self.info(v) for v in call.inputs]
            outs = tuple(self.info(v) for v in call.outs)
            native = _native(spec, infos, call.attrs, outs, _aliases(call))
            if spec.decompose is not None and self.core_only:
                self._inner(spec, call)
                continue
            verdict = native.query(self.device)
            if verdict.accepts or spec.decompose is None:
                self.leaves.append(_Leaf(call, native, verdict))
            else:
                self._inner(spec, call)

    def _inner(self, spec: OpSpec, call: Call) -> None:
        assert spec.decompose is not None
        inner = Trace(lookup, temps=self.trace.temps, constants=self.trace.constants)
        _trace(inner, spec, call.inputs, call.attrs, call.outs)
        self.expand(inner.calls)


def _trace(
    trace: Trace,
    spec: OpSpec,
    inputs: Sequence[Value | None],
    attrs: Mapping[str, Any],
    outs: tuple[Value | None, ...],
) -> None:
    """Writes the decomposition; what takes host memory in it is its constants."""
    try:
        spec.decompose_outs(trace, inputs, dict(attrs), outs)
    except MemoryError as why:
        shown = " ".join(describe(None if v is None else v.spec) for v in inputs)
        raise OutOfMemoryError(
            f"{spec.name} {shown}: the constants of its decomposition do not fit the host's memory"
            f" ({str(why) or 'no more'}); use smaller sizes"
        ) from None


def _targets(input_count: int, outs: OutInfos, aliases: Aliases) -> tuple[Value | None, ...]:
    """An output that is exactly an input is that input, so that in-place calls show as such."""
    return tuple(
        None if o is None else Value("operand", input_count + n if a is None else a, o.spec)
        for n, (o, a) in enumerate(zip(outs, aliases, strict=True))
    )


def _aliases(call: Call) -> Aliases:
    return tuple(
        None if out is None else next((i for i, v in enumerate(call.inputs) if v == out), None)
        for out in call.outs
    )


def _lowest_bit(offset: int, limit: int) -> int:
    return min(offset & -offset, limit) if offset else limit


def _decomposed(
    device: Device,
    spec: OpSpec,
    infos: Sequence[OperandInfo | None],
    attrs: Mapping[str, Any],
    outs: OutInfos,
    aliases: Aliases,
    core_only: bool,
) -> _Expansion | None:
    if spec.decompose is None:
        return None
    expansion = _Expansion(device, [*infos, *outs], core_only)
    inputs = [None if i is None else Value("operand", n, i.spec) for n, i in enumerate(infos)]
    targets = _targets(len(infos), outs, aliases)
    _trace(expansion.trace, spec, inputs, attrs, targets)
    calls, expansion.trace.calls = expansion.trace.calls, []
    expansion.expand(calls)
    return expansion


def _in_own_cells(device: Device, operands: Sequence[OperandInfo | None]) -> OutInfos:
    """What has no block yet will fill its own, as an output that the core allocates or an operand
    that is copied here; cells are told how large that is."""
    if not device.native.cells:
        return tuple(operands)
    return tuple(
        o if o is None or o.block_bytes else replace(o, block_bytes=max(1, o.spec.nbytes))
        for o in operands
    )


def required_aliases(spec: OpSpec) -> Aliases:
    """What is known of the outputs before there are any: state is written where it is."""
    return tuple(n if spec.aliasing == "required" else None for n in range(len(spec.outputs)))


def query_call(
    device: Device | None,
    spec: OpSpec,
    infos: Sequence[OperandInfo | None],
    attrs: Mapping[str, Any],
    outs: OutInfos,
    aliases: Aliases,
    form: Form,
    core_only: bool,
) -> tuple[tuple[str, Verdict], ...]:
    """What each op of that form answers; empty when there is no such form.

    `aliases`: the input that each output is. A backend may take a call and refuse it in place, so
    it is asked for exactly the call that `prepare_call` prepares.
    """
    if device is None:
        return ()
    infos, outs = _in_own_cells(device, infos), _in_own_cells(device, outs)
    if form == "fused":
        return ((spec.name, _native(spec, infos, attrs, outs, aliases).query(device)),)
    expansion = _decomposed(device, spec, infos, attrs, outs, aliases, core_only)
    if expansion is None:
        return ()
    if not expansion.leaves:  # an empty output: nothing is left to run
        return ((spec.name, Verdict("yes")),)
    return tuple((leaf.native.spec.name, leaf.verdict) for leaf in expansion.leaves)


# ------------------------------------------------------------------------------------------ plans

_plans: OrderedDict[Any, Any] = OrderedDict()


def _plan(device: Device, native: _Native, decomposed: bool, numerics: str) -> Any:
    """The native plan of one op; equal descriptions share one."""
    words = native.words(numerics)
    key = (
        device.name,
        native.spec.id,
        tuple((o[0], tuple(o[1]), tuple(o[2]), *o[3:]) for o in native.operands),
        native.attributes,
        tuple(words),
        decomposed,
    )
    found = _plans.get(key)
    if found is None:
        found = _core.prepare(
            device.native,
            native.spec.id,
            native.input_count,
            list(native.operands),
            native.attributes,
            words,
            native.called,
        )
        release = native.cost_ns > _RELEASE_GIL_ABOVE_NS
        found.describe(
            native.spec.name,
            native.called,
            device.fact.state,
            native.signature,
            decomposed,
            native.cost_ns,
            release,
            numerics,
        )
        _plans[key] = found
        if len(_plans) > _MAX_PLANS:
            _plans.popitem(last=False)
    else:
        _plans.move_to_end(key)
    return found


def prepare_call(
    device: Device,
    spec: OpSpec,
    infos: Sequence[OperandInfo | None],
    attrs: Mapping[str, Any],
    outs: OutInfos,
    aliases: Aliases,
    decision: Decision,
    signature: str,
    core_only: bool,
    used: list[Kernel] | None = None,
) -> Any:
    """The plan of the decision. `used` is told what it is made of."""
    used = [] if used is None else used
    infos, outs = _in_own_cells(device, infos), _in_own_cells(device, outs)
    if decision.form == "fused":
        native = _native(spec, infos, attrs, outs, aliases)
        verdict = _answer(decision)
        if all(w.layout == "any" for w in verdict.wants):
            plan = _plan(device, native, False, verdict.numerics)
            used.append(_kernel(plan))
        else:
            call = Call(
                spec.name,
                tuple(
                    None if i is None else Value("operand", n, i.spec) for n, i in enumerate(infos)
                ),
                dict(attrs),
                _targets(len(infos), outs, aliases),
            )
            expansion = _Expansion(device, [*infos, *outs], core_only)
            expansion.leaves = [_Leaf(call, native, verdict)]
            plan = _composite(device, expansion, len(infos), len(outs), False, used)
    else:
        made = _decomposed(device, spec, infos, attrs, outs, aliases, core_only)
        assert made is not None
        plan = _composite(device, made, len(infos), len(outs), True, used)
    if plan.record["composite"]:
        called = spec.called(attrs)
        plan.describe(spec.name, called, device.fact.state, signature, False, 0.0, True, "")
    plan.set_outputs(
        [None if o is None else (o.spec.dtype.value, list(o.spec.shape)) for o in outs]
    )
    return plan


def _answer(decision: Decision) -> Verdict:
    """What the chosen device said about the fused form."""
    return next(
        c.verdicts[0][1]
        for c in decision.considered
        if (c.device.name, c.form) == (decision.choice, "fused")
    )


def _kernel(plan: Any) -> Kernel:
    record = plan.record
    return Kernel(record["op"], record["kernel"], record["library"], record["numerics"])


def _composite(
    device: Device,
    expansion: _Expansion,
    input_count: int,
    output_count: int,
    decomposed: bool,
    used: list[Kernel],
) -> Any:
    nodes: list[tuple[Any, list[tuple[int, int, int]], list[Value | None]]] = []
    for leaf in expansion.leaves:
        _add_leaf(device, expansion, leaf, decomposed, nodes)
    used += [_kernel(plan) for plan, _, _ in nodes]
    temps = expansion.trace.temps
    offsets, total = _lay_out(temps, [values for _, _, values in nodes])
    constants = [arrays.asarray(c, device=device, constant=True) for c in expansion.trace.constants]
    return _core.composite(
        device.native,
        input_count + output_count,
        input_count,
        [(plan, refs) for plan, refs, _ in nodes],
        offsets,
        [max(1, t.nbytes) for t in temps],
        total,
        constants,
    )


_REF = {"operand": 1, "temp": 2, "constant": 3}


def _ref(value: Value | None) -> tuple[int, int, int]:
    return (0, 0, 0) if value is None else (_REF[value.kind], value.index, value.offset)


def _add_leaf(
    device: Device,
    expansion: _Expansion,
    leaf: _Leaf,
    decomposed: bool,
    nodes: list[tuple[Any, list[tuple[int, int, int]], list[Value | None]]],
) -> None:
    """One call, with dense copies before it (and after it) where its backend wants them."""
    call, native = leaf.call, leaf.native
    values: list[Value | None] = [*call.inputs, *call.outs]
    wanted = {w.operand for w in leaf.verdict.wants if w.layout != "any"}
    wanted = {i for i in wanted if (v := values[i]) is not None and not v.spec.is_dense}
    count = len(call.inputs)
    dense: dict[Value, Value] = {}  # state that is read and written has one copy
    back: list[tuple[Value, Value]] = []
    for i in sorted(wanted):
        value = values[i]
        assert value is not None
        if value not in dense:
            dense[value] = expansion.trace.temp(value.shape, value.dtype)
            if i < count:
                _add_copy(device, expansion, value, dense[value], decomposed, nodes)
        if i >= count:
            back.append((dense[value], value))
        values[i] = dense[value]
    verdict = leaf.verdict
    if wanted:
        call = Call(call.op, tuple(values[:count]), call.attrs, tuple(values[count:]))
        infos = [expansion.info(v) for v in values]
        native = _native(
            native.spec, infos[:count], call.attrs, tuple(infos[count:]), _aliases(call)
        )
        verdict = native.query(device)
        if not verdict.accepts:
            raise UnsupportedError(
                f"{native.signature} on {device.name}: it is refused even with dense operands"
                f" ({verdict.reason}); report this to the backend's vendor",
                reason=verdict.reason,
            )
    plan = _plan(device, native, decomposed, verdict.numerics)
    nodes.append((plan, [_ref(v) for v in values], values))
    for made, place in back:
        _add_copy(device, expansion, made, place, decomposed, nodes)


def _add_copy(
    device: Device,
    expansion: _Expansion,
    source: Value,
    target: Value,
    decomposed: bool,
    nodes: list[tuple[Any, list[tuple[int, int, int]], list[Value | None]]],
) -> None:
    out = expansion.info(target)
    assert out is not None
    native = _native(lookup("copy"), [expansion.info(source)], {}, (out,), (None,))
    plan = _plan(device, native, decomposed, "strict")
    nodes.append((plan, [_ref(source), _ref(target)], [source, target]))


def _lay_out(
    temps: Sequence[TensorSpec], uses: Sequence[Sequence[Value | None]]
) -> tuple[list[int], int]:
    """Offsets of the temporaries in one workspace: first fit by lifetime."""
    first: dict[int, int] = {}
    last: dict[int, int] = {}
    for step, values in enumerate(uses):
        for v in values:
            if v is not None and v.kind == "temp":
                first.setdefault(v.index, step)
                last[v.index] = step
    offsets = [0] * len(temps)
    placed: list[tuple[int, int, int]] = []  # (offset, end, index)
    total = 0
    for index in sorted(first, key=lambda i: first[i]):
        size = -(-max(1, temps[index].nbytes) // 256) * 256
        at = 0
        for begin, end, other in sorted(placed):
            if last[other] < first[index]:
                continue
            if begin - at >= size:
                break
            at = max(at, end)
        offsets[index] = at
        placed.append((at, at + size, index))
        total = max(total, at + size)
    return offsets, total
