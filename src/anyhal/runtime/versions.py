"""Version numbers and ranges such as ">=2023.2,<2024", of packages and of the contract.
SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import re
from functools import lru_cache

_CLAUSE = r"(==|!=|>=|<=|>|<)\s*([0-9]{1,9}(?:\.[0-9]{1,9})*)"
_EXACT = r"[0-9]{1,9}\.[0-9]{1,9}"


def is_range(text: str) -> bool:
    """Whether every clause can be read."""
    return all(re.fullmatch(_CLAUSE, clause.strip()) for clause in text.split(","))


def is_contract(text: str) -> bool:
    """Whether a manifest may write it as `abi`: "0.3", or a range."""
    return bool(re.fullmatch(_EXACT, text)) or is_range(text)


def version_matches(version: str, clauses: str) -> bool:
    """Whether a release such as 2023.2.0 meets ">=2023.2,<2024". Unreadable clauses never match."""
    numbers = release(version)
    for clause in clauses.split(","):
        found = re.fullmatch(_CLAUSE, clause.strip())
        if found is None:
            return False
        sign, bound = found[1], release(found[2])
        order = (numbers > bound) - (numbers < bound)
        allowed = {"==": (0,), "!=": (-1, 1), ">=": (0, 1), "<=": (-1, 0), ">": (1,), "<": (-1,)}
        if order not in allowed[sign]:
            return False
    return True


@lru_cache  # most manifests say the same
def contract_fits(abi: str, floor: str, core: str) -> bool:
    """Whether a backend whose manifest says `abi` (and `floor`, or "") runs on this core.

    One version: a draft 0.N fits itself alone; M.N fits cores of its major from `floor` or itself
    on, and those of the next major. A range means what it says.
    """
    here = release(core)
    if floor and here < release(floor):
        return False
    if not re.fullmatch(_EXACT, abi):
        return version_matches(core, abi)
    built = release(abi)
    if abi.startswith("0."):
        return here == built
    return built[0] <= _major(here) <= built[0] + 1 and (bool(floor) or here >= built)


def is_older(abi: str, core: str) -> bool:
    """Whether all that `abi` allows is older than the core: the backend is what to upgrade."""
    numbers = [release(found) for found in re.findall(r"[0-9]+(?:\.[0-9]+)*", abi)]
    return max(numbers) <= release(core)


def _major(numbers: tuple[int, ...]) -> int:
    return numbers[0] if numbers else 0


def release(version: str) -> tuple[int, ...]:
    """The numbers before any pre-release letter, without trailing zeros: 2.0 equals 2."""
    found = re.match(r"\d+(?:\.\d+)*", version)
    numbers = [int(part) for part in found[0].split(".")] if found else []
    while numbers and numbers[-1] == 0:
        numbers.pop()
    return tuple(numbers)
