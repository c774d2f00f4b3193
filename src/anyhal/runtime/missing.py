"""What `anyhal.NAME` says for a name that is not there.
SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import sys
from difflib import get_close_matches
from typing import NoReturn

# What others call it, where the nearest spelling would be another function.
_CALLED_HERE = {
    "absolute": "abs",
    "array": "asarray",
    "dot": "matmul",
    "power": "pow",
    "tensor": "asarray",
    "transpose": "permute_dims",
}


def __getattr__(name: str) -> NoReturn:
    """AttributeError, so that hasattr works, with the nearest known name."""
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
