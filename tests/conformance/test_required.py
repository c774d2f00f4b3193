"""What a tier asks for: the list of required ops, coverage floors, scores; and the schema's page.
SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from made_reports import case, report

from anyhal.conformance.certificates.statement import PREDICATE, PREDICATE_TYPE, STATEMENT_TYPE
from anyhal.conformance.required import floor_of, missing, perf_tier, required, rules
from anyhal.errors import InvalidArgumentError
from anyhal.ops import BY_NAME
from anyhal.runtime.discovery import package_folder

(LIBRARY,) = (Path(package_folder()) / "backends" / "dayone").glob("*.so")
ROOT = Path(__file__).resolve().parents[2]


def test_the_lists_are_those_of_the_design() -> None:
    core = {s.name for s in BY_NAME.values() if s.decompose is None}
    assert set(required("supported")) >= {"matmul_epilogue", *list(BY_NAME)[:10]}
    assert set(required("supported")) - {"matmul_epilogue"} <= core
    assert len(required("supported")) == 11
    more = {"quant_matmul", "attention", "softmax", "rope", "embedding", "cache_append"}
    assert set(required("recommended")) >= more | {"rms_norm", "layer_norm"}
    assert set(required("recommended")) <= set(BY_NAME)
    assert {*rules()["floors"]} - {"default"} <= set(BY_NAME)
    with pytest.raises(InvalidArgumentError, match="no tier 'best'; use supported or recomm"):
        required("best")


def test_too_few_right_answers_are_said() -> None:
    made = report(LIBRARY)
    assert missing(made) == missing(made, "recommended") == []
    made["coverage"]["matmul"]["informative"] -= 1
    (said,) = missing(made)
    least = floor_of("matmul")
    assert said.startswith(f"matmul: {least - 1} right answers, at least {least} are needed")
    del made["coverage"]["softmax"]
    assert len(missing(made)) == 2  # it is declared
    made["claims"] = [row for row in made["claims"] if row["op"] != "softmax"]
    assert len(missing(made)) == 1 and len(missing(made, "recommended")) == 2


def test_an_op_that_is_neither_asked_for_nor_declared_may_be_refused() -> None:
    made = report(LIBRARY)
    made["coverage"]["sort"] = {"informative": 0, "refused": 9}
    assert missing(made) == []
    made["claims"].append({"op": "sort", "determinism": "run_to_run"})
    assert "the backend declares it" in missing(made)[0]


def scores(compute: float, others: float) -> dict[str, Any]:
    ops = required("recommended")
    found = {op: compute if op in rules()["recommended"]["compute"] else others for op in ops}
    return {"scores": {f"{op}/f32/large": score for op, score in found.items()}}


@pytest.mark.parametrize(
    ("change", "tier"),
    [
        ({"perf": {"scores": {}}}, "not measured"),
        ({"perf": None}, "not measured"),
        ({"perf": scores(0.7, 0.8)}, "recommended"),
        ({"perf": scores(0.59, 0.8)}, "supported"),
        ({"perf": scores(0.7, 0.69)}, "supported"),
        ({"perf": scores(0.3, 0.3)}, "supported"),
        ({"perf": scores(0.2, 0.2)}, "none"),
        ({"perf": scores(0.9, 0.04)}, "none"),
        ({"perf": scores(1.06, 0.8)}, "invalid"),
        ({"perf": scores(float("nan"), 0.8)}, "none"),
        ({"perf": scores(0.0, 0.8)}, "none"),
        ({"perf": scores(0.7, 0.8), "coverage": {}}, "none"),
        ({"perf": scores(0.7, 0.8), "classes": {"matmul/f8": {"declared": "FP8_14"}}}, "supported"),
        ({"perf": scores(0.7, 0.8), "cases": [case("rope", 0, "waived")]}, "supported"),
        ({"perf": scores(0.7, 0.8), "cases": [case("sort", 0, "waived")]}, "recommended"),
    ],
)
def test_the_tier_of_speed(change: dict[str, Any], tier: str) -> None:
    assert perf_tier(report(LIBRARY) | change) == tier


def test_one_slow_op_in_ten_is_no_recommendation() -> None:
    made = scores(0.95, 0.95)
    made["scores"] = {f"{name}{n}": s for name, s in made["scores"].items() for n in range(2)}
    for name in list(made["scores"])[:5]:
        made["scores"][name] = 0.29
    assert perf_tier(report(LIBRARY) | {"perf": made}) == "supported"


def test_what_is_not_deterministic_is_not_recommended() -> None:
    made = report(LIBRARY) | {"perf": scores(0.7, 0.8)}
    made["claims"][0]["determinism"] = "none"
    assert perf_tier(made) == "supported"


def test_the_page_of_the_schema_is_the_code() -> None:
    page = (ROOT / "docs" / "reference" / "schemas" / "certificate.md").read_text()
    rows = re.findall(r"^\| `(\w+)` \| `(\w+)` \|", page, re.MULTILINE)
    assert rows == [(group, name) for group, names in PREDICATE.items() for name in names]
    assert f"`{PREDICATE_TYPE}`" in page and f"`{STATEMENT_TYPE}`" in page


def test_the_page_of_meaning_has_every_code() -> None:
    from anyhal.runtime.certified import HINTS
    from anyhal.runtime.stages import CODES

    page = (ROOT / "docs" / "explanation" / "what-a-certificate-means.md").read_text()
    told = set(re.findall(r"\| `(\w+)` \|", page))
    assert told == {*HINTS, "uncertified", "hash_mismatch"} and told <= set(CODES)
