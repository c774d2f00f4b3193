"""Text to operation and back: what `anyhal explain` reads and writes.
SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import json

import pytest

from anyhal.errors import InvalidArgumentError, NotFoundError
from anyhal.ops._spec import describe
from anyhal.routing import explain, policy
from anyhal.routing.facts import (
    CallFact,
    Candidate,
    Contract,
    DeviceFact,
    OperandFact,
    Verdict,
    Work,
)


def test_operands_attributes_and_the_result() -> None:
    parsed = explain.parse("matmul f32[4, 8] f32[8,16]")
    assert parsed.spec.name == "matmul"
    assert [describe(x) for x in parsed.inputs] == ["f32[4,8]", "f32[8,16]"]
    assert describe(parsed.outs[0]) == "f32[4,16]"
    assert explain.parse("softmax float16[2,3] axis=0").attrs["axis"] == 0
    assert explain.parse("softmax f32[2,3]").attrs["axis"] == -1


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "no op is named"),
        ("matmul", "0 operands were given, it takes 2: "),
        ("matmul f32[4,8]", "1 operand was given"),
        ("matmul f32[4,8] 8x16", "'8x16' as an operand"),
        ("matmul f32[4,8] f32[8,-1]", "sizes are whole numbers"),
        ("matmul f32[4,8] f32[9,16]", "matmul"),
        ("matmul f32[4,8] absent", "may not be absent"),
        ("matmul f23[4,8] f32[8,16]", "did you mean 'f32'"),
        ("softmax f32[4] axes=1", "did you mean axis"),
        ("softmax f32[4] axis=one", "axis=INTEGER"),
        ("softmax q4_1[33]", "multiple of 32"),
    ],
)
def test_bad_text_is_refused_with_the_rule(text: str, why: str) -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        explain.parse(text)
    assert why in str(caught.value)


def test_unknown_op_suggests_the_nearest() -> None:
    with pytest.raises(NotFoundError, match="did you mean matmul"):
        explain.parse("matmull f32[1,1] f32[1,1]")


def test_decision_as_json() -> None:
    device = DeviceFact("host:0", "host", state="self-tested")
    call = CallFact("matmul", (OperandFact("f32[4,8]", "host:0", 128),) * 2)
    candidate = Candidate(device, "fused", (("matmul", Verdict("yes", cost_ns=7)),))
    refused = Candidate(device, "decomposed", ())
    decision = policy.weigh(call, [candidate, refused], Contract())
    data = json.loads(json.dumps(explain.as_dict(decision)))
    assert data["schema"] == 1 and data["choice"] == "host:0" and data["cost_ns"] == 7
    assert [c["accepts"] for c in data["candidates"]] == [True, False]
    assert data["refusals"][0]["form"] == "decomposed"
    assert "not decomposed on host:0" in str(decision)


def test_a_cost_that_nobody_stated_is_null_and_not_zero() -> None:
    device = DeviceFact("host:0", "host", state="self-tested")
    call = CallFact("matmul", (), work=Work(1024.0, 896.0))
    silent = Candidate(device, "fused", (("matmul", Verdict("yes")),))
    decision = policy.weigh(call, [silent], Contract(), policy.DEFAULT)
    data = explain.as_dict(decision)
    (candidate,) = data["candidates"]
    assert data["cost_ns"] is candidate["cost_ns"] is candidate["verdicts"][0]["cost_ns"] is None
    assert data["work"] == {"flops": 1024.0, "bytes": 896.0}
    assert "work: 1024 flops, 896 bytes; cost: not stated by the backend" in str(decision)
