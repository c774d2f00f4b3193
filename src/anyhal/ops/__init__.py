"""The op registry: every op of this folder, by name and by id.
SPDX-License-Identifier: Apache-2.0

An op's file is imported when its spec is first asked for; which ops there are stands in the
generated `_table`. So a program imports the ops that it calls, and no others.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import TYPE_CHECKING, TypeVar

from anyhal.errors import NotFoundError
from anyhal.ops._table import IDS
from anyhal.printable import get_close_matches

if TYPE_CHECKING:
    from anyhal.ops._spec import OpSpec

__all__ = ["BY_ID", "BY_NAME", "NAMES", "REGISTRY_VERSION", "lookup", "specs_of_folder"]

REGISTRY_VERSION = 1
NAMES: dict[int, str] = {number: name for name, number in IDS.items()}

_Key = TypeVar("_Key", int, str)


class _Specs(Mapping[_Key, "OpSpec"]):
    """Specs by key, in the order of ids; each is imported when it is first taken."""

    def __init__(self, names: Mapping[_Key, str]) -> None:
        self._names: Mapping[_Key, str] = names
        self._taken: dict[_Key, OpSpec] = {}

    def __getitem__(self, key: _Key) -> OpSpec:
        found = self._taken.get(key)
        if found is None:
            found = self._taken[key] = import_module(f"{__name__}.{self._names[key]}").SPEC
        return found

    def __contains__(self, key: object) -> bool:
        return key in self._names

    def __iter__(self) -> Iterator[_Key]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


BY_NAME: Mapping[str, OpSpec] = _Specs[str]({name: name for name in IDS})
BY_ID: Mapping[int, OpSpec] = _Specs[int](NAMES)


def lookup(name: str) -> OpSpec:
    """The op of that name; NotFoundError suggests the nearest."""
    if name in BY_NAME:
        return BY_NAME[name]
    near = get_close_matches(name, list(BY_NAME), n=1)
    hint = f"did you mean {near[0]!r}?" if near else "known: " + ", ".join(BY_NAME)
    raise NotFoundError(f"op {name!r} is not in the registry; {hint}")


def specs_of_folder() -> list[OpSpec]:
    """Every op that has a file here, by id: what `_table` is generated from."""
    from pkgutil import iter_modules

    modules = [m.name for m in iter_modules(__path__) if not m.name.startswith("_")]
    specs: list[OpSpec] = [import_module(f"{__name__}.{name}").SPEC for name in modules]
    assert [spec.name for spec in specs] == modules, "an op's file has the name of the op"
    assert len({spec.id for spec in specs}) == len(specs), "two ops share an id"
    return sorted(specs, key=lambda spec: spec.id)
