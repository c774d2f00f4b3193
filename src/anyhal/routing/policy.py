"""Policy: which device is taken, which route a call runs. Pure functions over facts.
SPDX-License-Identifier: Apache-2.0

Fallback has one trigger: a candidate answered *unsupported*. A run that fails is an error and never
comes here. Preference is the data of `Policy`; a user can print it and replace it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from anyhal.errors import (
    BackendLoadError,
    InvalidArgumentError,
    InvalidTypeError,
    NotFoundError,
    UnsupportedError,
)
from anyhal.printable import get_close_matches
from anyhal.records import record, replace
from anyhal.routing.facts import (
    FALLBACKS,
    STATES,
    CallFact,
    Candidate,
    Contract,
    Copy,
    Decision,
    DeviceFact,
    Facts,
    Form,
    Refusal,
    RefusedBackend,
)


@record
class Policy:
    """The preferences, as data."""

    states: tuple[str, ...] = STATES  # best first
    never: tuple[str, ...] = ("quarantined",)
    only_if_named: tuple[str, ...] = ("uncertified",)
    integrated_rank: int = 55  # what an integrated device counts as at most: above processors
    prefer_decomposed: bool = False  # for tests: take the decomposition though a fused form exists
    copy_bytes_per_ns: float = 5.0  # a judgement until copies between the two devices are measured


DEFAULT = Policy()


# ------------------------------------------------------------------------------------- names


@record
class DeviceName:
    """chip:index as a person writes it; without an index, any device of the chip."""

    chip: str
    index: int | None

    def matches(self, device: DeviceFact) -> bool:
        return device.backend == self.chip and (
            self.index is None or device.name == f"{self.chip}:{self.index}"
        )


def _parts(text: str) -> tuple[str, int | None] | None:
    """Chip and index of `chip:index` or `chip`: a lower-case word, and a number without zeros in
    front, of at most six digits. None for any other text."""
    chip, colon, index = text.partition(":")
    if not (chip.isascii() and chip.isidentifier() and chip == chip.lower() and chip[0] != "_"):
        return None
    if not colon:
        return chip, None
    if not (index.isascii() and index.isdigit() and len(index) <= 6):
        return None
    return (chip, int(index)) if index == "0" or index[0] != "0" else None


def parse_device(text: str) -> DeviceName:
    """The one place that reads `chip:index` or `chip`; exactly as written, nothing is trimmed."""
    if not isinstance(text, str):
        raise _no_name(text)
    parts = _parts(text)
    if parts is None:
        plain = _plain_name(text)
        hint = f"did you mean {plain}?" if plain else "write a name that `anyhal devices` prints"
        raise InvalidArgumentError(
            f"cannot read {text!r} as a device: it is neither chip nor chip:index in lower case;"
            f" {hint}"
        )
    return DeviceName(*parts)


def _no_name(given: object) -> InvalidTypeError:
    return InvalidTypeError(
        f"naming a device: {given!r} is of type {type(given).__name__}; write a text, a name that"
        " `anyhal devices` prints"
    )


def _plain_name(text: str) -> str:
    """What was probably meant: without space, capitals, other digits, zeros in front; or ""."""
    digits = (str(int(c)) if c.isdecimal() else c for c in text.strip().lower()[:64])
    plain = re.sub(r":0+(?=[0-9])", ":", "".join(digits))
    return plain if _parts(plain) else ""


def _named(text: str, device: DeviceFact) -> bool:
    """Whether `text` names the device, by identity or by name."""
    if device.is_called(text):
        return True
    return _parts(text) is not None and parse_device(text).matches(device)


def limit_visible(facts: Facts, names: Sequence[str] | None, variable: str) -> Facts:
    """The facts, with what `names` leaves out marked as unusable; None hides nothing.

    A name that no device has is a note. NotFoundError when devices are here and none of them is
    named: then the list is wrong, not the machine.
    """
    if names is None:
        return facts
    left_out = unseen(facts, names)
    why_not = f"{variable} leaves it out"
    unknown = [n for n in names if not any(_named(n, d) for d in facts.devices)]
    notes = tuple(_not_here(n, facts, variable) for n in unknown)
    if facts.devices and len(unknown) == len(names):
        why = "; ".join(notes) or f"{variable} names nothing"
        raise NotFoundError(
            f"no device is left visible: {why}; write names that `anyhal devices` prints without"
            f" it, or unset {variable}"
        )
    return replace(
        facts,
        notes=facts.notes + notes,
        devices=tuple(
            replace(d, why_not=d.why_not or why_not) if d.name in left_out else d
            for d in facts.devices
        ),
    )


def unseen(facts: Facts, names: Sequence[str]) -> tuple[str, ...]:
    """The devices that `names` leave out."""
    return tuple(d.name for d in facts.devices if not any(_named(n, d) for n in names))


def _not_here(name: str, facts: Facts, variable: str) -> str:
    refused = _refused(name, facts)
    if refused is not None:
        return f"{variable} names {name!r}, whose backend was refused at stage {refused.stage}"
    known = sorted(
        {n for d in facts.devices for n in (d.name, d.backend, d.identity, d.address) if n}
    )
    near = get_close_matches(name, known, n=1)
    hint = f"did you mean {near[0]}?" if near else f"here: {', '.join(known) or 'no device'}"
    return f"{variable} names {name!r}, which no device here has as its name; {hint}"


# ----------------------------------------------------------------------------------- ranking


@record
class Ranked:
    """A device's place in the automatic order; `eligible`: may be chosen without being named."""

    device: DeviceFact
    eligible: bool
    reason: str


