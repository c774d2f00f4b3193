"""Builds small backends and vendor libraries, and runs programs that load them.
SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
TINY = ROOT / "tests" / "core" / "tiny_backend.c"
MAP = ROOT / "backends" / "one_symbol.map"

# Says what it was given, opens the library of its setting "kit", and writes $MARK when its
# constructor runs.
AROUND = r"""
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "anyhal/backend.h"
anyhal_status tiny_main(const anyhal_hello*, anyhal_reply*, anyhal_error*);
static void mark(const char* what) {
  const char* path = getenv("MARK");
  FILE* file = path ? fopen(path, "a") : NULL;
  if (file) fprintf(file, "%s\n", what), fclose(file);
}
__attribute__((constructor)) static void constructed(void) { mark("constructed " WORD); }
#ifdef HUGE_BYTES
static char huge[HUGE_BYTES];
const char* volatile keep = huge;
#endif
ANYHAL_EXPORT anyhal_status anyhal_backend_main(const anyhal_hello* hello, anyhal_reply* reply,
                                                anyhal_error* error) {
  for (uint32_t i = 0; i < hello->setting_count; ++i) {
    if (strcmp(hello->settings[i].name, "kit") != 0 || !hello->settings[i].value[0]) continue;
    void* kit = dlopen(hello->settings[i].value, RTLD_NOW | RTLD_LOCAL);
    int (*version)(void) = kit ? (int (*)(void))dlsym(kit, "kit_version") : NULL;
    fprintf(stderr, "kit %d of %s\n", version ? version() : -1, hello->settings[i].value);
  }
  fprintf(stderr, "main " WORD "\n");
  return tiny_main(hello, reply, error);
}
"""


def cc(source: str | Path, out: Path, *flags: str) -> Path:
    """A library from a C file, or from the text of one."""
    if isinstance(source, str):
        file = out.parent / f"{out.name}.c"
        file.write_text(source)
        source = file
    command = ["gcc", "-std=gnu11", "-shared", "-fPIC", "-O1", f"-I{ROOT / 'include'}"]
    subprocess.run([*command, str(source), "-o", str(out), *flags], check=True, timeout=120)
    return out


def manifest(name: str, extra: str = "") -> str:
    return (
        f'name = "{name}"\nvendor = "tests"\nlibrary = "lib{name}.so"\nabi = "0.3"\n'
        f'licence = "Apache-2.0"\nsummary = "made by a test"\n{extra}'
    )


def backend(root: Path, name: str, extra: str = "", *flags: str) -> Path:
    """A folder with a backend of one device, which prints `main NAME` when it is asked in."""
    folder = root / name
    folder.mkdir(parents=True)
    (folder / "backend.toml").write_text(manifest(name, extra))
    around = folder / "around.c"
    around.write_text(AROUND)
    command = [str(TINY), f'-DWORD="{name}"', "-Danyhal_backend_main=tiny_main"]
    inner = root / f"{name}.o"
    gcc = ["gcc", "-std=gnu11", "-fPIC", "-O1", "-fvisibility=hidden", f"-I{ROOT / 'include'}"]
    subprocess.run([*gcc, "-c", *command, "-o", str(inner)], check=True, timeout=120)
    cc(
        around,
        folder / f"lib{name}.so",
        str(inner),
        f'-DWORD="{name}"',
        f"-Wl,--version-script={MAP}",
        "-Wl,--build-id",
        *flags,
    )
    around.unlink()
    inner.unlink()
    return folder


def kit(folder: Path, version: int, *flags: str, soname: str = "libkit.so.3") -> Path:
    """A vendor's library whose answer comes from its helper, libhelp.so.1, beside it."""
    folder.mkdir(parents=True, exist_ok=True)
    helper = helper_of(folder, version)
    text = "int help_version(void);\nint kit_version(void) { return help_version(); }\n"
    return cc(text, folder / soname, f"-Wl,-soname,{soname}", str(helper), *flags)


def helper_of(folder: Path, version: int) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    text = f"int help_version(void) {{ return {version}; }}\n"
    return cc(text, folder / "libhelp.so.1", "-Wl,-soname,libhelp.so.1")


def require_open(folder: Path) -> None:
    """Skips where another user cannot read what lies there."""
    for step in (folder, *folder.parents):
        if step.stat().st_mode & 0o5 != 0o5:
            pytest.skip(f"{step} is closed to other users")


def play(
    code: str, *, path: Path | None = None, cwd: Path | None = None, **environment: str
) -> subprocess.CompletedProcess[str]:
    """Runs a program in a process of its own, with backends searched in `path`. Strangers are not
    met in a probe first, which would run their constructors once more."""
    env = {k: v for k, v in os.environ.items() if not k.startswith("ANYHAL_")}
    env |= {"ANYHAL_BACKEND_PATH": str(path)} if path is not None else {}
    env |= {"ANYHAL_PROBE": "off"}
    return subprocess.run(
        [sys.executable, "-c", code],
        env=env | environment,
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=120,
    )


ROW = """
[[libraries]]
setting = "kit"
file = "libkit.so.3"
roots = [{roots}]
{more}
"""


def row(*roots: Path, more: str = "") -> str:
    return ROW.format(roots=", ".join(f'"{root}"' for root in roots), more=more)
