"""Finds backends: where they may lie, whether their files can be trusted, what they depend on.
SPDX-License-Identifier: Apache-2.0

Opens no library. Each backend walks the first five loader stages (found, manifest, architecture,
trust, dependencies); the core walks the rest. The first failure is kept. Never looks into the
current directory; what others can write is refused.
"""

from __future__ import annotations

import json
import os
import stat
import struct
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path

from anyhal import _core, settings
from anyhal.errors import NotFoundError, typed_call
from anyhal.records import record
from anyhal.runtime import installed
from anyhal.runtime.discovery_cache import begin, remember, save, stamp_of
from anyhal.runtime.file_rights import Rights
from anyhal.runtime.manifest import CONTRACT, FILE_NAME, Manifest, ManifestError, read_manifest
from anyhal.runtime.vendor import locate_library, plugin_paths

STAGES = ("found", "manifest", "architecture", "trust", "dependencies")
ENTRY_POINTS = "anyhal.backends"
SELF_TESTED, UNCERTIFIED = "self-tested", "uncertified"

# ELF program header up to p_filesz, then what is not needed here (System V ABI).
_SEGMENT = struct.Struct("<IIQQQQ16x")
# ELF header, offset 18: e_machine (System V ABI, "ELF header").
_ELF_MACHINES = {62: "x86_64", 183: "aarch64"}


@record
class Stage:
    """One loader stage of one backend."""

    stage: str
    status: str  # "ok", "failed", "skipped"
    file: str
    reason: str = ""
    hint: str = ""


@record
class BackendRecord:
    """A backend as found on disk. `error` is the sentence of the first stage that failed."""

    name: str
    path: Path  # its folder
    origin: str  # what led there
    stages: tuple[Stage, ...]
    manifest: Manifest | None = None
    library: Path | None = None
    sha256: str = ""
    settings: tuple[tuple[str, str], ...] = ()
    state: str = UNCERTIFIED
    notes: tuple[str, ...] = ()  # what is missing without stopping it
    error: str | None = None
    hidden: bool = False  # test equipment that nobody asked for
    asked: bool = False  # the user named, by a variable, what it must open
    root: Root | None = None  # where it was looked for

    @property
    def failed_stage(self) -> str:
        return next((s.stage for s in self.stages if s.status == "failed"), "")


@record
class Root:
    """A folder that may hold backends, and who named it."""

    path: Path
    origin: str
    strict: bool = True  # ownership counts too; not for folders of installed packages


@record
class Discovery:
    """All that was found, in search order, and where."""

    backends: tuple[BackendRecord, ...]
    searched: tuple[str, ...]
    notes: tuple[str, ...] = ()  # places that gave nothing although somebody named them


@lru_cache
def package_folder() -> Path:
    return Path(__file__).resolve().parents[1]


def discover(
    *,
    roots: Iterable[Root] | None = None,
    hashes: dict[str, str] | None = None,
    test_script: str | None = None,
    asked: Iterable[str] = (),
    hash_all: bool = True,
) -> Discovery:
    """Walks all roots. `asked` are chip names that show test equipment; so does `test_script`.

    Without `hash_all` no library is read: records have no sha256 until `hashed` gives it.
    """
    wanted = frozenset(asked)
    begin()
    installed.look_again()
    if test_script is None:
        test_script = settings.FAKE.read()
    found: list[BackendRecord] = []
    searched: list[str] = []
    notes: list[str] = []
    seen_files: dict[tuple[int, int], Path] = {}
    seen_names: dict[str, Path] = {}
    known_hashes = build_hashes() if hashes is None else hashes
    rights = Rights()
    for root in list(default_roots()) if roots is None else list(roots):
        searched.append(f"{root.path} ({root.origin})")
        folders, problems = _backend_folders(root)
        notes += problems
        for folder in folders:
            walk = _Walk(folder, root, rights, known_hashes, test_script, seen_files, seen_names)
            walk.reads_library = hash_all
            record = walk.record()
            if record.manifest is not None and record.manifest.test_equipment:
                record = replace(record, hidden=test_script is None and record.name not in wanted)
            found.append(record)
    save()
    return Discovery(tuple(found), tuple(searched), tuple(notes))


