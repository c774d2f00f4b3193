"""The registry file: what is written, what is read, and everything that is refused.
SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import hashlib
import os
import random
import shutil
from pathlib import Path

import pytest
from c_programs import ROOT, Build, Play, Registry, package

from anyhal.errors import NotFoundError
from anyhal.runtime.discovery import BackendRecord
from anyhal.runtime.manifest import Manifest
from anyhal.runtime.registry import registry_text, write_registry
from anyhal.sdk.scaffold import new_backend

CORE = ROOT / "core" / "api"
HASH = "0" * 64
GOOD = (
    "anyhal-registry\t1\n# a comment\n\n"
    f"backend\tcpu\t0.1\tself-tested\tno\t50\t{HASH}\t/a/b.so\n"
    "setting\tx\t/c\\td\\\\e\\nf\n"
    f"backend\tother\t0.1\tuncertified\tyes\t-7\t{HASH}\t/b.so\n"
    "end\t2\n"
)


def _parsed(build: Build, play: Play, folder: Path, texts: list[bytes]) -> list[str]:
    sanitizers = ("-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-w")
    sources = (f"-I{ROOT}", str(CORE / "registry.cc"))
    sources = (*sources, str(CORE.parent / "trust.cc"), str(CORE.parent / "sha256.cc"))
    program = build("registry_driver.cc", *sanitizers, *sources, link=False)
    paths = []
    for number, text in enumerate(texts):
        paths.append(folder / f"{number}.tsv")
        paths[-1].write_bytes(text)
    done = play([program, *paths])
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout.splitlines()


def test_a_good_file_is_read_as_written(build: Build, play: Play, tmp_path: Path) -> None:
    text = GOOD.replace("/c\\td\\\\e\\nf", "/c d")
    lines = _parsed(build, play, tmp_path, [text.encode()])
    assert lines == ["ok 2|cpu|50|/a/b.so|x=/c d|other|-7|/b.so"]


def test_a_setting_given_twice_is_refused(build: Build, play: Play, tmp_path: Path) -> None:
    text = GOOD.replace("\nsetting\tx", "\nsetting\tx\t/a\nsetting\tx")
    (line,) = _parsed(build, play, tmp_path, [text.encode()])
    assert "the setting x is given twice" in line


def test_a_setting_that_no_backend_asks_for_is_named(
    play: Play, build: Build, registry: Registry, tmp_path: Path
) -> None:
    file = tmp_path / "r.tsv"
    lines = registry().read_text().splitlines(keepends=True)
    at = next(i for i, line in enumerate(lines) if line.startswith("backend\tcpu\t"))
    file.write_text("".join([*lines[: at + 1], "setting\tnope\t1\n", *lines[at + 1 :]]))
    done = play([build("select.c"), "cpu"], file)
    assert done.stdout.startswith("ok|")
    assert done.stderr.count("the setting 'nope' was given") == 1
    assert "setting" not in play([build("select.c"), "cpu"]).stderr


def test_a_later_writers_additions_are_skipped(build: Build, play: Play, tmp_path: Path) -> None:
    text = GOOD.replace("registry\t1", "registry\t2").replace("/c\\td\\\\e\\nf", "/c\tmore")
    text = text.replace("/b.so\n", "/b.so\tmore\nx-colour\tred\n")
    cell = "quarantine\tx86\tmatmul\tf32\tit is wrong\tmore\n"
    text = text.replace("\nend\t", f"\n{cell}end\t")
    lines = _parsed(build, play, tmp_path, [text.encode()])
    assert lines == ["ok 2|cpu|50|/a/b.so|x=/c|other|-7|/b.so|!x86 matmul f32: it is wrong"]


def test_what_python_writes_is_what_c_reads(build: Build, play: Play, tmp_path: Path) -> None:
    manifest = Manifest("chip", "v", "l.so", "0.1", "x", "s", rank=3)
    record = BackendRecord(
        "chip", str(tmp_path), "", (), manifest, "/odd\tname\\n", HASH, (("k", "a\\tb"),)
    )
    (line,) = _parsed(build, play, tmp_path, [os.fsencode(registry_text([record], ["chip"]))])
    assert line == "ok 1|chip|3|/odd\tname\\n|k=a\\tb"


MALFORMED = {
    "": "no end line",
    "{}\n": "not a registry file",
    GOOD.replace("registry\t1", "registry\t4"): "form is 4",
    GOOD.replace("\nend", "\nquarantine\ta\tb\tc\td\nend"): "not known",
    GOOD.replace("registry\t1", "registry\t2").replace("setting\tx", "colour\tx"): "not known",
    GOOD.replace("registry\t1", "registry\t2").replace("\nend", "\nquarantine\ta\nend"): "4 fields",
    GOOD.replace("registry\t1", "registry\t2").replace("\nend", "\ncertified\ta\nend"): "5 fields",
    GOOD.replace("registry\t1", "registry\t2").replace(
        "\nend", "\ncertified\t1\tgood\ta\tb\tc\nend"
    ): "'good' is not a state",
    GOOD.replace("registry\t1", "registry\t2").replace(
        "\nend", "\ncertified\tx\tuncertified\ta\tb\tc\nend"
    ): "not a whole number of 64 bits",
    GOOD[:-1]: "cut off",
    GOOD.replace("end\t2\n", ""): "cut off",
    GOOD.replace("end\t2", "end\t3"): "does not count 2",
    GOOD.replace("end\t2", "end\ttwo"): "not a whole number",
    GOOD + "end\t2\n": "follows the end",
    GOOD.replace("\tself-tested", ""): "7 fields",
    GOOD.replace("self-tested", "trusted"): "not a state",
    GOOD.replace("\tno\t", "\tmaybe\t"): "neither yes nor no",
    GOOD.replace("\t50\t", "\t99999999999\t"): "not a whole number",
    GOOD.replace(HASH, HASH[1:]): "not a sha256",
    GOOD.replace(HASH, "G" + HASH[1:]): "not a sha256",
    GOOD.replace("/a/b.so", "a/b.so"): "not an absolute path",
    GOOD.replace("\tcpu\t", "\tC PU\t"): "not a backend's name",
    GOOD.replace("\tother\t", "\tcpu\t"): "listed twice",
    GOOD.replace("\\td", "\\xd"): "backslash",
    GOOD.replace("setting\tx", "setting\t"): "name and a value",
    GOOD.replace("setting\tx", "colour\tx"): "not known",
    "anyhal-registry\t1\nsetting\ta\tb\nend\t0\n": "before any backend",
    GOOD.replace("cpu", "c\0pu"): "zero byte",
}


def test_a_malformed_file_is_refused_by_line(build: Build, play: Play, tmp_path: Path) -> None:
    lines = _parsed(build, play, tmp_path, [text.encode() for text in MALFORMED])
    for line, why in zip(lines, MALFORMED.values(), strict=True):
        assert line.startswith("refused 68 cannot read the registry FILE") and why in line, why
        assert "--write-registry" in line


BYTES = [b"\xff", b"\xc3", b"\xc0\xaf", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"\xe2\x82"]


def test_only_utf8_is_read(build: Build, play: Play, tmp_path: Path) -> None:
    text = GOOD.replace("\\nf", "").encode()
    bad = [text.replace(b"/a/b.so", b"/a" + piece + b"/b.so") for piece in BYTES]
    lines = _parsed(build, play, tmp_path, bad)
    assert all(line.startswith("refused 68 ") and "not UTF-8" in line for line in lines)
    good = ["\u00e9", "\u20ac", "\ud7ff", "\U0010ffff", "\u0800", "\U00010000"]
    texts = [text.replace(b"/b.so", f"/{piece}.so".encode()) for piece in good]
    assert all(line.startswith("ok 2|") for line in _parsed(build, play, tmp_path, texts))


def test_a_path_that_is_not_utf8_is_left_out(tmp_path: Path) -> None:
    manifest = Manifest("chip", "v", "l.so", "0.1", "x", "s", rank=3)
    odd = os.fsdecode(b"/odd\xff.so")
    text = registry_text([BackendRecord("chip", str(tmp_path), "", (), manifest, odd, HASH)])
    assert "# refused: the path of backend chip is not UTF-8" in text and text.endswith("end\t0\n")


def test_random_changes_never_crash_the_parser(build: Build, play: Play, tmp_path: Path) -> None:
    rng = random.Random(7)
    texts = []
    for _ in range(1500):
        text = bytearray(GOOD.encode())
        for _ in range(rng.randint(1, 6)):
            at = rng.randrange(len(text))
            piece = bytes(rng.choices(b"\t\n\\0#aend\xff\x00-9/", k=rng.randint(0, 4)))
            text[at : at + rng.randint(0, 9)] = piece
            if rng.random() < 0.2:
                text = text[: rng.randrange(len(text) + 1)]
            if not text:
                break
        texts.append(bytes(text))
    lines = _parsed(build, play, tmp_path, texts)
    assert len([line for line in lines if line.startswith(("ok ", "refused 68 "))]) >= 1500


@pytest.mark.parametrize("form", ["-UANYHAL_PLAIN_SHA256", "-DANYHAL_PLAIN_SHA256"])
def test_the_hash_is_that_of_hashlib(build: Build, play: Play, tmp_path: Path, form: str) -> None:
    source = str(CORE.parent / "sha256.cc")
    program = build("sha256_driver.cc", f"-I{ROOT}", form, source, link=False)
    rng = random.Random(3)
    paths, wanted = [], []
    for size in [*range(131), 65535, 65536, 65537, 300001]:
        paths.append(tmp_path / str(size))
        paths[-1].write_bytes(rng.randbytes(size))
        wanted.append(hashlib.sha256(paths[-1].read_bytes()).hexdigest())
    assert play([program, *paths]).stdout.split() == wanted


# ------------------------------------------------------------------------------ trust and choice


def _select(build: Build, play: Play, file: Path, names: str, **environment: str) -> list[str]:
    """status, reason and sentence (or the device) of hal_select_backend."""
    done = play([build("select.c"), names], file, **environment)
    assert done.returncode == 0, done.stderr
    return done.stdout.rstrip("\n").split("|", 2)


def test_a_missing_file_says_how_to_write_it(build: Build, play: Play, tmp_path: Path) -> None:
    status, reason, text = _select(build, play, tmp_path / "none", "cpu")
    assert (status, reason) == ("not_found", "registry") and "--write-registry" in text
    status, reason, text = _select(build, play, Path("relative.tsv"), "cpu")
    assert (status, reason) == ("invalid_argument", "environment") and "absolute" in text
    status, reason, text = _select(build, play, tmp_path, "cpu")
    assert (status, reason) == ("not_found", "registry")


def test_the_cache_folder_is_where_it_is_looked_for(
    build: Build, play: Play, registry: Registry, tmp_path: Path
) -> None:
    shutil.copy(registry(), tmp_path / "registry.tsv")
    given = _select(build, play, registry(), "cpu", ANYHAL_REGISTRY="", ANYHAL_CACHE=str(tmp_path))
    assert given[:2] == ["ok", "none"] and given[2].startswith("cpu:0")


def test_a_file_that_others_can_write_is_refused(
    build: Build, play: Play, registry: Registry, tmp_path: Path
) -> None:
    file = tmp_path / "r.tsv"
    shutil.copy(registry(), file)
    file.chmod(0o646)
    assert _select(build, play, file, "cpu")[:2] == ["abi_mismatch", "untrusted"]
    file.chmod(0o644)
    assert _select(build, play, file, "cpu")[0] == "ok"
    tmp_path.chmod(0o777)
    assert _select(build, play, file, "cpu")[:2] == ["abi_mismatch", "untrusted"]
    tmp_path.chmod(0o700)


@pytest.fixture
def stranger(tmp_path: Path) -> tuple[Path, str]:
    """A copy of a backend's library, and its row of a registry file."""
    library = tmp_path / "libanyhal_stranger.so"
    shutil.copy(package() / "backends/cpu_ref/libanyhal_cpu_ref.so", library)
    digest = hashlib.sha256(library.read_bytes()).hexdigest()
    row = f"backend\tstranger\t0.3\tuncertified\tno\t99\t{digest}\t{library}\n"
    return library, row


