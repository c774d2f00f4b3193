"""Token ids equal llama.cpp's; decoding gives the text back; odd vocabularies are refused.
SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from golden_tokens import (
    DATA,
    bpe_vocabulary,
    llama_cpp_ids,
    random_texts,
    spm_vocabulary,
    vocabularies,
)

from anyhal.errors import HalError, InvalidArgumentError, UnsupportedError
from anyhal.frontends.gguf.reader import open_gguf
from anyhal.frontends.gguf.tokenizer import Tokenizer

pytest.importorskip("tokenizers", reason="the extra llm is not installed")

GOLDEN = json.loads(DATA.read_text())


def write(folder: Path, data: bytes) -> Path:
    path = folder / "vocabulary.gguf"
    path.write_bytes(data)
    return path


def load(folder: Path, data: bytes) -> Tokenizer:
    return Tokenizer(open_gguf(write(folder, data)))


@pytest.mark.parametrize("name", sorted(GOLDEN))
def test_ids_equal_llama_cpp(tmp_path: Path, name: str) -> None:
    tokenizer = load(tmp_path, vocabularies()[name])
    for case in GOLDEN[name]:
        text = case["text"]
        assert tokenizer.encode(text, add_special=False) == case["plain"], text
        assert tokenizer.encode(text, add_special=False, parse_special=True) == case["parsed"]
        assert tokenizer.encode(text) == case["with_bos"], text


@pytest.mark.parametrize("name", sorted(GOLDEN))
def test_random_texts_equal_llama_cpp(tmp_path: Path, name: str) -> None:
    pytest.importorskip("llama_cpp", reason="llama-cpp-python is not installed")
    path = write(tmp_path, vocabularies()[name])
    tokenizer = Tokenizer(open_gguf(path))
    for case in llama_cpp_ids(path, random_texts(300, seed=11)):
        text = case["text"]
        assert tokenizer.encode(text, add_special=False) == case["plain"], repr(text)
        assert tokenizer.encode(text, add_special=False, parse_special=True) == case["parsed"]


@pytest.mark.parametrize("name", ["smollm", "gpt-2", "llama-bpe", "qwen2", "default", "spm-bare"])
def test_decoding_gives_the_text_back(tmp_path: Path, name: str) -> None:
    tokenizer = load(tmp_path, vocabularies()[name])
    for text in random_texts(200, seed=12):
        ids = tokenizer.encode(text, add_special=False)
        # SentencePiece writes both a space and U+2581 as U+2581.
        expected = text.replace("\u2581", " ") if name == "spm-bare" else text
        assert tokenizer.decode(ids) == expected


def test_streaming_never_splits_a_character(tmp_path: Path) -> None:
    tokenizer = load(tmp_path, bpe_vocabulary("smollm"))
    text = "a 😀 我想 é"
    stream = tokenizer.stream()
    pieces = [stream.push(token) for token in tokenizer.encode(text)]
    assert "".join(pieces) + stream.finish() == text
    assert "\ufffd" not in "".join(pieces)
    stream = tokenizer.stream()
    (first, *_) = tokenizer.encode("😀")
    assert stream.push(first) == ""
    assert stream.finish() == "\ufffd"


def test_prompts_do_not_parse_control_tokens(tmp_path: Path) -> None:
    tokenizer = load(tmp_path, bpe_vocabulary("smollm"))
    control = tokenizer.tokens.index("<|im_start|>")
    assert control not in tokenizer.encode("<|im_start|>system")
    assert control in tokenizer.encode("<|im_start|>system", parse_special=True)
    assert tokenizer.token_bytes(control) == b""


def test_a_template_that_writes_bos_gets_it_once(tmp_path: Path) -> None:
    tokenizer = load(tmp_path, spm_vocabulary(True))
    assert tokenizer.encode("<s>the", parse_special=True).count(1) == 1
    assert tokenizer.encode("the", parse_special=True).count(1) == 1


def test_ends_are_found_by_key_and_by_text(tmp_path: Path) -> None:
    tokenizer = load(tmp_path, bpe_vocabulary("smollm"))
    assert tokenizer.ends == {tokenizer.tokens.index("<|im_end|>")}
    assert load(tmp_path, spm_vocabulary(True)).ends == {2}


def test_broken_bytes_of_the_command_line(tmp_path: Path) -> None:
    tokenizer = load(tmp_path, bpe_vocabulary("smollm"))
    assert tokenizer.decode(tokenizer.encode("a\udcffb")) == "a\ufffdb"


def test_ids_outside_the_vocabulary(tmp_path: Path) -> None:
    tokenizer = load(tmp_path, bpe_vocabulary("smollm"))
    for token in (-1, len(tokenizer.tokens)):
        with pytest.raises(InvalidArgumentError, match="the vocabulary has"):
            tokenizer.decode([token])


def test_a_long_word_is_not_quadratic(tmp_path: Path) -> None:
    for data in (bpe_vocabulary("gpt-2"), spm_vocabulary(True)):
        tokenizer = load(tmp_path, data)
        assert len(tokenizer.encode("the" * 30_000)) > 10_000


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        ("tokenizer.ggml.model", "bert", 'model "bert" is not supported'),
        ("tokenizer.ggml.pre", "deepseek-llm", 'pre-tokenizer "deepseek-llm" is not supported'),
        ("tokenizer.ggml.pre", 7, "not a string"),
        ("tokenizer.ggml.tokens", 5, "not an array of strings"),
        ("tokenizer.ggml.tokens", [], "the vocabulary is empty"),
        ("tokenizer.ggml.merges", ["ab"], "is not two tokens"),
        ("tokenizer.ggml.bos_token_id", 1 << 20, "outside the vocabulary"),
        ("tokenizer.ggml.bos_token_id", "x", "not an integer"),
        ("tokenizer.ggml.add_bos_token", 3, "not a bool"),
        ("tokenizer.ggml.remove_extra_whitespaces", True, "is not known"),
        ("tokenizer.ggml.model", "llama", '"tokenizer.ggml.scores"'),
    ],
)
def test_odd_vocabularies_are_refused(tmp_path: Path, key: str, value: object, words: str) -> None:
    file = open_gguf(write(tmp_path, bpe_vocabulary("smollm")))
    file.metadata[key] = value
    with pytest.raises(HalError) as caught:
        Tokenizer(file)
    assert words in str(caught.value)


def test_a_token_type_per_token(tmp_path: Path) -> None:
    file = open_gguf(write(tmp_path, bpe_vocabulary("smollm")))
    file.metadata["tokenizer.ggml.token_type"] = file.metadata["tokenizer.ggml.token_type"][:-1]
    with pytest.raises(HalError, match="entries for"):
        Tokenizer(file)


def test_without_the_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    with pytest.raises(UnsupportedError, match=r"pip install anyhal\[llm\]"):
        load(tmp_path, bpe_vocabulary("smollm"))
