"""What a tape keeps of a call.
SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from anyhal import Array


@dataclass(frozen=True)
class Recorded:
    """One call: what a rule sees beside the gradients of its outputs."""

    name: str
    inputs: tuple[Any, ...]  # arrays, numbers, None; of a list of arrays, those
    attrs: Mapping[str, Any]
    outputs: tuple[Array, ...]
    needed: tuple[bool, ...]  # which inputs want a gradient

    @property
    def out(self) -> Array:
        return self.outputs[0]

    def operands(self, count: int) -> list[Any]:
        """The inputs, with None for those that were left out at the end."""
        return [*self.inputs, *(None,) * (count - len(self.inputs))]
