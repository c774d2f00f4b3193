"""The proof of the suite: its rows, its workshop, its flips, its ordinary test and what it says.
SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import ctypes
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

import anyhal
from anyhal.conformance.mutants import building, catalogue, flips, ordinary
from anyhal.conformance.mutants.answers import digests, ordinary_test
from anyhal.conformance.mutants.building import BuildFailedError, CannotBuildError, Workshop
from anyhal.conformance.mutants.catalogue import Edit, Mutant
from anyhal.conformance.mutants.judging import NOT_JUDGED
from anyhal.conformance.mutants.proof import CONTROL, Outcome, Proof
from anyhal.errors import NotFoundError
from anyhal.ops import BY_NAME
from anyhal.settings import CACHE

ROOT = Path(__file__).resolve().parents[2]
EVERY = (*catalogue.mutants(), *catalogue.variants())


# ------------------------------------------------------------------------------------- rows


def source(mutant: Mutant, file: str) -> Path:
    return ROOT / file if file.startswith("include/") else ROOT / "backends" / mutant.backend / file


@pytest.mark.parametrize("mutant", EVERY, ids=lambda m: m.id)
def test_the_text_of_a_row_occurs_once(mutant: Mutant) -> None:
    assert mutant.edits or mutant.flags or mutant.bad, "it changes nothing"
    texts: dict[str, str] = {}
    for edit in mutant.edits:
        text = texts.get(edit.file) or source(mutant, edit.file).read_text(encoding="utf-8")
        assert text.count(edit.find) == 1, f"{edit.file}: {text.count(edit.find)} times"
        assert edit.find != edit.replace
        texts[edit.file] = text.replace(edit.find, edit.replace)


def test_a_bad_behaviour_is_one_that_the_scriptable_backend_has() -> None:
    names = (ROOT / "backends/fake/bad.hh").read_text(encoding="utf-8")
    unknown = [m.id for m in EVERY if m.bad and f"X({m.bad})" not in names]
    assert not unknown


def test_the_numbers_that_are_promised() -> None:
    mutants = catalogue.mutants()
    assert len({m.id for m in EVERY}) == len(EVERY)
    numeric = [m for m in mutants if not m.row]
    families = Counter(m.family for m in numeric)
    assert len(mutants) >= 120 and min(families.values()) >= 4
    assert sum(bool(m.row) for m in mutants) >= 31
    assert sum(m.subtle for m in numeric) >= 60
    assert len(catalogue.variants()) >= 20


def test_every_public_op_has_a_mutant_and_every_row_an_op_or_a_group() -> None:
    of_ops = {op for m in catalogue.mutants() for op in m.ops}
    assert of_ops == {s.name for s in BY_NAME.values() if s.public}
    for m in EVERY:
        assert m.ops or m.groups, m.id
        assert m.wrong and not m.wrong.endswith("."), m.id
        assert not m.subtle or m.ops, m.id
        if m.edits and not any(e.file.endswith(".cc") for e in m.edits):
            assert m.ops or m.compile, f"{m.id}: nothing says which units to compile"


def test_a_script_is_set_where_the_backend_reads_it() -> None:
    for name, recipe in catalogue.recipes().items():
        if recipe.script:
            text = (ROOT / "backends" / name / recipe.script["file"]).read_text(encoding="utf-8")
            assert text.count(recipe.script["find"]) == 1


def test_samples_follow_the_seed_and_names_are_suggested() -> None:
    first = catalogue.chosen(20, 1)
    assert first == catalogue.chosen(20, 1) != catalogue.chosen(20, 2)
    assert len({m.id for m in first}) == 20
    assert catalogue.chosen() == list(catalogue.mutants())
    with pytest.raises(NotFoundError, match="did you mean 'softmax-sentinel'"):
        catalogue.chosen(ids=["softmax-sentinal"])


# ------------------------------------------------------------------------------- workshop


@pytest.fixture
def sources(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A backend of two small files under the name of a real one, and a cache of its own."""
    monkeypatch.setenv(CACHE.name, str(tmp_path / "cache"))
    folder = tmp_path / "sources" / "cpu_ref"
    (folder / "kernels").mkdir(parents=True)
    (folder / "kernels" / "shared.h").write_text("inline int shared() { return 40; }\n")
    (folder / "kernels" / "add.cc").write_text(
        '#include "shared.h"\nstruct Call {};\nvoid add(const Call&) {}\n'
        'extern "C" int added() { return shared() + 2; }\n'
    )
    (folder / "backend.cc").write_text(
        '#include "kernels/shared.h"\nextern "C" int plain() { return shared(); }\n'
    )
    (folder / "backend.toml").write_text('# secret\nname = "cpu_ref"\nlibrary = "a.so"\n')
    (tmp_path / "sources" / "one_symbol.map").write_text("{ global: *; };\n")
    return tmp_path / "sources"


