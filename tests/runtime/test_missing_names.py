"""A name that anyhal does not have: an AttributeError that says which one was meant.
SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import subprocess
import sys

import pytest

import anyhal as hal

MEANT = {
    "sofmax": "did you mean softmax?",
    "matmull": "did you mean matmul?",
    "concatenate": "did you mean concat?",
    "transpose": "did you mean permute_dims?",
    "array": "did you mean asarray?",
    "Ueue": "did you mean Queue?",
    "quux_zyzzyva": "docs/reference/python.md",
}


@pytest.mark.parametrize("name", MEANT)
def test_the_nearest_name_is_suggested(name: str) -> None:
    with pytest.raises(AttributeError) as caught:
        getattr(hal, name)
    assert MEANT[name] in str(caught.value) and repr(name) in str(caught.value)
    assert not hasattr(hal, name) and getattr(hal, name, 3) == 3


@pytest.mark.parametrize("name", ["__path_of__", "_private", "__wrapped__"])
def test_what_protocols_ask_for_is_answered_shortly(name: str) -> None:
    with pytest.raises(AttributeError, match=f"has no attribute '{name}'$"):
        getattr(hal, name)


def test_a_suggested_name_is_there() -> None:
    from anyhal.runtime.missing import _CALLED_HERE

    assert set(_CALLED_HERE.values()) <= set(hal.__all__)
    assert not set(_CALLED_HERE) & set(hal.__all__)


def test_a_module_that_was_not_imported_says_how() -> None:
    code = "import anyhal as hal; hal.training"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert "write `import anyhal.training`" in done.stderr


def test_importing_a_name_says_it_too() -> None:
    with pytest.raises(ImportError, match="sofmax"):
        from anyhal import sofmax  # noqa: F401


def test_an_array_is_answered_by_the_traceback() -> None:
    code = "import anyhal as hal; hal.ones(2).reshap(2)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert "Did you mean: 'reshape'?" in done.stderr
