"""Instances of the scriptable backend, each with its own script, in one process.

SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "frontends"))  # tiny_llama

_numbers = itertools.count()
BROKEN_RULES = 110


@pytest.fixture
def fake() -> Iterator[Callable[[str], Any]]:
    """Makes an instance from a script; its devices. At the end the core broke no rule of it."""
    import anyhal as hal

    made: list[Any] = []

    def make(script: str = "", **settings: str) -> Any:
        name = f"fake{next(_numbers)}"
        given = {"script": script, **settings}
        devices = hal.load_backend("fake", instance=name, settings=given)
        made.extend(devices)
        return devices[0] if len(devices) == 1 else devices

    yield make
    for device in made:
        if device._opened is not None:
            assert device.counter(BROKEN_RULES) == 0, device.notes()


@pytest.fixture(autouse=True, scope="module")
def _gone_afterwards(instances_gone: None) -> None:
    """Of every file here."""


@pytest.fixture
def on() -> Callable[..., Any]:
    """A scope on a device that also takes it where nobody vouches for it."""
    import anyhal as hal

    def scope(device: Any, **options: Any) -> Any:
        return hal.use(device=device, allow_uncertified=(device.fact.backend,), **options)

    return scope
