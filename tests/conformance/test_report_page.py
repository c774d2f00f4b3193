"""The page of the report's fields against a report. SPDX-License-Identifier: Apache-2.0"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from anyhal.conformance import runner, suite

PAGE = Path(__file__).resolve().parents[2] / "docs" / "reference" / "schemas" / "report.json.md"
FREE = {"suite.ops{}", "classes{}", "cases[].measured{}", "perf.scores{}", "claims[]", "waivers[]"}


def fields(data: Any, at: str = "") -> Iterator[str]:
    """The fields of a document as the page writes them; "{}" is a key that stands for any."""
    if isinstance(data, dict):
        for key, value in data.items():
            yield from fields(value, f"{at}{'.' if at and key != '{}' else ''}{key}")
    elif isinstance(data, list):
        for value in data:
            yield from fields(value, f"{at}[]")
    else:
        yield at


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    ids = [c.id for c in suite.all_cases() if c.id.startswith("numerics/unary/")][:1]
    return runner.certify("cpu", ids=ids, journal_folder=tmp_path_factory.mktemp("journal"))


def test_the_page_has_every_field_and_no_other(report: dict[str, Any]) -> None:
    rows = re.findall(r"^\| `([^`]+)` \|", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    assert len(rows) == len(set(rows))
    flat = {k: v for k, v in report.items() if k not in ("claims", "waivers", "classes")}
    flat["suite"] = {k: v for k, v in report["suite"].items() if k != "ops"}
    flat["perf"] = {k: v for k, v in report["perf"].items() if k != "scores"}
    flat["cases"] = [{k: v for k, v in c.items() if k != "measured"} for c in report["cases"]]
    flat["coverage"] = {"{}": next(iter(report["coverage"].values()))}
    flat["dependencies"] = report["dependencies"] or [{"file": "", "sha256": ""}]
    flat["why_not"] = report["why_not"] or [""]
    found = set(fields(flat))
    assert found == {row for row in rows if row not in FREE}
    assert set(rows) >= FREE
