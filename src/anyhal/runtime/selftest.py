"""Known answers before first use: a backend's op on a device runs samples of the op's own file.
SPDX-License-Identifier: Apache-2.0

Filled in with the runtime's first slice; see `require_good_cell`.
"""

from __future__ import annotations

from anyhal.ops._spec import OpSpec
from anyhal.runtime.device import Device


def require_good_cell(device: Device, spec: OpSpec) -> None:
    """Raises UnsupportedError when the op gave a wrong answer on this device before."""
