"""The record of the twelve stages: order, what was not reached, and the first failure.
SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import pytest

from anyhal.runtime.stages import CODE_OF_STAGE, CODES, STAGES, Stage, Stages


def test_what_was_not_reached_waits_or_is_skipped() -> None:
    stages = Stages()
    stages.passed("found", "/chip")
    assert [row.stage for row in stages] == list(STAGES) and len(stages) == 12
    assert [row.status for row in stages] == ["ok"] + ["waiting"] * 11
    stages.add(Stage("manifest", "failed", "/chip/backend.toml", "bad_manifest", "why", "what"))
    assert [row.status for row in stages] == ["ok", "failed"] + ["skipped"] * 10


def test_the_first_failure_is_kept_for_ever() -> None:
    first = Stage("open", "failed", "/chip.so", "open_failed", "first", "")
    stages = Stages([first])
    stages.add(Stage("open", "failed", "/chip.so", "no_memory", "second", ""))
    stages.passed("open", "/chip.so")
    stages.passed("entry", "/chip.so")
    assert stages.first_failure is first and stages[5] is first
    assert stages[6].status == "skipped"


def test_what_was_absent_may_come() -> None:
    stages = Stages([Stage("init", "absent", "/chip.so", "driver_absent", "no driver", "")])
    assert stages.first_failure is not None and stages.first_failure.code == "driver_absent"
    stages.passed("init", "/chip.so")
    assert stages.first_failure is None and stages[10].status == "waiting"


def test_an_unknown_code_is_a_mistake_of_the_loader() -> None:
    with pytest.raises(AssertionError):
        Stage("open", "failed", "/chip.so", "no_such_code")
    assert set(CODE_OF_STAGE) <= set(STAGES) and set(CODE_OF_STAGE.values()) <= set(CODES)
