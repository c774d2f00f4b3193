"""Policy on plain data: ranking, strict selection, routes, fallback, refusals.
SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest

from anyhal.errors import (
    BackendLoadError,
    InvalidArgumentError,
    NotFoundError,
    UnsupportedError,
)
from anyhal.routing import policy
from anyhal.routing.facts import (
    CallFact,
    Candidate,
    Contract,
    DeviceFact,
    Facts,
    OperandFact,
    RefusedBackend,
    Verdict,
    Want,
)

HOST = DeviceFact("host:0", "host", rank=50, state="self-tested", memory_bytes=8 << 30)
PLAIN = DeviceFact("plain:0", "plain", rank=10, state="self-tested", memory_bytes=8 << 30)
ACCEL = DeviceFact("accel:0", "accel", rank=90, state="self-tested", memory_bytes=16 << 30)
STRANGER = DeviceFact("new:0", "new", rank=99, state="uncertified")
YES = Verdict("yes", cost_ns=1000)
NO = Verdict("no", reason="dtype", operand=1, text="no kernel for f64")


def call(device: str = "host:0", count: int = 2) -> CallFact:
    return CallFact("matmul", (OperandFact("f32[8,8]", device, 256),) * count, device=device)


def fused(device: DeviceFact, verdict: Verdict = YES) -> Candidate:
    return Candidate(device, "fused", (("matmul", verdict),))


def parts(device: DeviceFact, *verdicts: Verdict) -> Candidate:
    return Candidate(device, "decomposed", tuple(("reduce", v) for v in verdicts))


def names(facts: Facts, contract: Contract | None = None) -> list[str]:
    return [r.device.name for r in policy.rank_devices(facts, contract)]


# ------------------------------------------------------------------------------------- ranking


def test_dev_03_discrete_comes_before_integrated_in_both_orders_of_enumeration() -> None:
    big = DeviceFact("vk:0", "vk", 50, "self-tested", memory_bytes=16 << 30)
    small = DeviceFact("vk:1", "vk", 50, "self-tested", integrated=True, memory_bytes=512 << 20)
    for pair in ((big, small), (small, big)):
        ranked = policy.rank_devices(Facts(pair))
        assert [r.device.name for r in ranked] == ["vk:0", "vk:1"]
        assert ranked[1].reason == "not chosen: it is integrated, not discrete (vk:0 comes first)"
    swapped = replace(small, name="vk:0"), replace(big, name="vk:1")
    assert names(Facts(swapped)) == ["vk:1", "vk:0"]


def test_dev_03_display_only_is_last_and_a_failed_self_test_is_out() -> None:
    shown = replace(ACCEL, name="accel:1", display_only=True)
    failed = replace(ACCEL, name="accel:2", state="quarantined")
    ranked = policy.rank_devices(Facts((shown, failed, PLAIN)))
    assert [(r.device.name, r.eligible) for r in ranked] == [
        ("plain:0", True),
        ("accel:2", False),
        ("accel:1", False),
    ]
    assert "quarantined" in ranked[1].reason
    assert ranked[2].reason == "not chosen: it only drives a display; name it"
    assert policy.select("accel", Facts((shown,))).device is shown


def test_dev_11_one_card_behind_two_backends_is_listed_twice_and_either_can_be_chosen() -> None:
    one = replace(ACCEL, identity="GPU-1")
    two = replace(ACCEL, name="other:0", backend="other", rank=60, identity="GPU-1")
    facts = Facts((two, one))
    assert names(facts) == ["accel:0", "other:0"]
    assert policy.select("other", facts).device is two
    assert policy.select("GPU-1", facts).device is one  # the documented order decides


def test_dev_13_the_installed_accelerator_is_chosen_and_the_reason_is_stated() -> None:
    for order in itertools.permutations((HOST, ACCEL, PLAIN)):
        ranked = policy.rank_devices(Facts(order))
        assert [r.device.name for r in ranked] == ["accel:0", "host:0", "plain:0"]
        assert ranked[0].reason.startswith("chosen: first of 3")
        assert "rank is lower (50 against 90 of accel:0)" in ranked[1].reason


def test_uncertified_is_chosen_only_when_allowed_by_name() -> None:
    facts = Facts((STRANGER, HOST))
    assert names(facts) == ["host:0", "new:0"]
    assert "uncertified" in policy.rank_devices(facts)[1].reason
    assert names(facts, Contract(allow_uncertified=("new",)))[0] == "new:0"


# ----------------------------------------------------------------------------------- selection


def test_device_names_are_parsed_in_one_place() -> None:
    assert policy.parse_device("cuda:12") == policy.DeviceName("cuda", 12)
    for bad in ("", "CUDA", "cuda:", "cuda:-1", "cuda:01", "a:b", "a|b", "3d"):
        with pytest.raises(InvalidArgumentError, match="cannot read"):
            policy.parse_device(bad)


ODD_NAMES = {
    " host": "host",
    "host:0 ": "host:0",
    "host:0\n": "host:0",
    "host:00": "host:0",
    "host:\u0660": "host:0",
    "HOST:0": "host:0",
    "\u00a0host:0": "host:0",
    "host: 0": "",
    "host\0": "",
    "host:" + "9" * 5000: "",
    "h\u00f6st": "",
    "host|": "",
    "": "",
}


@pytest.mark.parametrize("name", ODD_NAMES, ids=ascii)
def test_a_name_is_taken_only_as_it_is_printed(name: str) -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        policy.select(name, Facts((HOST,)))
    hint = f"did you mean {ODD_NAMES[name]}?" if ODD_NAMES[name] else "; write "
    assert hint in str(caught.value)


def test_spaces_beside_the_bars_of_a_list_say_nothing() -> None:
    assert policy.select("none | host:0", Facts((HOST,))).device is HOST
    for text in (" none|host", "none|host ", "none |\thost"):
        with pytest.raises(InvalidArgumentError, match="cannot read"):
            policy.select(text, Facts((HOST,)))


@pytest.mark.parametrize("name", [n for n in ODD_NAMES if n and n != "host|"], ids=ascii)
def test_a_name_in_a_list_of_visible_devices_likewise(name: str) -> None:
    facts = Facts((HOST, PLAIN))
    limited = policy.limit_visible(facts, [name, "plain"], "VARIABLE")
    assert [d.name for d in limited.devices if not d.why_not] == ["plain:0"]
    assert f"VARIABLE names {name!r}" in limited.notes[0]
    with pytest.raises(NotFoundError, match="no device is left visible"):
        policy.limit_visible(facts, [name], "VARIABLE")


def test_dev_01_a_strict_list_runs_nothing_that_is_not_named() -> None:
    why = "backend accel was refused at stage dependencies: libaccel.so.2 is not installed"
    broken = RefusedBackend("accel", "/opt/accel", "dependencies", why)
    facts = Facts((HOST, PLAIN), (broken,), ("/opt",))
    with pytest.raises(BackendLoadError, match="libaccel.so.2 is not installed") as caught:
        policy.select("accel", facts)
    assert caught.value.stage == "dependencies" and caught.value.path == "/opt/accel"
    chosen = policy.select("accel|plain", facts)
    assert chosen.device is PLAIN
    assert chosen.passed_over == (why,)
    assert f"passed over: {why}" in chosen.sentence


def test_dev_12_nothing_found_lists_what_was_searched_and_what_is_here() -> None:
    facts = Facts((HOST,), searched=("/opt/vendor", "/usr/lib/anyhal"))
    with pytest.raises(NotFoundError) as caught:
        policy.select("hots", facts)
    message = str(caught.value)
    assert "did you mean host?" in message and "/opt/vendor, /usr/lib/anyhal" in message
    with pytest.raises(NotFoundError, match="no device at all.*nowhere"):
        policy.select("cuda", Facts())


def test_dev_04_identity_names_a_device_whatever_its_index() -> None:
    left, right = (replace(ACCEL, name=f"accel:{i}", identity=f"GPU-{i}") for i in (0, 1))
    flipped = replace(left, name="accel:1"), replace(right, name="accel:0")
    assert policy.select("GPU-1", Facts((left, right))).device.name == "accel:1"
    assert policy.select("GPU-1", Facts(flipped)).device.name == "accel:0"


def test_dev_04_visibility_takes_names_chips_and_identities() -> None:
    card = replace(ACCEL, identity="GPU-1")
    facts = Facts((HOST, PLAIN, card))
    assert policy.limit_visible(facts, None, "V") is facts
    for names in (("host", "GPU-1"), ("host:0", "accel:0")):
        seen = policy.limit_visible(facts, names, "VISIBLE")
        assert [d.why_not for d in seen.devices] == ["", "VISIBLE leaves it out", ""]
        with pytest.raises(NotFoundError, match="VISIBLE leaves it out"):
            policy.select("plain", seen)


def test_selection_names_an_uncertified_device_but_never_a_quarantined_one() -> None:
    assert policy.select("new", Facts((STRANGER,))).device is STRANGER
    with pytest.raises(NotFoundError, match="quarantined"):
        policy.select("new", Facts((replace(STRANGER, state="quarantined"),)))
    with pytest.raises(InvalidArgumentError, match="a name is missing"):
        policy.select("new|", Facts((STRANGER,)))


# ------------------------------------------------------------------------------------ decision


def test_the_operands_device_and_its_fused_form_come_first() -> None:
    decision = policy.decide(call(), [fused(HOST), parts(HOST, YES)], Contract())
    assert (decision.choice, decision.form) == ("host:0", "fused")
    assert "its operands are taken to be there" in decision.sentence


def test_decomposed_on_the_same_device_when_fused_is_refused() -> None:
    candidates = [fused(HOST, NO), parts(HOST, YES, YES, YES)]
    decision = policy.decide(call(), candidates, Contract())
    assert (decision.choice, decision.form, decision.cost_ns) == ("host:0", "decomposed", 3000)
    assert "decomposed into 3 core ops" in decision.sentence
    assert "the fused form was refused (dtype)" in decision.sentence
    assert decision.refusals[0].reason == "dtype"
    assert "operand 1" in decision.refusals[0].sentence


@pytest.mark.parametrize("fallback", ["never", "decompose"])
def test_another_device_only_when_the_policy_is_any(fallback: str) -> None:
    candidates = [fused(HOST, NO), parts(HOST, YES, NO), fused(ACCEL)]
    contract = Contract(fallback=fallback)  # type: ignore[arg-type]
    with pytest.raises(UnsupportedError) as caught:
        policy.decide(call(), candidates, contract)
    assert caught.value.reason == "dtype"
    assert [r.device for r in caught.value.refusals] == ["host:0", "host:0", "accel:0"]
    assert "no kernel for f64" in str(caught.value)
    decision = policy.decide(call(), candidates, Contract(fallback="any"))
    assert decision.choice == "accel:0"
    assert [(c.operand, c.nbytes, c.why) for c in decision.copies] == [
        (0, 256, "device"),
        (1, 256, "device"),
    ]


def test_never_means_fused_or_nothing() -> None:
    with pytest.raises(UnsupportedError, match="allow fallback='decompose' or 'any'"):
        policy.decide(call(), [fused(HOST, NO), parts(HOST, YES)], Contract(fallback="never"))


def test_dev_06_a_refusal_hops_to_the_next_device_and_shows_it() -> None:
    facts = Facts((ACCEL, HOST, PLAIN))
    contract = Contract(fallback="any")
    asked = list(policy.steps(call("accel:0"), facts, contract))
    assert [(s.stage, s.device.name, s.form) for s in asked] == [
        (0, "accel:0", "fused"),
        (1, "accel:0", "decomposed"),
        (2, "host:0", "fused"),
        (3, "host:0", "decomposed"),
        (2, "plain:0", "fused"),
        (3, "plain:0", "decomposed"),
    ]
    decision = policy.decide(
        call("accel:0"), [fused(ACCEL, NO), parts(ACCEL), fused(HOST), fused(PLAIN)], contract
    )
    assert decision.choice == "host:0"
    assert "nothing on accel:0 can run it" in decision.sentence


def test_dev_09_mixed_operands_are_an_error_that_names_both() -> None:
    mixed = CallFact(
        "add", (OperandFact("f32[4]", "host:0", 16), OperandFact("f32[9]", "accel:0", 36))
    )
    with pytest.raises(InvalidArgumentError, match="host:0 and accel:0"):
        policy.home(mixed, Contract())
    assert policy.home(mixed, Contract(fallback="any")) == "accel:0"  # most bytes are there


def test_measured_time_decides_between_other_devices_only_when_all_have_one() -> None:
    quick = Candidate(PLAIN, "fused", (("matmul", Verdict("yes", cost_ns=10)),))
    slow = Candidate(ACCEL, "fused", (("matmul", Verdict("yes", cost_ns=10_000)),))
    unknown = Candidate(ACCEL, "fused", (("matmul", Verdict("yes")),))
    contract = Contract(fallback="any")
    first = policy.decide(call(), [fused(HOST, NO), quick, slow], contract)
    second = policy.decide(call(), [fused(HOST, NO), quick, unknown], contract)
    assert (first.choice, second.choice) == ("plain:0", "accel:0")


def test_wanted_layouts_are_copies_in_the_decision() -> None:
    verdict = Verdict("yes", wants=(Want(1, "dense"), Want(0, "any")))
    decision = policy.decide(call(), [fused(HOST, verdict)], Contract())
    assert [(c.operand, c.why) for c in decision.copies] == [(1, "layout")]


def test_prefer_decomposed_is_data() -> None:
    tests_want = policy.Policy(prefer_decomposed=True)
    candidates = [fused(HOST), parts(HOST, YES)]
    assert policy.decide(call(), candidates, Contract(), tests_want).form == "decomposed"
    assert policy.decide(call(), [fused(HOST)], Contract(), tests_want).form == "fused"
    order = [s.form for s in policy.steps(call(), Facts((HOST,)), Contract(), tests_want)]
    assert order == ["decomposed", "fused"]


def test_uncertified_elsewhere_is_refused_unless_named_and_said_again() -> None:
    candidates = [fused(HOST, NO), fused(STRANGER)]
    with pytest.raises(UnsupportedError, match="it is uncertified"):
        policy.decide(call(), candidates, Contract(fallback="any"))
    named = Contract(fallback="any", allow_uncertified=("new:0",))
    decision = policy.decide(call(), candidates, named)
    assert decision.choice == "new:0"
    assert "named by the caller although uncertified" in decision.sentence


def test_a_lost_or_quarantined_device_runs_nothing_even_at_home() -> None:
    lost = replace(HOST, why_not="host:0 was lost")
    bad = replace(HOST, state="quarantined")
    for device, word in ((lost, "was lost"), (bad, "quarantined")):
        with pytest.raises(UnsupportedError, match=word):
            policy.decide(call(), [fused(device)], Contract())


def test_unknown_fallback_and_unknown_device_are_named() -> None:
    with pytest.raises(InvalidArgumentError, match="did you mean 'decompose'"):
        list(policy.steps(call(), Facts((HOST,)), Contract(fallback="decomposed")))  # type: ignore[arg-type]
    with pytest.raises(NotFoundError, match="'gone:0'"):
        list(policy.steps(call("gone:0"), Facts((HOST,)), Contract()))


def test_a_decision_is_the_same_again_from_the_same_facts() -> None:
    candidates = [fused(HOST, NO), parts(HOST, YES), fused(ACCEL)]
    for order in itertools.permutations(candidates):
        again = policy.decide(call(), list(order), Contract(fallback="any"))
        assert (again.choice, again.form) == ("host:0", "decomposed")


def test_visible_names_that_no_device_has_are_notes() -> None:
    facts = Facts((HOST, PLAIN), notes=("an earlier one",))
    seen = policy.limit_visible(facts, ("host", "plian:0", "zzz"), "VISIBLE")
    earlier, misspelt, unknown = seen.notes
    assert earlier == "an earlier one"
    assert "VISIBLE names 'plian:0'" in misspelt and "did you mean plain:0?" in misspelt
    assert "'zzz'" in unknown and "here: host, host:0, plain, plain:0" in unknown
    assert policy.limit_visible(facts, ("host", "plain"), "VISIBLE").notes == facts.notes


@pytest.mark.parametrize("names", [(), ("hosst",), ("a", "b")])
def test_nothing_left_visible_is_an_error(names: tuple[str, ...]) -> None:
    with pytest.raises(NotFoundError, match="no device is left visible") as caught:
        policy.limit_visible(Facts((HOST, PLAIN)), names, "VISIBLE")
    assert "unset VISIBLE" in str(caught.value)
    # A machine without devices is not the list's fault.
    assert policy.limit_visible(Facts(), names, "VISIBLE").devices == ()