def _index(device: DeviceFact) -> int:
    tail = device.name.rpartition(":")[2]
    return int(tail) if tail.isdigit() else 0


def rank_of(device: DeviceFact, policy: Policy = DEFAULT) -> int:
    """Its backend's rank; an integrated device never ranks as a card does."""
    return min(device.rank, policy.integrated_rank) if device.integrated else device.rank


def _preference(device: DeviceFact, policy: Policy) -> tuple[int, ...]:
    """Sort key, best first. Never enumeration order: index only separates equals."""
    return (
        int(device.display_only),
        -rank_of(device, policy),
        int(device.integrated),
        policy.states.index(device.state) if device.state in policy.states else len(policy.states),
        -device.memory_bytes,
        _index(device),
    )


_STEPS = (
    "it only drives a display",
    "its backend's rank is lower",
    "it is integrated, not discrete",
    "its state is weaker",
    "it has less memory",
    "its index is higher",
)


def not_eligible(device: DeviceFact, contract: Contract, policy: Policy = DEFAULT) -> str:
    """Why the device may not be chosen without being named; "" when it may."""
    if device.why_not:
        return device.why_not
    if device.state in policy.never:
        return f"it is {device.state}: it failed a check on this machine"
    if device.display_only:
        return "it only drives a display; name it"
    if device.simulated:
        return "it is simulated; name it"
    if device.state in policy.only_if_named and not contract.allows_uncertified(device):
        return f"it is {_stated(device)}; name it, or add it to allow_uncertified"
    return ""


def _stated(device: DeviceFact) -> str:
    """The state, and what stands behind it: "uncertified: its certificate ... (expired)"."""
    if not device.state_why or device.state_code in ("", device.state):
        return device.state
    return f"{device.state}: {device.state_why} ({device.state_code})"