def hashed(record: BackendRecord) -> BackendRecord:
    """The record after one more walk that reads the library: before it is opened. A library that is
    not what the build made is refused here, and so is what changed since discovery."""
    if record.sha256 or record.error is not None or record.root is None:
        return record
    script = settings.FAKE.read()
    walk = _Walk(record.path, record.root, Rights(), build_hashes(), script, {}, {})
    return replace(walk.record(), hidden=record.hidden)


def default_roots() -> Iterator[Root]:
    """The environment's folders, then installed plugins, then the package's own."""
    for path in settings.BACKEND_PATH.read():
        yield Root(path, settings.BACKEND_PATH.name)
    for entry in installed.entry_points(ENTRY_POINTS):
        yield from _plugin_root(entry)
    yield Root(package_folder() / "backends", "the package itself", strict=False)


def _plugin_root(entry: installed.EntryPoint) -> Iterator[Root]:
    """The folder that a plugin's entry point names; a plugin that fails costs only itself."""
    try:
        value = entry.load()
        path = Path(value() if callable(value) else value)
    except Exception as why:  # any import error of a foreign package
        yield Root(Path(os.devnull), f"entry point {entry.name}, which failed: {why}")
        return
    if path.is_absolute():
        yield Root(path, f"entry point {entry.name}", strict=False)


