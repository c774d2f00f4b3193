"""Refuses a call that does not fit its op's signature, and says what to write instead.
SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from anyhal.errors import InvalidArgumentError, InvalidTypeError
from anyhal.ops._spec import REQUIRED, Arg, Attr, OpSpec
from anyhal.printable import get_close_matches
from anyhal.runtime.array import Array


def check_signature(native: Any, positional: Sequence[Any], named: Mapping[str, Any]) -> None:
    """InvalidTypeError unless the operands and keywords are those of the op's signature."""
    spec: OpSpec = native.spec
    name: str = native.__name__
    attrs = [a for a in spec.attrs if a.name not in native.preset]
    variadic = any(a.variadic for a in spec.inputs)
    if variadic:
        _check_list(name, positional)
    elif len(positional) > len(spec.inputs):
        raise _too_many(name, spec.inputs, attrs, positional)
    by_name = [] if variadic else [a.name for a in spec.inputs]
    _check_names(name, [*by_name, *(a.name for a in attrs), "out"], named)
    _check_out(name, spec, named.get("out"))
    given = dict(zip(by_name, positional, strict=False))
    for key in named:
        if key in given:
            raise InvalidTypeError(
                f"{name}: {key} is given by position and by name; leave one of the two out"
            )
    given |= named
    for attr in attrs:
        if attr.default is REQUIRED and attr.name not in named:
            raise InvalidTypeError(
                f"{name}: the keyword argument {attr.name} is missing, it has no default; add"
                f" {attr.name}={_example(attr)}"
            )
    for arg in [] if variadic else spec.inputs:
        if not arg.optional and given.get(arg.name) is None:
            raise InvalidTypeError(
                f"{name}: the operand {arg.name} is missing; write {name}({_operands(spec.inputs)})"
            )


def _check_out(name: str, spec: OpSpec, out: Any) -> None:
    """An op with several outputs takes a tuple with a place for each."""
    if not spec.more_outputs or out is None or isinstance(out, Array | np.ndarray):
        return  # one array is the first output
    if not isinstance(out, tuple) or len(out) != len(spec.outputs):
        shown = ", ".join(a.name for a in spec.outputs)
        raise InvalidTypeError(
            f"{name}: out must be a tuple with an array or None for each output; write"
            f" out=({shown})"
        )


def _check_list(name: str, positional: Sequence[Any]) -> None:
    if len(positional) != 1:
        raise InvalidTypeError(
            f"{name}: it takes one list of arrays and {len(positional)} values were given by"
            f" position; write {name}([a, b])"
        )
    arrays = positional[0]
    if isinstance(arrays, str | bytes) or not isinstance(arrays, Iterable):
        raise InvalidTypeError(
            f"{name}: a {type(arrays).__name__} is no list of arrays; write {name}([a, b])"
        )
    if isinstance(arrays, Sequence) and not arrays:
        raise InvalidArgumentError(f"{name}: the list of arrays is empty; pass one or more")


def _check_names(name: str, known: Sequence[str], named: Mapping[str, Any]) -> None:
    for key in named:
        if key not in known:
            near = get_close_matches(key, known, n=1)
            hint = f"did you mean {near[0]}?" if near else "it has " + ", ".join(known)
            raise InvalidTypeError(f"{name}: no argument is named {key!r}; {hint}")


def _too_many(
    name: str, inputs: Sequence[Arg], attrs: Sequence[Attr], positional: Sequence[Any]
) -> InvalidTypeError:
    """The commonest slip is an option without its name: the hint puts the names in."""
    extra = positional[len(inputs) :]
    operands = ", ".join(a.name for a in inputs)
    hint = f"write {name}({operands})"
    if attrs and len(extra) <= len(attrs) and not any(isinstance(v, Array) for v in extra):
        options = ", ".join(f"{a.name}={v!r}" for a, v in zip(attrs, extra, strict=False))
        hint = f"options go by name: write {name}({operands}, {options})"
    return InvalidTypeError(
        f"{name}: {len(positional)} values were given by position and it takes {len(inputs)}"
        f" ({operands}); {hint}"
    )


def _operands(inputs: Sequence[Arg]) -> str:
    return ", ".join(a.name for a in inputs if not a.optional)


def _example(attr: Attr) -> str:
    if attr.choices:
        return "|".join(map(repr, attr.choices))
    return {"bool": "True", "f32": "1.0", "dtype": "'float32'"}.get(attr.kind, "0")
