"""The pages say what the reader of backend.toml and the loader's codes are.
SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from anyhal.runtime import manifest
from anyhal.runtime.stages import CODES
from anyhal.runtime.versions import contract_fits

REFERENCE = Path(__file__).resolve().parents[2] / "docs" / "reference"
PAGE = (REFERENCE / "schemas" / "backend.toml.md").read_text(encoding="utf-8")
TYPES = {
    "text": str,
    "integer": int,
    "boolean": bool,
    "table": dict,
    "array of text": list,
    "array of tables": list,
}
TABLES = {
    "## Top level": manifest._KEYS,
    "## [hardware]": manifest._HARDWARE,
    "| Key of `driver`": manifest._DRIVER,
    "## [[libraries]]": manifest._LIBRARY_KEYS,
    "## [opens]": manifest._OPENS,
}


@pytest.mark.parametrize("title", TABLES)
def test_the_page_has_every_key_with_its_type(title: str) -> None:
    part = PAGE[PAGE.index(title) + len(title) :]
    rows: dict[str, type] = {}
    for line in part.splitlines()[1:]:
        found = re.match(r"\| `(\w+)` \| ([a-z ]+) \|", line)
        if found is not None:
            rows[found[1]] = TYPES[found[2]]
        elif rows:
            break
    assert rows == TABLES[title]


def test_what_the_page_calls_needed_is() -> None:
    part = PAGE[PAGE.index("## Top level") : PAGE.index("## [hardware]")]
    needed = re.findall(r"\| `(\w+)` \| [a-z ]+ \| yes(?:, or `python`)? \|", part)
    assert tuple(needed) == manifest._REQUIRED
    assert re.findall(r"\| `(\w+)` \| [a-z ]+ \| yes, or `(\w+)` \|", part) == [
        ("library", "python"),
        ("python", "library"),
    ]


def test_a_chip_in_python_needs_no_library(tmp_path: Path) -> None:
    head = 'name = "chip"\nvendor = "t"\nabi = "0.3"\nlicence = "x"\nsummary = "x"\n'
    (tmp_path / "backend.toml").write_text(f'{head}python = "chip.py"\n')
    assert manifest.read_manifest(tmp_path / "backend.toml").python
    (tmp_path / "backend.toml").write_text(head)
    with pytest.raises(manifest.ManifestError, match="library is missing"):
        manifest.read_manifest(tmp_path / "backend.toml")


def test_the_example_is_a_manifest(tmp_path: Path) -> None:
    example = re.search(r"```toml\n(.*?)```", PAGE, re.DOTALL)
    assert example is not None
    (tmp_path / "backend.toml").write_text(example[1])
    read = manifest.read_manifest(tmp_path / "backend.toml")
    assert read.name == "mychip" and read.hardware.driver is not None
    assert [row.stack for row in read.libraries] == ["mychip3", "mychip3"]


def test_the_codes_are_those_of_the_page() -> None:
    page = (REFERENCE / "errors.md").read_text(encoding="utf-8").partition("## Codes of")[2]
    assert dict(re.findall(r"^\| `(\w+)` \| (.+) \|$", page, re.MULTILINE)) == CODES


@pytest.mark.parametrize(
    ("abi", "floor", "core", "fits"),
    [
        ("0.3", "", "0.3", True),
        ("0.3", "", "0.4", False),
        ("0.3", "", "1.0", False),
        ("1.2", "", "1.2", True),
        ("1.2", "", "1.3", True),
        ("1.2", "", "1.1", False),
        ("1.2", "1.0", "1.1", True),
        ("1.2", "1.1", "1.0", False),
        ("1.2", "", "2.0", True),
        ("1.2", "", "3.0", False),
        (">=1.0,<2", "", "1.7", True),
        (">=1.0,<2", "", "2.0", False),
        (">=0.3,<0.5", "", "0.4", True),
    ],
)
def test_which_cores_a_backend_runs_on(abi: str, floor: str, core: str, fits: bool) -> None:
    assert contract_fits(abi, floor, core) is fits


@pytest.mark.parametrize(
    ("lines", "why"),
    [
        ('[hardware]\npci = ["0x10de"]', "no PCI id"),
        ('[hardware]\ndevice_nodes = ["dev/x"]', "no absolute path"),
        ('[hardware]\ndriver = { file = "/x", least = "new" }', "is no version"),
        ('[hardware]\ndriver = { file = "/x" }', "hardware.driver.least is missing"),
        ('[[libraries]]\nsetting = "a"\nfile = "libx.so"\npackage = "x"', "names no version"),
        ('[[libraries]]\nsetting = "a"\nfile = "libx.so.1"', "libraries.package is missing"),
        ('[[libraries]]\nsetting = "a"\nfile = "l.so.1"\nroots = ["../x"]', "no absolute path"),
        ('[[libraries]]\nsetting="a"\nfile="l.so.1"\npackage="x"\nversions="3"', "is no range"),
        ('floor = "one"', "floor 'one' is not a version"),
    ],
)
def test_what_is_written_wrongly_is_said(tmp_path: Path, lines: str, why: str) -> None:
    head = 'name = "chip"\nvendor = "t"\nlibrary = "libchip.so"\nabi = "0.3"\n'
    (tmp_path / "backend.toml").write_text(f'{head}licence = "x"\nsummary = "x"\n{lines}\n')
    with pytest.raises(manifest.ManifestError, match=why):
        manifest.read_manifest(tmp_path / "backend.toml")
