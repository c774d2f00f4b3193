"""Our declarations of the driver against the toolkit's cuda.h; and all kernels compile.
SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import re
import shutil
import subprocess
from importlib import metadata
from pathlib import Path

import cuda_bundle
import pytest
from simulated import CUDA, ROOT, need

# Compares a function type of ours with the toolkit's, parameter by parameter: sizes and pointers.
CHECK = """// Written by test_cuda_header.py.
#define cuCtxGetCurrent_is_here 1
#include <cuda.h>
#include <type_traits>
namespace theirs {
%(saved)s
}
#undef CU_LAUNCH_PARAM_END_AS_INT
#undef CU_LAUNCH_PARAM_BUFFER_POINTER_AS_INT
#undef CU_LAUNCH_PARAM_BUFFER_SIZE_AS_INT
#undef CU_MEMHOSTALLOC_PORTABLE
#undef CU_MEMHOSTREGISTER_PORTABLE
%(functions_before)s
#define THEIRS 1
#include "cuda_api.h"
namespace ours = hal::cuda;
template <class A, class B>
constexpr bool alike = sizeof(A) == sizeof(B) && std::is_pointer_v<A> == std::is_pointer_v<B>;
template <class A, class B>
struct Same : std::false_type {};
template <class... A, class... B>
struct Same<CUresult (*)(A...), ours::CUresult (*)(B...)> {
  static constexpr bool value = [] {
    if constexpr (sizeof...(A) != sizeof...(B)) return false;
    else return (alike<A, B> && ...);
  }();
};
%(asserts)s
int main() {}
"""
STRUCTURES = ["CUuuid", "CUmemLocation", "CUmemAllocationProp", "CUmemAccessDesc"]
STRUCTURES += ["CUgraphExecUpdateResultInfo", "CUdeviceptr", "CUdevice", "CUcontext"]
STRUCTURES += ["CUmemGenericAllocationHandle", "CUjit_option", "CUresult"]


def toolkit() -> Path | None:
    """The folder of cuda.h in an installed wheel."""
    for package in ("nvidia-cuda-runtime-cu12", "nvidia-cuda-runtime"):
        try:
            files = metadata.files(package) or []
        except metadata.PackageNotFoundError:
            continue
        for entry in files:
            if entry.name == "cuda.h":
                return Path(str(entry.locate())).resolve().parent
    return None


def test_every_number_size_and_prototype_is_the_toolkits(tmp_path: Path) -> None:
    include = toolkit()
    need(include, 'cuda.h is not installed (nvidia-cuda-runtime-cu12); pip install ".[cuda-test]"')
    need(shutil.which("g++"), "g++ is not on the path, so the header is not compared")
    text = (CUDA / "cuda_api.h").read_text()
    functions = re.findall(r"X\((cu\w+),", text)
    numbers = re.findall(r"^\s+(CU\w+|CUDA_\w+) = \w+", text, re.MULTILINE)
    macros = re.findall(r"constexpr uintptr_t (\w+) =", text)
    assert len(functions) > 50 and len(numbers) > 50
    defined = ["CU_MEMHOSTALLOC_PORTABLE", "CU_MEMHOSTREGISTER_PORTABLE", *macros]
    saved = [f"constexpr long long k{n} = (long long)({n});" for n in {*numbers, *defined}]
    # cuda.h renames functions by macros; what they mean is kept before ours are read.
    saved += [f"constexpr auto p{f} = &{f.removesuffix('_v2')};" for f in functions]
    asserts = [
        f"static_assert((long long)ours::{n} == theirs::k{n});" for n in {*numbers, *defined}
    ]
    asserts += [f"static_assert(sizeof(::{s}) == sizeof(ours::{s}));" for s in STRUCTURES]
    asserts += [
        f"static_assert(Same<std::remove_const_t<decltype(theirs::p{f})>,"
        f" decltype(ours::Driver::{f})>::value);"
        for f in functions
    ]
    undefine = "\n".join(f"#undef {f.removesuffix('_v2')}\n#undef {f}" for f in functions)
    parts = {"saved": "\n".join(saved), "functions_before": undefine, "asserts": "\n".join(asserts)}
    source = tmp_path / "header.cc"
    source.write_text(CHECK % parts)
    compile_it = ["g++", "-std=c++20", "-fsyntax-only", f"-I{include}", f"-I{CUDA}", str(source)]
    done = subprocess.run(compile_it, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[:4000]
    wrong = source.with_name("wrong.cc")  # the comparison can fail
    wrong.write_text(source.read_text().replace("theirs::kCU_EVENT_DISABLE_TIMING", "3"))
    done = subprocess.run([*compile_it[:-1], str(wrong)], capture_output=True, check=False)
    assert done.returncode != 0


def test_every_kernel_compiles_for_every_target(tmp_path: Path) -> None:
    need(cuda_bundle.find_nvrtc(), 'NVRTC is not installed; pip install ".[cuda-test]"')
    about = cuda_bundle.build(tmp_path)
    assert about["kernels"] == sorted(p.stem for p in (CUDA / "kernels").glob("*.cu"))
    for source in (CUDA / "kernels").glob("*.cu"):
        ptx = (tmp_path / f"{source.stem}.ptx").read_text()
        assert ".target sm_80" in ptx
        for name in re.findall(r"HAL_KERNEL\((\w+),", source.read_text()):
            assert f".entry {name}(" in ptx
        assert (tmp_path / f"{source.stem}.sm_90.cubin").read_bytes()[:4] == b"\x7fELF"


def test_a_kernel_that_is_wrong_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    library = cuda_bundle.find_nvrtc()
    need(library, 'NVRTC is not installed; pip install ".[cuda-test]"')
    assert library is not None
    bad = tmp_path / "bad.cu"
    bad.write_text('#include "device.cuh"\nHAL_KERNEL(bad, Map) { nonsense; }\n')
    with pytest.raises(cuda_bundle.CompileError, match="bad.cu"):
        cuda_bundle.Compiler(library).compile(bad, "compute_80")


def test_what_is_missing_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cuda_bundle, "find_nvrtc", lambda: None)
    with pytest.raises(cuda_bundle.CompileError, match=re.escape('pip install ".[cuda-test]"')):
        cuda_bundle.build(tmp_path)


def test_the_extra_names_what_the_tests_need() -> None:
    project = (ROOT / "pyproject.toml").read_text()
    for package in ("nvidia-cuda-nvrtc-cu12", "nvidia-cuda-runtime-cu12"):
        assert package in project
