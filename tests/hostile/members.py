"""The hostile set: libraries that are built here, each of which gets one thing wrong.
SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import importlib.util
import os
import subprocess
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
CC = ["gcc", "-std=gnu11", "-O1", "-g0", "-fPIC", "-fvisibility=hidden", f"-I{ROOT / 'include'}"]
ONE_SYMBOL = f"-Wl,--version-script={ROOT / 'backends' / 'one_symbol.map'}"
NO_SYMBOL = f"-Wl,--version-script={HERE / 'nothing.map'}"

MANIFEST = """name = "{name}"
vendor = "nobody"
library = "libanyhal_{name}.so"
abi = "0.3"
licence = "none"
summary = "one of the hostile set"
own_threads = {threads}
"""


def build_objects(folder: Path) -> list[Path]:
    """The liar, and the objects of the smallest real backend, its entry renamed."""
    source = ROOT / "backends" / "dayone"
    files = [HERE / "liar.c", *sorted([*source.glob("*.c"), *source.glob("kernels/*.c")])]
    folder.mkdir(parents=True, exist_ok=True)

    def compiled(number: int, file: Path) -> Path:
        made = folder / f"{number}.o"
        rename = ["-Danyhal_backend_main=honest_main"] if number else []
        command = [*CC, f"-I{source}", *rename, "-c", str(file), "-o", str(made)]
        subprocess.run(command, check=True)
        return made

    with ThreadPoolExecutor(2) as workers:
        return list(workers.map(compiled, range(len(files)), files))


def build_library(
    objects: list[Path], library: Path, *options: str, script: str = ONE_SYMBOL
) -> None:
    command = [*CC, "-shared", *options, str(HERE / "deeds.c"), *map(str, objects)]
    command += ["-lm", "-lpthread", *([script] if script else []), "-o", str(library)]
    subprocess.run(command, check=True)


def folder_of(root: Path, name: str, threads: bool = False) -> Path:
    """A backend's folder with its manifest; gives the path of the library to put there."""
    folder = root / name
    folder.mkdir(parents=True)
    text = MANIFEST.format(name=name, threads="true" if threads else "false")
    (folder / "backend.toml").write_text(text)
    return folder / f"libanyhal_{name}.so"


@dataclass(frozen=True)
class Member:
    """What doctor and load must say of it: the stage that refused, and words of the sentence."""

    stages: tuple[str, ...]
    words: tuple[str, ...]
    options: tuple[str, ...] = ()
    spoil: Callable[[Path], None] | None = None  # after the build, or in place of it
    script: str = ONE_SYMBOL
    build: bool = True


def _deed(stage: str, when: str, deed: str, *words: str) -> Member:
    return Member((stage,), words, (f"-DWHEN=AT_{when}", f"-DDEED={deed}"))


def _lie(stage: str, lie: str, *words: str) -> Member:
    return Member((stage,), words, (f'-DLIE="{lie}"',))


