"""Speed: who is slower, by what rule, and what is kept to compare with.
SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import anyhal as hal
from anyhal import settings
from anyhal.conformance.diff import compare
from anyhal.conformance.performance import baselines, gate, items, roofs
from anyhal.conformance.performance.audit import audit
from anyhal.conformance.performance.leg import Leg
from anyhal.conformance.performance.statistics import hodges_lehmann, shift, slower
from anyhal.conformance.required import tier_of_scores
from anyhal.errors import InvalidArgumentError, NotFoundError
from one_op import OneOpBackend

FIVE = ("matmul f32", "attention f32", "softmax f32", "add f32", "sum f32")


def blocks(rng: np.random.Generator, slower_by: float = 0.0, count: int = 15) -> list[list[float]]:
    """Two legs of each block: 2 % noise, and now and then a leg that something else delayed."""
    drift = np.exp(0.01 * rng.standard_normal((count, 1)))
    legs = drift * np.exp(0.02 * rng.standard_normal((count, 2)))
    legs *= np.where(rng.random((count, 2)) < 0.05, rng.uniform(1.1, 2.0, (count, 2)), 1)
    return (1e-3 * (1 + slower_by) * legs).tolist()


def rows(rng: np.random.Generator, slow: dict[str, float] | None = None) -> list[dict[str, Any]]:
    return [
        {
            "name": name,
            "family": "gemm" if "matmul" in name else "rows",
            "hot": {"old": blocks(rng), "new": blocks(rng, (slow or {}).get(name, 0.0))},
        }
        for name in FIVE
    ]


def test_twenty_runs_of_the_same_build_raise_no_alarm() -> None:
    """And nearly none is measured again."""
    rng = np.random.default_rng(5)
    found = [gate.decided(rows(rng)) for _ in range(20)]
    assert not any(v.slower or v.families for v in found)
    assert sum(len(v.noisy) for v in found) <= 1


def test_eight_percent_in_one_op_are_found_and_named() -> None:
    rng = np.random.default_rng(6)
    found = [gate.decided(rows(rng, {"softmax f32": 0.08})) for _ in range(20)]
    caught = [v.slower for v in found if v.status == gate.SLOWER]
    assert len(caught) >= 19 and set(caught) == {("softmax f32",)}
    assert abs(np.median([v.shifts["softmax f32"].percent for v in found]) - 8) < 1


def test_what_is_faster_or_slower_by_less_than_three_percent_passes() -> None:
    rng = np.random.default_rng(7)
    for change in (-0.3, 0.015):
        assert gate.decided(rows(rng, dict.fromkeys(FIVE[:1], change))).slower == ()


def test_a_family_that_lost_a_little_everywhere_is_found() -> None:
    rng = np.random.default_rng(8)
    names = [n for n in FIVE if "matmul" not in n]
    found = [gate.decided(rows(rng, dict.fromkeys(names, 0.028))) for _ in range(10)]
    assert sum("rows" in v.families for v in found) >= 8


def test_a_host_whose_two_legs_differ_decides_nothing() -> None:
    rng = np.random.default_rng(9)
    made = rows(rng, {"add f32": 0.5})
    for pair in made[0]["hot"]["old"]:
        pair[1] *= 1.5
    verdict = gate.decided(made)
    assert verdict.status == gate.UNFIT and verdict.noisy == ("matmul f32",)


def test_the_shift_is_that_of_hodges_and_lehmann() -> None:
    assert hodges_lehmann([1.0, 2.0, 10.0]) == 3.75  # of the six means 1, 1.5, 2, 5.5, 6, 10
    one = shift([1.0] * 10, [1.0] * 10)
    assert (one.value, one.p) == (0.0, 1.0) and slower({"a": one}) == []


@pytest.mark.parametrize("name", ["", "../x", "a/b", ".hidden", "x" * 65])
def test_a_baseline_has_a_plain_name(name: str) -> None:
    with pytest.raises(InvalidArgumentError, match="no name"):
        baselines.load(name)


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(settings.CACHE.name, str(tmp_path / "cache"))
    return tmp_path / "cache"


def test_a_baseline_is_the_library_by_its_hash(cache: Path, tmp_path: Path) -> None:
    library = tmp_path / "libx.so"
    library.write_bytes(b"one")
    baselines.save("release", "x", library, {})
    library.write_bytes(b"two")
    found = baselines.load("release")
    assert found.library.read_bytes() == b"one" and found.backend == "x"
    with pytest.raises(NotFoundError, match="did you mean 'release'"):
        baselines.load("relaese")
    found.library.write_bytes(b"three")
    with pytest.raises(InvalidArgumentError, match="was changed"):
        baselines.load("release")
    (baselines.folder() / "release.json").write_text("{")
    with pytest.raises(InvalidArgumentError, match="bench --save release"):
        baselines.load("release")


def test_more_than_a_roof_allows_is_invalid() -> None:
    assert tier_of_scores({"matmul/f32/a": 0.9, "copy/f32/b": 1.04}) == "recommended"
    assert tier_of_scores({"matmul/f32/a": 0.9, "copy/f32/b": 1.06}) == "invalid"
    assert tier_of_scores({"matmul/f32/a": 0.5, "copy/f32/b": 0.3}) == "supported"
    assert tier_of_scores({"matmul/f32/a": 0.9, "copy/f32/b": 0.04}) == "none"
    assert tier_of_scores({}) == "not measured"


def test_diff_tells_libraries_routes_answers_and_speed() -> None:
    rng = np.random.default_rng(3)
    old = {
        "schema": 1,
        "device": "x:0",
        "library": "libx.so",
        "library_sha256": "a" * 64,
        "libraries": {"numpy": "2.1"},
        "platform": {"cpu": "c", "arch": "a", "machine": "m"},
        "routes": {"matmul f32": "x:0 fused", "exp f32": "x:0 fused"},
        "digests": {"matmul f32": "11", "exp f32": "22"},
        "times": {"matmul f32": blocks(rng), "add f32": blocks(rng)},
    }
    assert compare(old, old).changes == ()
    new = old | {
        "library_sha256": "b" * 64,
        "routes": {"matmul f32": "x:0 decomposed", "exp f32": "x:0 fused"},
        "digests": {"matmul f32": "11", "exp f32": "33"},
        "times": {"matmul f32": blocks(rng, 0.2), "add f32": blocks(rng)},
    }
    found = [(c.kind, c.what) for c in compare(old, new).changes]
    assert found == [
        ("library", "libx.so"),
        ("route", "matmul f32"),
        ("answer", "exp f32"),
        ("speed", "matmul f32"),
    ]
    moved = compare(old, new | {"platform": {"cpu": "d"}})
    assert "different machines" in moved.notes[0]
    with pytest.raises(InvalidArgumentError, match="schema 1"):
        compare({}, old)


def _left(arguments: list[str]) -> int:
    """The exit status, in a process of its own: this one found its backends before."""
    code = "from anyhal.cli import main; main()"
    return subprocess.run([sys.executable, "-P", "-c", code, *arguments]).returncode


def test_a_slower_build_of_a_backend_does_not_pass_the_gate(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Half as slow again, since other tests run beside: the report gates with 8 %."""
    chip = OneOpBackend(tmp_path)
    chip.build("nothing")
    monkeypatch.setenv(settings.BACKEND_PATH.name, str(chip.folder))
    quick = ["--op", "add", "--blocks", "7"]
    assert _left(["bench", chip.name, "--save", "release", *quick]) == 0
    file = tmp_path / "gate.json"
    for percent, wanted in ((0, gate.PASSED), (50, gate.SLOWER)):
        chip.build("spin", percent)
        status = _left(["bench", chip.name, "--gate", "release", *quick, "--json", str(file)])
        found = json.loads(file.read_text())
        if found["noisy"]:
            pytest.skip(f"two legs of one build differ on this host: {found['noise']}")
        assert status == wanted, found["shifts"]
    assert found["slower"] == ["add f32"]
    assert found["shifts"]["add f32"]["percent"] > 25
    assert os.listdir(baselines.folder())


