"""`anyhal config`: the flags and folders with which a C or C++ program is built against anyhal.
SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

from pathlib import Path
from shlex import quote
from typing import Annotated

import typer


def config(
    cflags: Annotated[bool, typer.Option("--cflags", help="Flags for the compiler.")] = False,
    libs: Annotated[bool, typer.Option("--libs", help="Flags for the linker.")] = False,
    cmake_dir: Annotated[
        bool, typer.Option("--cmake-dir", help="The folder for CMake's anyhal_DIR.")
    ] = False,
    pkgconfig_dir: Annotated[
        bool, typer.Option("--pkgconfig-dir", help="The folder for PKG_CONFIG_PATH.")
    ] = False,
) -> None:
    """Print how to build a C or C++ program against this installation."""
    import anyhal as hal

    root = Path(hal.__file__).resolve().parent
    flags = []
    flags += [f"-I{root / 'include'}"] if cflags else []
    flags += [f"-L{root}", "-lanyhal", f"-Wl,-rpath,{root}"] if libs else []
    folders = [root / "cmake"] if cmake_dir else []
    folders += [root / "pkgconfig"] if pkgconfig_dir else []
    if not flags and not folders:
        raise typer.BadParameter("name what to print, such as --cflags --libs")
    if flags:
        print(*(quote(flag) for flag in flags))
    for folder in folders:
        print(folder)
