"""`anyhal doctor` survives everything and says it; `anyhal backend lint` finds mistakes.
SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "field"))
from loading import backend, cc, kit, manifest, row

from anyhal.runtime.stages import CODES, STAGES, STATUSES


def anyhal(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    env = {k: v for k, v in os.environ.items() if not k.startswith("ANYHAL_")} | environment
    code = "import sys; from anyhal.cli import main; main(sys.argv[1:])"
    return subprocess.run([sys.executable, "-c", code, *arguments], env=env, capture_output=True,
                          text=True, timeout=120)  # fmt: skip


def report(*arguments: str, **environment: str) -> dict[str, Any]:
    done = anyhal("doctor", "--json", *arguments, **environment)
    assert done.returncode == 0, done.stderr
    loaded: dict[str, Any] = json.loads(done.stdout)
    return loaded


def stop_of(found: dict[str, Any], name: str) -> dict[str, str]:
    stages = next(b["stages"] for b in found["backends"] if b["backend"] == name)
    return next(row for row in stages if row["status"] in ("failed", "absent"))


@pytest.fixture(scope="module")
def junk(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One backend for each thing that can be wrong before or while it is opened."""
    root = tmp_path_factory.mktemp("junk")
    good = backend(root / "parts", "good") / "libgood.so"

    def make(name: str, body: bytes | None, text: str | None = None) -> Path:
        folder = root / "all" / name
        folder.mkdir(parents=True)
        (folder / "backend.toml").write_text(manifest(name) if text is None else text)
        if body is not None:
            (folder / f"lib{name}.so").write_bytes(body)
        return folder

    make("text", None, "not toml at all [[[")
    make("empty", None, "")
    make("gone", None)
    make("random", os.urandom(4096))
    odd = make("odd", good.read_bytes())
    os.rename(odd, os.path.join(os.fsencode(odd.parent), b"odd\xff"))
    make("short", good.read_bytes()[:2000])
    machine = bytearray(good.read_bytes())
    machine[18] = 243
    make("riscv", bytes(machine))
    other = make("twice", good.read_bytes())
    make("twice2", good.read_bytes(), manifest("twice2"))
    shutil.copy(other / "libtwice.so", root / "x.so")
    cc(
        "int one; int two; int anyhal_backend_main(void) { return 0; }",
        make("loud", b"") / "libloud.so",
    )
    cc("int x;", make("mute", b"") / "libmute.so")
    need = cc("int n;", root / "libneeded.so.4", "-Wl,-soname,libneeded.so.4")
    backend(root / "all", "needy", "", "-Wl,--no-as-needed", str(need))
    backend(root / "all", "lost", '[hardware]\ndevice_nodes = ["/dev/no-such-node*"]\n')
    backend(root / "all", "old", "").joinpath("backend.toml").write_text(
        manifest("old").replace('"0.3"', '"0.1"')
    )
    backend(root / "all", "fine")
    need.unlink()
    return root / "all"


def test_it_lists_each_by_its_reason_and_ends_well(junk: Path) -> None:
    found = report(ANYHAL_BACKEND_PATH=str(junk))
    reasons = {
        "text": ("manifest", "bad_manifest"),
        "empty": ("manifest", "bad_manifest"),
        "gone": ("manifest", "no_library"),
        "old": ("manifest", "abi_mismatch"),
        "odd\udcff": ("found", "unreadable"),
        "random": ("architecture", "not_elf"),
        "short": ("architecture", "cut_off"),
        "riscv": ("architecture", "other_machine"),
        "lost": ("architecture", "hardware_absent"),
        "twice2": ("trust", "duplicate"),
        "loud": ("trust", "symbols"),
        "mute": ("trust", "no_entry"),
        "needy": ("dependencies", "missing_library"),
    }
    for name, (stage, code) in reasons.items():
        row = stop_of(found, name)
        assert (row["stage"], row["code"]) == (stage, code), row
        assert row["detail"] and row["hint"] and row["file"]
    needy = stop_of(found, "needy")
    assert "libneeded.so.4, which libneedy.so needs" in needy["detail"]
    fine = next(b for b in found["backends"] if b["backend"] == "fine")
    assert [row["status"] for row in fine["stages"]] == ["ok"] * 11 + ["waiting"]
    cpu = next(b for b in found["backends"] if b["backend"] == "cpu")
    assert all(row["status"] == "ok" for row in cpu["stages"]) and cpu["state"] == "self-tested"


def test_its_form_is_what_the_page_says(junk: Path) -> None:
    found = report(ANYHAL_BACKEND_PATH=str(junk), ONEDNN_DEFAULT_FPMATH_MODE="BF16")
    assert found["schema"] == 1
    for one in found["backends"]:
        assert set(one) == {"backend", "manifest", "state", "stages"}
        assert [row["stage"] for row in one["stages"]] == list(STAGES)
        for stage in one["stages"]:
            assert set(stage) == {"stage", "status", "file", "code", "detail", "hint"}
            assert stage["status"] in STATUSES and (not stage["code"] or stage["code"] in CODES)
    assert found["cpu"]["features"] and found["quota"]["affinity"]
    (variable,) = [v for v in found["environment"] if v["name"] == "ONEDNN_DEFAULT_FPMATH_MODE"]
    assert variable["value"] == "BF16" and "fewer bits" in variable["does"]
    mine = [r for r in found["libraries"]["mapped"] if r["backend"] == "fine"]
    assert [r["path"] for r in mine] == [str(junk / "fine" / "libfine.so")]
    assert any(str(junk) in place for place in found["searched"])


