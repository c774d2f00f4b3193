"""What the tests of the kit share: how a program is run, and the command as one.
SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import subprocess
from collections.abc import Callable

Program = Callable[..., "subprocess.CompletedProcess[str]"]
COMMAND = "from anyhal_command import main; main()"
