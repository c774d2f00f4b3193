"""Work that the library does not offer, in order among its calls; handles; a named extension.
SPDX-License-Identifier: Apache-2.0
"""

import ctypes

import numpy as np

import anyhal as hal

with hal.use(device="cpu"):
    x = hal.add(hal.ones(4), 1.0)
    y = hal.zeros(4)

    def fft(work: hal.NativeWork) -> None:
        source, target = (operand.numpy() for operand in work.operands)
        target[:] = np.abs(np.fft.fft(source))

    hal.enqueue_native(fft, reads=[x], writes=[y])  # behind what made x, before what reads y
    print("in order:", hal.negative(y).numpy())

    def broken(work: hal.NativeWork) -> None:
        raise ValueError("no such transform")

    try:
        hal.enqueue_native(broken, reads=[x], writes=[y])
    except hal.ExecutionFailedError as why:
        print(why)

    handle = hal.native_handle(x)
    first = ctypes.c_float.from_address(handle.handle + handle.offset_bytes).value
    print(f"{handle.kind} of the {handle.api}, owned by the caller: {handle.owned}, x[0] = {first}")

    limits = hal.kernel_limits()
    print("has limits:", limits.units > 0, limits.group_items)
    try:
        hal.extension("cpu", "wings")
    except hal.UnsupportedError as why:
        print(why)