def test_the_table_fits_eighty_columns(junk: Path) -> None:
    done = anyhal("doctor", ANYHAL_BACKEND_PATH=str(junk), COLUMNS="80")
    assert done.returncode == 0
    table = done.stdout.partition("processor:")[0]
    assert all(len(line) <= 80 for line in table.splitlines())
    (line,) = [line for line in table.splitlines() if line.startswith("gone ")]
    assert "refused" in line and "manifest" in line and "there is no such file" in line


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"ANYHAL_BACKEND_PATH": "relative"}, "relative path"),
        ({"ANYHAL_TRUST": "relative"}, "relative path"),
        ({"ANYHAL_VISIBLE_DEVICES": "no_such_thing:7"}, "no_such_thing"),
        ({"ANYHAL_LOG": "shout"}, "no log level"),
    ],
)
def test_a_variable_that_cannot_be_read_is_a_note(given: dict[str, str], said: str) -> None:
    found = report(**given)
    assert any(said in note for note in found["notes"]) and found["backends"]


def test_the_record_hangs_on_later_errors(junk: Path) -> None:
    code = """
import anyhal as hal
try:
    hal.device("short")
except hal.BackendLoadError as why:
    print(why.stage, why.reason, bool(why.hint), len(why.stages), "was cut off" in str(why))
try:
    hal.device("nothing_like_it")
except hal.NotFoundError as why:
    print(sorted({row.code for row in why.stages}), "before: backend" in str(why))
"""
    env = {**os.environ, "ANYHAL_BACKEND_PATH": str(junk)}
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True,
                          timeout=120)  # fmt: skip
    first, second = done.stdout.splitlines()
    assert first == "architecture cut_off True 12 True", done.stderr
    assert "bad_manifest" in second and "symbols" in second and second.endswith("True")


# ------------------------------------------------------------------------------------------- lint


def lint(folder: Path) -> tuple[int, dict[str, Any]]:
    done = anyhal("backend", "lint", str(folder), "--json")
    found: dict[str, Any] = json.loads(done.stdout)
    return done.returncode, found


def test_lint_has_nothing_to_say_of_a_good_one(tmp_path: Path) -> None:
    code, found = lint(backend(tmp_path, "chip"))
    assert code == 0 and not any(f["wrong"] for f in found["findings"]), found


def test_lint_names_a_hard_linked_vendor_runtime_and_more(tmp_path: Path) -> None:
    vendor = kit(tmp_path / "vendor", 1)
    folder = backend(tmp_path, "chip", row(tmp_path / "vendor"), "-Wl,--no-as-needed", str(vendor),
                     f"-Wl,-rpath,{tmp_path / 'vendor'}", "-Wl,-z,execstack")  # fmt: skip
    code, found = lint(folder)
    said = [f["detail"] for f in found["findings"]]
    assert code == 1
    assert any("linked with libkit.so.3" in text for text in said)
    assert any(f"run path has {tmp_path / 'vendor'}" in text for text in said)
    assert any("stack that can be executed" in text for text in said)


def test_lint_names_symbols_and_a_wrong_name(tmp_path: Path) -> None:
    folder = tmp_path / "other"
    folder.mkdir()
    (folder / "backend.toml").write_text(manifest("chip"))
    text = "int anyhal_backend_main(void) { return 0; }\nint more;\n"
    cc(text, folder / "libchip.so")
    code, found = lint(folder)
    said = " ".join(f["detail"] for f in found["findings"])
    assert code == 1 and "exports 1 symbols beside" in said and "the folder is other" in said
    assert lint(tmp_path)[0] == 1  # no manifest


def test_a_folder_of_another_name_is_a_note_of_lint_and_loads(tmp_path: Path) -> None:
    folder = backend(tmp_path, "chip").rename(tmp_path / "other")
    code, found = lint(folder)
    (said,) = [f for f in found["findings"] if "the folder is other" in f["detail"]]
    assert code == 0 and not said["wrong"], found
    (stages,) = [
        b["stages"]
        for b in report(ANYHAL_BACKEND_PATH=str(folder))["backends"]
        if b["backend"] == "chip"
    ]
    assert all(row["status"] != "failed" for row in stages), stages


def test_an_unknown_action_is_said_in_one_sentence(tmp_path: Path) -> None:
    for arguments, said in (
        (("foo", "mychip"), "'foo' is no action of `anyhal backend`; write lint"),
        (("lint",), "Missing argument"),
        (("lint", "mychip", "--jsno"), "No such option"),
    ):
        done = anyhal("backend", *arguments)
        assert (done.returncode, done.stdout) == (2, "")
        assert said.lower() in done.stderr.lower() and "Value error" not in done.stderr
        assert done.stderr.endswith("; see anyhal backend --help\n"), done.stderr
    assert anyhal("nosuch").stderr.endswith("; see anyhal --help\n")
