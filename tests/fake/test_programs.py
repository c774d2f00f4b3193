"""Whole programs on every kind of memory and order that the scriptable backend can play.

SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import anyhal as hal

Fake = Callable[..., Any]
MODES = ["mode=sync", "mode=async", "memory=cell", "mode=async; memory=cell"]
STRAINED = "mode=async; queue_depth=8; workspace=4KiB; pack=matmul"
SHORT = "mode=async; fail=memory_alloc@20:out_of_memory"
PROMPT = [72, 101, 108, 108, 111, 33, 10]


def decode(device: Any, file: Any, tokens: int) -> tuple[list[int], np.ndarray]:
    """Greedy tokens after the prompt, by the captured graph, and the last scores."""
    from anyhal.frontends.gguf.llama import LlamaModel
    from anyhal.frontends.gguf.session import Session

    session = Session(LlamaModel(file, device), len(PROMPT) + tokens)
    session.feed(PROMPT)
    out = []
    for _ in range(tokens):
        out.append(session.best())
        session.feed([out[-1]])
    return out, session.logits()


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> Any:
    from tiny_llama import Q8_0, Tiny, build

    from anyhal.frontends.gguf.reader import open_gguf

    path = tmp_path_factory.mktemp("model") / "tiny.gguf"
    path.write_bytes(build(Tiny(linear=Q8_0, embedding=Q8_0)).build())
    return open_gguf(path)


@pytest.mark.parametrize(
    "script", [*MODES, STRAINED, "mode=async; fail=memory_alloc@20:out_of_memory"]
)
def test_a_language_model_runs_through_decompositions(
    fake: Fake, on: Fake, model: Any, script: str
) -> None:
    with hal.use(device="cpu_ref:0"):
        tokens, scores = decode(hal.device("cpu_ref:0"), model, 8)
    device = fake(script)
    with on(device):
        got, close = decode(device, model, 8)
    assert got == tokens
    np.testing.assert_allclose(close, scores, atol=1e-4)


@pytest.mark.parametrize("mode", MODES)
def test_decoding_prepares_nothing_and_asks_for_no_memory(
    fake: Fake, on: Fake, model: Any, mode: str
) -> None:
    from anyhal.frontends.gguf.llama import LlamaModel
    from anyhal.frontends.gguf.session import Session

    device = fake(mode)
    with on(device):
        session = Session(LlamaModel(model, device), 64)
        session.feed(PROMPT)
        for _ in range(3):
            session.feed([session.best()])
        device.synchronize()
        before = [device.counter(slot) for slot in (3, 4, 5, 7)]
        for _ in range(20):
            session.feed([session.best()])
        assert [device.counter(slot) for slot in (3, 4, 5, 7)] == before
