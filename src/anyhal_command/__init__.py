"""The console script `anyhal`: a package of its own, so that Ctrl-C is ours before anything loads.
SPDX-License-Identifier: Apache-2.0

Importing anything of `anyhal` loads NumPy and the compiled core first, a tenth of a second in which
an interrupt would print a traceback. This module imports nothing but the interpreter's own.
"""

from __future__ import annotations

import os
import signal

_INTERRUPTED = 130  # as anyhal.cli says, which is not loaded yet


def main() -> None:
    """Runs the command; an interrupt while it loads is one line and exit status 130."""
    # An exception could be swallowed by what is being imported. Nothing has begun, so leaving at
    # once loses nothing. An ignored SIGINT (a job in the background) stays ignored.
    ours = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    try:
        if ours:
            signal.signal(signal.SIGINT, _leave)
        from anyhal.cli import main as run

        if ours:
            signal.signal(signal.SIGINT, signal.default_int_handler)
        run()
    except KeyboardInterrupt:
        _leave()


def _leave(*_: object) -> None:
    try:
        os.write(2, b"anyhal: interrupted\n")
    except OSError:
        pass  # the exit status still says it
    os._exit(_INTERRUPTED)