def rank_devices(
    facts: Facts, contract: Contract | None = None, policy: Policy = DEFAULT
) -> list[Ranked]:
    """All devices, best first, each with the sentence that explains its place."""
    contract = contract or Contract()
    why_not = {d.name: not_eligible(d, contract, policy) for d in facts.devices}
    by_route = sorted(
        facts.devices, key=lambda d: (bool(why_not[d.name]), _preference(d, policy), d.name)
    )
    cards = physical(facts)
    first: dict[tuple[bool, str], int] = {}  # routes to one card stand together
    for place, d in enumerate(by_route):
        first.setdefault((bool(why_not[d.name]), cards[d.name]), place)
    ordered = sorted(by_route, key=lambda d: first[bool(why_not[d.name]), cards[d.name]])
    best = ordered[0] if ordered and not why_not[ordered[0].name] else None
    ranked = []
    for device in ordered:
        if why_not[device.name]:
            ranked.append(Ranked(device, False, f"not chosen: {why_not[device.name]}"))
        elif device is best:
            ranked.append(Ranked(device, True, _best_reason(device, ordered, why_not)))
        else:
            assert best is not None
            why = _behind(device, best, policy)
            if cards[device.name] == cards[best.name]:
                why = f"the same card as {best.name}; {why}"
            ranked.append(Ranked(device, True, f"not chosen: {why}"))
    return ranked


def physical(facts: Facts) -> dict[str, str]:
    """By device name: which physical thing it is. Devices that share a UUID or a bus address are
    routes to one, named by its UUID (else its address); a device without either is its own."""
    groups: list[set[str]] = []  # of identities that belong to one thing
    for d in facts.devices:
        own = {i for i in (d.identity, d.address) if i}
        joined = [g for g in groups if g & own]
        groups = [g for g in groups if not g & own]
        if own:
            groups.append(own.union(*joined))
    names = {i: min(g, key=lambda i: (":" in i, i)) for g in groups for i in g}
    return {d.name: names.get(d.identity or d.address, d.name) for d in facts.devices}


def routes_to(name: str, facts: Facts) -> tuple[str, ...]:
    """The names of all devices that are the same physical thing as that one, best first."""
    cards = physical(facts)
    return tuple(
        r.device.name for r in rank_devices(facts) if cards[r.device.name] == cards.get(name)
    )


def _behind(device: DeviceFact, best: DeviceFact, policy: Policy) -> str:
    """The first rule by which `device` stands behind `best`."""
    pairs = zip(_STEPS, _preference(device, policy), _preference(best, policy), strict=True)
    for step, mine, theirs in pairs:
        if mine != theirs:
            if step == _STEPS[1] and device.integrated and not best.integrated:
                return f"{_STEPS[2]} ({best.name} comes first)"
            if step == _STEPS[1]:
                return f"{step} ({device.rank} against {best.rank} of {best.name})"
            return f"{step} ({best.name} comes first)"
    return f"{best.name} comes first by name"


def _best_reason(device: DeviceFact, ordered: Sequence[DeviceFact], why_not: dict[str, str]) -> str:
    others = sum(1 for d in ordered if not why_not[d.name]) - 1
    if others == 0:
        return "chosen: the only device that may be chosen"
    return f"chosen: first of {others + 1} by rank {device.rank}, class, state and memory"


# --------------------------------------------------------------------------------- selection


@record
class Selection:
    """The device that a list of names gave, and what was passed over on the way to it."""

    device: DeviceFact
    passed_over: tuple[str, ...]  # one sentence per name that gave nothing
    sentence: str


def select(spec: str, facts: Facts, policy: Policy = DEFAULT) -> Selection:
    """The first usable device of a strict list "a|b:0": only what is named may run.

    Naming a device allows an uncertified one; nothing allows a quarantined one. Raises
    BackendLoadError when a named backend is here but could not be loaded, else NotFoundError.
    """
    if not isinstance(spec, str):
        raise _no_name(spec)
    parts = re.split(r" *\| *", spec)
    if not all(parts):
        raise InvalidArgumentError(
            f"cannot select a device from {spec!r}: a name is missing; write chip or chip:index,"
            ' several separated by "|", such as "a:0|b"'
        )
    passed: list[str] = []
    for part in parts:
        found, why = _first_usable(part, facts, policy)
        if found is not None:
            sentence = f"{found.name} ({found.shown_state}) was selected by {spec!r}"
            if passed:
                sentence += "; passed over: " + "; ".join(passed)
            return Selection(found, tuple(passed), sentence)
        passed.append(why)
    refused = next((r for part in parts if (r := _refused(part, facts)) is not None), None)
    if refused is not None:
        raise BackendLoadError(
            f"cannot select a device from {spec!r}: " + "; ".join(passed),
            stage=refused.stage,
            path=refused.path,
            reason=refused.reason,
            hint=refused.hint,
        )
    raise NotFoundError(
        f"cannot select a device from {spec!r}: {'; '.join(passed)}; searched"
        f" {', '.join(facts.searched) or 'nowhere'}; `anyhal devices` lists what is here"
    )


