"""What people and build servers read of a report. SPDX-License-Identifier: Apache-2.0"""

from __future__ import annotations

import json
import sys
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree

import pytest
from report_of import case, report

from anyhal.cli import main
from anyhal.conformance.reports import matrix
from anyhal.conformance.reports.html import page
from anyhal.conformance.reports.junit import junit

sys.path.insert(0, str(Path(__file__).parents[2] / "tools"))

EVIL = "<script>alert(1)</script> \x1b[31m & ]]> \x00"


def sample() -> dict:
    return report(
        case("numerics/softmax/samples/f32/fused/own", "pass"),
        case("numerics/softmax/samples/f16/fused/own", "fail", "f16", reason=EVIL),
        case("numerics/softmax/samples/bf16/fused/own", "refused", "bf16", code="dtype"),
        case("numerics/softmax/samples/bf16/decomposed/own", "pass", "bf16"),
        case("numerics/topk/samples/f32/fused/own", "refused", code="op"),
        case("behaviour/order/op-after-copy", "waived"),
    )


def test_the_worst_case_of_a_cell_is_its_state() -> None:
    states = {key: cell.state for key, cell in matrix.cells(sample()).items()}
    assert states == {
        ("softmax", "f32"): "fused",
        ("softmax", "f16"): "fails",
        ("softmax", "bf16"): "decomposed",
        ("topk", "f32"): "refused",
    }


def test_a_cell_of_a_changed_op_is_stale() -> None:
    found = sample()
    found["suite"]["ops"]["topk"] = "0" * 16
    stale = {op for (op, _), cell in matrix.cells(found).items() if cell.stale}
    assert stale == {"topk"}
    assert 'class="cell device refused stale"' in page([found])


class _Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.outside: list[str] = []
        self.ids: set[str] = set()
        self.targets: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        for name, value in attrs:
            if name == "id":
                self.ids.add(str(value))
            if name == "href" and str(value).startswith("#"):
                self.targets.add(str(value)[1:])
            if name in ("src", "href") and not str(value).startswith("#"):
                self.outside.append(str(value))


def test_the_page_loads_nothing_and_holds_what_backends_say_as_text() -> None:
    reader = _Reader()
    text = page([sample(), report(case("numerics/exp/samples/f32/fused/own", "pass"))])
    reader.feed(text)
    assert "script" not in reader.tags and not reader.outside
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in text
    assert reader.targets <= reader.ids, "each cell leads to its cases"
    assert "anyhal certify chip:0 --case numerics/softmax/samples/f16/fused/own --seed 7" in text


def test_measured_classes_and_roofs_are_pictures() -> None:
    found = sample()
    found["classes"] = {"matmul/f32": {"class": "f32", "eff_bits": 22.5, "declared_bits": 19.5}}
    found["perf"] = {
        "tier": "supported",
        "scores": {},
        "roofs": {"flops_per_s": {"f32": 2e11}, "bytes_per_s": 2e10},
        "points": [{"op": "matmul", "dtype": "f32", "flops": 2e9, "bytes": 3e6, "seconds": 0.02}],
    }
    assert page([found]).count("<svg") == 2 and page([sample()]).count("<svg") == 0


def test_junit_keeps_the_four_outcomes_apart() -> None:
    root = ElementTree.fromstring(junit(sample()))
    suites = {s.get("name"): s for s in root}
    numerics = suites["chip:0.numerics"]
    assert (numerics.get("tests"), numerics.get("failures"), numerics.get("skipped")) == (
        ("5", "1", "2")
    )
    failure = root.find(".//failure")
    assert failure is not None and failure.get("type") == "wrong_value"
    assert "--seed 7" in str(failure.text)
    assert suites["chip:0.behaviour"].find("testcase/skipped") is not None


def test_the_command_writes_and_shows(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "a.json"
    file.write_text(json.dumps(sample()))
    made = {k: tmp_path / k for k in ("a.html", "a.xml", "s.json")}
    words = ["--html", made["a.html"], "--junit", made["a.xml"], "--summary", made["s.json"]]
    with pytest.raises(SystemExit) as left:
        main(["report", str(file), *map(str, words)])
    assert left.value.code == 0 and all(f.stat().st_size for f in made.values())
    summary = json.loads(made["s.json"].read_text())
    assert summary["cells"]["softmax"]["f16"] == "fails" and "cases" not in summary
    with pytest.raises(SystemExit) as left:
        main(["report", str(file)])
    shown = capsys.readouterr().out
    assert left.value.code == 0 and "softmax" in shown and "✗" in shown


@pytest.mark.parametrize("text", ["", "{", "[]", '{"schema": 2}', '{"schema": 1, "device": 3}'])
def test_what_is_no_report_is_refused(
    text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "a.json"
    file.write_text(text)
    with pytest.raises(SystemExit) as left:
        main(["report", str(file)])
    assert left.value.code == 1
    assert "certify --json" in capsys.readouterr().err


def test_the_support_matrix_marks_stale_cells() -> None:
    import support_matrix

    found = matrix.summary(sample())
    found["suite"] = {**found["suite"], "ops": {**found["suite"]["ops"], "topk": "0"}}
    text = support_matrix.page([found])
    assert "| op | f32 | f16 | bf16 |" in text
    assert "| softmax | ● | ✗ | ○ |" in text and "| topk | –* |  |  |" in text
