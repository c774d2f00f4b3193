"""Compiles the CUDA kernels into a folder of PTX and cubin files, with NVRTC and without a card.
SPDX-License-Identifier: Apache-2.0

    python tools/cuda_bundle.py OUT      writes OUT/<op>.ptx, OUT/<op>.sm_90.cubin, OUT/bundle.json

NVRTC comes with `pip install ".[cuda-test]"`. PTX for compute_80 is what later chips start from;
code for sm_90 saves them that step.
"""

from __future__ import annotations

import argparse
import ctypes
import hashlib
import json
import sys
from importlib import metadata
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
KERNELS = ROOT / "backends" / "cuda" / "kernels"
PACKAGES = ("nvidia-cuda-nvrtc-cu12", "nvidia-cuda-nvrtc")
# Architecture by file ending: compute_* gives PTX, sm_* machine code.
TARGETS = {"ptx": "compute_80", "sm_90.cubin": "sm_90"}
OPTIONS = ("--std=c++17", "--fmad=false", "--device-as-default-execution-space")
# What ops.h wants of <stdint.h>, which NVRTC lacks.
STDINT = """#pragma once
typedef signed char int8_t; typedef short int16_t; typedef int int32_t; typedef long long int64_t;
typedef unsigned char uint8_t; typedef unsigned short uint16_t; typedef unsigned int uint32_t;
typedef unsigned long long uint64_t;
"""


class CompileError(Exception):
    """NVRTC refused a kernel, or is not there; the text is what to read."""


def find_nvrtc() -> Path | None:
    """libnvrtc of an installed wheel."""
    for package in PACKAGES:
        try:
            files = metadata.files(package) or []
        except metadata.PackageNotFoundError:
            continue
        for entry in files:
            if entry.name.startswith("libnvrtc.so."):
                return Path(str(entry.locate())).resolve()
    return None


def headers() -> dict[str, str]:
    """Every file that kernels include, by the name they use."""
    return {
        "stdint.h": STDINT,
        "anyhal/ops.h": (ROOT / "include" / "anyhal" / "ops.h").read_text(encoding="utf-8"),
        "params.h": (KERNELS / "params.h").read_text(encoding="utf-8"),
        "device.cuh": (KERNELS / "device.cuh").read_text(encoding="utf-8"),
    }


class Compiler:
    """NVRTC through its C interface (NVRTC 12.1 user guide, chapter 3)."""

    def __init__(self, library: Path) -> None:
        self.nvrtc = ctypes.CDLL(str(library))
        self.nvrtc.nvrtcGetErrorString.restype = ctypes.c_char_p
        major, minor = ctypes.c_int(), ctypes.c_int()
        self._check(self.nvrtc.nvrtcVersion(ctypes.byref(major), ctypes.byref(minor)))
        self.version = f"{major.value}.{minor.value}"

    def _check(self, code: int) -> None:
        if code != 0:
            raise CompileError(self.nvrtc.nvrtcGetErrorString(code).decode())

    def compile(self, source: Path, architecture: str) -> bytes:
        """PTX or cubin of one file; CompileError carries the compiler's own text."""
        found = headers()
        texts = (ctypes.c_char_p * len(found))(*(t.encode() for t in found.values()))
        names = (ctypes.c_char_p * len(found))(*(n.encode() for n in found))
        program = ctypes.c_void_p()
        self._check(
            self.nvrtc.nvrtcCreateProgram(
                ctypes.byref(program), source.read_bytes(), source.name.encode(), len(found),
                texts, names,
            )
        )  # fmt: skip
        try:
            options = [f"--gpu-architecture={architecture}", *OPTIONS]
            given = (ctypes.c_char_p * len(options))(*(o.encode() for o in options))
            code = self.nvrtc.nvrtcCompileProgram(program, len(options), given)
            if code != 0:
                raise CompileError(f"{source.name}: {self._text(program, 'ProgramLog').decode()}")
            return self._text(program, "PTX" if architecture.startswith("c") else "CUBIN")
        finally:
            self.nvrtc.nvrtcDestroyProgram(ctypes.byref(program))

    def _text(self, program: ctypes.c_void_p, what: str) -> bytes:
        size = ctypes.c_size_t()
        self._check(getattr(self.nvrtc, f"nvrtcGet{what}Size")(program, ctypes.byref(size)))
        data = ctypes.create_string_buffer(size.value)
        self._check(getattr(self.nvrtc, f"nvrtcGet{what}")(program, data))
        return data.raw


def build(out: Path, nvrtc: Path | None = None) -> dict[str, object]:
    """Compiles every kernel for every target into `out`; returns what bundle.json says."""
    library = nvrtc or find_nvrtc()
    if library is None:
        raise CompileError(f'NVRTC is not installed ({PACKAGES[0]}); pip install ".[cuda-test]"')
    compiler = Compiler(library)
    out.mkdir(parents=True, exist_ok=True)
    sources = sorted(KERNELS.glob("*.cu"))
    digest = hashlib.sha256()
    for text in (*headers().values(), *(s.read_text(encoding="utf-8") for s in sources)):
        digest.update(text.encode())
    for source in sources:
        for ending, architecture in TARGETS.items():
            code = compiler.compile(source, architecture)
            (out / f"{source.stem}.{ending}").write_bytes(
                code.rstrip(b"\0") if ending == "ptx" else code
            )
    about: dict[str, object] = {
        "compiler": f"NVRTC {compiler.version}",
        "sources_sha256": digest.hexdigest(),
        "targets": list(TARGETS.values()),
        "kernels": [s.stem for s in sources],
    }
    (out / "bundle.json").write_text(json.dumps(about, indent=1) + "\n", encoding="utf-8")
    return about


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("out", type=Path)
    parser.add_argument("--nvrtc", type=Path, help="libnvrtc.so, instead of an installed wheel's")
    asked = parser.parse_args()
    try:
        about = build(asked.out, asked.nvrtc)
    except CompileError as why:
        print(f"compiling the CUDA kernels failed: {why}", file=sys.stderr)
        return 1
    print(f"{asked.out}: {len(list(asked.out.iterdir()))} files by {about['compiler']}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
