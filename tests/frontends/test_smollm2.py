"""The real model: tokens, logits and answers against the float64 oracle on every device.
SPDX-License-Identifier: Apache-2.0

Needs the file that `anyhal run smollm2` fetches; without a network and a cache it is skipped.
"""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest
from golden_tokens import llama_cpp_ids, random_texts
from oracle import DATA

import anyhal as hal
from anyhal.frontends.gguf.chat import render_chat
from anyhal.frontends.gguf.fetch import FetchError, locate_model
from anyhal.frontends.gguf.generate import generate
from anyhal.frontends.gguf.llama import LlamaModel
from anyhal.frontends.gguf.reader import GgufFile, open_gguf
from anyhal.frontends.gguf.session import Session
from anyhal.frontends.gguf.tokenizer import Tokenizer
from device_runs import devices

pytest.importorskip("tokenizers", reason="the extra llm is not installed")
pytest.importorskip("jinja2", reason="the extra llm is not installed")

CASES = json.loads(DATA.read_text())
TIE, BOUND = 0.02, 1e-3
DEVICES = devices()


@pytest.fixture(scope="module")
def file() -> GgufFile:
    try:
        return open_gguf(locate_model("smollm2"))
    except FetchError as error:
        pytest.skip(f"the model is not here: {error}")


@pytest.fixture(scope="module")
def tokenizer(file: GgufFile) -> Tokenizer:
    return Tokenizer(file)


@pytest.fixture(scope="module", params=DEVICES)
def model(request: pytest.FixtureRequest, file: GgufFile) -> Any:
    device = hal.device(request.param)
    with hal.use(device=device):
        yield LlamaModel(file, device)


def prompt_ids(file: GgufFile, tokenizer: Tokenizer, case: dict[str, Any]) -> list[int]:
    if case["kind"] == "raw":
        return tokenizer.encode(case["prompt"])
    text = render_chat(file, [{"role": "user", "content": case["prompt"]}])
    return tokenizer.encode(text, parse_special=True)


def test_opening_is_quick(file: GgufFile) -> None:
    best = 1.0
    for _ in range(3):
        begin = time.perf_counter()
        open_gguf(file.path)
        best = min(best, time.perf_counter() - begin)
    # 25 to 36 ms when measured; the gguf package takes two seconds.
    assert best < 0.25


def test_the_reader_agrees_with_the_gguf_package(file: GgufFile) -> None:
    gguf = pytest.importorskip("gguf", reason="the package gguf is not installed")
    theirs = gguf.GGUFReader(file.path)
    assert {name: (i.offset, i.nbytes) for name, i in file.tensors.items()} == {
        each.name: (each.data_offset, each.n_bytes) for each in theirs.tensors
    }
    assert set(file.metadata) == {name for name in theirs.fields if not name.startswith("GGUF.")}


def test_prompts_encode_as_llama_cpp_does(file: GgufFile, tokenizer: Tokenizer) -> None:
    for case in CASES:
        assert prompt_ids(file, tokenizer, case) == case["prompt_token_ids"]


def test_random_texts_encode_as_llama_cpp_does(file: GgufFile, tokenizer: Tokenizer) -> None:
    pytest.importorskip("llama_cpp", reason="llama-cpp-python is not installed")
    for case in llama_cpp_ids(Path(file.path), random_texts(300, seed=21)):
        assert tokenizer.encode(case["text"]) == case["with_bos"], repr(case["text"])
        assert tokenizer.encode(case["text"], parse_special=True) == case["parsed"]


@pytest.mark.parametrize("number", range(len(CASES)))
def test_logits_and_tokens_equal_the_oracle(model: Any, tokenizer: Tokenizer, number: int) -> None:
    case = CASES[number]
    prompt, expected = case["prompt_token_ids"], case["token_ids"]
    session = Session(model, len(prompt) + len(expected))
    result = generate(session, tokenizer, prompt, max_tokens=len(expected))
    for token, value in result.top_logits.items():
        assert abs(value - case["first_logits"][str(token)]) < BOUND
    for step, (token, margin) in enumerate(zip(expected, case["margins"], strict=True)):
        if margin < TIE:
            break
        assert result.token_ids[step] == token, f"step {step}, margin {margin}"
    if case["kind"] == "chat":
        assert result.text == "The capital of France is Paris."
        assert result.token_ids[-1] in tokenizer.ends
