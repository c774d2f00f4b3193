"""How many random cases each op gets: a fixed few by default, more with --hypothesis-profile.
SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import pytest
from hypothesis import settings

PROFILES = {
    "quick": settings(max_examples=25, deadline=None, database=None, derandomize=True),
    "slice": settings(max_examples=25, deadline=None, database=None),
    "deep": settings(max_examples=500, deadline=None, database=None),
}
for name, profile in PROFILES.items():
    settings.register_profile(name, profile)


@pytest.fixture(scope="session")
def effort(pytestconfig: pytest.Config) -> settings:
    return PROFILES[pytestconfig.getoption("--hypothesis-profile", default=None) or "quick"]
