"""Finds backends: where they may lie, whether their files can be trusted, what they depend on.
SPDX-License-Identifier: Apache-2.0

Opens no library. Each backend walks the first five loader stages (found, manifest, architecture,
trust, dependencies); the core walks the rest. The first failure is kept. Never looks into the
current directory; what others can write is refused.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache

from anyhal import _core, settings
from anyhal.errors import NotFoundError, typed_call
from anyhal.printable import printable
from anyhal.records import field, mutable_record, record, replace
from anyhal.runtime import hardware, installed
from anyhal.runtime.certified import (
    BESIDE,
    SELF_TESTED,
    UNCERTIFIED,
    Certificate,
    Known,
    hash_of_file,
    standing,
)
from anyhal.runtime.discovery_cache import begin, save
from anyhal.runtime.elf import ElfFile
from anyhal.runtime.file_rights import Rights
from anyhal.runtime.library import read_library, symbols_stop, system_stop
from anyhal.runtime.log import say
from anyhal.runtime.manifest import CONTRACT, FILE_NAME, Manifest, ManifestError, read_manifest
from anyhal.runtime.stages import ABSENT, FAILED, WAITING, Stage, Stages, Stop
from anyhal.runtime.vendor import find_libraries, plugin_paths
from anyhal.runtime.versions import contract_fits, is_older

ENTRY_POINTS = "anyhal.backends"
HASHES = "_build_hashes.sha256"  # as sha256sum writes it: tools/build_hashes.cmake


@record
class BackendRecord:
    """A backend as found on disk. `error` is the sentence of the first stage that failed."""

    name: str
    path: str  # its folder
    origin: str  # what led there
    stages: Stages  # five rows written here, the others by who opens it
    manifest: Manifest | None = None
    library: str = ""
    sha256: str = ""
    settings: tuple[tuple[str, str], ...] = ()
    state: str = UNCERTIFIED
    notes: tuple[str, ...] = ()  # what is missing without stopping it
    error: str | None = None
    hidden: bool = False  # test equipment that nobody asked for
    asked: bool = False  # the user named, by a variable, what it must open
    root: Root | None = None  # where it was looked for
    first: tuple[str, ...] = ()  # libraries of its vendor that are opened before it
    chosen: tuple[str, ...] = ()  # where each of its vendor's stacks comes from, and why
    built: bool = False  # by this build
    certificates: tuple[Certificate, ...] = ()  # of its library

    @property
    def failed_stage(self) -> str:
        first = self.stages.first_failure
        return first.stage if first is not None else ""


@record
class Root:
    """A folder that may hold backends, and who named it."""

    path: str | os.PathLike[str]
    origin: str
    strict: bool = True  # ownership counts too; not for folders of installed packages


@record
class Discovery:
    """All that was found, in search order, and where."""

    backends: tuple[BackendRecord, ...]
    searched: tuple[str, ...]
    notes: tuple[str, ...] = ()  # places that gave nothing although somebody named them


@lru_cache
def package_folder() -> str:
    return os.path.dirname(os.path.dirname(os.path.realpath(__file__)))


def discover(
    *,
    roots: Iterable[Root] | None = None,
    hashes: dict[str, str] | None = None,
    test_script: str | None = None,
    asked: Iterable[str] = (),
    hash_all: bool = True,
    known: Known | None = None,
) -> Discovery:
    """Walks all roots. `asked` are chip names that show test equipment; so does `test_script`.

    Without `hash_all` no library is read as a whole: one of this build has the hash that the build
    noted, which opening compares, and a stranger has none until `hashed` gives it.
    """
    wanted = frozenset(asked)
    begin()
    installed.look_again()
    if test_script is None:
        test_script = settings.FAKE.read()
    found: list[BackendRecord] = []
    searched: list[str] = []
    notes: list[str] = _ignored() if roots is None else []
    seen_files: dict[object, str] = {}
    seen_names: dict[str, str] = {}
    known_hashes = build_hashes() if hashes is None else hashes
    rights, known = Rights(), Known() if known is None else known
    for root in list(default_roots()) if roots is None else list(roots):
        searched.append(f"{os.fspath(root.path)} ({root.origin})")
        folders, problems = _backend_folders(root)
        notes += problems
        for folder in folders:
            walk = _Walk(folder, root, rights, known_hashes, test_script, seen_files, seen_names)
            walk.hashes_library, walk.known = hash_all, known
            record = walk.record()
            if record.manifest is not None and record.manifest.test_equipment:
                record = replace(record, hidden=test_script is None and record.name not in wanted)
            _say_why_it_waits(record)
            found.append(record)
    save()
    return Discovery(tuple(found), tuple(searched), tuple(notes))


def hashed(record: BackendRecord) -> BackendRecord:
    """The record with the hash of its library as that is now: the probe and the core open these
    bytes and no others."""
    if record.sha256 or record.error is not None or not record.library:
        return record
    try:
        return replace(record, sha256=hash_of(record.library))
    except OSError as why:
        file, detail = record.library, (why.strerror or str(why)).lower()
        record.stages.add(Stage("trust", FAILED, file, "unreadable", detail, "repair it"))
        said = f"backend {record.name} was refused at stage trust: {detail} ({file}); repair it"
        return replace(record, error=said)


def asked_for(record: BackendRecord, given: Iterable[str]) -> BackendRecord:
    """The record as it is when the caller names what the backend must open: `given` are settings.
    Such a backend is tried, whatever the machine seems to have."""
    names = {name for name, _ in record.manifest.settings} if record.manifest else set()
    stop = record.stages.first_failure
    absent = stop is not None and stop.status == ABSENT and stop.stage == "architecture"
    if record.root is None or not absent or names.isdisjoint(given):
        return record
    script = settings.FAKE.read()
    walk = _Walk(record.path, record.root, Rights(), build_hashes(), script, {}, {})
    walk.asked, walk.hashes_library = True, False
    return replace(walk.record(), hidden=record.hidden)


def _say_why_it_waits(record: BackendRecord) -> None:
    if record.error is not None or record.manifest is None:
        return
    if record.hidden:
        code, why, hint = "hidden", "it is test equipment", "name it, or set ANYHAL_FAKE"
    elif record.manifest.deferred:
        code, why, hint = "deferred", "it costs much to open", "name its device"
    else:
        return
    record.stages.add(Stage("open", WAITING, record.library, code, why, hint))


def default_roots() -> Iterator[Root]:
    """The environment's folders, then installed plugins, then the package's own: that alone where
    this process has more rights than its user, who chooses the first two."""
    if settings.environment_is_trusted():
        for path in settings.BACKEND_PATH.read():
            say("info", f"looking for backends in {path} first ({settings.BACKEND_PATH.name})")
            yield Root(path, settings.BACKEND_PATH.name)
        for entry in installed.entry_points(ENTRY_POINTS):
            yield from _plugin_root(entry)
    yield Root(f"{package_folder()}/backends", "the package itself", strict=False)


def _ignored() -> list[str]:
    """What a process with more rights than its user does not look at."""
    if settings.environment_is_trusted():
        return []
    why = "this process has more rights than its user"
    given = sorted(name for name in os.environ if name.startswith(settings.PREFIX))
    said = f"{', '.join([*given, 'installed plugins'])} are not looked at: {why}"
    return [f"{said}; run it without set-uid, set-gid and file capabilities to use them"]


def _plugin_root(entry: installed.EntryPoint) -> Iterator[Root]:
    """The folder that a plugin's entry point names; a plugin that fails costs only itself."""
    origin = f"entry point {entry.name}"
    path, why = installed.path_of(entry)
    if not path:
        yield Root(os.devnull, f"{origin}, which failed: {why}")
    else:
        yield Root(path, origin, strict=False)


