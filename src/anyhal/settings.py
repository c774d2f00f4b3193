"""Every environment variable that anyhal reads: name, type, default, meaning.
SPDX-License-Identifier: Apache-2.0

Nothing else reads any. A variable that is unset or empty gives its default. A process with more
rights than its user has (set-uid, set-gid) ignores them all: a variable must not become a library
path there.
"""

from __future__ import annotations

import os
import pwd
import re
import struct
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Generic, TypeVar

from anyhal.errors import InvalidArgumentError, NotFoundError
from anyhal.printable import get_close_matches
from anyhal.records import record

__all__ = ["TABLE", "Setting", "environment_is_trusted", "setting", "unknown_names"]

T_co = TypeVar("T_co", covariant=True)
PREFIX = "ANYHAL_"
_AT_SECURE = 23  # <elf.h>


@record
class Setting(Generic[T_co]):
    """One variable. `parse` raises ValueError with the reason, without the variable's name."""

    name: str
    kind: str
    default: T_co
    default_text: str
    meaning: str
    parse: Callable[[str], T_co]
    advice: str  # what to do, as the end of the error sentence

    def read(self, environ: Mapping[str, str] | None = None) -> T_co:
        """The value now. InvalidArgumentError says what is wrong and what to write."""
        if environ is None:
            if not environment_is_trusted():
                return self.default
            environ = os.environ
        text = environ.get(self.name, "")
        if not text.strip():
            return self.default
        text = text if self.kind == "names" else text.strip()  # names are taken as they are
        try:
            return self.parse(text)
        except ValueError as why:
            raise InvalidArgumentError(
                f"cannot read the environment variable {self.name}={text!r}: {why}; {self.advice}"
            ) from None


