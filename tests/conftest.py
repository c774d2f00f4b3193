"""How hard property tests try: `default` in the suite, `slice` in CI, `deep` in the heavy run.
SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

_SLOW = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.function_scoped_fixture]

# `default` is the same on every run, so that a red run is a change's fault; the others take
# --hypothesis-seed and look elsewhere each time.
settings.register_profile("default", derandomize=True, deadline=None, suppress_health_check=_SLOW)
settings.register_profile("slice", max_examples=50, deadline=None, suppress_health_check=_SLOW)
settings.register_profile("deep", max_examples=300, deadline=None, suppress_health_check=_SLOW)
settings.load_profile("default")

# A shell starts background jobs with Ctrl-C ignored, and their children inherit that; the tests
# that interrupt a program need it as a person's terminal has it.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture
def torch() -> Any:
    """The module, for tests marked `torch`; .ci/run has an environment where none is skipped."""
    return pytest.importorskip("torch", reason="torch is not here: pip install '.[torch-test]'")


@pytest.fixture(scope="module")
def instances_gone() -> Iterator[None]:
    """Takes the module's instances out of sight, lost and exhausted ones among them: other tests
    of this process walk over all devices."""
    from anyhal.runtime import device

    device.devices()
    assert device._state is not None
    before = set(device._state.devices)
    yield
    for name in set(device._state.devices) - before:
        del device._state.devices[name]


@pytest.fixture(autouse=True)
def default_device_as_before() -> Iterator[None]:
    """What a test selects for the process does not reach the tests after it."""
    context = sys.modules.get("anyhal.runtime.context")
    before = None if context is None else context._process_wide
    yield
    if context is not None:
        context._process_wide = before
