"""Memory shared with torch, both ways, on the host.
SPDX-License-Identifier: Apache-2.0

Runs where torch is installed (extra `torch-test`); .ci/run has an environment with it.
"""

from __future__ import annotations

import gc
import subprocess
import weakref
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from dlpack_producer import READ_ONLY, managed_of

import anyhal as hal
from anyhal import _core

ROOT = Path(__file__).resolve().parents[2]
pytestmark = pytest.mark.torch
SAME = (
    *("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
    *("float16", "bfloat16", "float32", "float64"),
    *("float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz"),
)

NUMBERS = """
sizeof(DLTensor) sizeof(DLManagedTensor) sizeof(DLManagedTensorVersioned)
offsetof(DLTensor,device) offsetof(DLTensor,ndim) offsetof(DLTensor,dtype)
offsetof(DLTensor,shape) offsetof(DLTensor,strides) offsetof(DLTensor,byte_offset)
offsetof(DLManagedTensor,deleter) offsetof(DLManagedTensorVersioned,manager_ctx)
offsetof(DLManagedTensorVersioned,deleter) offsetof(DLManagedTensorVersioned,flags)
offsetof(DLManagedTensorVersioned,dl_tensor) DLPACK_MAJOR_VERSION
DLPACK_FLAG_BITMASK_READ_ONLY DLPACK_FLAG_BITMASK_IS_COPIED kDLCPU kDLCUDA kDLCUDAHost
kDLOpenCL kDLVulkan kDLMetal kDLVPI kDLROCM kDLROCMHost kDLExtDev kDLCUDAManaged
kDLOneAPI kDLWebGPU kDLHexagon kDLMAIA kDLInt kDLUInt kDLFloat kDLOpaqueHandle kDLBfloat
kDLComplex kDLBool kDLFloat8_e3m4 kDLFloat8_e4m3 kDLFloat8_e4m3b11fnuz kDLFloat8_e4m3fn
kDLFloat8_e4m3fnuz kDLFloat8_e5m2 kDLFloat8_e5m2fnuz kDLFloat8_e8m0fnu kDLFloat6_e2m3fn
kDLFloat6_e3m2fn kDLFloat4_e2m1fn
"""


@pytest.mark.parametrize("name", SAME)
def test_every_dtype_is_shared_both_ways_by_pointer(torch: Any, name: str) -> None:
    t = torch.tensor([[0.0, 1.0, 2.0], [4.0, 0.5, 8.0]]).to(getattr(torch, name))
    a = hal.from_dlpack(t)
    assert a.dtype == name and a.shape == (2, 3) and _core.array_address(a) == t.data_ptr()
    back = torch.from_dlpack(a)
    assert back.dtype == t.dtype and back.data_ptr() == t.data_ptr()
    assert torch.equal(back.to(torch.float32), t.to(torch.float32))
    np.testing.assert_array_equal(a.numpy().astype(np.float32), t.float().numpy())
    copied = hal.asarray(t)
    assert copied.dtype == name and _core.array_address(copied) != t.data_ptr()


def test_writes_are_seen_on_both_sides(torch: Any) -> None:
    t = torch.zeros(4)
    a = hal.from_dlpack(t)
    t[1] = 5
    a[2].set(7)
    assert a.numpy().tolist() == t.tolist() == [0, 5, 7, 0]
    b = hal.zeros((4,))
    s = torch.from_dlpack(b)
    s += 1
    hal.add(b, b, out=b)
    assert s.tolist() == b.numpy().tolist() == [2, 2, 2, 2]


def test_layouts(torch: Any) -> None:
    base = torch.arange(24.0).reshape(2, 3, 4)
    for t in (
        base.permute(2, 0, 1),
        base[:, 1:, ::2],
        base[0, 0, 0],
        base[:0],
        base.expand(5, 2, 3, 4),
        torch.zeros(1, 77),
        torch.zeros(77, 1),
        torch.zeros(1, 1, 1),
        base[1, 2, 1:],
    ):
        a = hal.from_dlpack(t)
        back = torch.from_dlpack(a)
        assert a.shape == tuple(t.shape) == tuple(back.shape)
        assert back.is_contiguous() == t.is_contiguous()
        np.testing.assert_array_equal(a.numpy(), t.numpy())
        assert torch.equal(back, t)


def test_flips_are_copies_of_torchs_own(torch: Any) -> None:
    t = torch.arange(12.0).reshape(3, 4).flip(1)
    np.testing.assert_array_equal(hal.from_dlpack(t).numpy(), t.numpy())


def test_ilk_10_what_torch_negates_or_conjugates_lazily_is_refused(torch: Any) -> None:
    z = torch.tensor([1 + 2j, 3 - 4j])
    imag = z.conj().imag
    assert imag.is_neg()
    for take in (
        hal.from_dlpack,
        hal.asarray,
        lambda x: hal.from_dlpack(x, copy=True),
    ):
        with pytest.raises(BufferError):
            take(z.conj())
        with pytest.raises(BufferError, match="complex"):
            take(z)
        with pytest.raises(BufferError, match="resolve_neg"):
            take(imag)
    assert hal.from_dlpack(imag.resolve_neg()).numpy().tolist() == [-2, 4]
    assert hal.from_dlpack(z.imag).numpy().tolist() == [2, -4]


def test_what_torch_itself_does_not_export_says_why(torch: Any) -> None:
    with pytest.raises(BufferError, match="detach"):
        hal.from_dlpack(torch.zeros(2, requires_grad=True))
    with pytest.raises(BufferError, match="strided"):
        hal.from_dlpack(torch.eye(3).to_sparse())


def test_a_tensor_lives_until_the_array_goes(torch: Any) -> None:
    t = torch.zeros(1000)
    gone: list[int] = []
    weakref.finalize(t.untyped_storage(), gone.append, 1)
    a = hal.from_dlpack(t)
    address = t.data_ptr()
    del t
    gc.collect()
    again = torch.from_dlpack(a)
    assert again.data_ptr() == address and (a.numpy() == 0).all()


def test_read_only_data_reaches_torch_as_its_rules_are(torch: Any) -> None:
    c = hal.asarray([1.0, 2.0], constant=True)
    record = managed_of(capsule := c.__dlpack__(max_version=(1, 0)))[1]
    assert record.flags == READ_ONLY and capsule
    assert torch.from_dlpack(c).tolist() == [1.0, 2.0]


@pytest.mark.parametrize("copy", [None, True, False])
def test_torchs_own_copy_and_device_arguments(torch: Any, copy: bool | None) -> None:
    a = hal.asarray([1.0, 2.0])
    t = torch.from_dlpack(a, device="cpu", copy=copy)
    assert (t.data_ptr() == _core.array_address(a)) == (copy is not True)
    assert t.tolist() == [1.0, 2.0]


def test_arrays_elsewhere_come_by_the_host(torch: Any) -> None:
    for device in hal.devices():
        a = hal.asarray(np.arange(6, dtype=np.float32), device=device)
        if a.__dlpack_device__() != (1, 0):
            with pytest.raises(BufferError, match="numpy"):
                torch.from_dlpack(a)
            a = hal.from_dlpack(a, device="cpu:0")
        assert torch.from_dlpack(a).tolist() == [0, 1, 2, 3, 4, 5]
        assert hal.from_dlpack(torch.ones(3), device=device).device is device


def test_the_records_are_those_of_dlpacks_own_header(torch: Any, tmp_path: Path) -> None:
    """torch carries the header of DLPack: sizes, places and numbers are compared with ours."""
    numbers = NUMBERS.split()
    theirs = Path(torch.__file__).parent / "include" / "ATen" / "dlpack.h"
    printed = []
    for header in (ROOT / "include" / "anyhal" / "dlpack.h", theirs):
        source = tmp_path / f"{header.parent.name}.cc"
        lines = "".join(f'std::printf("{n} %lu\\n", (unsigned long)({n}));\n' for n in numbers)
        head = f'#include <cstddef>\n#include <cstdio>\n#include "{header}"\n'
        source.write_text(f"{head}int main() {{\n{lines}}}\n")
        program = source.with_suffix("")
        subprocess.run(["g++", "-std=c++17", str(source), "-o", str(program)], check=True)
        printed.append(subprocess.run([program], check=True, capture_output=True, text=True).stdout)
    assert printed[0] == printed[1]
