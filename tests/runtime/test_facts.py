"""Facts files: what devices answered, and the same decisions made from them without a device.

SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import anyhal as hal
from anyhal.routing import replay
from anyhal.routing.facts import Contract

CALLS = ["matmul f32[4,8] f32[8,16]", "softmax bf16[3,5] axis=0", "add i32[7] i32[7]"]


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Any:
    path = tmp_path_factory.mktemp("facts") / "facts.json"
    found = hal.facts(path, calls=CALLS)
    assert json.loads(path.read_text("utf-8")) == json.loads(json.dumps(found))
    assert [p.name for p in path.parent.iterdir()] == ["facts.json"], "no part is left behind"
    return json.loads(path.read_text("utf-8"))


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("device", ["cpu:0", "cpu_ref:0", "dayone:0"])
def test_a_decision_is_the_same_again(data: Any, call: str, device: str) -> None:
    with hal.use(device=device):
        here = hal.explain(call)
    again = replay.decide_again(replay.from_data(data, "it"), call, device)
    assert (again.choice, again.form, again.sentence) == (here.choice, here.form, here.sentence)
    assert again.refusals == here.refusals


def test_a_file_of_before_devices_said_their_driver_is_read(data: Any) -> None:
    later = ("driver", "state_code", "state_why")
    old = [{k: v for k, v in d.items() if k not in later} for d in data["devices"]]
    assert all(
        d.driver == "" for d in replay.from_data(data | {"devices": old}, "it").facts.devices
    )


def test_another_policy_is_tried_on_the_same_answers(data: Any) -> None:
    recording = replay.from_data(data, "it")
    never = replay.decide_again(recording, CALLS[1], "dayone:0", Contract(fallback="never"))
    assert never.choice == ""
    anywhere = replay.decide_again(recording, CALLS[1], "dayone:0", Contract(fallback="any"))
    assert (anywhere.choice, anywhere.form) == ("dayone:0", "decomposed")


def test_a_call_that_was_not_recorded_names_one_that_was(data: Any) -> None:
    with pytest.raises(hal.NotFoundError, match=r"not in it; recorded: matmul"):
        replay.decide_again(replay.from_data(data, "it"), "matmul f32[4,8] f32[8,17]")


def test_it_needs_no_device(data: Any, tmp_path: Path) -> None:
    path = tmp_path / "facts.json"
    path.write_text(json.dumps(data), "utf-8")
    program = "import sys; from anyhal.cli import main; sys.exit(main())"
    command = [sys.executable, "-c", program, "explain", CALLS[0], "--json"]
    command += ["--facts", str(path), "--device", "cpu:0"]
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, "ANYHAL_VISIBLE_DEVICES": "none"},
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["choice"] == "cpu:0"


BROKEN: list[tuple[Any, str]] = [
    ([], "no facts file"),
    ({}, "no facts file"),
    ({"schema": 2}, "schema 2 is not 1"),
    ({"schema": 1, "devices": [{"name": 1}]}, "no facts file"),
]


@pytest.mark.parametrize(("broken", "why"), BROKEN)
def test_what_is_no_facts_file_is_said_to_be_none(broken: Any, why: str) -> None:
    with pytest.raises(hal.InvalidArgumentError, match=why):
        replay.from_data(broken, "broken.json")


def test_every_bent_field_is_refused_with_a_sentence_or_harmless(data: Any) -> None:
    def bend(node: Any, path: tuple[Any, ...] = ()) -> Any:
        keys = (
            node if isinstance(node, dict) else range(len(node)) if isinstance(node, list) else ()
        )
        for key in keys:
            yield (*path, key)
            yield from bend(node[key], (*path, key))

    small = hal.facts()
    small = json.loads(json.dumps({**small, "calls": small["calls"][:1]}))
    refused = 0
    for path in list(bend(small)):
        for wrong in (None, -1, "x", [], {}):
            copy = json.loads(json.dumps(small))
            node = copy
            for key in path[:-1]:
                node = node[key]
            node[path[-1]] = wrong
            try:
                replay.decide_again(replay.from_data(copy, "bent.json"), CALLS[0])
            except hal.HalError as why:
                refused += 1
                said = str(why)
                assert "bent.json" in said or "facts file" in said or CALLS[0] in said, (path, said)
            else:  # text for text, a number for a number, an empty list where there may be none
                assert wrong is not None or "attrs" in path or "work" in path, (path, wrong)
    assert refused > 3 * len(list(bend(small)))


NAN = '{"schema": 1, "devices": NaN}'
NO_FACTS: dict[str, tuple[Any, str]] = {
    "nothing": (lambda path: None, "no such file"),
    "a folder": (lambda path: path.mkdir(), "not a regular file"),
    "a pipe": (os.mkfifo, "not a regular file"),
    "a link to itself": (lambda path: path.symlink_to(path), "symbolic links"),
    "empty": (lambda path: path.touch(), "it is no JSON"),
    "bytes": (lambda path: path.write_bytes(bytes(range(256))), "it is no JSON"),
    "cut off": (lambda path: path.write_text('{"schema": 1, "devi'), "it is no JSON"),
    "brackets": (lambda path: path.write_text("[" * 100_000), "it is no JSON"),
    "objects": (lambda path: path.write_text('{"a":' * 100_000), "it is no JSON"),
    "brackets that close": (lambda path: path.write_text("[" * 900 + "]" * 900), "no facts file"),
    "NaN": (lambda path: path.write_text(NAN), "holds NaN"),
    "a long number": (lambda path: path.write_text("9" * 10_000), "it is no JSON"),
    "huge": (lambda path: os.truncate(_touched(path), 1 << 40), "larger than"),
}


def _touched(path: Path) -> Path:
    path.touch()
    return path


@pytest.mark.parametrize("kind", NO_FACTS)
def test_a_file_that_is_no_facts_file(kind: str, tmp_path: Path) -> None:
    from anyhal.cli.explain import explain

    make, why = NO_FACTS[kind]
    path = tmp_path / "facts.json"
    make(path)
    with pytest.raises(hal.InvalidArgumentError, match=f"reading facts from .*{why}.*; "):
        explain([CALLS[0]], facts=path)


@pytest.mark.parametrize("wrong", [10**400, 1 << 64, 1e400, float("nan"), True, [[]], {"a": {}}])
@pytest.mark.parametrize("key", ["rank", "memory_bytes", "name", "memory_kinds"])
def test_a_number_that_no_fact_can_be(data: Any, key: str, wrong: Any) -> None:
    bent = json.loads(json.dumps(data))
    bent["devices"][0][key] = wrong
    with pytest.raises(hal.InvalidArgumentError, match="no facts file"):
        replay.from_data(bent, "bent.json")


def test_attributes_without_end(data: Any) -> None:
    bent = json.loads(json.dumps(data))
    deep: Any = []
    for _ in range(100_000):
        deep = [deep]
    bent["calls"][0]["attrs"] = {"axis": deep}
    with pytest.raises(hal.InvalidArgumentError, match="no facts file"):
        replay.from_data(bent, "bent.json")
    del bent["calls"][0]["attrs"]["axis"]
    while deep:
        deep = deep.pop()  # a list this deep is not freed by recursion everywhere


def _set(*path: Any) -> Any:
    *keys, last, value = path

    def bend(data: Any) -> None:
        for key in keys:
            data = data[key]
        data[last] = value

    return bend


_VERDICT = ("calls", 0, "candidates", 0, "verdicts", 0)
_WANT = {"operand": 0, "layout": "dense", "alignment": 0}
ESCAPE, HALF = "\x1b]0;title\x07", "\ud800"
UNTRUE: dict[str, Any] = {
    "a state": _set("devices", 0, "state", "wonderful"),
    "a rank": _set("devices", 0, "rank", 1 << 31),
    "negative memory": _set("devices", 0, "memory_bytes", -1),
    "negative threads": _set("devices", 0, "own_threads", -1),
    "one name twice": lambda data: data["devices"].append(data["devices"][0]),
    "one answer twice": lambda data: data["calls"][0]["candidates"].append(
        data["calls"][0]["candidates"][0]
    ),
    "a schema that is true": _set("schema", True),
    "a negative cost": _set(*_VERDICT, 1, "cost_ns", -1),
    "numerics": _set(*_VERDICT, 1, "numerics", "lies"),
    "a support": _set(*_VERDICT, 1, "support", "maybe"),
    "an operand too many": _set(*_VERDICT, 1, "operand", 3),
    "an operand before all": _set(*_VERDICT, 1, "operand", -2),
    "an op": _set(*_VERDICT, 0, "mat_mul"),
    "a call": _set("calls", 0, "op", "mat_mul"),
    "a layout": _set(*_VERDICT, 1, "wants", [{**_WANT, "layout": "round"}]),
    "an alignment": _set(*_VERDICT, 1, "wants", [{**_WANT, "alignment": -1}]),
    "a place": _set(*_VERDICT, 1, "wants", [{**_WANT, "operand": 3}]),
    "negative bytes": _set("calls", 0, "operands", 0, "nbytes", -1),
    "negative work": _set("calls", 0, "work", "flops", -1.0),
    **{
        f"{word!a} in {'.'.join(map(str, path))}": _set(*path, word)
        for word in (ESCAPE, HALF, "a\nb", "\u202e")
        for path in (
            ("devices", 0, "name"),
            ("devices", 0, "arch"),
            ("devices", 0, "note"),
            ("devices", 0, "memory_kinds", 0),
            ("notes", slice(0, 0)),
            ("calls", 0, "device"),
            ("calls", 0, "attrs", "out_dtype"),
            ("calls", 0, "operands", 0, "text"),
            (*_VERDICT, 1, "text"),
            (*_VERDICT, 1, "reason"),
        )
    },
}


@pytest.mark.parametrize("kind", UNTRUE)
def test_facts_that_cannot_be(data: Any, kind: str) -> None:
    bent = json.loads(json.dumps(data))
    replay.from_data(bent, "straight.json")
    UNTRUE[kind](bent)
    with pytest.raises(hal.InvalidArgumentError, match="reading facts from bent") as refusal:
        replay.from_data(bent, "bent.json")
    assert str(refusal.value).isprintable()


def test_what_a_vendor_says_is_written_printable_and_read_again() -> None:
    from anyhal.routing.facts import DeviceFact, Facts

    said = Facts((DeviceFact("cpu:0", "cpu", arch=ESCAPE + HALF, note="two\nlines"),))
    (read,) = replay.from_data(replay.to_data(said, []), "it").facts.devices
    assert (read.arch, read.note) == (r"\x1b]0;title\x07\ud800", r"two\nlines")


def test_a_device_that_is_not_in_it_is_refused(data: Any) -> None:
    recording = replay.from_data(data, "it")
    assert replay.decide_again(recording, CALLS[0], "cpu").choice == "cpu:0"
    for name, error in (("cpu:7", hal.NotFoundError), ("cpu:0\n", hal.InvalidArgumentError)):
        with pytest.raises(error):
            replay.decide_again(recording, CALLS[0], name)


def test_a_place_that_cannot_be_written_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(hal.InvalidArgumentError, match="choose a file that can be written"):
        hal.facts(tmp_path / "no" / "folder.json")


# -------------------------------------------------------------------------------------- numerics


@pytest.mark.parametrize(
    ("option", "word"), [("numerics", "bf61"), ("determinism", "batch_invariance")]
)
def test_an_unknown_word_suggests_a_known_one(option: str, word: str) -> None:
    with pytest.raises(hal.InvalidArgumentError, match="did you mean"):
        hal.use(**{option: word})
