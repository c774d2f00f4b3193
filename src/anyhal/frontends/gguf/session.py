"""One text in the making: its key and value caches, prefill in one pass, decode by replay.
SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

import anyhal as hal
from anyhal.errors import InvalidArgumentError
from anyhal.frontends.gguf.llama import LlamaModel, Step

_CAPACITY_STEP = 64


class Session:
    """Holds `length` tokens of at most `capacity`; each pass appends to them.

    The decode pass is recorded once. Per token only the token's id, its position and the length
    of the caches are rewritten, so a replay prepares no plan and takes no memory.
    """

    def __init__(self, model: LlamaModel, capacity: int) -> None:
        if not 0 < capacity <= model.config.context:
            raise InvalidArgumentError(
                f"starting a text of {capacity} tokens: the model's context holds"
                f" {model.config.context}; shorten the prompt or --max-tokens"
            )
        self.model = model
        self._fed: list[int] = []
        rounded = -(-capacity // _CAPACITY_STEP) * _CAPACITY_STEP
        self.capacity = min(rounded, model.config.context)
        self._cache = model.new_cache(self.capacity)
        self._logits: Any = None
        self._choice: Any = None
        self._token = self._int32([0])
        self._position = self._int32([0])
        self._kv_length = self._int32([1])
        with hal.graph() as self._graph:
            step = Step(self._position, self._position, self._kv_length)
            self._decode_logits = model.forward(self._token, step, self._cache)
            self._decode_choice = hal.argmax(self._decode_logits, axis=-1)

    @property
    def length(self) -> int:
        """How many tokens the text holds."""
        return len(self._fed)

    def resume(self, tokens: Sequence[int]) -> Sequence[int]:
        """Keeps what the text shares with `tokens` and returns the rest, which is to be fed."""
        shared = 0
        # One token at least has to be fed to learn what follows.
        for ours, wanted in zip(self._fed, tokens[:-1], strict=False):
            if ours != wanted:
                break
            shared += 1
        del self._fed[shared:]
        return tokens[shared:]

    def _int32(self, values: Sequence[int] | np.ndarray[Any, Any]) -> Any:
        return hal.asarray(np.asarray(values, dtype=np.int32), device=self.model.device)

    def feed(self, tokens: Sequence[int]) -> None:
        """Appends tokens; afterwards `logits` and `best` speak about what follows them."""
        count = len(tokens)
        if not count:
            raise InvalidArgumentError("feeding no tokens: a pass needs at least one; pass some")
        if self.length + count > self.capacity:
            raise InvalidArgumentError(
                f"feeding {count} tokens after {self.length}: the text holds {self.capacity}; start"
                " a new one"
            )
        bad = [token for token in tokens if not 0 <= token < self.model.vocabulary]
        if bad:
            raise InvalidArgumentError(
                f"feeding token {bad[0]}: the model has {self.model.vocabulary} tokens; pass ids of"
                " its tokenizer"
            )
        if count == 1:
            self._replay(tokens[0])
        else:
            self._pass(tokens)
        self._fed += tokens

    def _pass(self, tokens: Sequence[int]) -> None:
        count = len(tokens)
        step = Step(
            self._int32(np.arange(self.length, self.length + count)),
            self._int32([self.length]),
            self._int32([self.length + count]),
        )
        self._logits = self.model.forward(self._int32(tokens), step, self._cache)
        self._choice = hal.argmax(self._logits, axis=-1)

    def _replay(self, token: int) -> None:
        self._token.set([token])
        self._position.set([self.length])
        self._kv_length.set([self.length + 1])
        self._graph.launch()
        self._logits, self._choice = self._decode_logits, self._decode_choice

    def best(self) -> int:
        """The most likely next token; the lowest id among equals."""
        return int(self._choice.numpy().reshape(()))

    def logits(self) -> np.ndarray[Any, np.dtype[np.float32]]:
        """The scores of every token to come next."""
        values: np.ndarray[Any, np.dtype[np.float32]] = self._logits.numpy().reshape(-1)
        return values
