"""Records behave as frozen dataclasses do; each check is made of both.
SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import copy
import dataclasses
import inspect
import pickle
from collections.abc import Callable
from dataclasses import FrozenInstanceError, dataclass
from typing import Any

import pytest

from anyhal.records import field, mutable_record, record, replace


@dataclass(frozen=True)
class Plain:
    """A class."""

    a: int
    b: str = "b"
    c: dict[str, int] = dataclasses.field(default_factory=dict)


@record
class Quick:
    """A class."""

    a: int
    b: str = "b"
    c: dict[str, int] = field(default_factory=dict)


@record
class One:
    """A single field."""

    a: int


BOTH: Any = pytest.mark.parametrize("kind", [Plain, Quick])


@mutable_record
class Open:
    """One that can be changed."""

    a: int
    b: list[int] = field(default_factory=list)


@record
class Checked:
    """One that looks at its values."""

    a: int

    def __post_init__(self) -> None:
        if self.a < 0:
            raise ValueError(self.a)


def test_what_can_be_changed_is_compared_and_not_hashed() -> None:
    made = Open(1)
    made.a = 2
    assert made == Open(2, []) != Open(1) and made.b is not Open(2).b
    with pytest.raises(TypeError, match="unhashable"):
        hash(made)
    assert dataclasses.is_dataclass(made) and dataclasses.asdict(made) == {"a": 2, "b": []}


def test_replace_makes_another_which_is_looked_at_too() -> None:
    assert replace(Quick(1, "x"), a=2) == Quick(2, "x")
    assert replace(Open(1, [3]), a=2) == Open(2, [3])
    with pytest.raises(ValueError, match="-1"):
        replace(Checked(1), a=-1)
    with pytest.raises(TypeError, match="unexpected keyword argument 'x'"):
        replace(Quick(1), x=2)


@BOTH
def test_values_defaults_and_text(kind: Any) -> None:
    made = kind(1, c={"x": 2})
    assert (made.a, made.b, made.c) == (1, "b", {"x": 2})
    assert repr(made) == f"{kind.__name__}(a=1, b='b', c={{'x': 2}})"
    assert kind(1).c is not kind(1).c
    assert dataclasses.replace(made, a=5) == kind(5, "b", {"x": 2})
    assert dataclasses.asdict(made) == {"a": 1, "b": "b", "c": {"x": 2}}
    assert [f.name for f in dataclasses.fields(made)] == ["a", "b", "c"]
    assert kind.__match_args__ == ("a", "b", "c")


@BOTH
def test_equality_and_hash(kind: Any) -> None:
    assert kind(1) == kind(1, "b", {}) != kind(2)
    assert kind(1) != (1, "b", {})
    nan = float("nan")
    assert kind(nan) == kind(nan)  # the same object, as in tuples
    with pytest.raises(TypeError, match="unhashable"):
        hash(kind(1))
    assert hash(One(3)) == hash(One(3)) and One(3) == One(3) != One(4)
    assert len({One(1), One(1), One(2)}) == 2


@BOTH
def test_it_cannot_be_changed(kind: Any) -> None:
    made = kind(1)
    for change in (lambda: setattr(made, "a", 2), lambda: delattr(made, "a")):
        with pytest.raises(FrozenInstanceError):
            change()
    assert made.a == 1


@BOTH
@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda kind: kind(), "missing 1 required positional argument: 'a'"),
        (lambda kind: kind(1, "b", {}, 4), "takes from 2 to 4|takes 4 positional"),
        (lambda kind: kind(1, x=2), "unexpected keyword argument 'x'"),
        (lambda kind: kind(x=2), "unexpected keyword argument 'x'"),
        (lambda kind: kind(1, a=2), "multiple values for argument 'a'"),
    ],
)
def test_a_call_that_does_not_fit(kind: Any, call: Callable[[Any], Any], said: str) -> None:
    with pytest.raises(TypeError, match=said) as why:
        call(kind)
    assert f"{kind.__name__}.__init__()" in str(why.value)


@BOTH
def test_copies_pickles_and_signatures(kind: Any) -> None:
    made = kind(1, c={"x": 2})
    for other in (copy.copy(made), copy.deepcopy(made), pickle.loads(pickle.dumps(made))):
        assert other == made and type(other) is kind
    found = inspect.signature(kind).parameters
    assert list(found) == ["a", "b", "c"] and found["b"].default == "b"
    assert found["a"].default is inspect.Parameter.empty is not found["c"].default
