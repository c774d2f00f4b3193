"""What a chip in one Python file writes: devices, and rows of op, dtypes, kernel.
SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import platform
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from anyhal.dtypes import dtype
from anyhal.errors import InvalidArgumentError
from anyhal.ops import lookup

# By number of anyhal_reason in backend.h; a test compares them.
REASONS = (
    *("none", "op", "dtype", "layout", "rank", "shape_limit", "alignment", "attribute"),
    *("architecture", "driver", "missing_library", "missing_artefact", "workspace", "numerics"),
    *("memory_kind", "capture", "policy"),
)


class No(NamedTuple):
    """Why a row does not take a call: a typed word ("dtype", "layout", "rank", "shape_limit",
    "attribute", "numerics", ...), a sentence, and the number of the operand it is about."""

    reason: str
    why: str
    operand: int = -1


@dataclass(frozen=True)
class HostDevice:
    """A device whose memory is the host's, so that operands reach kernels without a copy.

    `simulated` devices are routed to by name alone.
    """

    name: str
    arch: str = platform.machine()
    driver: str = ""
    simulated: bool = False


@dataclass(frozen=True)
class Row:
    """One op that the chip runs, for some dtypes of its main operand (the first input, else
    `main`).

    `kernel(*inputs, *outputs, **attributes)` gets NumPy arrays that are the device's own memory, in
    the order of the op's page, None for an operand that is absent, and the attributes of the C
    record by name. It writes the outputs and returns nothing. Inputs are read-only, may have
    strides of 0, and no operand may be kept after the call. It calls no op of anyhal. It raises
    InvalidArgumentError, before it writes, for what only the values tell; whatever else it raises
    fails the call as execution_failed.

    `accepts`, where given, takes the same with TensorSpec (dtype, shape, strides) in place of
    arrays, and returns None, or a No.
    """

    op: str
    dtypes: tuple[str, ...]
    kernel: Callable[..., None]
    accepts: Callable[..., No | None] | None = None
    main: int = 0

    def __post_init__(self) -> None:
        spec = lookup(self.op)  # NotFoundError with the nearest name
        for name in self.dtypes:
            if dtype(name).numpy is None:
                raise InvalidArgumentError(
                    f"the row of {spec.name}: NumPy has no {name}, so that no Python kernel can"
                    " read it; write that op in C or C++"
                )


class PythonBackend:
    """A chip in one Python file. Subclass it once, give `rows` and `devices`.

    The instance is made when the backend is loaded; its constructor gets the instance's settings.
    NotFoundError there says that hardware, driver or library is not on this machine.
    """

    rows: Sequence[Row] = ()

    def __init__(self, settings: Mapping[str, str]) -> None:
        self.settings = settings

    def devices(self) -> Sequence[HostDevice]:
        """The devices that are there; none is no error."""
        raise NotImplementedError("devices() is not written; return a list of HostDevice")

    def start(self) -> None:
        """Called once, before the first plan is made: the place for what is slow, such as the
        import of a large library."""

    def notes(self) -> str:
        """What limits the devices now, in one sentence; "" when nothing does."""
        return ""