def _refused(part: str, facts: Facts) -> RefusedBackend | None:
    chip = part.partition(":")[0]
    return next((r for r in facts.refused if r.name == chip), None)


def _first_usable(part: str, facts: Facts, policy: Policy) -> tuple[DeviceFact | None, str]:
    """The best device that `part` names, or None and the sentence that says why there is none."""
    named = sorted(
        (d for d in facts.devices if _named(part, d)), key=lambda d: _preference(d, policy)
    )
    blocked = ""
    for device in named:
        if not device.why_not and device.state not in policy.never:
            return device, ""
        why = device.why_not or f"it is {device.state}: it failed a check on this machine"
        blocked = blocked or f"{device.name} cannot be used: {why}"
    if blocked:
        return None, blocked
    if not any(d.is_called(part) for d in facts.devices):
        parse_device(part)  # a name that cannot be one is said to be so
    refused = _refused(part, facts)
    if refused is not None:
        return None, refused.sentence
    known = sorted({n for d in facts.devices for n in (d.name, d.backend)})
    near = get_close_matches(part, known, n=1)
    hint = f", did you mean {near[0]}?" if near else ""
    here = ", ".join(d.name for d in facts.devices) or "no device at all"
    return None, f"no device is named {part}{hint} (here: {here})"


# ---------------------------------------------------------------------------------- decision


@record
class Step:
    """Candidates to ask for, in order. Later stages matter only when all earlier ones refuse."""

    stage: int
    device: DeviceFact
    form: Form


def home(call: CallFact, contract: Contract) -> str:
    """The device of the operands; the scope's when no operand has one. Mixed operands are an error
    that names both, unless copies between devices are allowed."""
    devices = list(dict.fromkeys(o.device for o in call.operands if o.device))
    if len(devices) > 1 and contract.fallback != "any":
        raise InvalidArgumentError(
            f"{call}: the operands are on different devices, {' and '.join(devices)}; copy them to"
            " one device, or allow copies with fallback='any'"
        )
    if not devices:
        return call.device
    if len(devices) == 1 or call.device in devices:
        return call.device if call.device in devices else devices[0]
    moved = {d: sum(o.nbytes for o in call.operands if o.device == d) for d in devices}
    return max(devices, key=lambda d: moved[d])  # where most bytes already are


def steps(
    call: CallFact, facts: Facts, contract: Contract, policy: Policy = DEFAULT
) -> Iterator[Step]:
    """Which candidates to ask for, stage by stage, under the caller's contract."""
    if contract.fallback not in FALLBACKS:
        near = get_close_matches(str(contract.fallback), FALLBACKS, n=1)
        hint = f"did you mean {near[0]!r}?" if near else "use " + ", ".join(FALLBACKS)
        raise InvalidArgumentError(f"fallback {contract.fallback!r} is no policy; {hint}")
    own_name = home(call, contract)
    own = facts.device(own_name)
    if own is None:
        raise NotFoundError(
            f"{call}: no device is named {own_name!r}, there are"
            f" {', '.join(d.name for d in facts.devices) or 'none'}; name one of them"
        )
    forms: list[Form] = ["fused"] if contract.fallback == "never" else ["fused", "decomposed"]
    if policy.prefer_decomposed and len(forms) == 2:
        forms.reverse()
    for stage, form in enumerate(forms):
        yield Step(stage, own, form)
    if contract.fallback == "any":
        for ranked in rank_devices(facts, contract, policy):
            if ranked.eligible and ranked.device is not own:
                yield Step(len(forms), ranked.device, "fused")
                yield Step(len(forms) + 1, ranked.device, "decomposed")


