"""What `anyhal.NAME` gives for a name that is not there: what few programs use is imported when it
is asked for; for others, an error that knows the nearest name.
SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import sys
from importlib import import_module
from typing import Any

from anyhal.printable import get_close_matches

_LATE = {
    "anyhal.runtime.einsum": ("einsum",),
    "anyhal.runtime.kernels": ("Kernel", "Module", "load_module"),
    "anyhal.runtime.native": (
        *("Extension", "KernelLimits", "NativeHandle", "NativeOperand", "NativeWork"),
        *("enqueue_native", "extension", "kernel_limits", "native_handle"),
    ),
    "anyhal.runtime.queue": ("Event", "Graph", "Queue", "graph"),
}
LATE = {name: module for module, names in _LATE.items() for name in names}
# What others call it, where the nearest spelling would be another function.
_CALLED_HERE = {
    "absolute": "abs",
    "array": "asarray",
    "dot": "matmul",
    "power": "pow",
    "tensor": "asarray",
    "transpose": "permute_dims",
}


def __dir__() -> list[str]:
    return sorted(vars(sys.modules["anyhal"]).keys() | LATE.keys())


def __getattr__(name: str) -> Any:
    """AttributeError, so that hasattr works, with the nearest known name."""
    if name in LATE:
        found = getattr(import_module(LATE[name]), name)
        setattr(sys.modules["anyhal"], name, found)
        return found
    said = f"module 'anyhal' has no attribute {name!r}"
    if name.startswith("_"):
        raise AttributeError(said)  # asked for by protocols, not by people
    from importlib.util import find_spec  # an import that misses nothing need not wait for it

    if name.isidentifier() and find_spec(f"anyhal.{name}") is not None:
        raise AttributeError(f"{said} yet: it is a module; write `import anyhal.{name}`")
    known = sys.modules["anyhal"].__all__
    near = [_CALLED_HERE[name]] if name in _CALLED_HERE else get_close_matches(name, known, n=1)
    hint = f"did you mean {near[0]}?" if near else "docs/reference/python.md lists what there is"
    raise AttributeError(f"{said}; {hint}")