def _file(folder: Path, *rows: str) -> Path:
    path = folder / "registry.tsv"
    path.write_text("anyhal-registry\t1\n" + "".join(rows) + f"end\t{len(rows)}\n")
    return path


def test_a_tampered_library_is_refused_and_never_opened(
    build: Build, play: Play, stranger: tuple[Path, str], tmp_path: Path
) -> None:
    library, row = stranger
    file = _file(tmp_path, row)
    assert _select(build, play, file, "stranger")[2].startswith("stranger:0")
    with library.open("ab") as stream:
        stream.write(b"x")
    status, reason, text = _select(build, play, file, "stranger")
    assert (status, reason) == ("abi_mismatch", "hash") and "it was changed" in text
    library.unlink()
    assert _select(build, play, file, "stranger")[0] == "not_found"
    library.write_bytes(b"")
    library.chmod(0o666)
    assert _select(build, play, file, "stranger")[:2] == ["abi_mismatch", "untrusted"]


@pytest.mark.parametrize(
    ("change", "status", "reason", "words"),
    [
        (("uncertified", "quarantined"), "unsupported", "state", "quarantined"),
        (("\t0.3\t", "\t0.9\t"), "abi_mismatch", "none", "contract 0.9"),
    ],
)
def test_what_must_not_be_opened_is_not(
    build: Build,
    play: Play,
    stranger: tuple[Path, str],
    tmp_path: Path,
    change: tuple[str, str],
    status: str,
    reason: str,
    words: str,
) -> None:
    given = _select(build, play, _file(tmp_path, stranger[1].replace(*change)), "stranger")
    assert given[:2] == [status, reason] and words in given[2]


