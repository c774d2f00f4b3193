"""The op registry: every op of this folder, by name and by id.
SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

from difflib import get_close_matches
from importlib import import_module
from pkgutil import iter_modules

from anyhal.errors import NotFoundError
from anyhal.ops._spec import OpSpec

__all__ = ["BY_ID", "BY_NAME", "REGISTRY_VERSION", "lookup"]

REGISTRY_VERSION = 1

BY_NAME: dict[str, OpSpec] = {
    spec.name: spec
    for spec in sorted(
        (
            import_module(f"{__name__}.{m.name}").SPEC
            for m in iter_modules(__path__)
            if not m.name.startswith("_")
        ),
        key=lambda s: s.id,
    )
}
BY_ID: dict[int, OpSpec] = {spec.id: spec for spec in BY_NAME.values()}
assert len(BY_ID) == len(BY_NAME), "two ops share an id"


def lookup(name: str) -> OpSpec:
    """The op of that name; NotFoundError suggests the nearest."""
    found = BY_NAME.get(name)
    if found is None:
        near = get_close_matches(name, list(BY_NAME), n=1)
        hint = f"did you mean {near[0]!r}?" if near else "known: " + ", ".join(BY_NAME)
        raise NotFoundError(f"op {name!r} is not in the registry; {hint}")
    return found
