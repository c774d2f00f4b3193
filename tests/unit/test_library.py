"""What is known of a library before it is opened: symbols, needs, build id, hardware.
SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

from pathlib import Path

import pytest
from elf_writer import elf_library

from anyhal.runtime import elf, hardware
from anyhal.runtime.discovery import BackendRecord, Root, discover
from anyhal.runtime.stages import Stage


def make(root: Path, name: str, body: bytes, extra: str = "") -> Path:
    folder = root / name
    folder.mkdir(parents=True)
    (folder / "backend.toml").write_text(
        f'name = "{name}"\nvendor = "t"\nlibrary = "lib{name}.so"\nabi = "0.3"\nlicence = "x"\n'
        f'summary = "x"\n{extra}'
    )
    (folder / f"lib{name}.so").write_bytes(body)
    return folder


def found(root: Path) -> list[BackendRecord]:
    return list(discover(roots=[Root(root, "a test")], hashes={}).backends)


def stop(root: Path) -> Stage:
    (record,) = found(root)
    row = record.stages.first_failure
    assert row is not None
    return row


def test_one_symbol_and_gnu_unique_ones_count(tmp_path: Path) -> None:
    entry = "anyhal_backend_main"
    make(tmp_path / "a", "chip", elf_library(exports=(entry, "more"), unique=("_ZN1x1yE",)))
    row = stop(tmp_path / "a")
    assert (row.stage, row.code) == ("trust", "symbols")
    assert "2 symbols beside" in row.detail and "1 of them GNU-unique" in row.detail
    make(tmp_path / "b", "chip", elf_library(exports=("other",)))
    assert stop(tmp_path / "b").code == "no_entry"
    make(tmp_path / "c", "chip", elf_library(exports=(entry, "_init", "_end", "__bss_start")))
    assert found(tmp_path / "c")[0].error is None  # what linkers export by themselves


def test_the_missing_library_is_named_and_not_the_one_that_needs_it(tmp_path: Path) -> None:
    body = elf_library(needed=("libnear.so", "libc.so.6"), runpath="$ORIGIN")
    folder = make(tmp_path, "chip", body)
    near = folder / "libnear.so"
    near.write_bytes(elf_library(exports=(), needed=("libgone.so.9",), runpath="$ORIGIN"))
    row = stop(tmp_path)
    assert (row.stage, row.code) == ("dependencies", "missing_library")
    assert row.detail.startswith("libgone.so.9, which libnear.so needs")
    near.write_bytes(elf_library(exports=(), needed=("libm.so.6",)))
    assert found(tmp_path)[0].error is None


def test_the_same_build_twice_is_one_backend(tmp_path: Path) -> None:
    make(tmp_path, "one", elf_library(build_id=b"\1" * 20))
    make(tmp_path, "two", elf_library(build_id=b"\1" * 20, tail=b"signed"))
    make(tmp_path, "zoo", elf_library(build_id=b"\2" * 20))
    one, two, zoo = found(tmp_path)
    assert one.error is None and zoo.error is None
    row = two.stages.first_failure
    assert row is not None and row.code == "duplicate" and "same build as" in row.detail


def test_a_library_for_a_newer_glibc_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make(tmp_path, "chip", elf_library())
    monkeypatch.setattr(elf, "glibc_needed", lambda read: (2, 99))
    row = stop(tmp_path)
    assert row.code == "glibc_too_old" and "built for glibc >= 2.99" in row.detail


@pytest.mark.parametrize(
    ("lines", "here", "why"),
    [
        ('device_nodes = ["{nodes}/chip*"]', False, "/chip* is here"),
        ('device_nodes = ["{nodes}/chip*", "{nodes}/dev"]', True, ""),
        ('pci = ["10de:2330", "1e36"]', False, "none of PCI 10de:2330, PCI 1e36 is here"),
        ('pci = ["10de"]', True, ""),
        ('pci = ["10de:1111"]', True, ""),
        ('pci = ["ffff"]\ndevice_nodes = ["{nodes}/dev"]', True, ""),
        ('cpu_features = ["avx2", "amx_of_tomorrow"]', False, "lacks amx_of_tomorrow"),
        ('cpu_features = ["avx2"]', True, ""),
    ],
)
def test_a_backend_whose_hardware_is_absent_stops_early(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lines: str, here: bool, why: str
) -> None:
    nodes, pci = tmp_path / "nodes", tmp_path / "pci" / "0000:01:00.0"
    nodes.mkdir(), pci.mkdir(parents=True)
    (nodes / "dev").touch()
    (pci / "modalias").write_text("pci:v000010DEd00001111sv000010DEsd0000\n")
    (tmp_path / "cpu").write_text("model\t: x\nflags\t\t: sse avx avx2\n")
    monkeypatch.setattr(hardware, "_PCI_DEVICES", tmp_path / "pci")
    monkeypatch.setattr(hardware, "_CPU", tmp_path / "cpu")
    hardware.pci_ids.cache_clear(), hardware.cpu_features.cache_clear()
    try:
        make(tmp_path / "b", "chip", elf_library(), "[hardware]\n" + lines.format(nodes=nodes))
        (record,) = found(tmp_path / "b")
        row = record.stages.first_failure
        if here:
            assert row is None
        else:
            assert row is not None and row.code == "hardware_absent" and why in row.detail
            assert (row.stage, row.status) == ("architecture", "absent")
            assert record.sha256 == "" and "is not used here" in str(record.error)
    finally:
        hardware.pci_ids.cache_clear(), hardware.cpu_features.cache_clear()
