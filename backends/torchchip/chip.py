"""torchchip: PyTorch's kernels behind the table of the contract, in one Python file.
SPDX-License-Identifier: Apache-2.0

An example for authors. Operands are the device's memory in the host, and tensors are views of it:
nothing is copied. PyTorch's own devices (cuda, mps) are not offered: memory of a Python backend is
the host's, and moving every operand of every call would be no backend.
"""

import importlib.util
import warnings
from importlib import metadata

import ml_dtypes
import numpy as np

from anyhal.errors import InvalidArgumentError, NotFoundError
from anyhal.sdk import HostDevice, No, PythonBackend, Row

torch = None  # imported by `start`: that takes a second, and whoever lists devices need not wait

SMALL = ("f32", "f16", "bf16")
FLOATS = (*SMALL, "f64")
INTS = ("i64", "i32", "i16", "i8", "u8")  # of the larger unsigned ones PyTorch has few kernels
MOVED = (*FLOATS, *INTS, "bool")


def tensor(array):
    """The same memory as a tensor; None stays."""
    if array is None:
        return None
    if array.dtype == ml_dtypes.bfloat16:
        return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(array)


def kernel(function):
    """A kernel from a function of tensors that returns what goes into the one output."""

    def run(*operands, **attrs):
        *inputs, out = map(tensor, operands)
        out.copy_(function(*inputs, **attrs))

    run.__name__ = function.__name__
    return run


# ----------------------------------------------------------------------------------- element-wise


def copy(x):
    return x


def cast(x, *, overflow):
    return x


def cast_accepts(x, out, *, overflow):
    if out.dtype.short not in MOVED:
        return No(
            "dtype", "it casts to floats, signed integers, u8 and bool; use another device", 1
        )
    if x.dtype.kind == "float" and out.dtype.kind not in ("float", "bool"):
        return No("dtype", "PyTorch leaves open what overflow gives; use another device", 1)
    return None


def where(condition, a, b):
    return torch.where(condition, a, b)


# Those that PyTorch has under the op's own name, and those that it calls otherwise.
UNARY = (
    *("neg", "abs", "exp", "expm1", "log", "log1p", "sqrt", "rsqrt", "reciprocal", "sin", "cos"),
    *("tanh", "erf", "floor", "ceil", "round", "trunc", "sigmoid", "relu", "square", "positive"),
    *("isnan", "isinf", "isfinite", "logical_not"),
)
BINARY = (
    *("add", "subtract", "multiply", "divide", "maximum", "minimum"),
    *("equal", "not_equal", "less", "less_equal", "greater", "greater_equal"),
    *("logical_and", "logical_or", "logical_xor"),
)
NAMES = {"equal": "eq"}  # torch.equal compares whole tensors


def unary(x, *, fn):
    # PyTorch's f32 sqrt and others may be off by more than the op allows.
    return getattr(torch, fn)(x.double() if x.is_floating_point() else x)


def unary_accepts(x, out, *, fn):
    return None if fn in UNARY else No("attribute", f"unary {fn} is not written; let it go on")


def binary(a, b, *, fn):
    return getattr(torch, NAMES.get(fn, fn))(a, b)


def binary_accepts(a, b, out, *, fn):
    return None if fn in BINARY else No("attribute", f"binary {fn} is not written; let it go on")


# --------------------------------------------------------------------------- reductions, products

REDUCE = {"max": "amax", "min": "amin"}


def reduce(x, *, fn, axis):
    if not axis:
        return x
    wide = x.double() if fn in ("sum", "mean", "prod") and x.is_floating_point() else x
    if fn != "prod":
        return getattr(torch, REDUCE.get(fn, fn))(wide, dim=axis, keepdim=True)
    for one in axis:
        wide = torch.prod(wide, dim=one, keepdim=True)
    return wide


def matmul(a, b):
    return torch.matmul(a, b)


def matmul_accepts(a, b, out):
    if out.dtype != a.dtype:
        return No("dtype", "the output has the operands' dtype; cast it", 2)
    return None


# ---------------------------------------------------------------------------------------- indices


def looked_at(indices, size):
    """The indices, all inside; they are looked at before anything is written."""
    if indices.numel() and not (0 <= int(indices.min()) and int(indices.max()) < size):
        raise InvalidArgumentError(f"an index is outside 0..{size - 1}; correct the indices")
    return indices.long()


def gather(x, indices, *, axis):
    taken = torch.index_select(x, axis, looked_at(indices, x.shape[axis]).reshape(-1))
    return taken.reshape((*x.shape[:axis], *indices.shape, *x.shape[axis + 1 :]))


def concat(*arrays, axis):
    return torch.cat(arrays, dim=axis)


# ------------------------------------------------------------------------------------- whole rows


def softmax(x, *, axis):
    return torch.softmax(x.double(), dim=axis)


def log_softmax(x, *, axis):
    return torch.log_softmax(x.double(), dim=axis)


def rms_norm(x, weight, residual, out, total, *, eps):
    x, weight, residual, out, total = map(tensor, (x, weight, residual, out, total))
    t = x.double() if residual is None else x.double() + residual.double()
    # Squares of any f32 are f64 numbers. eps is an f32, which the record carries as it is.
    y = t * torch.rsqrt(t.square().mean(dim=-1, keepdim=True) + eps)
    if total is not None:
        total.copy_(t)
    out.copy_(y if weight is None else y * weight.double())


def row(op, dtypes, function, accepts=None):
    """A row whose operands all have dtypes of PyTorch."""

    def known(*operands, **attrs):
        for i, spec in enumerate(operands):
            if spec is not None and spec.dtype.short not in MOVED:
                return No("dtype", "PyTorch has few kernels for this dtype; use another device", i)
        return accepts(*operands, **attrs) if accepts else None

    return Row(op, dtypes, function, known)


ROWS = (
    row("copy", MOVED, kernel(copy)),
    row("fill", MOVED, kernel(copy)),
    row("cast", MOVED, kernel(cast), cast_accepts),
    row("unary", (*FLOATS, "bool"), kernel(unary), unary_accepts),
    row("binary", (*FLOATS, "i64", "i32", "bool"), kernel(binary), binary_accepts),
    row("where", ("bool",), kernel(where)),
    row("reduce", (*FLOATS, "i64", "bool"), kernel(reduce)),
    row("matmul", (*FLOATS, "i64", "i32"), kernel(matmul), matmul_accepts),
    row("gather", MOVED, kernel(gather)),
    row("concat", MOVED, kernel(concat)),
    row("softmax", SMALL, kernel(softmax)),
    row("log_softmax", SMALL, kernel(log_softmax)),
    row("rms_norm", SMALL, rms_norm),
)


class TorchChip(PythonBackend):
    """One device: PyTorch's `cpu`."""

    rows = ROWS

    def __init__(self, settings):
        super().__init__(settings)
        if importlib.util.find_spec("torch") is None:
            raise NotFoundError("PyTorch is not installed; pip install 'anyhal[torch]'")

    def start(self):
        global torch
        import torch

        with warnings.catch_warnings():  # inputs are read-only, of which PyTorch warns once
            warnings.simplefilter("ignore")
            torch.from_numpy(np.frombuffer(b"1234", np.float32))

    def devices(self):
        return [HostDevice("PyTorch on the host", driver=f"torch {metadata.version('torch')}")]