@lru_cache(maxsize=1)
def _has_extra_rights() -> bool:
    """The kernel's word (AT_SECURE): set-uid, set-gid, capabilities of the program's file."""
    try:
        with open("/proc/self/auxv", "rb") as stream:
            words = stream.read()
    except PermissionError:  # a process whose user has changed may not look at itself
        import ctypes

        return bool(ctypes.CDLL(None).getauxval(_AT_SECURE))
    except OSError:
        return False  # no /proc: the numbers of user and group have to do
    pairs = struct.iter_unpack("LL", words[: len(words) // 16 * 16])
    return any(kind == _AT_SECURE and value for kind, value in pairs)


def environment_is_trusted() -> bool:
    """Whether this process has the rights of the user who started it, and no more."""
    if _has_extra_rights():
        return False
    real_uid, effective_uid, saved_uid = os.getresuid()
    real_gid, effective_gid, saved_gid = os.getresgid()
    return real_uid == effective_uid == saved_uid and real_gid == effective_gid == saved_gid


def _absolute(text: str) -> str:
    """The path with one slash between its parts; `..` stays, for links may stand before it."""
    if not os.path.isabs(text):
        raise ValueError(f"{text!r} is a relative path, which depends on the current directory")
    return "/" + "/".join(part for part in text.split("/") if part not in ("", "."))


def _absolute_list(text: str) -> tuple[str, ...]:
    return tuple(_absolute(part) for part in text.split(os.pathsep) if part)


def _plugins(text: str) -> tuple[str, ...]:
    return () if text == "none" else _absolute_list(text)


_MOST_THREADS = 2**16  # far above any machine; larger is a slip of the hand


def _threads(text: str) -> int:
    if not text.isascii() or not text.isdigit() or int(text) < 1:
        raise ValueError("it is not a whole number of at least 1")
    if int(text) > _MOST_THREADS:
        raise ValueError(f"it is above {_MOST_THREADS}")
    return int(text)


def _seconds(text: str) -> int:
    if not text.isascii() or not text.isdigit() or not 1 <= int(text) <= 3600:
        raise ValueError("it is not a whole number from 1 to 3600")
    return int(text)


_WORDS = {"1": True, "true": True, "yes": True, "on": True}
_WORDS |= {"0": False, "false": False, "no": False, "off": False}


def _flag(text: str) -> bool:
    if text.lower() not in _WORDS:
        raise ValueError("it is neither yes nor no")
    return _WORDS[text.lower()]


LOG_LEVELS = ("debug", "info", "warning", "error", "off")


def _level(text: str) -> str:
    if text.lower() not in LOG_LEVELS:
        near = get_close_matches(text.lower(), LOG_LEVELS, n=1)
        raise ValueError("it is no log level" + (f", did you mean {near[0]!r}?" if near else ""))
    return text.lower()


def _names(text: str) -> tuple[str, ...]:
    """Spaces beside commas are nobody's; any other one is part of the name, which then is none."""
    return tuple(part for part in re.split(r" *, *", text) if part)


BACKEND_PATH: Setting[tuple[str, ...]] = Setting(
    "ANYHAL_BACKEND_PATH",
    "folders",
    (),
    "none",
    f"Folders searched for backends before all others, absolute, separated by {os.pathsep!r}: each"
    " is a backend's folder (it holds backend.toml) or holds such folders. Refused where others can"
    " write.",
    _absolute_list,
    "write absolute folders, such as /opt/vendor/backends",
)
CACHE: Setting[str | None] = Setting(
    "ANYHAL_CACHE",
    "folder",
    None,
    "$XDG_CACHE_HOME/anyhal, else ~/.cache/anyhal",
    "Where fetched models and other things that can be made again are kept; absolute.",
    _absolute,
    "write an absolute folder, such as /var/cache/anyhal",
)
THREADS: Setting[int | None] = Setting(
    "ANYHAL_THREADS",
    "count",
    None,
    "the processor cores this process may use (affinity and cgroup quota)",
    "Threads that compute on the host, the caller among them; vendor libraries get none beside.",
    _threads,
    "write a count, such as 2",
)
PJRT_PLUGINS: Setting[tuple[str, ...] | None] = Setting(
    "ANYHAL_PJRT_PLUGINS",
    "files",
    None,
    "those of installed packages: entry points of the group anyhal.pjrt_plugins, and known ones",
    f"PJRT plugins to open, absolute, separated by {os.pathsep!r}; each becomes a device. `none`"
    " opens none.",
    _plugins,
    "write absolute paths, such as /opt/vendor/pjrt_plugin.so, or none",
)
PROBE: Setting[bool] = Setting(
    "ANYHAL_PROBE",
    "yes/no",
    True,
    "yes",
    "Whether a backend's library that this build did not make is first opened in a process of its"
    " own, which shows whether it crashes, hangs or changes the process. `off` opens strangers as"
    " they are.",
    _flag,
    "write on or off",
)
PROBE_SECONDS: Setting[int] = Setting(
    "ANYHAL_PROBE_SECONDS",
    "seconds",
    8,
    "8",
    "How long a stranger's library may take in that process to be opened, to shake hands, to list"
    " its devices and to end.",
    _seconds,
    "write a count of seconds, such as 30",
)
REGISTRY: Setting[str | None] = Setting(
    "ANYHAL_REGISTRY",
    "file",
    None,
    "registry.tsv in the cache folder",
    "The registry file that `anyhal devices --write-registry` writes and C programs read;"
    " absolute.",
    _absolute,
    "write an absolute path, such as /etc/anyhal/registry.tsv",
)
VISIBLE_DEVICES: Setting[tuple[str, ...] | None] = Setting(
    "ANYHAL_VISIBLE_DEVICES",
    "names",
    None,
    "all devices",
    "The devices this process may see, comma separated, by name (chip:0), by chip (chip) or by"
    " identity (UUID or bus address); one variable for every vendor. Others are left out before"
    " anything opens them, and keep their numbers."
    " A name that no device has is reported; when none is left, that is an error.",
    _names,
    "write device names as `anyhal devices` prints them",
)
FAKE: Setting[str | None] = Setting(
    "ANYHAL_FAKE",
    "text",
    None,
    "test equipment is hidden",
    "Shows backends that are test equipment and hands them this text as their script; `1` is the"
    " empty script.",
    str,
    "write a script or 1",
)
CUDA_DRIVER: Setting[str | None] = Setting(
    "ANYHAL_CUDA_DRIVER",
    "file or folder",
    None,
    "the system's libcuda.so.1",
    "NVIDIA's driver library, or the folder that holds it; absolute. cuBLASLt is then looked for in"
    " that folder alone. Tests name their simulated driver here.",
    _absolute,
    "write an absolute path, such as /usr/lib/x86_64-linux-gnu/libcuda.so.1",
)
DEBUG_POOL: Setting[bool] = Setting(
    "ANYHAL_DEBUG_POOL",
    "yes/no",
    False,
    "no",
    "Fills memory with NaN bytes before it is handed out, on devices that compute in host memory"
    " without a queue. Slow; finds reads of what was never written.",
    _flag,
    "write 1 or 0",
)
LOG: Setting[str] = Setting(
    "ANYHAL_LOG",
    "level",
    "warning",
    "warning",
    "The least grave message that core and backends print on stderr: "
    + ", ".join(LOG_LEVELS)
    + ".",
    _level,
    "write one of " + ", ".join(LOG_LEVELS),
)

SMOKE: Setting[bool] = Setting(
    "ANYHAL_SMOKE",
    "yes/no",
    True,
    "yes",
    "Whether the smoke set runs, for some seconds, when a certified backend meets a driver that its"
    " certificate does not cover. `0`: such a device is used only when it is named.",
    _flag,
    "write 1 or 0",
)
TRUST: Setting[str | None] = Setting(
    "ANYHAL_TRUST",
    "folder",
    None,
    "$XDG_CONFIG_HOME/anyhal, else ~/.config/anyhal",
    "Where certificates, trusted keys, revocations and the signing key are; absolute. Not believed"
    " where others can write.",
    _absolute,
    "write an absolute folder, such as /etc/anyhal/trust",
)

TABLE: tuple[Setting[object], ...] = (
    BACKEND_PATH,
    CACHE,
    CUDA_DRIVER,
    DEBUG_POOL,
    FAKE,
    LOG,
    PJRT_PLUGINS,
    PROBE,
    PROBE_SECONDS,
    REGISTRY,
    SMOKE,
    THREADS,
    TRUST,
    VISIBLE_DEVICES,
)
_BY_NAME = {row.name: row for row in TABLE}


def setting(name: str) -> Setting[object]:
    """The row of that name; NotFoundError suggests the nearest."""
    if name not in _BY_NAME:
        near = get_close_matches(name, list(_BY_NAME), n=1)
        hint = f"did you mean {near[0]}?" if near else "known: " + ", ".join(_BY_NAME)
        raise NotFoundError(f"no environment variable {name} is read by anyhal; {hint}")
    return _BY_NAME[name]


_NOWHERE = "/dev/null"  # below it there is no file for anybody


def cache_folder(environ: Mapping[str, str] | None = None) -> str:
    """Where things that can be made again are kept. Not created here. NotFoundError where HOME is
    no folder's full name."""
    return _home_folder(CACHE, "XDG_CACHE_HOME", ".cache", environ)


def trust_folder(environ: Mapping[str, str] | None = None) -> str:
    """Where certificates and keys are, which cannot be made again. Not created here; NotFoundError
    as for the cache."""
    return _home_folder(TRUST, "XDG_CONFIG_HOME", ".config", environ)


def _home_folder(
    row: Setting[str | None], variable: str, below_home: str, environ: Mapping[str, str] | None
) -> str:
    given = row.read(environ)
    if given is not None:
        return given
    if environ is None and not environment_is_trusted():  # HOME is the user's to choose
        return f"{_home(os.geteuid())}/{below_home}/anyhal"
    known = os.environ if environ is None else environ
    folder = known.get(variable, "")
    if not os.path.isabs(folder):
        folder = f"{known.get('HOME') or _home(os.getuid())}/{below_home}"
    if not os.path.isabs(folder):
        raise NotFoundError(
            f"no {below_home[1:]} folder: this user has no home to keep it in; set {row.name} to a"
            " folder"
        )
    return f"{folder.rstrip('/')}/anyhal"


def _home(user: int) -> str:
    """By the system's list of users, in which a container's user may be missing."""
    try:
        return pwd.getpwuid(user).pw_dir
    except KeyError:
        return _NOWHERE


def unknown_names(environ: Mapping[str, str] | None = None) -> list[str]:
    """Variables with our prefix that nothing reads, as sentences: most are spelling mistakes."""
    found = []
    ours = [n for n in (os.environ if environ is None else environ) if n.startswith(PREFIX)]
    for name in sorted(ours):
        if name not in _BY_NAME:
            near = get_close_matches(name, list(_BY_NAME), n=1)
            hint = f"did you mean {near[0]}?" if near else "unset it"
            found.append(f"the environment variable {name} is not one that anyhal reads; {hint}")
    return found