def every_step(
    call: CallFact, facts: Facts, contract: Contract, policy: Policy = DEFAULT
) -> Iterator[Step]:
    """`steps`, then all other candidates: what an explanation shows."""
    seen = set()
    for step in steps(call, facts, contract, policy):
        seen.add((step.device.name, step.form))
        yield step
    forms: tuple[Form, ...] = ("fused", "decomposed")
    for ranked in rank_devices(facts, contract, policy):
        for form in forms:
            if (ranked.device.name, form) not in seen:
                yield Step(len(seen), ranked.device, form)


def decide(
    call: CallFact,
    candidates: Sequence[Candidate],
    contract: Contract,
    policy: Policy = DEFAULT,
) -> Decision:
    """`weigh`, but UnsupportedError with all refusals when nothing may run the call."""
    decision = weigh(call, candidates, contract, policy)
    if not decision.choice:
        reasons = [r.reason for r in decision.refusals]
        raise UnsupportedError(
            decision.sentence,
            reason=reasons[0] if reasons else "policy",
            refusals=decision.refusals,
        )
    return decision


def weigh(
    call: CallFact,
    candidates: Sequence[Candidate],
    contract: Contract,
    policy: Policy = DEFAULT,
) -> Decision:
    """The decision among the candidates that were asked, with what each of the others answered."""
    own = home(call, contract)
    refusals: list[Refusal] = []
    accepted: list[Candidate] = []
    for candidate in candidates:
        refusal = _refusal(candidate, own, contract, policy)
        if refusal is None:
            accepted.append(candidate)
        else:
            refusals.append(refusal)
    if not accepted:
        return _nothing(call, own, tuple(refusals), tuple(candidates), contract)
    timed = all(c.cost_ns for c in accepted)  # static rank until every route has a figure
    accepted.sort(key=lambda c: _route_order(c, call, own, timed, policy))
    best = accepted[0]
    refusals += [_not_needed(c, best) for c in accepted[1:]]
    copies = _copies(call, best)
    return Decision(
        call=str(call),
        choice=best.device.name,
        form=best.form,
        state=best.device.state,
        sentence=_sentence(call, best, own, refusals, copies),
        copies=copies,
        refusals=tuple(refusals),
        considered=tuple(candidates),
        cost_ns=best.cost_ns,
        work=call.work,
    )


def _refusal(candidate: Candidate, own: str, contract: Contract, policy: Policy) -> Refusal | None:
    """Why the candidate may not run, or None."""
    device, form = candidate.device, candidate.form

    def refuse(reason: str, sentence: str) -> Refusal:
        return Refusal(device.name, form, reason, sentence)

    if device.why_not:
        return refuse("policy", device.why_not)
    if device.state in policy.never:
        return refuse("policy", f"{device.name} is {device.state}")
    if form == "decomposed" and contract.fallback == "never":
        return refuse("policy", "fallback='never' allows the fused form only")
    if not candidate.verdicts:
        what = (
            "the op is a core op, it has no decomposition" if form == "decomposed" else "not asked"
        )
        return refuse("op", what)
    for op, verdict in candidate.verdicts:
        if not verdict.accepts:
            part = "" if form == "fused" else f"its part {op}: "
            where = f" (operand {verdict.operand})" if verdict.operand >= 0 else ""
            said = f": {verdict.text}" if verdict.text else ""
            return refuse(
                verdict.reason or "op",
                f"{part}{device.backend} answered unsupported, reason {verdict.reason or 'op'}"
                f"{where}{said}",
            )
    if device.name != own:
        why = not_eligible(device, contract, policy)
        if why.startswith(f"it is {device.state}") and device.state_code:
            return refuse(device.state_code, why)
        if contract.fallback != "any":
            return refuse("policy", f"fallback={contract.fallback!r} keeps the call on {own}")
        if why:
            return refuse("policy", why)
    return None