def mutant(*edits: Edit, ops: tuple[str, ...] = ()) -> Mutant:
    return Mutant("some-change", "test", "cpu_ref", "something is wrong", edits, ops)


def answers(folder: Path) -> tuple[int, int]:
    library = ctypes.CDLL(str(folder / "libanyhal_mutant.so"))
    return library.added(), library.plain()


def workshop(sources: Path, tmp_path: Path) -> Workshop:
    place = tmp_path / "work"
    place.mkdir(exist_ok=True)
    return Workshop(place, sources=sources)


def test_only_the_edit_changes_and_its_object_comes_first(sources: Path, tmp_path: Path) -> None:
    shop = workshop(sources, tmp_path)
    assert answers(shop.build(mutant())) == (42, 40)
    for number, (edit, ops, expected) in enumerate(
        [
            (Edit("kernels/add.cc", "+ 2", "+ 3"), (), 43),
            (Edit("kernels/shared.h", "40", "50"), ("add",), 52),  # found by its op
        ]
    ):
        made = Mutant(f"m{number}", "test", "cpu_ref", "wrong", (edit,), ops)
        assert answers(shop.build(made))[0] == expected


def test_a_manifest_tells_nothing_of_the_origin(sources: Path, tmp_path: Path) -> None:
    folder = workshop(sources, tmp_path).build(mutant())
    text = (folder / "backend.toml").read_text(encoding="utf-8")
    assert 'name = "mutant"' in text and "cpu_ref" not in text and "secret" not in text


