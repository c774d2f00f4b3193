"""Whether one of two builds is slower: paired blocks, an interval, and a rate of false alarms.
SPDX-License-Identifier: Apache-2.0

Effect: the Hodges-Lehmann shift of the logarithms of paired block times, with a 99 % interval by
bootstrap over blocks. Test: one-sided Wilcoxon signed ranks, Benjamini-Hochberg over all items. An
item is slower when its whole interval lies beyond 3 % and q < 0.01; a family when that of its
geometric mean lies beyond 1 %.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from anyhal.errors import NotFoundError
from anyhal.records import record

ITEM_LIMIT, FAMILY_LIMIT, Q_LIMIT = np.log(1.03), np.log(1.01), 0.01
SEEN = np.log(1.08)  # a slowdown that has to be found
_RESAMPLES = 2000
_CONFIDENCE = 0.99


@record
class Shift:
    """How much slower, as a logarithm: the estimate and its interval; p of "not slower"."""

    value: float
    low: float
    high: float
    p: float

    @property
    def percent(self) -> float:
        return float(100 * np.expm1(self.value))

    @property
    def hides(self) -> bool:
        """Whether the interval holds both no change that counts and one that has to be found."""
        return bool(self.low <= ITEM_LIMIT and self.high >= SEEN)


def hodges_lehmann(differences: Any) -> float:
    """The median of all means of two, each with itself among them."""
    d = np.asarray(differences, np.float64)
    i, j = np.triu_indices(d.shape[-1])
    return float(np.median((d[i] + d[j]) / 2))


def shift(old: Sequence[float], new: Sequence[float]) -> Shift:
    """Of paired block times in seconds: element i of both was measured in the same block."""
    try:
        from scipy import stats
    except ImportError:
        raise NotFoundError(
            "comparing two builds: scipy is not installed; pip install 'anyhal[certify]'"
        ) from None
    d = np.log(np.asarray(new)) - np.log(np.asarray(old))
    rng = np.random.default_rng(12)
    drawn = rng.integers(0, len(d), (_RESAMPLES, len(d)))
    i, j = np.triu_indices(len(d))
    resampled = d[drawn]
    found = np.median((resampled[:, i] + resampled[:, j]) / 2, axis=1)
    tail = 100 * (1 - _CONFIDENCE) / 2
    low, high = np.percentile(found, [tail, 100 - tail])
    p = 1.0 if not np.any(d) else float(stats.wilcoxon(d, alternative="greater").pvalue)
    return Shift(hodges_lehmann(d), float(low), float(high), p)


def slower(shifts: Mapping[str, Shift]) -> list[str]:
    """The items that are slower beyond doubt."""
    if not shifts:
        return []
    from scipy import stats

    names = list(shifts)
    q = stats.false_discovery_control([shifts[name].p for name in names])
    return [
        name
        for name, one in zip(names, q, strict=True)
        if one < Q_LIMIT and shifts[name].low > ITEM_LIMIT
    ]


def slower_families(
    families: Mapping[str, Sequence[str]], times: Mapping[str, tuple[Any, Any]]
) -> dict[str, Shift]:
    """Families of at least two items whose geometric mean moved beyond 1 %. `times` holds the
    paired old and new block times of each item."""
    found = {}
    for family, names in families.items():
        known = [name for name in names if name in times]
        if len(known) < 2:
            continue
        old = np.exp(np.mean([np.log(times[name][0]) for name in known], axis=0))
        new = np.exp(np.mean([np.log(times[name][1]) for name in known], axis=0))
        one = shift(old, new)
        if one.low > FAMILY_LIMIT and one.p < Q_LIMIT:
            found[family] = one
    return found
