"""Builds backends from changed sources: only what the change touches is compiled.
SPDX-License-Identifier: Apache-2.0

The objects of the unchanged files are kept in the cache folder (part `mutants`), by a hash of
source, headers, compiler and flags. What is linked lies in a temporary folder.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import threading
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

from anyhal.conformance.mutants.catalogue import Edit, Mutant, Recipe, recipes
from anyhal.errors import HalError
from anyhal.settings import cache_folder

NAME = "mutant"  # of every backend that is built here
_FLAGS = ("-std=c++20", "-O1", "-fPIC", "-fvisibility-inlines-hidden", "-w")
_LINK = ("-shared", "-static-libgcc", "-static-libstdc++", "-Wl,--no-undefined", "-Wl,--build-id")
_HEADERS = (".h", ".hh", ".hpp")
_PACKAGE = Path(__file__).parents[2]


class CannotBuildError(HalError):
    """There is no compiler, or no source to compile."""

    code = "not_run"


class BuildFailedError(HalError):
    """The compiler refused an edited source."""

    code = "build_failed"


class StoppedError(Exception):
    """Somebody asked for the end."""


class Workshop:
    """Compiles in `folder`. `stop` ends what runs; StoppedError is what its callers then get."""

    def __init__(self, folder: Path, jobs: int = 2, sources: Path | None = None) -> None:
        self.sources = sources or _PACKAGE / "sources" / "backends"
        self._include = _PACKAGE / "include"
        self._folder, self._jobs = folder, jobs
        self._compiler = os.environ.get("CXX", "") or "c++"
        self._stopped = threading.Event()
        self._running: set[subprocess.Popen[str]] = set()
        self._objects: dict[str, dict[str, Path]] = {}
        self._version = self._ask_compiler()
        if not (self._include / "anyhal" / "backend.h").is_file():
            raise CannotBuildError(f"building mutants: {self._include} holds no headers; reinstall")

    def _ask_compiler(self) -> str:
        program = shutil.which(self._compiler.split()[0])
        if program is None:
            raise CannotBuildError(
                f"building mutants: there is no C++ compiler {self._compiler!r} here; install g++"
                " 12 or later, or set CXX"
            )
        command = [*self._compiler.split(), "--version"]
        return subprocess.run(command, capture_output=True, text=True).stdout.partition("\n")[0]

    def stop(self) -> None:
        self._stopped.set()
        for one in list(self._running):
            with suppress(ProcessLookupError):
                one.kill()

    @property
    def stopped(self) -> bool:
        return self._stopped.is_set()

    def source(self, backend: str) -> Path:
        folder = self.sources / backend
        if not folder.is_dir():
            raise CannotBuildError(
                f"building mutants: the sources of {backend} are not in {self.sources}; install"
                " anyhal again"
            )
        return folder

    def text(self, backend: str, file: str) -> str:
        """A source file as it is."""
        return self._original(backend, file).read_text(encoding="utf-8")

    def _original(self, backend: str, file: str) -> Path:
        if file.startswith("include/"):
            return self._include / file.removeprefix("include/")
        return self.source(backend) / file

    def units(self, backend: str) -> list[str]:
        folder = self.source(backend)
        return sorted(str(p.relative_to(folder)) for p in folder.rglob("*.cc"))

    def unit_of(self, backend: str, op: str) -> str:
        """The file that holds an op's kernel."""
        defined = re.compile(rf"^void {op}\(const", re.MULTILINE)
        for unit in self.units(backend):
            if defined.search(self.text(backend, unit)):
                return unit
        raise CannotBuildError(f"building mutants: {backend} has no kernel of {op}")

    # ---------------------------------------------------------------------- unchanged objects

    def objects(self, backend: str, done: Callable[[int, int], None] | None = None) -> None:
        """Compiles what is not kept yet. Called once before `build`; slow the first time."""
        if backend in self._objects:
            return
        flags = (*_FLAGS, *recipes()[backend].flags)
        headers = self._digest([*_headers(self.source(backend)), *_headers(self._include)])
        units = self.units(backend)
        with ThreadPoolExecutor(self._jobs) as pool:
            made = pool.map(lambda unit: self._object(backend, unit, flags, headers), units)
            found = {}
            for unit, path in zip(units, made, strict=True):
                found[unit] = path
                if done is not None:
                    done(len(found), len(units))
        self._objects[backend] = found

    def _digest(self, files: Iterable[Path]) -> str:
        found = hashlib.sha256(self._version.encode())
        for file in files:
            found.update(str(file.relative_to(file.parents[1])).encode() + file.read_bytes())
        return found.hexdigest()

    def _object(self, backend: str, unit: str, flags: Sequence[str], headers: str) -> Path:
        source = self.source(backend) / unit
        key = f"{headers} {' '.join(flags)} {unit}\0".encode() + source.read_bytes()
        name = hashlib.sha256(key).hexdigest()[:32] + ".o"
        mine = self._folder / "objects" / name
        mine.parent.mkdir(parents=True, exist_ok=True)
        kept = Path(cache_folder()) / "mutants" / name
        with suppress(OSError):
            shutil.copyfile(kept, mine)  # a copy: the cache may be cleared while this one is used
            return mine
        self._compile(source, mine, flags, ())
        with suppress(OSError):  # without a cache it is compiled each time
            kept.parent.mkdir(parents=True, exist_ok=True)
            part = kept.with_name(f"{name}.{os.getpid()}.part")
            shutil.copyfile(mine, part)
            part.replace(kept)
        return mine

    # ------------------------------------------------------------------------ changed libraries

    def build(self, mutant: Mutant) -> Path:
        """The folder of the mutant as a backend: manifest and library."""
        self.objects(mutant.backend)
        recipe = recipes()[mutant.backend]
        place = self._folder / re.sub(r"\W", "_", mutant.id)
        edits = [*mutant.edits, *_scripted(recipe, mutant)]
        changed = self._overlay(mutant, place / "source", edits)
        units = self._touched(mutant, edits)
        flags = (*_FLAGS, *recipe.flags, *mutant.flags)
        made = []
        for i, unit in enumerate(units):
            made.append(place / f"{i}.o")
            self._compile(changed / unit, made[-1], flags, (place / "source" / "include",))
        # First, since of functions that several objects hold the first is taken.
        rest = [o for unit, o in self._objects[mutant.backend].items() if unit not in units]
        target = place / NAME
        target.mkdir()
        library = f"libanyhal_{NAME}.so"
        one_symbol = f"-Wl,--version-script={self.sources / 'one_symbol.map'}"
        command = [*self._compiler.split(), *_LINK, one_symbol, "-o", str(target / library)]
        self._run([*command, *map(str, [*made, *rest]), "-ldl", "-lm", "-lpthread"], mutant.id)
        manifest = self.text(mutant.backend, "backend.toml")
        (target / "backend.toml").write_text(_renamed(manifest, library), encoding="utf-8")
        shutil.rmtree(place / "source")
        return target

    def _overlay(self, mutant: Mutant, to: Path, edits: Sequence[Edit]) -> Path:
        """The backend's files as links, the edited ones as files."""
        folder = self.source(mutant.backend)
        for path in folder.rglob("*"):
            if path.suffix in (".cc", *_HEADERS):
                link = to / "backend" / path.relative_to(folder)
                link.parent.mkdir(parents=True, exist_ok=True)
                link.symlink_to(path)
        texts: dict[str, str] = {}
        for edit in edits:
            text = texts.get(edit.file) or self.text(mutant.backend, edit.file)
            if text.count(edit.find) != 1:
                raise BuildFailedError(
                    f"building mutant {mutant.id}: its text occurs {text.count(edit.find)} times in"
                    f" {edit.file}, not once; correct its row"
                )
            texts[edit.file] = text.replace(edit.find, edit.replace)
        for file, text in texts.items():
            path = to / file if file.startswith("include/") else to / "backend" / file
            path.parent.mkdir(parents=True, exist_ok=True)
            path.unlink(missing_ok=True)
            path.write_text(text, encoding="utf-8")
        return to / "backend"

    def _touched(self, mutant: Mutant, edits: Sequence[Edit]) -> list[str]:
        units = [e.file for e in edits if e.file.endswith(".cc")]
        if mutant.flags or len(units) < len(edits):
            units += mutant.compile or [self.unit_of(mutant.backend, op) for op in mutant.ops]
        return list(dict.fromkeys(units))

    def _compile(self, source: Path, to: Path, flags: Sequence[str], first: Sequence[Path]) -> None:
        include = [f"-I{folder}" for folder in (*first, self._include)]
        command = [*self._compiler.split(), *flags, *include, "-c", str(source), "-o", str(to)]
        self._run(command, source.name)

    def _run(self, command: Sequence[str], what: str) -> None:
        if self.stopped:
            raise StoppedError
        with subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        ) as one:
            self._running.add(one)
            try:
                _, said = one.communicate()
            finally:
                self._running.discard(one)
        if self.stopped:
            raise StoppedError
        if one.returncode:
            line = next((x for x in said.splitlines() if "error" in x), said[-300:])
            raise BuildFailedError(f"building mutant {what}: the compiler refused it: {line}")


def _headers(folder: Path) -> list[Path]:
    found = [p for p in folder.rglob("*") if p.suffix in _HEADERS and "history" not in p.parts]
    return sorted(found)


def _scripted(recipe: Recipe, mutant: Mutant) -> list[Edit]:
    if not mutant.script:
        return []
    row, script = recipe.script, mutant.script + (f"; bad={mutant.bad}" if mutant.bad else "")
    return [Edit(row["file"], row["find"], row["replace"].replace("{script}", script))]


def _renamed(manifest: str, library: str) -> str:
    """A manifest that tells nothing of what the library is made from."""
    lines = {"name": f'"{NAME}"', "library": f'"{library}"', "test_equipment": "false"}
    lines["summary"] = '"a backend under test"'
    for key, value in lines.items():
        manifest = re.sub(rf"^{key} = .*$", f"{key} = {value}", manifest, flags=re.MULTILINE)
    return "".join(line for line in manifest.splitlines(True) if not line.startswith("#"))
