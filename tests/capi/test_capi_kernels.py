"""Kernels of the application's own from C, and the choice of a device by its identity.
SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import pytest
from c_programs import Build, Play, Registry


@pytest.mark.parametrize(("device", "says"), [("cpu", "ok\n"), ("cpu_ref", "unsupported\n")])
def test_a_kernel_of_the_application(build: Build, play: Play, device: str, says: str) -> None:
    done = play([build("kernel.c"), device])
    assert (done.stdout, done.returncode) == (says, 0), done.stderr


PAIR = ["N.uuid=a1; N.pci=3", "N.uuid=b2; N.pci=4"]
SCRIPTS = ["devices=2; " + "; ".join(c.replace("N", str(i)) for i, c in enumerate(order))
           for order in (PAIR, PAIR[::-1])]  # fmt: skip
RIGHT = ["fake:1", "b2".ljust(32, "0"), "GPU-B2000000-0000-0000-0000-000000000000"]
RIGHT += ["0000:04:00.0", "00000000:04:00.0"]


@pytest.mark.parametrize("script", SCRIPTS, ids=["as listed", "reversed"])
def test_dev_04_identities_and_indices_name_the_same_card_from_c(
    build: Build, play: Play, registry: Registry, script: str
) -> None:
    program, file = build("select.c"), registry(script, "--allow", "fake")
    for name in RIGHT:
        assert play([program, name], file).stdout.startswith("ok|none|fake:1 "), name
        seen = play([program, "fake"], file, ANYHAL_VISIBLE_DEVICES=name)
        assert seen.stdout.startswith("ok|none|fake:1 "), name


def test_dev_03_a_display_is_taken_by_name_alone_from_c(
    build: Build, play: Play, registry: Registry
) -> None:
    program = build("select.c")
    file = registry("devices=2; 0.display_only; 1.integrated", "--allow", "fake")
    given = {"ANYHAL_VISIBLE_DEVICES": "fake"}
    assert play([program, ""], file, **given).stdout.startswith("ok|none|fake:1 ")
    assert play([program, "fake:0"], file, **given).stdout.startswith("ok|none|fake:0 ")
    alone = play([program, ""], file, ANYHAL_VISIBLE_DEVICES="fake:0").stdout
    assert alone.startswith("not_found|none|no device may be chosen"), alone