def test_uncertified_runs_only_when_named_or_allowed(
    build: Build, play: Play, stranger: tuple[Path, str], tmp_path: Path
) -> None:
    row = stranger[1]
    file = _file(tmp_path, row)
    assert _select(build, play, file, "")[:2] == ["not_found", "none"]
    assert _select(build, play, file, "stranger:0")[2] == "stranger:0 uncertified"
    file = _file(tmp_path, row.replace("\tno\t", "\tyes\t"))
    assert _select(build, play, file, "")[2] == "stranger:0 uncertified"


@pytest.mark.parametrize(
    ("until", "arch", "drivers", "state"),
    [
        (1 << 40, "HERE", ("DRIVER", "DRIVER"), "certified"),
        (1 << 40, "HERE", ("Linux 2.6REST", "Linux 99REST"), "certified"),
        (1 << 40, "HERE", ("Linux 2.6REST", "Linux 10.1REST"), "certified"),
        (1 << 40, "HERE", ("Linux 2.6", "Linux 99"), "uncertified"),
        (1 << 40, "HERE", ("Linux 2.6-other", "Linux 99-other"), "uncertified"),
        (1 << 40, "HERE", ("Driver 2.6REST", "Zeta 99REST"), "uncertified"),
        (1 << 40, "HERE", ("Linux 99REST", "Linux 100REST"), "uncertified"),
        (1 << 40, "HERE", ("Linux 2.4REST", "Linux 2.6REST"), "uncertified"),
        (1 << 40, "HERE", ("", ""), "uncertified"),
        (1 << 40, "elsewhere", ("DRIVER", "DRIVER"), "uncertified"),
        (1, "HERE", ("DRIVER", "DRIVER"), "uncertified"),
    ],
)
def test_a_certificate_holds_for_its_time_device_and_drivers(
    build: Build,
    play: Play,
    stranger: tuple[Path, str],
    tmp_path: Path,
    until: int,
    arch: str,
    drivers: tuple[str, str],
    state: str,
) -> None:
    """What does not hold is as uncertified to a C program as to Python."""
    import anyhal as hal
    from anyhal.runtime.certified import covers, driver_version

    here = hal.device("cpu_ref").fact
    version = driver_version(here.driver)
    assert version is not None
    words = {"HERE": here.arch, "DRIVER": here.driver}
    given = [words.get(word, word).replace("REST", version[2]) for word in (arch, *drivers)]
    if arch == "HERE" and until > 1:
        assert covers(given[1:], here.driver) == (state == "certified")
    row = stranger[1].replace("\tuncertified\t", "\tcertified\t")
    row += "\t".join(["certified", str(until), "uncertified", *given]) + "\n"
    file = tmp_path / "registry.tsv"
    file.write_text(f"anyhal-registry\t3\n{row}end\t1\n")
    assert _select(build, play, file, "stranger")[2] == f"stranger:0 {state}"
    unnamed = _select(build, play, file, "")
    if state == "certified":
        assert unnamed[2] == "stranger:0 certified"
    else:
        assert unnamed[0] == "not_found" and "it is uncertified; name it" in unnamed[2]


