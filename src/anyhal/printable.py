"""Text from files, devices and vendors as a terminal may show it.
SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

from collections.abc import Iterable

# Control, format (they reorder what is read), lone surrogates, line and paragraph separators.
_UNSHOWN = ("Cc", "Cf", "Cs", "Zl", "Zp")


def printable(text: str, keep: str = "") -> str:
    """`text` with \\xNN or \\uNNNN for each character that drives a terminal or cannot be encoded,
    but for those in `keep`."""
    if text.isascii() and text.isprintable():
        return text
    import unicodedata  # most texts need no table of characters

    return "".join(
        c.encode("unicode_escape").decode("ascii")
        if c not in keep and unicodedata.category(c) in _UNSHOWN
        else c
        for c in text
    )


def get_close_matches(
    word: str, known: Iterable[str], n: int = 3, cutoff: float = 0.6
) -> list[str]:
    """As `difflib` has it, which is imported by who made a mistake."""
    import difflib

    return difflib.get_close_matches(word, list(known), n, cutoff)
