"""Calls that do not fit an op's signature: every public op refuses each kind with a sentence.
SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

from typing import Any

import pytest

import anyhal as hal
from anyhal import functions
from anyhal.dispatch.resolve import coerce
from anyhal.ops._spec import REQUIRED

OPS = functions.__all__


def well(name: str) -> tuple[list[Any], dict[str, Any]]:
    """Operands and required options that fit the signature (not necessarily the shapes)."""
    op = getattr(functions, name)
    variadic = any(a.variadic for a in op.spec.inputs)
    operands: list[Any] = [hal.ones((2, 2)) for a in op.spec.inputs if not a.optional]
    options = {
        a.name: next(iter(a.choices), 1)
        for a in op.spec.attrs
        if a.default is REQUIRED and a.name not in op.preset
    }
    return ([operands] if variadic else operands), options


def refused(name: str, operands: list[Any], options: dict[str, Any]) -> str:
    # The native call hands what does not parse to `coerce`; both doors must refuse it.
    op = getattr(functions, name)
    with pytest.raises(hal.InvalidArgumentError) as caught:
        coerce(op, tuple(operands), options)
    with pytest.raises(hal.InvalidArgumentError):
        op(*operands, **options)
    text = str(caught.value)
    assert text.startswith(f"{name}: ") and "; " in text
    return text


@pytest.mark.parametrize("name", OPS)
def test_an_option_by_position_is_told_its_name(name: str) -> None:
    op = getattr(functions, name)
    operands, options = well(name)
    spare = 1 if any(a.variadic for a in op.spec.inputs) else len(op.spec.inputs)
    operands += [None] * (spare - len(operands)) + [-1]
    said = refused(name, operands, options)
    free = [a.name for a in op.spec.attrs if a.name not in op.preset]
    if free and spare == len(op.spec.inputs) and not op.spec.inputs[0].variadic:
        assert f"{free[0]}=-1" in said


@pytest.mark.parametrize("name", OPS)
def test_an_unknown_name_suggests_the_nearest(name: str) -> None:
    operands, options = well(name)
    assert "did you mean out?" in refused(name, operands, {**options, "outt": None})


@pytest.mark.parametrize("name", OPS)
def test_a_missing_operand_is_named(name: str) -> None:
    op = getattr(functions, name)
    operands, options = well(name)
    first = op.spec.inputs[0].name
    assert (first if not op.spec.inputs[0].variadic else "list") in refused(name, [], options)
    if op.spec.inputs[0].variadic:
        assert "the list of arrays is empty" in refused(name, [[]], options)
        assert "a int is no list of arrays" in refused(name, [3], options)
    else:
        assert "is missing" in refused(name, [None, *operands[1:]], options)
        said = refused(name, operands, {**options, first: hal.ones((2, 2))})
        assert "by position and by name" in said


@pytest.mark.parametrize("name", [n for n in OPS if well(n)[1]])
def test_a_missing_option_without_default_is_named(name: str) -> None:
    operands, options = well(name)
    for left_out in options:
        rest = {k: v for k, v in options.items() if k != left_out}
        assert f"add {left_out}=" in refused(name, operands, rest)


@pytest.mark.parametrize("bad", ["text", object(), {}, 1j], ids=lambda v: type(v).__name__)
@pytest.mark.parametrize("name", OPS)
def test_an_operand_of_no_numbers_is_refused(name: str, bad: object) -> None:
    operands, options = well(name)
    variadic = getattr(functions, name).spec.inputs[0].variadic
    operands = [[bad]] if variadic else [bad, *operands[1:]]
    with pytest.raises(hal.InvalidArgumentError, match="cannot turn .* into numbers"):
        getattr(functions, name)(*operands, **options)


def test_the_refusal_is_a_type_error_too() -> None:
    with pytest.raises(TypeError, match="write softmax\\(x, axis=-1\\)"):
        coerce(hal.softmax, (hal.ones((2, 2)), -1), {})
    assert issubclass(hal.InvalidTypeError, TypeError)
    assert issubclass(hal.InvalidTypeError, hal.InvalidArgumentError)
