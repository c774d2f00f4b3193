"""Reports of heavy families: stamped, current until a covered file changes, slices leave none.
SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))
import reports

SCRIPT = """import json, sys
print(json.dumps({"schema": 1, "figures": [{"name": "x", "seed": sys.argv[1:]}]}))
sys.exit(open("sub/fails").read() == "yes")
"""


@pytest.fixture
def family(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> reports.Family:
    """A family over a small git tree of its own."""
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "script.py").write_text(SCRIPT)
    (tmp_path / "sub" / "fails").write_text("no")
    (tmp_path / "other").write_text("1")
    for command in (["init", "-q"], ["add", "."]):
        subprocess.run(["git", *command], cwd=tmp_path, check=True)
    monkeypatch.setattr(reports, "ROOT", tmp_path)
    monkeypatch.setattr(reports, "FOLDER", tmp_path / "docs" / "reports")
    made = reports.Family(
        "made",
        "for this test",
        ("{python}", "sub/script.py"),
        ("{python}", "sub/script.py", "{seed}"),
        ("sub",),
    )
    monkeypatch.setattr(reports, "_FAMILIES", (made,))
    return made


def test_a_full_run_leaves_a_report_that_goes_stale(family: reports.Family) -> None:
    assert list(reports.status()) == ["made: no report; python tools/check.py --all makes one"]
    outcome = reports.run_family(family, None)
    assert outcome is not None and outcome.passed and outcome.summary == "1 figures"
    data = json.loads((reports.FOLDER / "made.json").read_text())
    assert data["command"] == "python sub/script.py" and data["figures"][0]["name"] == "x"
    assert reports.is_current(family)
    (reports.ROOT / "other").write_text("2")
    assert reports.is_current(family)
    (reports.ROOT / "sub" / "script.py").write_text(SCRIPT + "# changed\n")
    assert not reports.is_current(family)
    (line,) = reports.status()
    assert line.startswith("made: stale")


def test_a_failed_run_is_never_current(family: reports.Family) -> None:
    (reports.ROOT / "sub" / "fails").write_text("yes")
    outcome = reports.run_family(family, None)
    assert outcome is not None and not outcome.passed
    assert not reports.is_current(family)


def test_an_unfit_machine_is_no_failure_and_leaves_no_report(family: reports.Family) -> None:
    script = "import sys; print('invalid: busy', file=sys.stderr); sys.exit(3)\n"
    (reports.ROOT / "sub" / "script.py").write_text(script)
    outcome = reports.run_family(family, None)
    assert outcome is not None and outcome.invalid and outcome.summary == "invalid: busy"
    assert not reports.FOLDER.exists() and not reports.is_current(family)


def test_a_slice_takes_the_seed_and_leaves_no_report(family: reports.Family) -> None:
    outcome = reports.run_family(family, 17)
    assert outcome is not None and outcome.figures == [{"name": "x", "seed": ["17"]}]
    assert not reports.FOLDER.exists()


def test_families_need_their_script(family: reports.Family) -> None:
    assert reports.families() == [family]
    (reports.ROOT / "sub" / "script.py").unlink()
    assert reports.families() == []
