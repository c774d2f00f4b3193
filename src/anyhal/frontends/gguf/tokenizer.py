"""Turns text into the token ids of a GGUF vocabulary and back, as llama.cpp does.
SPDX-License-Identifier: Apache-2.0

Text is first cut at special tokens, then each piece of ordinary text goes through the
vocabulary's own algorithm: byte-pair merges (bpe.py) or score merges (spm.py).
"""

from __future__ import annotations

import codecs
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from anyhal.errors import InvalidArgumentError, UnsupportedError
from anyhal.frontends.gguf.bpe import ByteLevelBpe
from anyhal.frontends.gguf.reader import GgufError, GgufFile
from anyhal.frontends.gguf.spm import ScoreMerges

# tokenizer.ggml.token_type
NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = 1, 2, 3, 4, 5, 6

# Ends of a turn that files have without naming them in a key, some even without the control mark.
_TURN_ENDS = (
    "<|eot_id|>",
    "<|eom_id|>",
    "<|im_end|>",
    "<|end|>",
    "<end_of_turn>",
    "<|endoftext|>",
    "<|end_of_text|>",
    "</s>",
)
_PREFIX = "tokenizer.ggml."
_CONSUMED = (
    *("model", "pre", "tokens", "token_type", "scores", "merges", "add_space_prefix"),
    *("bos_token_id", "eos_token_id", "eot_token_id", "eom_token_id", "unknown_token_id"),
    *("add_bos_token", "add_eos_token"),
)
# Keys that describe the vocabulary for other uses and change no token id.
_IGNORED = (
    *("padding_token_id", "mask_token_id", "cls_token_id", "seperator_token_id"),
    *("separator_token_id", "prefix_token_id", "suffix_token_id", "middle_token_id"),
    *("fim_pre_token_id", "fim_suf_token_id", "fim_mid_token_id", "fim_pad_token_id"),
    *("fim_rep_token_id", "fim_sep_token_id", "token_type_count", "added_tokens"),
)
_KNOWN_KEYS = frozenset(_PREFIX + name for name in (*_CONSUMED, *_IGNORED))


class Algorithm(Protocol):
    """What a vocabulary kind must do with ordinary text and with its own tokens."""

    def encode(self, text: str, *, after_special: bool) -> list[int]: ...

    def token_bytes(self, text: str, kind: int) -> bytes: ...


class Tokenizer:
    """The vocabulary of one GGUF file."""

    def __init__(self, file: GgufFile) -> None:
        keys = _VocabularyKeys(file)
        self.tokens = keys.tokens()
        self._types = keys.token_types(len(self.tokens))
        kind = keys.text("model")
        ids = {text: number for number, text in enumerate(self.tokens) if text}
        turn_ends = {ids[text] for text in _TURN_ENDS if text in ids}
        for number in turn_ends:
            self._types[number] = CONTROL
        self._algorithm: Algorithm
        if kind == "gpt2":
            pre = keys.text("pre", "default")
            self._algorithm = ByteLevelBpe(file.path, ids, keys.merges(), pre)
            add_bos = pre == "llama-bpe"
        elif kind == "llama":
            self._algorithm = ScoreMerges(
                file.path,
                ids,
                keys.scores(len(self.tokens)),
                unknown=keys.token_id("unknown_token_id", len(self.tokens)),
                space_prefix=keys.flag("add_space_prefix", True),
            )
            add_bos = True
        else:
            raise UnsupportedError(
                f'tokenizer of {file.path}: model "{kind}" is not supported, only "gpt2" and'
                ' "llama" are; use a file with one of these'
            )
        count = len(self.tokens)
        self.bos = keys.token_id("bos_token_id", count, 1 if kind == "llama" else None)
        self.eos = keys.token_id("eos_token_id", count, 2 if kind == "llama" else None)
        self._add_bos = keys.flag("add_bos_token", add_bos) and self.bos is not None
        self._add_eos = keys.flag("add_eos_token", False) and self.eos is not None
        named = (keys.token_id(name, count) for name in ("eot_token_id", "eom_token_id"))
        self.ends = frozenset(turn_ends.union(i for i in (self.eos, *named) if i is not None))
        self._always_parsed, self._parsed_on_request = self._special_tokens()
        keys.refuse_unknown()

    def _special_tokens(self) -> tuple[list[tuple[str, int]], list[tuple[str, int]]]:
        special = [
            (text, number)
            for number, text in enumerate(self.tokens)
            if text and self._types[number] in (CONTROL, USER_DEFINED, UNKNOWN)
        ]
        # Longer tokens win over their own prefixes; among equals the file's order stands.
        special.sort(key=lambda entry: -len(entry[0].encode()))
        user = [entry for entry in special if self._types[entry[1]] == USER_DEFINED]
        return user, special

    def is_control(self, token: int) -> bool:
        """Whether the token steers the model and has no text of its own."""
        return self._types[token] in (CONTROL, UNKNOWN)

    def encode(
        self, text: str, *, add_special: bool = True, parse_special: bool = False
    ) -> list[int]:
        """The ids of `text`; special tokens written in it count as such only when asked."""
        # Bytes of the command line that were no UTF-8 arrive as lone surrogates.
        text = text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
        bos_text = self.tokens[self.bos] if self.bos is not None else ""
        # Chat templates often write the first token themselves; twice would be once too many.
        has_bos = parse_special and bool(bos_text) and text.startswith(bos_text)
        ids: list[int] = []
        if add_special and self._add_bos and self.bos is not None and not has_bos:
            ids.append(self.bos)
        after_special = True
        for piece in self._pieces(text, parse_special):
            if isinstance(piece, int):
                ids.append(piece)
                after_special = True
            else:
                ids += self._algorithm.encode(piece, after_special=after_special)
                after_special = False
        if add_special and self._add_eos and self.eos is not None:
            ids.append(self.eos)
        return ids

    def _pieces(self, text: str, parse_special: bool) -> list[str | int]:
        pieces: list[str | int] = [text] if text else []
        for special, number in self._parsed_on_request if parse_special else self._always_parsed:
            if special not in text:
                continue
            cut: list[str | int] = []
            for piece in pieces:
                cut += [piece] if isinstance(piece, int) else _split(piece, special, number)
            pieces = cut
        return pieces

    def token_bytes(self, token: int) -> bytes:
        """The bytes of text that a token stands for; none for control tokens."""
        if not 0 <= token < len(self.tokens):
            raise InvalidArgumentError(
                f"decoding token {token}: the vocabulary has {len(self.tokens)} tokens; pass ids"
                " that this tokenizer made"
            )
        if self.is_control(token):
            return b""
        return self._algorithm.token_bytes(self.tokens[token], int(self._types[token]))

    def decode(self, tokens: Iterable[int]) -> str:
        """The text of a sequence of tokens; bytes that form no character become U+FFFD."""
        return b"".join(map(self.token_bytes, tokens)).decode("utf-8", "replace")

    def stream(self) -> TextStream:
        """A decoder that returns text as soon as its characters are complete."""
        return TextStream(self)