def test_the_best_by_rank_is_chosen_among_the_visible(
    build: Build, play: Play, registry: Registry
) -> None:
    file = registry()
    assert _select(build, play, file, "")[2].startswith("cpu:0")
    hidden = {"ANYHAL_VISIBLE_DEVICES": "cpu_ref, dayone:0"}
    assert _select(build, play, file, "", **hidden)[2].startswith("cpu_ref:0")
    status, _, text = _select(build, play, file, "cpu", **hidden)
    assert status == "not_found" and "ANYHAL_VISIBLE_DEVICES leaves it out" in text
    assert _select(build, play, file, "cpux|cpu_ref")[2].startswith("cpu_ref:0")
    assert "did you mean cpu_ref" in _select(build, play, file, "cpu_reff")[2]


def test_a_choice_that_was_passed_over_is_told(
    build: Build, play: Play, registry: Registry
) -> None:
    done = play([build("select.c"), "cpux|cpu_ref"], registry())
    assert done.stdout.startswith("ok|none|cpu_ref:0")
    said = (
        "anyhal: warning: cpu_ref:0 was selected from 'cpux|cpu_ref': cpux is not in the registry"
    )
    assert done.stderr.count(said) == 1, done.stderr
    assert play([build("select.c"), "cpu_ref|cpux"], registry()).stderr == ""
    quiet = play([build("select.c"), "cpux|cpu_ref"], registry(), ANYHAL_LOG="error")
    assert quiet.returncode == 0 and quiet.stderr == ""