def build_hashes() -> dict[str, str]:
    """sha256 of each library that this build made, by its path under the package."""
    try:
        with open(f"{package_folder()}/{HASHES}", encoding="utf-8") as stream:
            rows = [line.rstrip("\n").partition("  ") for line in stream]
    except (OSError, ValueError):
        return {}
    return {file: sha256 for sha256, _, file in rows}


def _backend_folders(root: Root) -> tuple[list[str], list[str]]:
    """`root` itself when it holds a manifest, else those of its folders that do; and what could not
    be looked into. One bad entry costs only itself."""

    def note(path: str, why: str, cure: str) -> str:
        return f"looking for backends in {path} ({root.origin}): {why}; {cure}"

    top = os.fspath(root.path)
    try:
        if _holds_manifest(top):
            return [top], []
        names = sorted(os.listdir(top))
    except OSError as why:
        return [], [note(top, why.strerror or str(why), "correct the path or its rights")]
    folders: list[str] = []
    notes: list[str] = []
    for name in names:
        entry = f"{top.rstrip('/')}/{name}"
        try:
            if _holds_manifest(entry):
                folders.append(entry)
            else:
                os.stat(entry)  # a link that leads nowhere, or round in a circle
        except OSError as why:
            notes.append(note(entry, why.strerror or str(why), "repair it or take it away"))
    if not folders and not notes:
        notes.append(note(top, f"no folder there holds a {FILE_NAME}", "name a backend's folder"))
    return folders, notes


def _holds_manifest(folder: str) -> bool:
    """Whether a manifest lies there; OSError where that cannot be known."""
    try:
        return stat.S_ISREG(os.stat(f"{folder}/{FILE_NAME}").st_mode)
    except (FileNotFoundError, NotADirectoryError):
        return False