class TextStream:
    """Decodes token by token and holds back the bytes of unfinished characters."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def push(self, token: int) -> str:
        return self._decoder.decode(self._tokenizer.token_bytes(token))

    def finish(self) -> str:
        return self._decoder.decode(b"", final=True)


def _split(text: str, special: str, number: int) -> list[str | int]:
    pieces: list[str | int] = []
    for index, part in enumerate(text.split(special)):
        if index:
            pieces.append(number)
        if part:
            pieces.append(part)
    return pieces


class _VocabularyKeys:
    """Typed access to `tokenizer.ggml.*`, so that a wrong type in the file is a sentence."""

    def __init__(self, file: GgufFile) -> None:
        self._path: Path = file.path
        self._metadata = file.metadata

    def _fail(self, name: str, why: str) -> GgufError:
        return GgufError(
            f'reading "tokenizer.ggml.{name}" of {self._path}: {why}; convert the model anew'
        )

    def _get(self, name: str, default: Any = None) -> Any:
        return self._metadata.get(_PREFIX + name, default)

    def text(self, name: str, default: str | None = None) -> str:
        value = self._get(name, default)
        if not isinstance(value, str):
            raise self._fail(name, "the key is missing or not a string")
        return value

    def flag(self, name: str, default: bool) -> bool:
        value = self._get(name, default)
        if not isinstance(value, bool):
            raise self._fail(name, "it is not a bool")
        return value

    def token_id(self, name: str, count: int, default: int | None = None) -> int | None:
        value = self._get(name)
        if value is None:
            return default if default is not None and default < count else None
        if isinstance(value, bool) or not isinstance(value, int):
            raise self._fail(name, "it is not an integer")
        if not 0 <= value < count:
            raise self._fail(name, f"{value} is outside the vocabulary of {count} tokens")
        return value

    def _strings(self, name: str) -> Sequence[str]:
        value = self._get(name)
        if not isinstance(value, list):
            raise self._fail(name, "the key is missing or not an array of strings")
        return value

    def tokens(self) -> Sequence[str]:
        tokens = self._strings("tokens")
        if not tokens:
            raise self._fail("tokens", "the vocabulary is empty")
        return tokens

    def merges(self) -> Sequence[str]:
        return self._strings("merges")

    def token_types(self, count: int) -> list[int]:
        value = self._get("token_type")
        if value is None:
            return [NORMAL] * count
        return self._numbers("token_type", value, count, "iu")

    def scores(self, count: int) -> list[float]:
        return self._numbers("scores", self._get("scores"), count, "f")

    def _numbers(self, name: str, value: Any, count: int, kinds: str) -> list[Any]:
        if not isinstance(value, np.ndarray) or value.dtype.kind not in kinds:
            raise self._fail(name, "the key is missing or not an array of numbers")
        if len(value) != count:
            raise self._fail(name, f"it has {len(value)} entries for {count} tokens")
        numbers: list[Any] = value.tolist()
        return numbers

    def refuse_unknown(self) -> None:
        for key in self._metadata:
            unknown = key.startswith(_PREFIX) and key not in _KNOWN_KEYS
            # Switches of newer writers that are off ask for nothing.
            if unknown and self._metadata[key] is not False:
                raise UnsupportedError(
                    f'tokenizer of {self._path}: the key "{key}" is not known and might change'
                    " token ids; use a file without it"
                )
