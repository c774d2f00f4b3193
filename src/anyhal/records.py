"""Frozen dataclasses that are quick to define.
SPDX-License-Identifier: Apache-2.0

`dataclass(frozen=True)` compiles six methods for each class, which with our sixty classes was a
large part of the time of an import (docs/adr/0134-quick-start.md). A record has the same methods,
written once for all classes; `dataclasses.fields`, `replace` and `asdict` take it as a dataclass.
"""

from __future__ import annotations

from collections.abc import Callable
from operator import itemgetter
from typing import Any, NoReturn, TypeVar, cast, dataclass_transform

__all__ = ["field", "mutable_record", "record", "replace"]

_Class = TypeVar("_Class")
_Value = TypeVar("_Value")


class _Made:
    """Stands in a class body for a default that is made anew for each record."""

    def __init__(self, make: Callable[[], Any]) -> None:
        self.make = make


def field(*, default_factory: Callable[[], _Value]) -> _Value:
    """A field whose default is made anew for each record."""
    return cast("_Value", _Made(default_factory))


def replace(of: _Value, **changes: Any) -> _Value:
    """The record with other values in some fields."""
    shape: _Shape = of.__record__  # type: ignore[attr-defined]
    values = {name: of.__dict__[name] for name in shape.names}
    return type(of)(**values | changes)


class _Shape:
    """What the shared methods need to know of one record class."""

    def __init__(self, kind: type) -> None:
        self.names: tuple[str, ...] = tuple(kind.__annotations__)
        self.count = len(self.names)
        given = {name: kind.__dict__[name] for name in self.names if name in kind.__dict__}
        self.defaults = {k: v for k, v in given.items() if not isinstance(v, _Made)}
        self.factories = {k: v.make for k, v in given.items() if isinstance(v, _Made)}
        self.known = frozenset(self.names)
        self.checks = hasattr(kind, "__post_init__")
        get = itemgetter(*self.names)
        # The values in order, always as a tuple.
        self.values: Callable[[dict[str, Any]], tuple[Any, ...]] = (
            get if len(self.names) > 1 else lambda values: (get(values),)
        )


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def record(kind: type[_Class]) -> type[_Class]:
    """A decorator: the class with the fields it annotates, immutable, compared and hashed by value.

    Fields take a default or `field(default_factory=...)` and nothing else; a record derives from no
    other.
    """
    return _made(kind, _METHODS | _FROZEN)


@dataclass_transform(field_specifiers=(field,))
def mutable_record(kind: type[_Class]) -> type[_Class]:
    """The same, whose fields can be set, and which cannot be hashed."""
    return _made(kind, _METHODS | {"__hash__": None})


def _made(kind: type[_Class], methods: dict[str, Any]) -> type[_Class]:
    shape = _Shape(kind)
    for name in shape.factories:
        delattr(kind, name)
    own = {"__record__": shape, "__match_args__": shape.names}
    for name, method in (methods | own).items():
        if name not in kind.__dict__:
            setattr(kind, name, method)
    return kind


def _init(self: Any, *given: Any, **named: Any) -> None:
    shape: _Shape = self.__record__
    values, names = self.__dict__, shape.names
    values.update(shape.defaults)
    if given:
        values.update(zip(names, given, strict=False))
    if named:
        values.update(named)
    for name, make in shape.factories.items():
        if name not in values:
            values[name] = make()
    fits = len(values) == shape.count
    if named:
        fits = fits and named.keys() <= shape.known
    if given:
        fits = fits and len(given) <= shape.count and named.keys().isdisjoint(names[: len(given)])
    if not fits:
        _check(self, shape, given, named)
    if shape.checks:
        self.__post_init__()


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
    from dataclasses import FrozenInstanceError

    raise FrozenInstanceError(f"cannot assign to field {name!r}")


def _delete(self: Any, name: str) -> NoReturn:
    from dataclasses import FrozenInstanceError

    raise FrozenInstanceError(f"cannot delete field {name!r}")


class _Signature:
    """The signature of a record class, made when `inspect` or `help` asks for it."""

    def __get__(self, _: object, kind: Any) -> Any:
        from inspect import Parameter, Signature

        shape = kind.__record__
        given = shape.defaults | shape.factories
        rows = [
            Parameter(
                name,
                Parameter.POSITIONAL_OR_KEYWORD,
                default=given.get(name, Parameter.empty),
                annotation=annotation,
            )
            for name, annotation in kind.__annotations__.items()
        ]
        return Signature(rows, return_annotation=None)


class _Fields:
    """What `dataclasses` asks for, made when it does: importing it takes longer than all records
    of a start."""

    def __get__(self, _: object, kind: Any) -> Any:
        import dataclasses

        shape = kind.__record__
        rows = [
            (name, annotation, _field_of(shape, name))
            for name, annotation in kind.__annotations__.items()
        ]
        made: Any = dataclasses.make_dataclass(kind.__name__, rows, init=False, eq=False)
        kind.__dataclass_fields__ = made.__dataclass_fields__
        return made.__dataclass_fields__


def _field_of(shape: _Shape, name: str) -> Any:
    import dataclasses

    if name in shape.factories:
        return dataclasses.field(default_factory=shape.factories[name])
    return dataclasses.field(default=shape.defaults.get(name, dataclasses.MISSING))


_METHODS = {
    "__init__": _init,
    "__repr__": _repr,
    "__eq__": _eq,
    "__replace__": replace,
    "__signature__": _Signature(),
    "__dataclass_fields__": _Fields(),
}
_FROZEN = {"__hash__": _hash, "__setattr__": _set, "__delattr__": _delete}
