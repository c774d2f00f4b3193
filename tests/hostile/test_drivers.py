"""A kept verdict holds as long as the dynamic loader would find the same drivers.

SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import time
from pathlib import Path

import pytest
from members import CC, build_library

from anyhal.runtime import probe
from anyhal.runtime.probe import Stranger, verdict


def forget() -> None:
    """As a new process: what this one remembers is gone, the cache folder stays."""
    probe._known.clear()


@pytest.fixture
def with_driver(objects: list[Path], tmp_path: Path) -> tuple[Stranger, Path]:
    """A library that opens a driver, and where it looks for it."""
    library, driver = tmp_path / "libanyhal_with.so", tmp_path / "drivers" / "libdriver.so"
    path = f'-DDRIVER_PATH="{driver}"'
    build_library(objects, library, "-DWHEN=AT_OPEN", "-DDEED=DRIVER", path)
    sha256 = hashlib.sha256(library.read_bytes()).hexdigest()
    return Stranger(library, sha256, "hostile"), driver


def install(driver: Path, deed: str) -> None:
    """One that does so when it is opened. Drivers are older than the probes that meet them."""
    driver.parent.mkdir(exist_ok=True)
    source = "#include <stdlib.h>\n#include <time.h>\n"
    source += f"__attribute__((constructor)) static void go(void) {{ {deed}; }}"
    new = driver.with_suffix(".new")
    command = [*CC, "-shared", "-xc", "-", "-o", str(new)]
    subprocess.run(command, input=source, text=True, check=True)
    os.utime(new, (1e9, 1e9))
    new.replace(driver)
    time.sleep(0.1)


def test_a_driver_that_was_installed_since_is_met(with_driver: tuple[Stranger, Path]) -> None:
    stranger, driver = with_driver
    assert verdict(stranger).code == ""  # not even its folder is there
    forget()
    assert probe.known(stranger) is not None
    driver.parent.mkdir()
    forget()
    assert probe.known(stranger) is None and verdict(stranger).code == ""
    install(driver, "abort()")
    forget()
    assert verdict(stranger).code == "probe_aborted"
    driver.unlink()
    forget()
    assert verdict(stranger).code == ""


def test_a_driver_of_the_same_size_and_time_is_another(with_driver: tuple[Stranger, Path]) -> None:
    stranger, driver = with_driver
    install(driver, "clock()")
    before = driver.stat()
    assert verdict(stranger).code == ""
    forget()
    assert probe.known(stranger) is not None
    install(driver, "abort()")
    assert driver.stat().st_size == before.st_size and driver.stat().st_mtime == before.st_mtime
    forget()
    assert verdict(stranger).code == "probe_aborted"
    install(driver, "clock()")  # and a refusal goes when its cause has gone
    forget()
    assert verdict(stranger).code == ""


def test_a_library_sees_nothing_of_what_the_loader_was_asked(
    with_driver: tuple[Stranger, Path],
) -> None:
    stranger, driver = with_driver
    install(driver, 'if (getenv("LD_DEBUG") || getenv("LD_DEBUG_OUTPUT")) abort()')
    assert verdict(stranger).code == "" and verdict(stranger).notes == ()