class Remembers:
    """An item of a backend that keeps results, by what is in the input or by where it lies."""

    def __init__(self, by: str) -> None:
        self._by, self._known = by, dict[Any, Any]()

    def call(self, arrays: list[Any], out: Any = None) -> Any:
        key = arrays[0].numpy().tobytes() if self._by == "content" else id(arrays[0])
        if self._by == "nothing" or key not in self._known:
            time.sleep(0.002)
            self._known[key] = hal.sum(arrays[0], axis=-1).numpy()
        made = hal.asarray(self._known[key], device=arrays[0].device)
        return made if out is None else hal.copy(made, out=out)


@pytest.mark.parametrize(
    ("by", "quick", "wrong"), [("content", True, ""), ("place", False, "changed input")]
)
def test_a_backend_that_keeps_results_is_found_out(by: str, quick: bool, wrong: str) -> None:
    x = np.random.default_rng(4).standard_normal((8, 64), np.float32)
    found = audit(Remembers(by), (x,), hal.device("cpu:0"))  # type: ignore[arg-type]
    assert (found["replayed"] < 0.9) == quick and wrong in found["wrong"]
    honest = next(i for i in items.ITEMS if i.name == "sum f32")
    found = audit(honest, honest.make(np.random.default_rng(1)), hal.device("cpu:0"))
    assert found["wrong"] == "" and found["replayed"] > 0


