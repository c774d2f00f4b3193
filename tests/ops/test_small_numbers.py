"""Every value of the short floats to every 8-bit float, and what packed integers and views do.
SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import anyhal as hal
from anyhal.dtypes import dtype
from anyhal.errors import HalError, InvalidArgumentError
from anyhal.ops._checks import FP8
from anyhal.ops._oracle import decode, pack_nibbles
from device_runs import devices, place, run

# fraction digits, bias, code of the largest, code of infinity, whether there is no -0
FORMATS = {
    "f8_e4m3fn": (3, 7, 0x7E, None, False),
    "f8_e5m2": (2, 15, 0x7B, 0x7C, False),
    "f8_e4m3fnuz": (3, 8, 0x7F, None, True),
    "f8_e5m2fnuz": (2, 16, 0x7F, None, True),
}


@pytest.fixture(params=devices())
def device(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def value(short: str, code: int) -> float:
    """A code as its format is specified."""
    digits, bias, largest, infinity, fnuz = FORMATS[short]
    size, sign = code & 127, -1.0 if code & 128 else 1.0
    if size > largest or (fnuz and code == 128):
        return sign * np.inf if infinity is not None and size == infinity else np.nan
    exponent, fraction = size >> digits, size % (1 << digits)
    units = fraction + ((1 << digits) if exponent else 0)
    return sign * units * 2.0 ** (max(exponent, 1) - bias - digits)


def nearest(short: str, x: Any, saturate: bool) -> Any:
    """The code nearest to each number, by comparing with the middle between neighbours."""
    _, _, largest, infinity, fnuz = FORMATS[short]
    values = np.array([value(short, c) for c in range(largest + 1)])
    middle = (values[1:] + values[:-1]) / 2
    middle = np.append(middle, values[-1] + (values[-1] - values[-2]) / 2)
    size = np.abs(x)
    code = np.searchsorted(middle, size, side="left")  # on a tie the lower one ...
    tie = (code < len(middle)) & (size == middle[np.minimum(code, largest)])
    code = np.where(tie & (code % 2 == 1), code + 1, code)  # ... unless the upper one is even
    over = largest if saturate else infinity if infinity is not None else 127
    code = np.where(code > largest, over, code) | np.where(np.signbit(x), 128, 0)
    if fnuz:
        code = np.where(code == 128, 0, code)
        code = np.where((size > middle[-1]) | (tie & (size == middle[-1])), 0x80, code)
        past = (size >= middle[-1]) & saturate
        code = np.where(past, largest | np.where(np.signbit(x), 128, 0), code)
    return np.where(np.isnan(x), 0x80 if fnuz else 127, code).astype(np.uint8)


@pytest.mark.parametrize("short", FP8)
def test_the_host_side_has_the_values_of_the_specification(short: str) -> None:
    codes = np.arange(256, dtype=np.uint8).view(dtype(short).numpy).astype(np.float64)
    want = np.array([value(short, c) for c in range(256)])
    assert np.array_equal(codes, want, equal_nan=True)
    assert (np.signbit(codes) == np.signbit(want))[~np.isnan(want)].all()


@pytest.mark.parametrize("saturate", [True, False])
@pytest.mark.parametrize("short", FP8)
@pytest.mark.parametrize("source", ["f16", "bf16"])
def test_all_codes_of_short_floats(device: str, source: str, short: str, saturate: bool) -> None:
    x = np.arange(65536, dtype=np.uint16).view(dtype(source).numpy)
    overflow = "saturate" if saturate else "nonfinite"
    found = run("cast", x, device=device, dtype=dtype(short).name, overflow=overflow)
    with np.errstate(invalid="ignore"):
        want = nearest(short, x.astype(np.float64), saturate).view(dtype(short).numpy)
    a, b = found.view(np.uint8), want.view(np.uint8)
    nan = np.isnan(want.astype(np.float32))
    assert (np.isnan(found.astype(np.float32)) == nan).all()
    assert (a == b)[~nan].all()


@pytest.mark.parametrize("short", FP8)
def test_codes_come_back_as_they_were(device: str, short: str) -> None:
    codes = np.arange(256, dtype=np.uint8).view(dtype(short).numpy)
    for middle in ("float32", "float16", "bfloat16", "float64"):
        wide = run("cast", codes, device=device, dtype=middle)
        again = run("cast", wide, device=device, dtype=dtype(short).name, overflow="nonfinite")
        nan = np.isnan(codes.astype(np.float32))
        assert (again.view(np.uint8) == codes.view(np.uint8))[~nan].all()
        assert np.isnan(again.astype(np.float32))[nan].all()


@pytest.mark.parametrize(("short", "name"), [("i4", "int4"), ("u4", "uint4")])
def test_packed_integers_keep_the_first_in_the_low_nibble(
    device: str, short: str, name: str
) -> None:
    numbers = np.arange(24).reshape(3, 8) % 16 - (8 if short == "i4" else 0)
    packed = hal.asarray(numbers.astype(np.int8), device=device).astype(name)
    assert (packed.dtype, packed.shape, packed.nbytes) == (name, (3, 8), 12)
    assert (packed.numpy().reshape(-1) == pack_nibbles(numbers, short).data.reshape(-1)).all()
    assert (packed.astype("int16").numpy() == numbers).all()
    assert (packed[1:].astype("float32").numpy() == numbers[1:]).all()
    rows = hal.take(packed, hal.asarray(np.array([2, 0]), device=device), axis=0)
    assert (rows.astype("int8").numpy() == numbers[[2, 0]]).all()
    back = hal.frombuffer(packed.numpy().tobytes(), name, (3, 8), device=device)
    assert (decode(pack_nibbles(numbers, short)) == back.astype("int64").numpy()).all()
    column = place(numbers.astype(np.float32), "transposed", device)
    assert (column.astype(name).astype("int8").numpy() == numbers).all()


def test_packed_integers_are_whole_pairs(device: str) -> None:
    odd = hal.asarray(np.zeros((2, 3), np.int8), device=device)
    with pytest.raises(InvalidArgumentError, match="even size; pad"):
        odd.astype("int4")
    with pytest.raises(InvalidArgumentError, match="multiple of 2"):
        hal.frombuffer(bytes(3), "int4", (2, 3), device=device)
    pairs = hal.frombuffer(bytes(4), "uint4", (2, 4), device=device)
    for cut in (lambda: pairs[:, 1:], lambda: pairs.T, lambda: hal.add(pairs, pairs)):
        with pytest.raises(HalError):
            cut()
