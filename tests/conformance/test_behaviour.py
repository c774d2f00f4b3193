"""Every behaviour is caught when it is broken, and no device that behaves is refused.
SPDX-License-Identifier: Apache-2.0

`fake` plays one broken behaviour at a time (`bad=NAME`); the smoke tier and the cases that must
find it are run on it. TEST_BEHAVIOUR=quick runs the whole quick tier each time.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from anyhal.conformance import behaviour

ROOT = Path(__file__).resolve().parents[2]
DRIVER = Path(__file__).parent / "behaviour_driver.py"
NO_QUEUES = "it has no queues"
LATE = ("lifetime/freed-in-flight", "lifetime/source-overwritten", "lifetime/freed-across-queues")
CAPTURE = ("capture/changed-inputs", "capture/two-graphs", "capture/equals-eager")
CHILDREN = (
    "failures/failing-malloc", "extent/end-of-memory", "host_state/loading",
    "fork_exit/fork-after-use", "fork_exit/fork-while-busy", "fork_exit/open-after-fork",
)  # fmt: skip
ANYTHING = ("",)

# mode: (script, cases that must fail, beginnings of cases that may fail with them)
BAD: dict[str, tuple[str, tuple[str, ...], tuple[str, ...]]] = {
    # what overtakes and what is not waited for
    "copies_first": (
        "mode=async",
        ("order/op-after-copy", "order/op-after-fill", "timelines/done-is-done"),
        ANYTHING,
    ),
    "no_wait": (
        "mode=async",
        ("order/across-queues", "order/later-signals"),
        ("order/program-order",),
    ),
    "early_value": ("mode=async", ("order/across-queues",), ()),
    "blocking": (
        "mode=async",
        ("order/nobody-waits",),
        ("timelines/wait-limit", "failures/bad-index"),
    ),
    "signal_waits": ("mode=async", ("order/nobody-waits",), ("timelines/wait-limit",)),
    "thread_queue": ("mode=async", ("order/callers-threads",), ANYTHING),
    "falls": ("mode=async", ("timelines/rise",), ()),
    "early_done": ("mode=async", ("timelines/done-is-done", *LATE), ANYTHING),
    "no_limit": ("mode=async", ("timelines/wait-limit",), ()),
    "notice_twice": ("mode=async", ("timelines/notice",), ()),
    "span_us": ("mode=async", ("timelines/spans",), ()),
    # memory
    "late_pattern": ("mode=async", ("lifetime/arguments",), ("order/op-after-fill",)),
    "keeps_blocks": ("", ("lifetime/given-back",), ("drift/objects",)),
    "mapping_copied": ("mode=async", ("lifetime/mapping",), ()),
    "shared_blocks": ("", ("pools/apart",), ()),
    "odd_blocks": ("", ("pools/as-asked",), ()),
    "any_kind": ("", ("pools/unknown-kind",), ()),
    "oom_internal": (
        "heap=256MiB",
        ("pools/more-than-all", "pools/exhausted", "pools/after-out-of-memory"),
        (),
    ),
    "oom_sticky": ("heap=256MiB", ("pools/more-than-all", "pools/exhausted"), ANYTHING),
    "heaps_shared": ("memory=cell; heap=256MiB", ("pools/exhausted",), ()),
    "trim_drops": ("", ("pools/trim",), ()),
    # the steady state
    "hiccup": (
        "",
        ("hot_path/no-driver-calls", "capture/no-driver-calls"),
        ("capture/", "extent/", "threads/"),  # some try twice, and it wants three
    ),
    "hot_services": ("", ("hot_path/no-services",), ()),
    "hot_malloc": ("", ("hot_path/no-allocation",), ()),
    # failures
    "any_index": (
        "",
        ("failures/bad-index", "failures/through-the-core", "failures/bad-places"),
        (),
    ),
    "any_count": ("", ("failures/wrong-count",), ()),
    "failure_forgotten": ("mode=async", ("failures/bad-index",), ()),
    "unchecked_service": ("", ("failures/refused-memory",), ()),
    "unchecked_malloc": ("", ("failures/failing-malloc",), ()),
    # plans
    "key_dtype": ("", ("plan_keys/dtype",), ("plan_keys/", "drift/")),
    "key_shape": ("", ("plan_keys/shape",), ("plan_keys/", "extent/", "drift/")),
    "key_strides": ("", ("plan_keys/strides",), ("drift/",)),
    "key_offset": ("", ("plan_keys/offset",), ("extent/",)),
    "key_function": ("", ("plan_keys/function",), ANYTHING),
    "key_attribute": ("", ("plan_keys/attribute",), ("extent/", "drift/")),
    "key_scalar": ("", ("plan_keys/scalar",), ("order/", "drift/", "extent/")),
    "key_in_place": ("", ("plan_keys/in-place",), ("drift/", "instances/")),
    "key_target": ("", ("plan_keys/target-dtype",), ("drift/",)),
    "cached_result": ("", ("second_call/changed-values",), ANYTHING),
    "second_differs": ("", ("second_call/same-values",), ANYTHING),
    "bakes_refs": ("", ("second_call/other-arrays",), ANYTHING),
    "reads_workspace": ("workspace=4KiB", ("second_call/workspace",), ()),
    "trusts_workspace": ("workspace=4KiB", ("second_call/poisoned-memory",), ANYTHING),
    "needs_memory": ("", ("second_call/less-memory",), ()),
    "random_bits": (
        "",
        ("determinism/run-to-run",),
        ("second_call/less-memory", "determinism/", "extent/", "capture/equals-eager"),
    ),
    "part_order": ("", ("determinism/parts-in-any-order",), ("extent/",)),
    "batch_lie": ("", ("determinism/batch-invariant",), ("extent/end-of-memory",)),
    # what is read and written
    "writes_input": ("", ("extent/inputs-unchanged",), ("extent/",)),
    "reads_around": ("", ("extent/outside-not-read",), ()),
    "writes_around": ("", ("extent/outside-not-written",), ()),
    "reads_on": ("", ("extent/end-of-memory",), ()),
    # graphs and threads
    "stale_graph": ("", ("capture/changed-inputs",), CAPTURE),
    "last_graph": ("", ("capture/two-graphs",), ()),
    "graph_in_place": ("", ("capture/equals-eager",), ()),
    "plan_scratch": ("", ("threads/queues-of-their-own",), ("threads/",)),
    "one_prepare": ("", ("threads/made-and-ended",), ("threads/",)),
    # long runs
    "leaks_runs": ("", ("drift/calls",), ("drift/",)),
    "leaks_files": ("", ("drift/calls",), ("drift/",)),
    "leaks_plans": ("", ("drift/objects",), ("drift/",)),
    "leaks_refusals": ("", ("refusals/thousand",), ()),
    "drifts": ("", ("drift/results", "drift/calls"), ("threads/", "drift/")),
    # the process
    "host_computing": (
        "",
        ("host_state/computing", "host_state/worker-threads"),
        ("host_state/loading", "extent/"),
    ),
    "host_locale": ("", ("host_state/locale",), ("host_state/loading",)),
    "host_signals": ("", ("host_state/signals",), ("host_state/loading",)),
    "host_environment": ("", ("host_state/environment",), ("host_state/loading",)),
    "host_directory": ("", ("host_state/directory",), ("host_state/loading",)),
    "host_umask": ("", ("host_state/umask",), ("host_state/loading",)),
    "host_limits": ("", ("host_state/limits",), ("host_state/loading",)),
    "host_thread_name": ("", ("host_state/thread-name",), ()),
    "host_affinity": ("", ("host_state/affinity",), ("host_state/loading",)),
    "host_output": ("", ("host_state/output",), ("host_state/loading",)),
    "host_loading": ("", ("host_state/loading",), ()),
    "fork_hangs": ("", ("fork_exit/fork-after-use",), ("fork_exit/",)),
    "fork_crashes": (
        "",
        ("fork_exit/fork-while-busy", "fork_exit/open-after-fork"),
        ("fork_exit/",),
    ),
    "exit_crashes": ("", ("fork_exit/exit",), CHILDREN),
    # instances, devices, questions, refusals
    "instances_share": ("", ("instances/apart",), ("instances/",)),
    "no_reopen": ("", ("instances/reopened",), ()),
    "any_version": ("", ("instances/handshake",), ()),
    "strict_settings": ("", ("instances/settings",), ()),
    "devices_share": ("devices=2", ("devices/apart", "devices/copies"), ()),
    "capability_changes": ("", ("queries/stable",), ()),
    "query_overruns": ("", ("queries/sizes",), ()),
    "long_records": ("", ("queries/prefix",), ()),
    "takes_unknown": ("", ("queries/unknown-words",), ()),
    "any_extension": ("", ("queries/unknown-extension",), ()),
    "untyped": ("", ("refusals/clean",), ("refusals/", "queries/unknown-words")),
    "fickle_refusal": ("", ("refusals/clean",), ()),
    "no_lie": (
        "dtypes=-f64",
        ("refusals/query-is-prepare",),
        ("refusals/", "queries/unknown-words"),
    ),
    "over_limit": ("workspace=4KiB", ("refusals/workspace",), ()),
    "undeclared": ("", ("refusals/through-the-core",), ()),
}
# Cases that no mode of its own breaks alone: what they look at is broken by a mode of others, in a
# process where much is.
ALSO = {
    "drift/many-calls": "leaks_runs",
    "order/program-order": "no_wait",
    "threads/one-plan": "one_prepare",
}
GOOD = (
    "", "memory=cell", "mode=async", "mode=async; memory=cell", "devices=2; mode=async",
    "workspace=4KiB", "mode=async; workspace=4KiB", "heap=256MiB", "mode=async; queue_depth=16",
)  # fmt: skip


def run(device: str, tier: str, *rest: str, script: str = "", limit: float = 240) -> dict[str, Any]:
    """What each case found, by its id without the group."""
    found: dict[str, Any] = {}
    began = ""
    process = subprocess.run(
        [sys.executable, str(DRIVER), device, tier, *rest],
        env={**os.environ, "ANYHAL_FAKE": script or "1"},
        capture_output=True,
        text=True,
        timeout=limit,
        cwd=ROOT,
    )
    for line in process.stdout.splitlines():
        if not line.startswith("{"):
            continue
        row = json.loads(line)
        if "begun" in row:
            began = row["begun"]
        else:
            found[row["id"].removeprefix("behaviour/")] = row
    last = began.removeprefix("behaviour/")
    assert last in found, f"the process ended in {last!r}: {process.stderr[-2000:]}"
    return found


def failures(found: dict[str, Any]) -> dict[str, str]:
    return {name: row["reason"] for name, row in found.items() if row["outcome"] == "fail"}


@pytest.mark.parametrize("mode", BAD)
def test_a_broken_behaviour_is_found(mode: str) -> None:
    script, must, may = BAD[mode]
    tier = os.environ.get("TEST_BEHAVIOUR", "smoke")
    chosen = (tier, "also", *must) if "hangs" not in mode else ("quick", "only", *must)
    wrong = failures(run("fake:0", *chosen, script=f"{script}; bad={mode}"))
    assert set(must) <= set(wrong), f"not found: {sorted(set(must) - set(wrong))}"
    beside = {k: v for k, v in wrong.items() if k not in must and not k.startswith(may or ("?",))}
    assert not beside


def test_every_mode_is_known_everywhere() -> None:
    header = (ROOT / "backends/fake/bad.hh").read_text()
    names = re.findall(r"\bX\((\w+)\)", header.partition("namespace")[0])
    assert sorted(names) == sorted(BAD)
    readme = (ROOT / "backends/fake/README.md").read_text()
    shown = re.findall(r"^\| `(\w+)` \|", readme.partition("## Bad behaviours")[2], re.MULTILINE)
    assert sorted(shown) == sorted(names)


def test_every_case_is_broken_by_a_mode() -> None:
    ids = {case.id.removeprefix("behaviour/") for case in behaviour.cases()}
    named = {name for _, must, _ in BAD.values() for name in must}
    assert named <= ids and set(ALSO) <= ids
    assert ids - named == set(ALSO)


@pytest.mark.parametrize("name", ALSO)
def test_what_breaks_others_breaks_these(name: str) -> None:
    mode = ALSO[name]
    script = "; ".join(filter(None, (BAD[mode][0], f"bad={mode}")))
    kind = name.partition("/")[0]
    tier = "full" if name.endswith("many-calls") else "quick"
    assert name in failures(run("fake:0", tier, "only", kind + "/", script=script))


@pytest.mark.parametrize("script", GOOD)
def test_a_device_that_behaves_is_not_refused(script: str) -> None:
    found = run("fake:0", "quick", script=script)
    assert not failures(found)
    if "async" in script:
        assert all(NO_QUEUES not in row["reason"] for row in found.values())


@pytest.mark.parametrize("device", ["cpu:0", "cpu_ref:0", "dayone:0"])
def test_this_machine_behaves(device: str) -> None:
    found = run(device, "quick")
    assert not failures(found)
    assert all(row["code"] in ("", "not_applicable", "not_declared") for row in found.values())
    print(
        {t: sum(r["seconds"] for r in found.values() if r["tier"] == t) for t in ("smoke", "quick")}
    )


@pytest.mark.foreign
@pytest.mark.parametrize("device", ["opencl:0", "opencl:1", "pjrt:0", "pjrt:1"])
def test_foreign_devices_behave(device: str) -> None:
    found = run(device, "quick", limit=600)
    assert not failures(found)
