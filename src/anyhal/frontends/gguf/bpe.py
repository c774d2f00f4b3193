"""Byte-level byte-pair encoding of GGUF `gpt2` vocabularies, on the `tokenizers` package.
SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from anyhal.errors import UnsupportedError
from anyhal.frontends.gguf.reader import GgufError

_NORMAL, _BYTE = 1, 6

# How text is cut into words before merging, by the value of tokenizer.ggml.pre. Each pattern
# splits what the one before it left; text between matches is a word as well.
_GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)"
_LLAMA3 = (
    r"(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])|[^\r\n\p{L}\p{N}]?\p{L}+"
    r"|\p{N}%s| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_PATTERNS: dict[str, tuple[str, ...]] = {
    "default": (r"[\p{P}\$\+<=>\^~\|]+", _GPT2, r"\p{N}+", r"[0-9][0-9][0-9]"),
    "gpt-2": (_GPT2,),
    "smollm": (r"\p{N}", _GPT2),
    "llama-bpe": (_LLAMA3 % "{1,3}",),
    "qwen2": (_LLAMA3 % "",),
}
# Vocabularies that take a whole word as one token when they hold it, whatever the merges say.
_WHOLE_WORDS_FIRST = frozenset(("llama-bpe",))


def _byte_alphabet() -> dict[str, int]:
    """The printable character that stands for each byte in a byte-level vocabulary."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    alphabet = {chr(byte): byte for byte in printable}
    hidden = (byte for byte in range(256) if byte not in set(printable))
    alphabet.update((chr(0x100 + index), byte) for index, byte in enumerate(hidden))
    return alphabet


_BYTE_OF = _byte_alphabet()


class ByteLevelBpe:
    """Splits text into words and merges each word's bytes by rank."""

    def __init__(self, path: Path, ids: Mapping[str, int], merges: Sequence[str], pre: str) -> None:
        patterns = _PATTERNS.get(pre)
        if patterns is None:
            raise UnsupportedError(
                f'tokenizer of {path}: pre-tokenizer "{pre}" is not supported, only'
                f" {', '.join(sorted(_PATTERNS))} are; use a file with one of these"
            )
        # Bytes without a token vanish, as in llama.cpp: SmolLM2's vocabulary lacks 21 of them.
        self._model = _build(path, ids, merges, patterns, pre in _WHOLE_WORDS_FIRST)

    def encode(self, text: str, *, after_special: bool) -> list[int]:
        ids: list[int] = self._model.encode(text, add_special_tokens=False).ids
        return ids

    def token_bytes(self, text: str, kind: int) -> bytes:
        if kind not in (_NORMAL, _BYTE):
            return text.encode()
        try:
            return bytes([_BYTE_OF[character] for character in text])
        except KeyError:
            return text.encode()


def _build(
    path: Path,
    ids: Mapping[str, int],
    merges: Sequence[str],
    patterns: tuple[str, ...],
    whole_words_first: bool,
) -> Any:
    try:
        from tokenizers import Regex, Tokenizer, models, pre_tokenizers
    except ImportError:
        raise UnsupportedError(
            f"tokenizer of {path}: the package tokenizers is not installed; run"
            ' "pip install anyhal[llm]"'
        ) from None
    pairs = []
    for index, merge in enumerate(merges):
        left, _, right = merge.partition(" ")
        if not left or not right:
            raise GgufError(
                f'tokenizer of {path}: merge {index} ("{merge}") is not two tokens; convert the'
                " model anew"
            )
        if left in ids and right in ids and left + right in ids:
            pairs.append((left, right))
    model = Tokenizer(models.BPE(dict(ids), pairs, ignore_merges=whole_words_first))
    model.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Split(Regex(pattern), "isolated") for pattern in patterns]
        + [pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]
    )
    return model