@mutable_record
class _Walk:
    """One backend on its way through the stages."""

    folder: str
    root: Root
    rights: Rights
    hashes: dict[str, str]
    test_script: str | None
    seen_files: dict[object, str]  # by inode, and by build id
    seen_names: dict[str, str]
    stages: Stages = field(default_factory=Stages)
    manifest: Manifest | None = None
    library: str = ""
    sha256: str = ""
    state: str = UNCERTIFIED
    given: dict[str, str] = field(default_factory=dict)
    asked: bool = False
    built: bool = False
    elf: ElfFile | None = None
    first: list[str] = field(default_factory=list)
    chosen: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    hashes_library: bool = True
    known: Known = field(default_factory=Known)
    certificates: tuple[Certificate, ...] = ()

    def record(self) -> BackendRecord:
        steps: tuple[tuple[str, Callable[[], Stop | None]], ...] = (
            ("found", self._found),
            ("manifest", self._manifest),
            ("architecture", self._architecture),
            ("trust", self._trust),
            ("dependencies", self._dependencies),
        )
        error: str | None = None
        for name, step in steps:
            try:
                stop = step()
            except OSError as why:
                file = str(why.filename or self.folder)
                stop = Stop("unreadable", file, why.strerror or str(why), "repair it")
            if stop is None:
                file = self.library or self.folder
                self.stages.passed(name, file, "; ".join(self.chosen))
                continue
            self.stages.add(stop.row(name))
            said = "is not used here:" if stop.absent else f"was refused at stage {name}:"
            error = f"backend {self._name} {said} {stop.detail} ({stop.file}); {stop.hint}"
            break
        if error is None:
            self.seen_names[self._name] = self.folder
        return BackendRecord(
            name=self._name,
            path=self.folder,
            origin=self.root.origin,
            stages=self.stages,
            manifest=self.manifest,
            library=self.library,
            sha256=self.sha256,
            settings=tuple(sorted(self.given.items())),
            state=self.state,
            notes=tuple(self.notes),
            error=error,
            asked=self.asked,
            root=self.root,
            first=tuple(self.first),
            chosen=tuple(self.chosen),
            built=self.built,
            certificates=self.certificates,
        )

    @property
    def _name(self) -> str:
        return self.manifest.name if self.manifest else os.path.basename(self.folder)

    @property
    def _file(self) -> str:
        return f"{self.folder}/{FILE_NAME}"

    # Each stage answers None, or why the backend stops there.

    def _found(self) -> Stop | None:
        given = self.folder
        self.folder = self.rights.resolved(given)
        try:
            self.folder.encode("utf-8")
        except UnicodeEncodeError:  # os.fsdecode keeps foreign bytes as lone surrogates
            why = "its path is not UTF-8, and so cannot be handed to the core"
            return Stop("unreadable", printable(self.folder), why, "rename the folder")
        for path in (given, self._file):
            writer = self.rights.writable_by_others(path, self.root.strict)
            if not writer:
                continue
            hint = "take that right away (chmod go-w) or move the folder"
            return Stop("untrusted", self.folder, writer, hint)
        return None

    def _manifest(self) -> Stop | None:
        file = self._file
        try:
            self.manifest = read_manifest(file)
        except ManifestError as why:
            reason, _, hint = str(why).rpartition("; ")
            return Stop("bad_manifest", file, reason, hint)
        if not contract_fits(self.manifest.abi, self.manifest.floor, CONTRACT):
            draft = "draft " if self.manifest.abi.startswith("0.") else ""
            floor = f" (from {self.manifest.floor} on)" if self.manifest.floor else ""
            theirs = f"it is built for {draft}{self.manifest.abi}{floor} of the contract"
            old = is_older(self.manifest.abi, CONTRACT) and not self.manifest.floor
            hint = f"upgrade the {'backend' if old else 'core'}"
            return Stop("abi_mismatch", file, f"{theirs}, this core has {CONTRACT}", hint)
        self._settings()
        missing = f"{self.folder}/{self.manifest.library}"
        if not os.path.isfile(missing):
            hint = "build it, or install the backend again"
            return Stop("no_library", missing, "there is no such file", hint)
        other = self.seen_names.get(self.manifest.name)
        if other is not None and other != self.folder:
            reason = f"the name {self.manifest.name!r} is taken by {other}, which was found first"
            hint = "remove one of the two from the search path"
            return Stop("name_taken", file, reason, hint)
        return None

    def _architecture(self) -> Stop | None:
        assert self.manifest is not None
        wanted = self.manifest.hardware
        stop = hardware.misfit(wanted, self._file)
        # What the user names by a variable is tried, whatever the machine seems to have.
        if stop is not None and (stop.code == "other_machine" or not self.asked):
            return stop
        self.library = f"{self.folder}/{self.manifest.library}"
        if self.manifest.python:  # the interpreter's, not the machine's
            return None
        read = read_library(self.library)
        if isinstance(read, Stop):
            self.library = ""
            return read
        self.elf = read
        return None

    def _trust(self) -> Stop | None:
        library = self.rights.resolved(self.library)
        info = self.rights.found(library)
        builds = [f"build id {self.elf.build_id}"] if self.elf and self.elf.build_id else []
        for mark in ((info.st_dev, info.st_ino), *builds):
            first = self.seen_files.get(mark, library)
            if first != library:
                same = "same build" if isinstance(mark, str) else "same file"
                reason = f"it is the {same} as {first}"
                return Stop("duplicate", library, reason, "remove one of the two")
        writer = self.rights.writable_by_others(self.library, self.root.strict)
        if writer:
            hint = "take that right away (chmod go-w)"
            return Stop("untrusted", library, writer, hint)
        stop = symbols_stop(self.elf, library) if self.elf else None
        if stop is not None:
            return stop
        self.library = library
        if self.hashes_library:
            self.sha256 = hash_of(library)
        stop = self._against_build(library) or self._certified(library)
        if stop is None:
            self.seen_files |= dict.fromkeys(((info.st_dev, info.st_ino), *builds), library)
        return stop

    def _against_build(self, library: str) -> Stop | None:
        """Self-tested is what this build made, in its place and unchanged."""
        package = f"{package_folder()}/"
        expected = self.hashes.get(library.removeprefix(package))
        if expected is None or not library.startswith(package):
            return None  # a stranger: uncertified
        self.sha256 = self.sha256 or expected
        if expected != self.sha256:
            reason = (
                f"its hash {self.sha256[:16]} is not the build's {expected[:16]}: it was changed"
            )
            return Stop("hash_mismatch", library, reason, "install anyhal again")
        self.state, self.built = SELF_TESTED, True
        return None

    def _certified(self, library: str) -> Stop | None:
        """What certificates make of it. One beside it that is for other bytes says that these were
        changed, whoever signed it."""
        beside = f"{self.folder}/{BESIDE}"
        files = [beside] if os.path.exists(beside) else []
        if not files and self.known.says_nothing():
            return None
        self.sha256 = self.sha256 or hash_of_file(library)  # who opens it compares
        shipped = self.known.of(files)
        found = (*shipped, *self.known.of_library(self.sha256))
        others = {c.library for c in shipped} - {"", self.sha256}
        if others and not any(c.library == self.sha256 for c in found):
            reason = (
                f"its hash {self.sha256[:16]} is not the {others.pop()[:16]} of the certificate"
                " beside it: it was changed"
            )
            hint = f"install the backend again, or take {BESIDE} away and certify it"
            return Stop("hash_mismatch", library, reason, hint)
        self.certificates = tuple(c for c in found if c.library in ("", self.sha256))
        self.state = standing(self.certificates, self.built).state
        return None

    def _settings(self) -> None:
        """What variables give it; a variable that nothing reads is told at `dependencies`."""
        assert self.manifest is not None
        for setting, variable in self.manifest.settings:
            with contextlib.suppress(NotFoundError):
                value = settings.setting(variable).read()
                if value is not None:
                    self.given[setting] = str(value)
                    self.asked = True
                    say("info", f"backend {self._name} is given {setting}={value} ({variable})")

    def _dependencies(self) -> Stop | None:
        assert self.manifest is not None
        if self.manifest.test_equipment and self.test_script not in (None, "1"):
            self.given["script"] = str(self.test_script)
        for _, variable in self.manifest.settings:
            try:
                settings.setting(variable)
            except NotFoundError as unknown:
                reason, _, hint = str(unknown).rpartition("; ")
                return Stop("bad_setting", self._file, reason, hint)
        found = find_libraries(self.manifest.libraries)
        self.given |= found.settings
        self.notes += found.notes
        self.first, self.chosen = found.first, found.chosen
        stop = found.stop or (system_stop(self.elf, self.library) if self.elf else None)
        if stop is None and self.manifest.opens is not None:
            paths, notes = plugin_paths(self.manifest.opens)
            self.asked = self.asked or bool(paths)
            for path in paths:
                say("info", f"backend {self._name} may open {path}")
            self.given[self.manifest.opens.setting] = os.pathsep.join(paths)
            self.notes += notes
        return stop


def hash_of(path: str) -> str:
    with open(path, "rb", buffering=0) as stream:
        digest: str = _core.sha256_of_file(stream.fileno())
    return digest


@typed_call("get_include")
def get_include() -> str:
    """The folder of the contract's headers, for compilers: cc -I$(python -c
    "import anyhal; print(anyhal.get_include())")."""
    return f"{package_folder()}/include"