def _route_order(
    candidate: Candidate, call: CallFact, own: str, timed: bool, policy: Policy
) -> tuple[int, int, float, tuple[int, ...]]:
    """Own device first, fused before decomposed, then time with copies, then static rank."""
    elsewhere = int(candidate.device.name != own)
    second_form: Form = "fused" if policy.prefer_decomposed and not elsewhere else "decomposed"
    moved = sum(c.nbytes for c in _copies(call, candidate))
    time = candidate.cost_ns + moved / policy.copy_bytes_per_ns if timed else 0.0
    return (
        elsewhere,
        int(candidate.form == second_form),
        time,
        _preference(candidate.device, policy),
    )


def _copies(call: CallFact, candidate: Candidate) -> tuple[Copy, ...]:
    target = candidate.device.name
    copies = [
        Copy(i, o.device, target, o.nbytes, "device")
        for i, o in enumerate(call.operands)
        if o.device and o.device != target
    ]
    if candidate.form == "fused":
        for _, verdict in candidate.verdicts:
            copies += [
                Copy(w.operand, target, target, call.operands[w.operand].nbytes, "layout")
                for w in verdict.wants
                if w.layout != "any" and w.operand < len(call.operands)
            ]
    return tuple(copies)


def _not_needed(candidate: Candidate, best: Candidate) -> Refusal:
    return Refusal(
        candidate.device.name,
        candidate.form,
        "policy",
        f"{best.form} on {best.device.name} comes first",
    )


def _how(candidate: Candidate) -> str:
    if candidate.form == "fused":
        return "fused"
    return f"decomposed into {len(candidate.verdicts)} core ops"


def _sentence(
    call: CallFact,
    best: Candidate,
    own: str,
    refusals: Sequence[Refusal],
    copies: Sequence[Copy],
) -> str:
    if best.device.name == own:
        placed = any(o.device for o in call.operands)
        why = "its operands are taken to be there" if placed else "it is selected"
        if copies:
            why = "the call belongs there"
    else:
        why = f"nothing on {own} can run it and fallback='any' allows other devices"
    refused = [r for r in refusals if r.device == best.device.name and r.reason != "policy"]
    if best.form == "decomposed" and refused:
        why += f"; the fused form was refused ({refused[0].reason})"
    moved = sum(c.nbytes for c in copies)
    many = "1 operand" if len(copies) == 1 else f"{len(copies)} operands"
    tail = f", {many} copied ({moved} bytes)" if copies else ""
    warn = ""
    if best.device.state == "uncertified":
        code = best.device.state_code
        shown = f" ({code})" if code not in ("", "uncertified") else ""
        warn = f", named by the caller although uncertified{shown}"
    return (
        f"{call} runs {_how(best)} on {best.device.name} ({best.device.shown_state}{warn}){tail}:"
        f" {why}"
    )


_CURES = {
    "never": "allow fallback='decompose' or 'any'",
    "decompose": "allow another device with fallback='any', or change the operands",
    "any": "change the operands, or install a backend that can run it",
}


def _nothing(
    call: CallFact,
    own: str,
    refusals: tuple[Refusal, ...],
    considered: tuple[Candidate, ...],
    contract: Contract,
) -> Decision:
    said = "; ".join(
        f"{r.form} on {r.device}: {r.sentence}"
        for r in refusals
        if r.device == own or contract.fallback == "any"
    )
    return Decision(
        call=str(call),
        choice="",
        form="fused",
        state="",
        sentence=f"{call} on {own}: no route can run it, {said or 'nothing was asked'};"
        f" {_CURES[contract.fallback]}",
        refusals=refusals,
        considered=considered,
        work=call.work,
    )
