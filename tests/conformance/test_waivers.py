"""Waivers: what they excuse, for how long, and what nothing excuses.
SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import Any

import pytest

from anyhal.conformance import report, suite, waivers
from anyhal.errors import InvalidArgumentError

TODAY = datetime.date(2027, 1, 10)
CASE = "capabilities/claims/matmul"
KNOWN = (CASE, "numerics/matmul/exact/f32/fused/own")
GOOD = f"""
[[waiver]]
case = "{CASE}"
owner = "kernels team"
issue = "https://example.org/7"
expires = 2027-03-01
"""


def read(folder: Path, text: str) -> list[dict[str, str]]:
    (folder / waivers.FILE_NAME).write_text(text)
    return waivers.read(folder, KNOWN, TODAY)


def test_a_waiver_holds_until_its_last_day(tmp_path: Path) -> None:
    assert waivers.read(tmp_path, KNOWN, TODAY) == []
    (one,) = read(tmp_path, GOOD)
    assert one == {
        "case": CASE,
        "owner": "kernels team",
        "issue": "https://example.org/7",
        "expires": "2027-03-01",
    }
    assert len(waivers.read(tmp_path, KNOWN, datetime.date(2027, 3, 1))) == 1
    assert waivers.read(tmp_path, KNOWN, datetime.date(2027, 3, 2)) == []


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[[waiver]", "correct it"),
        ("tolerance = 3", r"write \[\[waiver\]\]"),
        ("waiver = 3", r"write \[\[waiver\]\]"),
        ("[[waiver]]\ncase = 'x'", "give case, owner, issue, expires"),
        (GOOD + "tolerance = 1e-3", "and nothing else"),
        (GOOD.replace("kernels team", " "), "empty field"),
        (GOOD.replace("claims", "claim"), f"did you mean '{CASE}'"),
        (GOOD.replace("2027-03-01", "'soon'"), "write a date"),
        (GOOD.replace("2027-03-01", "2027-07-10"), "more than 180 days"),
        (GOOD + GOOD, "waived twice"),
    ],
)
def test_what_is_no_waiver_is_refused(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(InvalidArgumentError, match=said):
        read(tmp_path, text)


def finding(outcome: str, code: str = "") -> suite.Finding:
    return suite.Finding(outcome, "3 of 4 elements are wrong" if code else "", code)


def test_a_waiver_excuses_neither_a_pass_nor_what_nobody_notices(tmp_path: Path) -> None:
    known: list[dict[str, Any]] = [dict(w) for w in read(tmp_path, GOOD)]
    case = suite.Case(CASE, "capabilities", "matmul")
    assert report.waived(case, finding("fail", "lie"), known).outcome == "waived"
    assert report.waived(case, finding("fail", "lie"), []).outcome == "fail"
    assert report.waived(case, finding("pass"), known).code == "unexpected_pass"
    assert report.waived(case, finding("refused", "op"), known).outcome == "refused"
    for code in waivers.NEVER:
        found = report.waived(case, finding("fail", code), known)
        assert found.outcome == "fail" and "no waiver" in found.reason
