"""What copying and pickling mean for objects that stand for something of this process.
SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

from typing import Any, NoReturn

from anyhal.errors import InvalidTypeError


class Handle:
    """Names something of this process: a copy is the same one, and it cannot be pickled."""

    _instead = "make another one there"  # what to do in place of pickling it

    def __reduce_ex__(self, protocol: Any) -> NoReturn:
        raise InvalidTypeError(
            f"pickling a {type(self).__name__}: it stands for something of this process, which"
            f" another one does not have; {self._instead}"
        )

    def __copy__(self) -> Handle:
        return self

    def __deepcopy__(self, memo: Any) -> Handle:
        return self
