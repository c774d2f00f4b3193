"""Imported first: Ctrl-C while the other imports run is one line and exit status 130.
SPDX-License-Identifier: Apache-2.0
"""

import os
import signal
import sys


def _stop(number: int, frame: object) -> None:
    """Leaves at once: an exception in the middle of an import comes out as a traceback, or as
    another error that the import made of it."""
    name = os.path.splitext(os.path.basename(sys.argv[0]))[0]
    os.write(2, f"{name}: interrupted\n".encode())
    os._exit(128 + number)


def raises() -> None:
    """From here on Ctrl-C is Python's KeyboardInterrupt again."""
    if signal.getsignal(signal.SIGINT) is _stop:
        signal.signal(signal.SIGINT, signal.default_int_handler)


if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
    signal.signal(signal.SIGINT, _stop)