def _cut(library: Path) -> None:
    os.truncate(library, library.stat().st_size // 3)


def _other_machine(library: Path) -> None:
    data = bytearray(library.read_bytes())
    data[18:20] = (243).to_bytes(2, "little")  # e_machine: RISC-V
    library.write_bytes(data)


def _pipe(library: Path) -> None:
    os.mkfifo(library)


_FILE = ("manifest", "architecture", "found")
# The whole set: more than two dozen ways to be no backend, and four that hang.
SET = {
    "crash_open": _deed("open", "OPEN", "CRASH", "SIGSEGV", "while the library was opened"),
    "crash_init": _deed("init", "INIT", "CRASH", "SIGSEGV", "in the handshake"),
    "crash_list": _deed("devices", "LIST", "CRASH", "SIGSEGV", "listed its devices"),
    "crash_exit": _deed("gate", "EXIT", "CRASH", "SIGSEGV", "when the process ended"),
    "hang_open": _deed("open", "OPEN", "HANG", "did not answer", "ANYHAL_PROBE_SECONDS"),
    "hang_init": _deed("init", "INIT", "HANG", "did not answer"),
    "hang_list": _deed("devices", "LIST", "HANG", "did not answer"),
    "hang_exit": _deed("gate", "EXIT", "HANG", "did not answer"),
    "abort_init": _deed("init", "INIT", "ABORT", "abort()"),
    "exit_open": _deed("open", "OPEN", "EXIT", "exit status 3"),
    "fork_open": _deed("open", "OPEN", "FORK", "forked"),
    "leave_init": _deed("devices", "INIT", "LEAVE", "left processes"),
    "print_open": _deed("open", "OPEN", "PRINT", "Welcome to Hostile"),
    "thread_open": _deed("open", "OPEN", "THREAD", "1 thread", "own_threads"),
    "round_init": _deed("init", "INIT", "ROUND", "how the thread computes"),
    "locale_init": _deed("init", "INIT", "LOCALE", "the locale"),
    "signal_init": _deed("init", "INIT", "SIGNAL", "signal handler", "Interrupt"),
    "setenv_open": _deed("open", "OPEN", "SETENV", "the environment", "HOSTILE_FOLDER"),
    "chdir_list": _deed("devices", "LIST", "CHDIR", "working directory"),
    "no_entry": Member(("entry", "trust"), ("anyhal_backend_main",), script=NO_SYMBOL),
    "no_size": _lie("fingerprint", "no_size", "0 bytes"),
    "null_slot": _lie("fingerprint", "null_slot", "op_enqueue"),
    "zero_version": _lie("negotiate", "zero_version", "0.0"),
    "reply_size": _lie("negotiate", "reply_size", "16 bytes"),
    "wild_table": _lie("init", "wild_table", "SIGSEGV"),
    "many_devices": _lie("devices", "many_devices", "4294967295 devices"),
    "negative_heap": _lie("devices", "negative_heap", "no device has"),
    "two_ids": _lie("devices", "two_ids", "two devices with id"),
    "undefined": Member(("open",), ("hostile_nowhere",), ("-DUNDEFINED_SYMBOL",)),
    "needs_nowhere": Member(
        ("open", "dependencies"), ("libhostile_nowhere",),
        ("-Wl,--no-as-needed", "-L{stub}", "-lhostile_nowhere"),
    ),
    "cut_off": Member(("architecture",), ("cut off",), spoil=_cut),
    "other_machine": Member(("architecture",), ("machine",), spoil=_other_machine),
    "not_elf": Member(
        ("architecture",), ("ELF",), spoil=lambda p: p.write_text("#!/bin/sh\n") and None,
        build=False,
    ),
    "empty": Member(_FILE, (), spoil=lambda p: p.touch(), build=False),
    "a_folder": Member(_FILE, (), spoil=lambda p: p.mkdir(), build=False),
    "a_pipe": Member(_FILE, (), spoil=_pipe, build=False),
}  # fmt: skip

if importlib.util.find_spec("anyhal.runtime.stages"):  # it looks at what a library exports
    SET |= {
        "extra_symbol": Member(("trust",), ("hostile_extra",), ("-DEXTRA_SYMBOL",), script=""),
        "unique_symbol": Member(("trust",), ("hostile_unique",), ("-DUNIQUE_SYMBOL",), script=""),
    }


def build_set(root: Path, objects: list[Path], stub: Path) -> None:
    """All of SET below `root`, and beside it one that is in order."""
    stub.mkdir()
    nowhere = stub / "libhostile_nowhere.so"
    subprocess.run([*CC, "-shared", "-xc", os.devnull, "-o", str(nowhere)], check=True)

    def build(name: str) -> None:
        member = SET.get(name, Member((), ()))
        library = folder_of(root, name)
        if member.build:
            options = [option.format(stub=stub) for option in member.options]
            build_library(objects, library, *options, script=member.script)
        if member.spoil:
            member.spoil(library)

    with ThreadPoolExecutor(2) as workers:
        list(workers.map(build, [*SET, "in_order"]))
    nowhere.unlink()
