"""mychip: the smallest real backend in Python. Five ops of NumPy, in the host's memory.
SPDX-License-Identifier: Apache-2.0
"""

import numpy as np

from anyhal.sdk import HostDevice, No, PythonBackend, Row

FLOATS = ("f32", "f64")
UNARY = {"neg": np.negative, "abs": np.abs, "sqrt": np.sqrt, "exp": np.exp}
BINARY = {"add": np.add, "subtract": np.subtract, "multiply": np.multiply, "divide": np.divide}


# Kernels get the operands in the order of the op's page, as arrays that are the device's memory:
# inputs, then outputs, which they write. Attributes come by name.


def copy(x, out):
    np.copyto(out, x)


def unary(x, out, *, fn):
    UNARY[fn](x, out=out)


def unary_accepts(x, out, *, fn):
    return None if fn in UNARY else No("attribute", f"of the functions, {', '.join(UNARY)} run")


def binary(a, b, out, *, fn):
    BINARY[fn](a, b, out=out)


def binary_accepts(a, b, out, *, fn):
    return None if fn in BINARY else No("attribute", f"of the functions, {', '.join(BINARY)} run")


def matmul(a, b, out):
    np.matmul(a, b, out=out)


class Chip(PythonBackend):
    """One device; its rows answer what it runs and choose the kernel, so that the two agree."""

    rows = (
        Row("copy", FLOATS, copy),
        Row("fill", FLOATS, copy),  # a copy of one value, which NumPy repeats
        Row("unary", FLOATS, unary, unary_accepts),
        Row("binary", FLOATS, binary, binary_accepts),
        Row("matmul", FLOATS, matmul),
    )

    def devices(self):
        return [HostDevice("mychip", arch="mychip1")]