def test_unchanged_objects_are_kept(
    sources: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    workshop(sources, tmp_path).build(mutant())
    kept = list((tmp_path / "cache" / "mutants").glob("*.o"))
    assert len(kept) == 2
    monkeypatch.setattr(Workshop, "_compile", lambda *_: pytest.fail("it was compiled again"))
    second = Workshop(tmp_path / "cache", sources=sources)
    second.objects("cpu_ref")


def test_what_cannot_be_built_is_said(
    sources: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop = workshop(sources, tmp_path)
    with pytest.raises(BuildFailedError, match="occurs 0 times in kernels/add.cc, not once"):
        shop.build(mutant(Edit("kernels/add.cc", "+ 9", "+ 3")))
    broken = Mutant("broken", "t", "cpu_ref", "x", (Edit("kernels/add.cc", "+ 2", "+ ("),))
    with pytest.raises(BuildFailedError, match="the compiler refused it: .*error"):
        shop.build(broken)
    with pytest.raises(CannotBuildError, match="sources of nobody are not in"):
        shop.source("nobody")
    monkeypatch.setenv("CXX", "/nonexistent/c++")
    with pytest.raises(CannotBuildError, match="no C.. compiler .* install g.. 12"):
        Workshop(tmp_path, sources=sources)


def test_stopping_ends_what_runs(sources: Path, tmp_path: Path) -> None:
    shop = workshop(sources, tmp_path)
    shop.objects("cpu_ref")
    shop.stop()
    with pytest.raises(building.StoppedError):
        shop.build(mutant())


def test_without_a_compiler_the_command_ends_with_2(tmp_path: Path) -> None:
    program = "from anyhal.cli.self_test import self_test; raise SystemExit(self_test(1))"
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        timeout=120,
        env={"CXX": str(tmp_path / "none"), "PATH": "/nonexistent", "PYTHONPATH": _path()},
    )
    assert done.returncode == 2 and "there is no C++ compiler" in done.stderr, done


def _path() -> str:
    return str(Path(anyhal.__file__).parents[1])


def test_the_sources_are_installed() -> None:
    """What the proof needs lies in the package: a vendor has no tree of ours."""
    place = Path(anyhal.__file__).parent / "sources" / "backends"
    for name in catalogue.recipes():
        there = {str(p.relative_to(place / name)) for p in (place / name).rglob("*.cc")}
        here = (ROOT / "backends" / name).rglob("*.cc")
        assert there == {str(p.relative_to(ROOT / "backends" / name)) for p in here}
    assert (place / "one_symbol.map").is_file()


# ------------------------------------------------------------------- answers and what is said


def test_right_backends_pass_the_ordinary_test_and_repeat_themselves() -> None:
    folder = Path(anyhal.__file__).parent / "backends"
    ops = list(ordinary.ORDINARY)
    assert set(ops) == {s.name for s in BY_NAME.values() if s.public}
    assert ordinary_test(folder, "cpu_ref:0", ops) == dict.fromkeys(ops, "")
    first = digests(folder, "cpu_ref:0", "sort", 0, 20)
    assert first == digests(folder, "cpu_ref:0", "sort", 0, 20) and len(set(first)) > 10


def outcome(family: str, failed: str, ordinary: bool | None = None) -> Outcome:
    named = Mutant(f"{family}-{failed}", family, "chip", "it is wrong", ())
    return Outcome(named, failed, "because", ordinary, 1.0)


@pytest.mark.parametrize(
    ("found", "said"),
    [
        (outcome("sums", ""), "survived: sums/sums-: it is wrong"),
        (outcome("sums", "a/case", False), "not subtle: sums/sums-a/case"),
        (outcome("sums", NOT_JUDGED), "not judged: sums/sums-not judged: because"),
        (outcome(CONTROL, "a/case"), "refused, though correct: control/control-a/case"),
        (outcome("variants", "a/case"), "refused, though correct: variants/"),
    ],
)
def test_what_is_not_as_it_should_is_named(found: Outcome, said: str) -> None:
    good = (outcome("sums", "a/case", True), outcome(CONTROL, ""), outcome("variants", ""))
    assert Proof(good).holds
    assert Proof(good).sentences()[-3:] == [
        "correct kernels passed 2 of 2",
        "survived an ordinary test, as claimed: 1 of 1",
        "killed 1 of 1",
    ]
    proof = Proof((*good, found))
    assert not proof.holds and any(s.startswith(said) for s in proof.sentences())


# ------------------------------------------------------------------------------------ flips

SNIPPET = """\
// i < n stays, and so does 1 + 1
#include <vector>
template <class T> void f(const T* x, int64_t n) {  // 0
  const char* why = "0 < 1 && 2";
  for (int64_t i = 0; i < n; ++i) y[i] += std::max<int64_t>(x[i] * 2, 1);
}
"""


def test_flips_touch_code_alone_and_one_place_each() -> None:
    found = list(flips.flips_of("f.cc", SNIPPET))
    line = SNIPPET.splitlines()[4]
    told = {f.told(SNIPPET) for f in found}
    assert all(t.startswith("f.cc:5: ") for t in told)
    for change in ("'<' becomes '<='", "'*' becomes '+'", "'i' becomes 'i + 1'"):
        assert any(change in t for t in told), change
    assert any("'max' becomes 'min'" in t for t in told) and any(
        "'0' becomes '1'" in t for t in told
    )
    assert not any("'64'" in t for t in told)
    for f in found:
        changed = f.applied(SNIPPET).splitlines()
        assert [a == b for a, b in zip(changed, SNIPPET.splitlines(), strict=True)].count(
            False
        ) == 1
        assert changed[4] != line


def test_the_share_is_of_flips_that_change_something() -> None:
    results = [flips.Result("x", "op", c, f) for c, f in [(True, "a"), (True, ""), (False, "")]]
    found = flips.summary(results, 3)
    assert (found["flips"], found["changed"], found["refused"]) == (3, 2, 1)
    assert found["share"] == 0.5 and found["survivors"] == ["op: x"]
