"""What `anyhal doctor` says of devices that are left out, of anyhal's own variables, and of files.
SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "field"))
from loading import manifest
from test_doctor import anyhal, report


def gate_of(found: dict[str, Any], name: str) -> dict[str, str]:
    row: dict[str, str] = next(b for b in found["backends"] if b["backend"] == name)["stages"][-1]
    return row


@pytest.mark.parametrize(("names", "shown"), [("dayone:0", {"dayone"}), ("nosuch", set())])
def test_it_says_which_devices_a_variable_leaves_out(names: str, shown: set[str]) -> None:
    found = report(ANYHAL_VISIBLE_DEVICES=names)
    for backend in ("cpu", "cpu_ref", "dayone"):
        gate = gate_of(found, backend)
        if backend in shown:
            assert gate["status"] == "ok", gate
            continue
        assert (gate["status"], gate["code"]) == ("waiting", "left_out")
        assert gate["detail"] == f"ANYHAL_VISIBLE_DEVICES leaves {backend}:0 out" and gate["hint"]
    done = anyhal("doctor", ANYHAL_VISIBLE_DEVICES=names, COLUMNS="80")
    assert done.returncode == 0
    lines = {line.split()[0]: line for line in done.stdout.splitlines() if line.strip()}
    assert "left out" in lines["cpu"] and ("ready" in lines["dayone"]) == ("dayone" in shown)


def test_it_leaves_a_part_of_a_backend_out() -> None:
    two = {"ANYHAL_FAKE": "devices=2", "ANYHAL_VISIBLE_DEVICES": "cpu,fake:1"}
    found = report(**two)
    gate = gate_of(found, "fake")
    assert gate["status"] == "ok" and gate["detail"].endswith("leaves fake:0 out"), gate
    shown = " ".join(anyhal("doctor", **two, COLUMNS="80").stdout.split())
    assert "; ANYHAL_VISIBLE_DEVICES leaves fake:0 out" in shown


def test_it_lists_our_own_variables_with_what_they_do() -> None:
    given = {"ANYHAL_VISIBLE_DEVICES": "cpu", "ANYHAL_THREADS": "2", "ANYHAL_THREDS": "3"}
    found = report(**given, ANYHAL_LOG="")
    own = {row["name"]: row for row in found["environment"] if row["name"].startswith("ANYHAL_")}
    assert {name: row["value"] for name, row in own.items()} == given
    assert own["ANYHAL_THREADS"]["does"].startswith("Threads that compute on the host")
    assert "reads no variable of that name" in own["ANYHAL_THREDS"]["does"]
    assert "variable: ANYHAL_THREADS=2: Threads" in anyhal("doctor", **given).stdout


def test_the_table_names_the_file_and_cuts_nothing_off(tmp_path: Path) -> None:
    folder = tmp_path / ("a" * 60) / "gone"
    folder.mkdir(parents=True)
    (folder / "backend.toml").write_text(manifest("gone"))
    done = anyhal("doctor", ANYHAL_BACKEND_PATH=str(folder), COLUMNS="80")
    table = done.stdout.partition("processor:")[0]
    assert "…" not in table and max(map(len, table.splitlines())) <= 80
    assert str(folder / "libgone.so") in "".join(table.split())


def test_a_library_that_was_not_looked_at_has_no_state(tmp_path: Path) -> None:
    (tmp_path / "backend.toml").write_text(
        manifest("lost") + '[hardware]\ndevice_nodes = ["/dev/no-such-node*"]\n'
    )
    (tmp_path / "liblost.so").write_bytes(b"")
    found = report(ANYHAL_BACKEND_PATH=str(tmp_path))
    states = {b["backend"]: b["state"] for b in found["backends"]}
    assert states["lost"] == "" and states["cpu"] == "self-tested"
