"""Generates text token by token and measures how fast it went.
SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from anyhal.errors import ExecutionFailedError, InvalidArgumentError
from anyhal.frontends.gguf.session import Session
from anyhal.frontends.gguf.tokenizer import Tokenizer

_TOP = 5


class Sampler:
    """Chooses the next token: the best one, or by chance when the temperature is above zero."""

    def __init__(self, temperature: float = 0.0, seed: int = 0) -> None:
        if not math.isfinite(temperature) or temperature < 0:
            raise InvalidArgumentError(
                f"sampling at temperature {temperature}: it must be a finite number of at least 0;"
                " 0 takes the most likely token"
            )
        if seed < 0:
            raise InvalidArgumentError(
                f"sampling with seed {seed}: seeds are not negative; use 0 or more"
            )
        self._temperature = temperature
        # Philox gives the same numbers on every platform.
        self._random = np.random.Generator(np.random.Philox(seed))

    def choose(self, session: Session) -> int:
        if self._temperature == 0.0:
            return session.best()
        scores = session.logits().astype(np.float64) / self._temperature
        weights = np.cumsum(np.exp(scores - scores.max()))
        point = self._random.random() * weights[-1]
        return min(int(np.searchsorted(weights, point, side="right")), len(weights) - 1)


@dataclass(slots=True)
class Generation:
    """What came out; `token_ids` includes the token that ended the text."""

    token_ids: list[int] = field(default_factory=list)
    text: str = ""
    top_logits: dict[int, float] = field(default_factory=dict)
    prefill_tokens_per_s: float | None = None
    decode_tokens_per_s: float | None = None


def generate(
    session: Session,
    tokenizer: Tokenizer,
    prompt: Sequence[int],
    *,
    max_tokens: int,
    sampler: Sampler | None = None,
    on_text: Callable[[str], Any] = lambda piece: None,
) -> Generation:
    """Feeds the prompt and appends up to `max_tokens` tokens, ending at an end-of-text token."""
    sampler = sampler or Sampler()
    result = Generation()
    pieces: list[str] = []
    stream = tokenizer.stream()

    def emit(piece: str) -> None:
        if piece:
            pieces.append(piece)
            on_text(piece)

    begin = time.perf_counter()
    session.feed(prompt)
    session.best()  # waits for the pass
    result.prefill_tokens_per_s = len(prompt) / (time.perf_counter() - begin)
    result.top_logits = _top(session)
    token = sampler.choose(session)
    decoding = time.perf_counter()
    while True:
        result.token_ids.append(token)
        if token in tokenizer.ends:
            break
        emit(stream.push(token))
        if len(result.token_ids) >= max_tokens or session.length >= session.capacity:
            break
        session.feed([token])
        token = sampler.choose(session)
    steps = len(result.token_ids) - 1
    if steps:
        result.decode_tokens_per_s = steps / (time.perf_counter() - decoding)
    emit(stream.finish())
    result.text = "".join(pieces)
    return result


def _top(session: Session) -> dict[int, float]:
    logits = session.logits()
    if not np.isfinite(logits).all():
        raise ExecutionFailedError(
            f"running the model on {session.model.device.name}: the logits of the first step are"
            " not finite; the file is damaged or the device computes wrongly, try another device"
        )
    best = np.argsort(-logits, kind="stable")[:_TOP]
    return {int(token): float(logits[token]) for token in best}
