"""Where the backend lies, for anyhal's entry point; nothing of it is loaded here.
SPDX-License-Identifier: Apache-2.0
"""

from pathlib import Path


def folder() -> Path:
    """The folder that holds backend.toml."""
    return Path(__file__).resolve().parent / "samplechip"