@pytest.mark.parametrize(
    "name", ["cpu:0\n", "cpu:0 ", " cpu", "cpu:00", "cpu:\u0660", "CPU:0", "cpu:", ":0"], ids=ascii
)
def test_a_name_is_taken_only_as_it_is_printed(
    name: str, build: Build, play: Play, registry: Registry
) -> None:
    status, _, text = _select(build, play, registry(), name)
    assert status == "invalid_argument" and text.startswith(f"cannot read '{name}' as a device")
    assert "did you mean cpu" in text or name == ":0"
    if not name.endswith(" "):  # beside the commas of the variable's list, spaces say nothing
        hidden = {"ANYHAL_VISIBLE_DEVICES": f"{name},cpu_ref"}
        assert _select(build, play, registry(), "", **hidden)[2].startswith("cpu_ref:0")


@pytest.mark.parametrize(
    ("name", "value"),
    [("ANYHAL_THREADS", "many"), ("ANYHAL_LOG", "loud"), ("ANYHAL_DEBUG_POOL", "perhaps")],
)
def test_a_variable_that_cannot_be_read_is_named(
    build: Build, play: Play, registry: Registry, name: str, value: str
) -> None:
    given = _select(build, play, registry(), "cpu", **{name: value})
    assert given[:2] == ["invalid_argument", "environment"] and name in given[2]


def test_allowing_a_name_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match="names no backend"):
        write_registry(tmp_path / "r.tsv", ["nobody"])
    assert write_registry(tmp_path / "r.tsv", ["cpu"]).read_text().count("\tyes\t") == 1


def test_what_ranks_below_the_choice_is_not_loaded(build: Build, play: Play) -> None:
    done = play([build("lazy.c")])
    assert (done.stdout, done.returncode) == ("1 0 1 1\n", 0), done.stderr


def test_a_chip_in_python_is_refused_by_name(
    build: Build, play: Play, tmp_path: Path, chip_in_python: Path
) -> None:
    """A C program has no interpreter for it; the other backends go on."""
    done = play([build("select.c"), "pychip|cpu"], ANYHAL_REGISTRY=chip_in_python)
    assert done.stdout.startswith("ok|none|cpu:0 "), done.stdout + done.stderr
    done = play([build("select.c"), "pychip"], ANYHAL_REGISTRY=chip_in_python)
    assert done.stdout.startswith("unsupported|needs_python|"), done.stdout + done.stderr
    assert "only Python programs run those; name another device" in done.stdout


@pytest.fixture
def chip_in_python(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    chips = tmp_path / "chips"
    chips.mkdir(mode=0o755)
    new_backend("pychip", "python", chips)
    monkeypatch.setenv("ANYHAL_BACKEND_PATH", str(chips))
    return write_registry(tmp_path / "registry.tsv")