def build_hashes() -> dict[str, str]:
    """sha256 of each library that this build made, by its path under the package."""
    try:
        data = json.loads((package_folder() / "_build_hashes.json").read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    return (
        {} if not isinstance(data, dict) else {str(key): str(value) for key, value in data.items()}
    )


def _backend_folders(root: Root) -> tuple[list[Path], list[str]]:
    """`root` itself when it holds a manifest, else those of its folders that do; and what could not
    be looked into. One bad entry costs only itself."""

    def note(path: Path, why: str, cure: str) -> str:
        return f"looking for backends in {path} ({root.origin}): {why}; {cure}"

    try:
        if _holds_manifest(root.path):
            return [root.path], []
        names = sorted(os.listdir(root.path))
    except OSError as why:
        return [], [note(root.path, why.strerror or str(why), "correct the path or its rights")]
    folders: list[Path] = []
    notes: list[str] = []
    for name in names:
        entry = root.path / name
        try:
            os.stat(entry)  # a link that leads nowhere, or round in a circle
            if _holds_manifest(entry):
                folders.append(entry)
        except OSError as why:
            notes.append(note(entry, why.strerror or str(why), "repair it or take it away"))
    if not folders and not notes:
        notes.append(
            note(root.path, f"no folder there holds a {FILE_NAME}", "name a backend's folder")
        )
    return folders, notes


def _holds_manifest(folder: Path) -> bool:
    """Whether a manifest lies there; OSError where that cannot be known."""
    try:
        return stat.S_ISREG(os.stat(f"{folder}/{FILE_NAME}").st_mode)
    except (FileNotFoundError, NotADirectoryError):
        return False


@dataclass(eq=False, repr=False)
class _Walk:
    """One backend on its way through the stages."""

    folder: Path
    root: Root
    rights: Rights
    hashes: dict[str, str]
    test_script: str | None
    seen_files: dict[tuple[int, int], Path]
    seen_names: dict[str, Path]
    stages: list[Stage] = field(default_factory=list)
    manifest: Manifest | None = None
    library: Path | None = None
    sha256: str = ""
    state: str = UNCERTIFIED
    given: dict[str, str] = field(default_factory=dict)
    asked: bool = False
    notes: list[str] = field(default_factory=list)
    reads_library: bool = True

    def record(self) -> BackendRecord:
        steps: tuple[Callable[[], tuple[str, str, str] | None], ...] = (
            self._found,
            self._manifest,
            self._architecture,
            self._trust,
            self._dependencies,
        )
        error: str | None = None
        for name, step in zip(STAGES, steps, strict=True):
            if error is not None:
                self.stages.append(Stage(name, "skipped", str(self.folder)))
                continue
            try:
                failure = step()
            except OSError as why:
                failure = (str(why.filename or self.folder), why.strerror or str(why), "repair it")
            if failure is None:
                self.stages.append(Stage(name, "ok", str(self.library or self.folder)))
                continue
            file, reason, hint = failure
            self.stages.append(Stage(name, "failed", file, reason, hint))
            error = f"backend {self._name} was refused at stage {name}: {reason} ({file}); {hint}"
        if error is None:
            self.seen_names[self._name] = self.folder
        return BackendRecord(
            name=self._name,
            path=self.folder,
            origin=self.root.origin,
            stages=tuple(self.stages),
            manifest=self.manifest,
            library=self.library,
            sha256=self.sha256,
            settings=tuple(sorted(self.given.items())),
            state=self.state,
            notes=tuple(self.notes),
            error=error,
            asked=self.asked,
            root=self.root,
        )

    @property
    def _name(self) -> str:
        return self.manifest.name if self.manifest else self.folder.name

    # Each stage answers None, or (file, reason, hint) of its failure.

    def _found(self) -> tuple[str, str, str] | None:
        given, self.folder = self.folder, Path(self.rights.resolved(self.folder))
        for path in (given, self.folder / FILE_NAME):
            writer = self.rights.writable_by_others(path, self.root.strict)
            if not writer:
                continue
            return str(self.folder), writer, "take that right away (chmod go-w) or move the folder"
        return None

    def _manifest(self) -> tuple[str, str, str] | None:
        file = self.folder / FILE_NAME
        try:
            self.manifest = read_manifest(file)
        except ManifestError as why:
            reason, _, hint = str(why).rpartition("; ")
            return str(file), reason, hint
        if self.manifest.abi != CONTRACT:
            theirs = f"it is built for draft {self.manifest.abi} of the contract"
            reason = f"{theirs}, this core has {CONTRACT}"
            newer = _version(self.manifest.abi) > _version(CONTRACT)
            return str(file), reason, f"upgrade the {'core' if newer else 'backend'}"
        if not (self.folder / self.manifest.library).is_file():
            missing = str(self.folder / self.manifest.library)
            return missing, "there is no such file", "build it, or install the backend again"
        other = self.seen_names.get(self.manifest.name)
        if other is not None and other != self.folder:
            reason = f"the name {self.manifest.name!r} is taken by {other}, which was found first"
            return str(file), reason, "remove one of the two from the search path"
        return None

    def _architecture(self) -> tuple[str, str, str] | None:
        assert self.manifest is not None
        here = os.uname().machine
        if self.manifest.machines and here not in self.manifest.machines:
            reason = f"it is for {', '.join(self.manifest.machines)}, this machine is {here}"
            return str(self.folder / FILE_NAME), reason, "install the build for this machine"
        library = self.folder / self.manifest.library
        machine, needed = remember(
            str(library), stamp_of([library]), "machine and bytes", lambda: _of_elf(library)
        )
        if not machine:
            return str(library), "it is not an ELF library", "build it, or install it again"
        if machine != here:
            reason = f"it is built for {machine}, this machine is {here}"
            return str(library), reason, "install the build for this machine"
        given = library.stat().st_size
        if needed > given:
            # The loader would map past the end, and the first touch there ends the process.
            reason = f"it was cut off: its segments need {needed} bytes, {given} are there"
            return str(library), reason, "build it, or install the backend again"
        self.library = library
        return None

    def _trust(self) -> tuple[str, str, str] | None:
        assert self.manifest is not None and self.library is not None
        library = Path(self.rights.resolved(self.library))
        info = library.stat()
        first = self.seen_files.setdefault((info.st_dev, info.st_ino), library)
        if first != library:
            return str(library), f"it is the same file as {first}", "remove one of the two"
        writer = self.rights.writable_by_others(self.library, self.root.strict)
        if writer:
            return str(library), writer, "take that right away (chmod go-w)"
        self.library = library
        if self.reads_library:
            self.sha256 = hash_of(library)
        return self._against_build(library)

    def _against_build(self, library: Path) -> tuple[str, str, str] | None:
        """Self-tested is what this build made, in its place and unchanged. Before the library was
        read it only has the place: `hashed` reads it."""
        try:
            key = library.relative_to(package_folder()).as_posix()
        except ValueError:
            return None  # a stranger: uncertified
        expected = self.hashes.get(key)
        if expected is None:
            return None
        if self.reads_library and expected != self.sha256:
            reason = (
                f"its hash {self.sha256[:16]} is not the build's {expected[:16]}: it was changed"
            )
            return str(library), reason, "install anyhal again"
        self.state = SELF_TESTED
        return None

    def _dependencies(self) -> tuple[str, str, str] | None:
        assert self.manifest is not None
        if self.manifest.test_equipment and self.test_script not in (None, "1"):
            self.given["script"] = str(self.test_script)
        for setting, variable in self.manifest.settings:
            try:
                value = settings.setting(variable).read()
            except NotFoundError as unknown:
                reason, _, hint = str(unknown).rpartition("; ")
                return str(self.folder / FILE_NAME), reason, hint
            if value is not None:
                self.given[setting] = str(value)
                self.asked = True
        for name in dict.fromkeys(row.setting for row in self.manifest.libraries):
            rows = [row for row in self.manifest.libraries if row.setting == name]
            found = [(row, *locate_library(row)) for row in rows]
            path = next((path for _, path, _ in found if path is not None), None)
            self.given[name] = str(path) if path else ""
            if path is not None:
                continue
            wanted, _, why = found[-1]
            sentence = wanted.missing or f"{wanted.file} of {wanted.package} is missing"
            if wanted.required:
                return wanted.file, why, f"pip install {wanted.package!r}"
            self.notes.append(f"{sentence} ({why})")
        if self.manifest.opens is not None:
            paths, notes = plugin_paths(self.manifest.opens)
            self.asked = self.asked or bool(paths)
            self.given[self.manifest.opens.setting] = os.pathsep.join(map(str, paths))
            self.notes += notes
        return None


def _version(text: str) -> tuple[int, ...]:
    return tuple(map(int, text.split(".")))


def _of_elf(library: Path) -> tuple[str, int]:
    """The machine it is for, "" for what is no ELF file, and the bytes that its segments need."""
    with library.open("rb") as stream:
        head = stream.read(20)
    if len(head) < 20 or head[:4] != b"\x7fELF":
        return "", 0
    machine = _ELF_MACHINES.get(int.from_bytes(head[18:20], "little"), "another machine")
    return machine, _mapped_bytes(library)


def _mapped_bytes(library: Path) -> int:
    """Where the last loaded segment of a 64-bit little-endian ELF file ends; 0 for no table."""
    with library.open("rb") as stream:
        head = stream.read(64)
        if len(head) < 64 or head[4:6] != b"\x02\x01":
            return 0  # the loader says what is wrong with it
        (start,) = struct.unpack_from("<Q", head, 32)  # e_phoff
        size, count = struct.unpack_from("<HH", head, 54)  # e_phentsize, e_phnum
        if size != _SEGMENT.size or start > library.stat().st_size:
            return 0
        stream.seek(start)
        table = stream.read(size * count)
    whole = table[: len(table) // size * size]
    return max(
        (at + n for kind, _, at, _, _, n in _SEGMENT.iter_unpack(whole) if kind == 1), default=0
    )


def hash_of(path: Path) -> str:
    with path.open("rb", buffering=0) as stream:
        digest: str = _core.sha256_of_file(stream.fileno())
    return digest


@typed_call("get_include")
def get_include() -> str:
    """The folder of the contract's headers, for compilers: cc -I$(python -c
    "import anyhal; print(anyhal.get_include())")."""
    return str(Path(__file__).resolve().parents[1] / "include")
