"""Values that only a call can tell are wrong: it is refused as the caller's mistake, nothing is
written, and the device works on. SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from anyhal.conformance.capabilities.asking import Asker, shown
from anyhal.conformance.capabilities.calls import (
    Call,
    Described,
    Placed,
    main_dtype,
    possible,
    small,
    with_input,
)
from anyhal.conformance.suite import Case, Finding
from anyhal.conformance.worker import rng_of
from anyhal.errors import DeviceLostError, HalError, InvalidArgumentError, OutOfMemoryError
from anyhal.ops import BY_NAME

_FAR = 1 << 30
# The operand whose values an op checks, and some that it must refuse, as its file says.
_WRONG: dict[str, tuple[str, tuple[int, ...]]] = {
    "gather": ("indices", (_FAR, -1)),
    "scatter_add": ("indices", (_FAR, -1)),
    "embedding": ("ids", (_FAR, -1)),
    "cache_append": ("position", (_FAR, -1)),
    "take_along_axis": ("indices", (_FAR, -1)),
    "scatter": ("indices", (_FAR, -1)),
    "slice_update": ("positions", (_FAR, -1)),
    "one_hot": ("indices", (_FAR, -1)),
    "paged_cache_append": ("lengths", (_FAR,)),
    "grouped_matmul": ("group_sizes", (-1, _FAR)),
    "cross_entropy": ("targets", (_FAR, -7)),
    "cross_entropy_backward": ("targets", (_FAR, -7)),
    "embedding_backward": ("ids", (_FAR, -1)),
    "adamw_step": ("step", (0, -1)),
}
# The smallest number that is too large, where an op's operands say it.
_PAST: dict[str, Callable[[Call], int]] = {
    **dict.fromkeys(
        ("gather", "scatter_add", "take_along_axis", "scatter"),
        lambda c: int(c.sample.inputs[0].shape[c.attrs["axis"]]),
    ),
    "embedding": lambda c: int(c.sample.inputs[0].shape[0]),
    "paged_cache_append": lambda c: int(c.sample.inputs[0].shape[0]),
}
_PAGES = "capabilities/values/paged_cache_append/pages"  # of tables, whose first entry is used
_CALLS = 4  # of each op


def cases() -> Iterator[Case]:
    for name in _WRONG:
        yield Case(f"capabilities/values/{name}", "capabilities", name)
    yield Case(_PAGES, "capabilities", "paged_cache_append")


def run(case: Case, bench: Any) -> Finding:
    asker = Asker(bench, case.op)
    spec = BY_NAME[case.op]
    pages = case.id == _PAGES
    operand, bad = ("block_table", ()) if pages else _WRONG[case.op]
    past = _PAST.get(case.op) if pages or operand != "lengths" else None
    at = [a.name for a in spec.inputs].index(operand)
    asked = 0
    for call in _calls(case, bench, asker, at):
        for value in (*bad, *([past(call)] if past else ())):
            why = _refuses(asker, call, at, value, 0 if pages else -1)
            if why is not None:
                said = f"{shown(call, ())} with {operand} {value}: {why[1]}"
                return Finding("fail", said, why[0])
            asked += 1
    if not asked:
        return Finding("refused", f"no call of {case.op} is taken", "not_declared")
    return Finding("pass", measured={"calls": asked})


def _calls(case: Case, bench: Any, asker: Asker, at: int) -> list[Call]:
    """One accepted call of each of a few dtypes, the largest, so that there is much to write."""
    found: dict[str, Call] = {}
    calls = (
        Call.plain(BY_NAME[case.op], s)
        for s in BY_NAME[case.op].samples(rng_of(bench.seed, "values"))
        if small(s)
    )
    able = [c for c in calls if c.sample.inputs[at] is not None and possible(c)]
    able.sort(key=lambda c: -sum(x.size for x in c.sample.inputs if hasattr(x, "size")))
    for call in able:
        short = main_dtype(call)
        if short not in found and asker.outcome(call, run=False).accepted:
            found[short] = call
        if len(found) == _CALLS:
            break
    return list(found.values())


def _refuses(asker: Asker, call: Call, at: int, value: int, place: int) -> tuple[str, str] | None:
    """None when all is well, else (code, sentence)."""
    values = np.array(call.sample.inputs[at])
    flat = values.reshape(-1)
    flat[place] = value  # last: who checks while writing has written by then
    placed = Placed(asker.device, with_input(call, at, values))
    told, plan = Described(asker.device, call, placed.frames).prepare()
    if plan is None:
        return None if told.kind == "no" else ("wrong_status", told.text)
    try:
        placed.run(plan, asker.queue)
    except (DeviceLostError, OutOfMemoryError):
        raise
    except InvalidArgumentError:
        asker.renew()
    except HalError as why:
        asker.renew()
        return "wrong_status", f"it says {why.code} instead of invalid_argument"
    else:
        return "unchecked", "it runs, and must be refused"
    if not placed.untouched():
        return "written", "it is refused and has written all the same"
    again = asker.outcome(call)
    if again.code or not again.accepted:
        return "queue", f"after that a right call fails: {again.why or again.reason}"
    return None
