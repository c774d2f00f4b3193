"""For authors of backends: a chip in one Python file, judged like any other.
SPDX-License-Identifier: Apache-2.0

A `backend.toml` with `python = "chip.py"` in place of `library` names a file that defines one
subclass of PythonBackend. anyhal makes the table of the contract and calls the kernels back.
"""

from anyhal.sdk.backend import HostDevice, No, PythonBackend, Row

__all__ = ["HostDevice", "No", "PythonBackend", "Row"]