def test_an_output_that_is_not_written_while_it_is_timed_is_seen() -> None:
    honest = next(i for i in items.ITEMS if i.name == "sum f32")
    inputs = honest.make(np.random.default_rng(1))
    leg = Leg(honest, inputs, hal.device("cpu:0"), 2)
    assert leg.run(3, looks=True) > 0 and leg.wrong == ""
    lazy = Leg(honest, inputs, hal.device("cpu:0"), 2)
    lazy._calls = lambda count: None  # type: ignore[method-assign]
    lazy.run(3, looks=True)
    assert "untimed" in lazy.wrong


def test_times_that_cannot_be_are_no_score() -> None:
    """Each by itself; what another program took away is not the backend's fault."""
    clocks = {"raw": 1.0, "busy": 1.9}
    heat = {"new": [[1e-2, 1e-2]], "clocks": clocks}
    row = {"name": "matmul f32", "family": "gemm", "op": "matmul", "dtype": "f32"}
    row |= {"flops": 1e6, "bytes": 1e6, "hot": heat, "audit": {"replayed": 1.0, "wrong": ""}}
    assert roofs.measured([row], True)["why"] == ""
    off = {"new": heat["new"], "clocks": clocks | {"raw": 1.1}}
    for change, said in (
        ({"wrong": "an output"}, "an output"),
        ({"audit": {"replayed": 0.5, "wrong": ""}}, "50% of the time"),
        ({"audit": {"replayed": 1.0, "wrong": "another result"}}, "another result"),
        ({"hot": off}, "two clocks"),
    ):
        found = roofs.measured([row | change], True)
        assert found["tier"] == "invalid" and said in found["why"]
    away = row | {"hot": {"new": heat["new"], "clocks": clocks | {"busy": 0.4}}}
    assert roofs.measured([away], True)["tier"] == "not measured"
    assert roofs.measured([away], False)["tier"] != "not measured"


def test_a_host_that_could_not_see_eight_percent_decides_nothing() -> None:
    """A pass would say nothing there."""
    rng = np.random.default_rng(10)
    made = rows(rng)
    made[0]["hot"]["new"] = (1.15e-3 * np.exp(0.2 * rng.standard_normal((15, 2)))).tolist()
    assert gate.decided(made).noisy == ("matmul f32",)


@pytest.mark.parametrize(
    ("first", "second", "status"),
    [
        (("slower",), ("slower",), gate.SLOWER),
        (("slower",), (), gate.PASSED),
        (("noisy",), (), gate.PASSED),
        (("slower",), ("noisy",), gate.UNFIT),
        (("noisy",), ("slower",), gate.UNFIT),
        (("noisy",), ("noisy",), gate.UNFIT),
    ],
)
def test_what_is_not_in_order_is_measured_once_more(
    first: tuple[str], second: tuple[str], status: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = [gate.Verdict({}, {}, **dict.fromkeys(run, ("add f32",))) for run in (first, second)]
    asked: list[Any] = []
    monkeypatch.setattr(gate, "measure", lambda device, names, base, **rest: asked.append(names))
    monkeypatch.setattr(gate, "decided", lambda rows: made[len(asked) - 1])
    assert gate.gate("x:0", None, FIVE).status == status  # type: ignore[arg-type]
    assert asked == [FIVE, ["add f32"]]
