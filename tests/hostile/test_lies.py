"""Whatever a backend answers, the outcome is a typed refusal or a right result.

SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from members import HERE, build_library, folder_of

USED = ("used", "")
# lie of liar.c -> the exception, and words that its sentence must have
OUTCOMES = {
    "honest": USED,
    # devices
    "no_kinds": ("BackendLoadError", "without a memory kind"),
    "null_kinds": ("BackendLoadError", "without a memory kind"),
    "kind_count": ("BackendLoadError", "4294967295 memory kinds"),
    "wild_kinds": ("BackendLoadError", "SIGSEGV"),
    "negative_heap": ("BackendLoadError", "18446744073709551615 bytes, which no device has"),
    "no_heap": USED,
    "odd_alignment": ("BackendLoadError", "no powers of two"),
    "huge_alignment": ("BackendLoadError", "no powers of two below 2^30"),
    "huge_granularity": ("BackendLoadError", "which no device has"),
    "kind_flags": ("BackendLoadError", "flags or reserved words"),
    "kind_size": ("BackendLoadError", "a size of 8 bytes"),
    "many_devices": ("BackendLoadError", "4294967295 devices"),
    "growing_devices": ("BackendLoadError", "devices; it is not used"),
    "more_written": USED,
    "past_devices": ("BackendLoadError", "wrote past the records' end"),
    "endless_name": USED,
    "not_utf8": USED,
    "info_flags": ("BackendLoadError", "flags or reserved words"),
    "info_size": ("BackendLoadError", "a size of 8 bytes"),
    "recovery": USED,
    "list_status": ("BackendLoadError", "status 4711, which does not exist"),
    "two_ids": ("BackendLoadError", "two devices with id 0"),
    "endless_error": ("NotFoundError", "zzz"),
    # memory
    "block_0": ("InternalError", "gave block 0"),
    "short_block": ("InternalError", "a block of 524288 bytes"),
    "odd_block": ("InternalError", "no multiple of 256"),
    "no_address": ("InternalError", "without the host address"),
    "end_of_memory": ("InternalError", "leaves the address space"),
    "past_block": ("InternalError", "wrote past the record's end"),
    "same_block": ("InternalError", "a block that is in use"),
    "overlapping_block": ("InternalError", "a block that is in use"),
    # op_query
    "support": ("InternalError", "support 77, which does not exist"),
    "verdict_flags": ("InternalError", "sets flags"),
    "reason": ("UnsupportedError", "unknown_reason"),
    "reason_operand": ("InternalError", "operand 1073741824 of 3"),
    "want_count": ("InternalError", "4294967295 layouts"),
    "wants": ("InternalError", "layout 99, which does not exist"),
    "wild_wants": USED,
    "past_verdict": ("InternalError", "wrote past the record's end"),
    "query_status": ("InternalError", "status -3, which does not exist"),
    # op_prepare: the self-test meets the lie first, and leaves the op out
    "nothing_prepared": ("UnsupportedError", "gave no plan"),
    "no_plan": ("UnsupportedError", "gave no plan"),
    "no_record": ("UnsupportedError", "no full `prepared` record"),
    "short_record": ("UnsupportedError", "no full `prepared` record"),
    "workspace": ("UnsupportedError", "a workspace of 18446744073709551608 bytes"),
    "large_workspace": ("OutOfMemoryError", "1125899906842624 bytes for workspace"),
    "workspace_alignment": ("UnsupportedError", "aligned to 3 bytes"),
    "pack_count": ("UnsupportedError", "packs 4294967295 of 3 operands"),
    "null_packs": ("UnsupportedError", "packs 1 of 3 operands"),
    "pack_operand": ("UnsupportedError", "packed operand 1000"),
    "pack_key": ("UnsupportedError", "packed operand 0"),
    "kernel_name": USED,
    "prepare_status": ("UnsupportedError", "status 4711, which does not exist"),
    # op_enqueue
    "enqueue_status": ("UnsupportedError", "status 4711, which does not exist"),
    "enqueue_error": ("UnsupportedError", "zzz"),
    # device_query
    "huge_fact": USED,
    "growing_fact": USED,
    "past_fact": ("UnsupportedError", "more than the room it was given"),
    "odd_fact": USED,
    "fact_status": USED,
    # host_wait
    "wait_backwards": ("DeviceLostError", "its queue has come to 0"),
    "wait_ahead": USED,
    "wait_past": ("DeviceLostError", "wrote past the record's end"),
    "wait_failed": ("UnsupportedError", "was never computed"),
    "wait_status": ("DeviceLostError", "status 4711, which does not exist"),
    # handshake
    "no_size": ("BackendLoadError", "0 bytes"),
    "null_slot": ("BackendLoadError", "required slot op_enqueue"),
    "zero_version": ("BackendLoadError", "0.0"),
    "reply_size": ("BackendLoadError", "16 bytes"),
    "wild_table": ("BackendLoadError", "SIGSEGV"),
    "threads_call": USED,
}


@pytest.fixture(scope="module")
def outcomes(
    objects: list[Path], tmp_path_factory: pytest.TempPathFactory
) -> dict[str, tuple[str, str]]:
    """All lies in one process, so that what one has spoiled shows in the others."""
    root = tmp_path_factory.mktemp("liar")
    build_library(objects, folder_of(root / "backends", "liar"))
    environ = dict(os.environ, ANYHAL_CACHE=str(root / "cache"))
    environ["ANYHAL_BACKEND_PATH"] = str(root / "backends")
    ran = subprocess.run(
        [sys.executable, str(HERE / "tell_lies.py"), *OUTCOMES, "honest_again"],
        env=environ,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert ran.returncode == 0, f"it ended with {ran.returncode}: {ran.stderr[-2000:]}"
    rows = [json.loads(line) for line in ran.stdout.splitlines()]
    assert rows[-1] == ["honest_again", *USED], "what a liar did harmed a backend in order"
    return {lie: (kind, text) for lie, kind, text in rows}


@pytest.mark.parametrize("lie", OUTCOMES)
def test_a_lie_is_refused_or_harmless(lie: str, outcomes: dict[str, tuple[str, str]]) -> None:
    kind, words = OUTCOMES[lie]
    said, text = outcomes[lie]
    print(f"{lie}: {said}: {text}")
    assert said == kind and words in text
    assert text.isprintable()


def test_every_lie_is_told() -> None:
    source = (HERE / "liar.c").read_text(encoding="utf-8")
    told = set(re.findall(r'is\((?:l|made->of), "(\w+)"\)', source))
    assert told == OUTCOMES.keys() - {"honest"}
