"""Frozen dataclasses that are quick to define.
SPDX-License-Identifier: Apache-2.0

`dataclass(frozen=True)` compiles six methods for each class, which with our forty classes was a
large part of the time of an import (docs/adr/0134-quick-start.md). A record has the same methods,
written once for all classes; `dataclasses.fields`, `replace` and `asdict` take it as a dataclass.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import MISSING, Field, FrozenInstanceError, dataclass, field, fields
from operator import itemgetter
from typing import Any, NoReturn, TypeVar, dataclass_transform

__all__ = ["field", "record"]

_Class = TypeVar("_Class")


class _Shape:
    """What the shared methods need to know of one record class."""

    def __init__(self, rows: tuple[Field[Any], ...]) -> None:
        self.names = tuple(row.name for row in rows)
        self.defaults = {row.name: row.default for row in rows if row.default is not MISSING}
        self.factories = {
            row.name: row.default_factory for row in rows if row.default_factory is not MISSING
        }
        self.known = frozenset(self.names)
        get = itemgetter(*self.names)
        # The values in order, always as a tuple.
        self.values: Callable[[dict[str, Any]], tuple[Any, ...]] = (
            get if len(rows) > 1 else lambda values: (get(values),)
        )


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def record(kind: type[_Class]) -> type[_Class]:
    """A decorator: the class with the fields it annotates, immutable, compared and hashed by value.

    Fields take a default or `field(default_factory=...)` and nothing else.
    """
    made: Any = dataclass(init=False, repr=False, eq=False)(kind)
    made.__record__ = _Shape(fields(made))
    for name, method in _METHODS.items():
        if name not in kind.__dict__:
            setattr(made, name, method)
    return kind


def _init(self: Any, *given: Any, **named: Any) -> None:
    shape: _Shape = self.__record__
    values = self.__dict__
    values.update(shape.defaults)
    values.update(zip(shape.names, given, strict=False))
    values.update(named)
    for name, make in shape.factories.items():
        if name not in values:
            values[name] = make()
    if (
        len(values) != len(shape.names)
        or len(given) > len(shape.names)
        or not named.keys() <= shape.known
        or (given and not named.keys().isdisjoint(shape.names[: len(given)]))
    ):
        _check(self, shape, given, named)


def _check(self: Any, shape: _Shape, given: tuple[Any, ...], named: dict[str, Any]) -> None:
    """TypeError for a call that does not fit, in the words of Python's own."""
    called = f"{type(self).__qualname__}.__init__()"
    if len(given) > len(shape.names):
        raise TypeError(
            f"{called} takes {len(shape.names) + 1} positional arguments but {len(given) + 1} were"
            " given"
        )
    for name in named:
        if name not in shape.names:
            raise TypeError(f"{called} got an unexpected keyword argument {name!r}")
        if name in shape.names[: len(given)]:
            raise TypeError(f"{called} got multiple values for argument {name!r}")
    missing = [repr(name) for name in shape.names if name not in self.__dict__]
    if missing:
        raise TypeError(
            f"{called} missing {len(missing)} required positional argument"
            f"{'s' * (len(missing) > 1)}: {' and '.join(missing)}"
        )


def _repr(self: Any) -> str:
    shown = ", ".join(f"{name}={self.__dict__[name]!r}" for name in self.__record__.names)
    return f"{type(self).__qualname__}({shown})"


def _eq(self: Any, other: Any) -> Any:
    if other.__class__ is not self.__class__:
        return NotImplemented
    values = self.__record__.values
    return values(self.__dict__) == values(other.__dict__)


def _hash(self: Any) -> int:
    return hash(self.__record__.values(self.__dict__))


def _set(self: Any, name: str, value: object) -> NoReturn:
    raise FrozenInstanceError(f"cannot assign to field {name!r}")


def _delete(self: Any, name: str) -> NoReturn:
    raise FrozenInstanceError(f"cannot delete field {name!r}")


class _Signature:
    """The signature of a record class, made when `inspect` or `help` asks for it."""

    def __get__(self, _: object, kind: Any) -> Any:
        from inspect import Parameter, Signature

        rows = [
            Parameter(
                row.name,
                Parameter.POSITIONAL_OR_KEYWORD,
                default=kind.__record__.defaults.get(
                    row.name,
                    row.default_factory
                    if row.name in kind.__record__.factories
                    else Parameter.empty,
                ),
                annotation=row.type,
            )
            for row in fields(kind)
        ]
        return Signature(rows, return_annotation=None)


_METHODS = {
    "__init__": _init,
    "__repr__": _repr,
    "__eq__": _eq,
    "__hash__": _hash,
    "__setattr__": _set,
    "__delattr__": _delete,
    "__signature__": _Signature(),
}
