"""Honest capabilities: real backends pass, and each kind of lie is caught by its case.
SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import itertools
import os
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import anyhal as hal
from anyhal.conformance import capabilities, runner, suite
from anyhal.conformance.capabilities.calls import Call, Placed, every_call, plain_calls
from anyhal.conformance.capabilities.frames import LAYOUTS, Frame
from anyhal.conformance.capabilities.lattice import Points
from anyhal.conformance.capabilities.steps import Edges, steps, taken
from anyhal.conformance.suite import Answer, Case, Finding
from anyhal.conformance.tolerance import rounded_factors
from anyhal.conformance.worker import Bench
from anyhal.dtypes import dtype
from anyhal.ops import BY_NAME

CASES = {case.id: case for case in capabilities.cases()}
EDGES = Edges(rank_max=16, dim_max=0, accumulate=0, offset_alignment=1, cells=False)
_instances = itertools.count()
pytestmark = pytest.mark.usefixtures("instances_gone")


def device_of(script: str) -> Any:
    """A device of the scriptable backend that plays that script."""
    name = f"capable{next(_instances)}"
    return hal.load_backend("fake", instance=name, settings={"script": script})[0]


def ask(device: Any, case: Case, nonce: str = "a") -> Finding:
    """Runs and judges a case in this process."""
    seed = suite.seed_of(nonce, case.id)
    with hal.use(device=device):
        found = capabilities.run(case, Bench(device, seed))
    if isinstance(found, Answer):
        found = capabilities.judge(case, seed, found)
    return found


def failures(device: Any, tier: str) -> tuple[list[str], Counter[str]]:
    level, outcomes, wrong = suite.TIERS.index(tier), Counter[str](), []
    for case in CASES.values():
        if suite.TIERS.index(case.tier) <= level:
            found = ask(device, case)
            outcomes[found.outcome] += 1
            if found.outcome == "fail":
                wrong.append(f"{case.id}: {found.code}: {found.reason}")
    return wrong, outcomes


# ----------------------------------------------------------------------------------- honest ones


@pytest.mark.parametrize(("backend", "taken"), [("cpu_ref", 240), ("cpu", 150), ("dayone", 90)])
def test_real_backends_are_honest(backend: str, taken: int) -> None:
    wrong, outcomes = failures(hal.device(backend), "quick")
    assert not wrong, "\n".join(wrong)
    assert outcomes["pass"] >= taken, outcomes


@pytest.mark.parametrize(
    "script",
    [
        "mode=sync",
        "mode=async; memory=cell; offset_alignment=16",
        "dense=matmul,binary",
        "rank_max=4; dtypes=-f64; ops=-softmax",
        "refuse=softmax:dtype; refuse_in_place=binary:layout; offset_alignment=64",
    ],
)
def test_devices_with_other_limits_are_honest(script: str) -> None:
    wrong, outcomes = failures(device_of(script), "quick")
    assert not wrong, "\n".join(wrong)
    assert outcomes["pass"] > 100, outcomes


# ------------------------------------------------------------------------------------------ lies

MATMUL = "capabilities/lattice/matmul/floats/near"
LIES = [
    ("lie=matmul", MATMUL, "lie", "op_query says yes and op_prepare no (op)"),
    ("lie=matmul", "capabilities/claims/matmul", "lie", "takes none of"),
    ("refuse=softmax:dtype; boast=softmax", "capabilities/claims/softmax", "lie", "declares"),
    ("refuse_prepare=softmax:layout", "capabilities/claims/softmax", "lie", "takes none of"),
    ("hide=softmax", "capabilities/claims/softmax", "lie", "does not declare softmax f32"),
    ("moody=matmul", MATMUL, "lie", "in two ways"),
    ("other_reason=matmul", MATMUL, "wrong_reason", "(driver)"),
    ("mistake=matmul", MATMUL, "wrong_status", "the caller's mistake"),
    ("any_numerics=matmul", MATMUL, "lie", "must be refused; without that it is accepted"),
    ("ignore_strides=unary", "capabilities/lattice/unary/floats/near", "wrong_value", "with x: "),
    ("wrong=argmax", "capabilities/lattice/argmax/floats/near", "wrong_value", "wrong values"),
    ("fail=op_prepare@9+:internal", MATMUL, "wrong_status", "an error (internal)"),
    ("fail=op_enqueue:unsupported", MATMUL, "lie", "op_enqueue says unsupported"),
    ("scribble=gather", "capabilities/values/gather", "written", "has written all the same"),
    ("forget=64", "capabilities/refusals/all/flat", "memory", "1000 refusals hold"),
    ("rows=fickle", "capabilities/rows/stable", "lie", "after work"),
]


@pytest.mark.parametrize(("script", "case", "code", "words"), LIES)
def test_a_lie_is_caught(script: str, case: str, code: str, words: str) -> None:
    found = ask(device_of(script), CASES[case])
    assert (found.outcome, found.code) == ("fail", code), found
    assert words in found.reason


def test_prepare_may_know_more_than_query() -> None:
    """`refuse_prepare` says neither yes nor no before, so nothing it then refuses is a lie."""
    found = ask(device_of("refuse_prepare=matmul:layout"), CASES[MATMUL])
    assert (found.outcome, found.code) == ("refused", "not_declared")


@pytest.mark.parametrize("script", ["ops=-matmul", "dtypes=i32,i64,bool"])
def test_what_is_not_declared_is_refused(script: str) -> None:
    device = device_of(script)
    for name in ("claims/matmul", "lattice/matmul/floats/near"):
        assert ask(device, CASES[f"capabilities/{name}"]).outcome != "fail"


def test_the_reproducer_names_the_fewest_differences() -> None:
    """A pair of steps, one of them innocent, is told as the other alone."""
    case = CASES["capabilities/lattice/unary/floats/far"]
    few = {"each": 0, "dtypes": 1, "pairs": 80, "samples": 0, "drawn": 0}
    case = Case(case.id, case.group, case.op, given={**few, "group": "floats"})
    script = "refuse_in_place=unary:none"
    with pytest.raises(hal.BackendLoadError, match="no reason is called 'none'"):
        device_of(script)
    found = ask(device_of("any_numerics=unary; ignore_strides=unary"), case)
    assert found.outcome == "fail"
    assert " and " not in found.reason.partition(" with ")[2].partition(":")[0]


def test_a_run_reports_the_lie_with_its_command(tmp_path: Path) -> None:
    environ = os.environ | {"ANYHAL_FAKE": "hide=softmax"}
    ids = ("capabilities/claims/softmax", MATMUL)
    report = runner.certify("fake", ids=ids, environ=environ, journal_folder=tmp_path, nonce="ab")
    found = {c["op"]: c for c in report["cases"]}
    assert (found["softmax"]["outcome"], found["softmax"]["code"]) == ("fail", "lie")
    assert found["matmul"]["outcome"] == "pass"
    assert found["matmul"]["measured"]["refused"] > 10
    assert f"--case {ids[0]} --seed " in found["softmax"]["reproduce"]


# ------------------------------------------------------------------------------ defects it found


@pytest.mark.parametrize("op", ["copy", "binary", "matmul", "random_uniform", "dropout"])
def test_outputs_that_repeat_elements_are_refused(op: str) -> None:
    """cpu took them: positions that are one address hold whichever was written last."""
    from anyhal.conformance.capabilities.asking import Asker

    device = hal.device("cpu")
    asker = Asker(Bench(device, 1), op)
    asked = 0
    for base in plain_calls(op)[:9]:
        repeated = [s for s in steps(base, EDGES) if s.refuse and s.label.endswith(": repeated")]
        for step in repeated if asker.accepts(base) else ():
            call = taken(base, (step,))
            assert call is not None and not asker.accepts(call), step.label
            asked += 1
    assert asked


def test_eight_bits_are_allowed_for_every_float() -> None:
    """The bound knew no rounding of f16, so its cells were quarantined where int8 was allowed."""
    call = next(
        c for c in every_call("quant_matmul") if dtype(c.sample.inputs[0].dtype).short == "f16"
    )
    spec, sample = BY_NAME["quant_matmul"], call.sample
    assert np.all(rounded_factors(3, spec, sample.inputs, sample.attrs) > 0)
    assert np.all(rounded_factors(2, spec, sample.inputs, sample.attrs) == 0)


# ------------------------------------------------------------------------------------ the lattice


def test_every_op_is_asked_at_quick() -> None:
    quick = [c for c in CASES.values() if c.tier != "full"]
    assert len({c.id for c in quick}) == len(quick)
    for kind in ("claims", "lattice", "refusals"):
        asked = {c.op for c in quick if c.id.split("/")[1] == kind} - {""}
        assert asked == set(BY_NAME), kind


def test_points_follow_from_the_seed_alone() -> None:
    case = CASES[MATMUL]
    for seed in (3, 4):
        first, second = (Points(case, seed) for _ in range(2))
        ways = [
            [[s.label for s in way] for way in points.ways(points.bases("f32")[0], EDGES)]
            for points in (first, second)
        ]
        assert ways[0] == ways[1]
    other = Points(case, 5)
    assert [c.sample.label for c in other.calls] != [c.sample.label for c in first.calls]


def test_steps_reach_one_beyond_each_edge() -> None:
    base = next(c for c in plain_calls("binary") if c.sample.inputs[0].ndim == 1)
    edges = Edges(rank_max=4, dim_max=1000, accumulate=1, offset_alignment=1, cells=False)
    found = {s.label: s.refuse for s in steps(base, edges)}
    for label, refuse in {
        "rank 4": False,
        "rank 5": True,
        "a dim of 1000": False,
        "a dim of 1001": True,
        "accumulate=1": False,
        "accumulate=2": True,
        "determinism=3": False,
        "determinism=29": True,
        "out: repeated": True,
        "a: repeated": False,
        "a: odd": False,
        "in place of b": False,
        "b missing": True,
        "fn: a choice of a later version": True,
        "a flag of the attributes": True,
        "an unknown dtype": True,
    }.items():
        assert found.get(label) is refuse, label
    assert {s.kind for s in steps(base, edges)} > {"layout", "attribute", "numerics", "dtype"}


@pytest.mark.parametrize("layout", ["dense", *LAYOUTS])
def test_frames_see_what_is_written_where(layout: str) -> None:
    device, shape = hal.device("cpu_ref"), (3, 4)
    frame = Frame(device, dtype("f32"), shape, layout)
    assert not frame.changed() and np.isnan(frame.values()).all()
    frame.view.set(np.full(shape, 2, np.float32)) if layout != "repeated" else None
    assert frame.changed() is (layout != "repeated")
    assert not frame.outside(), "only elements were written"
    beside = hal.asarray(np.zeros(frame._base.shape, frame._base.dtype), device=device)
    frame._base.set(beside.numpy())
    assert frame.outside(), "guards were written"


def test_a_changed_input_is_damage() -> None:
    call = next(c for c in plain_calls("unary") if c.sample.inputs[0].dtype == np.float32)
    placed = Placed(hal.device("cpu_ref"), Call.plain(call.spec, call.sample))
    assert placed.damage() == ("", "") and placed.untouched()
    first = placed.inputs[0]
    assert first is not None
    first.view.set(np.full(first.shape, 5, np.float32))
    assert placed.damage()[0] == "input_changed" and not placed.untouched()
