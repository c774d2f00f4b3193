"""einsum: a sum of products written with letters, planned onto views, reductions and products.
SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, cast

from anyhal.errors import InvalidArgumentError, InvalidTypeError, UnsupportedError, typed_call
from anyhal.ops._spec import describe
from anyhal.runtime import array as arrays
from anyhal.runtime import views

DTYPES = ("f32", "f16", "bf16", "f64", "i32", "i64")
_LETTERS = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ")
_FIRST_OF_ELLIPSIS = 0x100  # axes that `...` stands for get letters from here on


@typed_call("einsum")
def einsum(subscripts: str, /, *operands: Any) -> arrays.Array:
    """Sums products of operands over the letters that the output does not have.

    As NumPy's: `"bij,bjk->bik"`; a letter twice in one operand is its diagonal; `...` stands for
    leading axes, which broadcast; without `->` the output has the letters that occur once, in the
    order of the alphabet. Products of two operands are one `matmul` or one `multiply`. The order of
    three and more is planned by opt_einsum, which `pip install "anyhal[einsum]"` brings. The result
    may be a view of the operand when there is nothing to compute.
    """
    terms, output = _parse(subscripts, operands)
    work = _terms(subscripts, operands, terms)
    for step in _path(subscripts, work, output):
        chosen = [work[i] for i in step]
        work = [t for i, t in enumerate(work) if i not in step]
        found = chosen[0]
        for n, other in enumerate(chosen[1:], 2):
            rest = [*work, *chosen[n:]]
            found = _contract(found, other, "".join(t.labels for t in rest) + output)
        work.append(found)
    (found,) = work
    found = found.reduced(output)
    return cast("arrays.Array", found.ordered(output))


class _Term:
    """An array whose axes have one letter each, no letter twice."""

    def __init__(self, a: Any, labels: str) -> None:
        self.a, self.labels = a, labels
        for letter in dict.fromkeys(labels):
            while self.labels.count(letter) > 1:
                first, second = self.labels.index(letter), self.labels.rindex(letter)
                self.a = views.diagonal(self.a, first, second)
                self.labels = self.labels[:second] + self.labels[second + 1 :]

    def size(self, letters: str) -> int:
        return math.prod(self.a.shape[self.labels.index(c)] for c in letters)

    def reduced(self, kept: str) -> _Term:
        """Summed over the letters that are not among `kept`."""
        from anyhal.functions import sum as hal_sum

        axes = tuple(i for i, c in enumerate(self.labels) if c not in kept)
        if not axes:
            return self
        name = arrays.spec_of(self.a).dtype
        same = name.name if name.kind != "float" else None
        left = "".join(c for c in self.labels if c in kept)
        return _Term(hal_sum(self.a, axis=axes, dtype=same), left)

    def ordered(self, letters: str) -> Any:
        order = tuple(self.labels.index(c) for c in letters)
        return self.a if order == tuple(range(len(order))) else self.a.transpose(*order)


def _terms(subscripts: str, operands: Sequence[Any], letters: Sequence[str]) -> list[_Term]:
    """Letters with equal sizes, and without the axes of size 1 that `...` stretches."""
    sizes: dict[str, int] = {}
    for a, labels in zip(operands, letters, strict=True):
        for c, n in zip(labels, a.shape, strict=True):
            known = sizes.setdefault(c, n)
            stretches = ord(c) >= _FIRST_OF_ELLIPSIS and 1 in (known, n)
            if known != n and not stretches:
                shown = c if ord(c) < _FIRST_OF_ELLIPSIS else "..."
                raise InvalidArgumentError(
                    f"einsum: {subscripts!r}: the axes {shown} have sizes {known} and {n}; equal "
                    "letters need equal sizes"
                )
            if known == 1:
                sizes[c] = n
    found = []
    for a, labels in zip(operands, letters, strict=True):
        kept = [i for i, c in enumerate(labels) if a.shape[i] == sizes[c]]
        if len(kept) < len(labels):
            a = a.reshape(*(a.shape[i] for i in kept))
        found.append(_Term(a, "".join(labels[i] for i in kept)))
    return found


def _contract(a: _Term, b: _Term, kept: str) -> _Term:
    """The product of two terms, summed over the letters that only they have."""
    from anyhal.functions import matmul, multiply

    a, b = a.reduced(kept + b.labels), b.reduced(kept + a.labels)
    batch = "".join(c for c in a.labels if c in b.labels and c in kept)
    inner = "".join(c for c in a.labels if c in b.labels and c not in kept)
    rows = "".join(c for c in a.labels if c not in b.labels)
    columns = "".join(c for c in b.labels if c not in a.labels)
    lead, m, k, n = a.size(batch), a.size(rows), a.size(inner), b.size(columns)
    left, right = a.ordered(batch + rows + inner), b.ordered(batch + inner + columns)
    if inner:
        product = matmul(left.reshape(lead, m, k), right.reshape(lead, k, n))
    else:
        product = multiply(left.reshape(lead, m, 1), right.reshape(lead, 1, n))
    sizes = [t.size(c) for t, letters in ((a, batch + rows), (b, columns)) for c in letters]
    return _Term(product.reshape(*sizes), batch + rows + columns)


def _path(subscripts: str, terms: Sequence[_Term], output: str) -> list[tuple[int, ...]]:
    """Which terms to contract, step by step; the result of a step goes to the end."""
    if len(terms) <= 2:
        return [tuple(range(len(terms)))]
    try:
        import opt_einsum
    except ImportError:
        raise UnsupportedError(
            f"einsum: {subscripts!r} has {len(terms)} operands, and their order is planned by"
            ' opt_einsum, which is not installed; run pip install "anyhal[einsum]" or write it as'
            " products of two",
            reason="missing_library",
        ) from None
    equation = ",".join(t.labels for t in terms) + "->" + output
    shapes = [tuple(t.a.shape) for t in terms]
    path, _ = opt_einsum.contract_path(equation, *shapes, shapes=True, optimize="auto")
    return [tuple(step) for step in path]


# ---------------------------------------------------------------------------------------- parsing


def _parse(subscripts: str, operands: Sequence[Any]) -> tuple[list[str], str]:
    """The letters of each operand and of the output, with letters of their own for `...`."""

    def refuse(why: str, hint: str) -> InvalidArgumentError:
        shown = ", ".join(describe(arrays.spec_of(a)) for a in operands)
        return InvalidArgumentError(f"einsum: {subscripts!r} of {shown}: {why}; {hint}")

    if not isinstance(subscripts, str):
        raise InvalidTypeError(
            f"einsum: the subscripts are a {type(subscripts).__name__}; write them as text, such"
            ' as "ij,jk->ik"'
        )
    for a in operands:
        arrays.needs_array("einsum", a)
    given, arrow, output = "".join(subscripts.split()).partition("->")
    parts = given.split(",")
    if not operands or len(parts) != len(operands):
        raise refuse(
            f"there are {len(parts)} lists of letters and {len(operands)} operands",
            "write one list for each",
        )
    for part in [*parts, output]:
        letters = part.replace("...", "", 1)
        if set(letters) - _LETTERS:
            raise refuse(f"{part!r} is not made of letters and one ...", "use a-z and A-Z")
    _check_dtypes(operands)
    most = 0
    for part, a in zip(parts, operands, strict=True):
        free = a.ndim - len(part.replace("...", ""))
        if free < 0 or (free > 0 and "..." not in part):
            raise refuse(f"{part!r} does not name {a.ndim} axes", "write a letter for each axis")
        most = max(most, free)
    ellipsis = "".join(chr(_FIRST_OF_ELLIPSIS + i) for i in range(most))
    terms = []
    for part, a in zip(parts, operands, strict=True):
        free = a.ndim - len(part.replace("...", ""))
        terms.append(part.replace("...", ellipsis[most - free :]))
    if not arrow:
        once = sorted(c for c in set(given) - set(".,") if given.count(c) == 1)
        output = ellipsis + "".join(once)
    elif most and "..." not in output:
        raise refuse("the output has no ... for the axes it stands for", "write it there, too")
    output = output.replace("...", ellipsis)
    for c in output:
        if output.count(c) > 1 or not any(c in t for t in terms):
            raise refuse(f"the output has {c!r} twice, or no operand has it", "correct the output")
    return terms, output


def _check_dtypes(operands: Sequence[Any]) -> None:
    specs = [arrays.spec_of(a) for a in operands]
    if any(s.dtype != specs[0].dtype for s in specs) or specs[0].dtype.short not in DTYPES:
        raise UnsupportedError(
            f"einsum: operands {', '.join(map(describe, specs))} must have one dtype out of "
            f"{', '.join(DTYPES)}; cast them with astype",
            reason="dtype",
        )
