"""The gradient rule of einsum: a sum of products with one operand taken out.
SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import string
from typing import Any

import numpy as np

import anyhal as hal
from anyhal import Array
from anyhal.training.rules._shapes import Gradients, Rule, sum_to


def _letters(subscripts: str, ranks: list[int]) -> tuple[list[str], str]:
    """The letters of each operand and of the output, with letters of their own for `...`."""
    given, arrow, output = "".join(subscripts.split()).partition("->")
    parts = given.split(",")
    free = [c for c in string.ascii_letters if c not in subscripts]
    counts = [n - len(p.replace("...", "")) for p, n in zip(parts, ranks, strict=True)]
    lead = "".join(free[: max(counts)])
    if not arrow:
        once = sorted(c for c in set(given) - set(".,") if given.count(c) == 1)
        output = "..." + "".join(once)
    terms = [p.replace("...", lead[len(lead) - n :]) for p, n in zip(parts, counts, strict=True)]
    return terms, output.replace("...", lead)


def _einsum(c: Any, d: Array) -> Gradients:
    arrays = list(c.inputs[1:])
    terms, output = _letters(c.inputs[0], [a.ndim for a in arrays])
    sizes: dict[str, int] = {}
    for a, term in zip(arrays, terms, strict=True):
        sizes |= {k: n for k, n in zip(term, a.shape, strict=True) if sizes.get(k, 1) == 1}
    # `...` stretches axes of 1, which letters do not.
    full = [hal.broadcast_to(a, [sizes[k] for k in t]) for a, t in zip(arrays, terms, strict=True)]
    found: list[Any] = [None]
    for i, (x, term) in enumerate(zip(arrays, terms, strict=True)):
        if not c.needed[i + 1]:
            found.append(None)
            continue
        own = "".join(dict.fromkeys(term))
        others = [output, *(t for n, t in enumerate(terms) if n != i)]
        known = "".join(k for k in own if any(k in t for t in others))
        rest = [a for n, a in enumerate(full) if n != i]
        dx = hal.einsum(",".join(others) + "->" + known, d, *rest)
        found.append(_spread(dx, known, own, x, term))
    return found


def _spread(dx: Array, known: str, own: str, x: Array, term: str) -> Any:
    """dx over letters that only x has, which were summed, and on the diagonal of repeated ones."""
    sizes = dict(zip(known, dx.shape, strict=True))
    sizes |= {k: n for k, n in zip(term, x.shape, strict=True) if k not in sizes}
    dx = hal.reshape(dx, tuple(sizes[k] if k in known else 1 for k in own))
    dx = hal.broadcast_to(dx, tuple(sizes[k] for k in own))
    if own == term:
        return sum_to(dx, x)
    place = [term.index(k) for k in own]  # the other places of a letter are on the diagonal
    dx = hal.reshape(dx, tuple(n if i in place else 1 for i, n in enumerate(x.shape)))
    at = np.indices(x.shape, sparse=True)
    equal = np.ones(x.shape, bool)
    for i, letter in enumerate(term):
        equal &= at[i] == at[term.index(letter)]
    return hal.where(hal.asarray(equal, device=x.device), dx, 0.0)


RULES: dict[str, Rule] = {"einsum": _einsum}
