"""Metadata of a wrong kind, key by key, and paths that are no model: each is a typed sentence.
SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from gguf_writer import value_bytes
from tiny_llama import Tiny, build

import anyhal as hal
from anyhal.frontends.gguf.chat import render_chat
from anyhal.frontends.gguf.llama import LlamaModel
from anyhal.frontends.gguf.reader import GgufError, GgufFile, open_gguf
from anyhal.frontends.gguf.tokenizer import Tokenizer

KEYS = [
    *("general.architecture", "general.alignment", "split.count"),
    *(
        "llama." + name
        for name in (
            *("block_count", "context_length", "embedding_length", "feed_forward_length"),
            *("attention.head_count", "attention.head_count_kv", "attention.key_length"),
            *("attention.value_length", "attention.layer_norm_rms_epsilon", "attention.causal"),
            *("attention.clamp_kqv", "attention.max_alibi_bias", "attention.sliding_window"),
            *("rope.dimension_count", "rope.freq_base", "rope.scaling.type"),
            *("rope.scaling.factor", "rope.scale_linear", "rope.scaling.finetuned"),
            *("rope.scaling.original_context_length", "vocab_size", "expert_count"),
            *("expert_used_count", "use_parallel_residual", "tensor_data_layout", "unheard_of"),
        )
    ),
    *(
        "tokenizer.ggml." + name
        for name in (
            *("model", "pre", "tokens", "token_type", "merges", "scores", "bos_token_id"),
            *("eos_token_id", "unknown_token_id", "add_bos_token", "add_eos_token"),
            *("add_space_prefix", "unheard_of"),
        )
    ),
]
WRONG: dict[str, tuple[str, Any]] = {
    "text": ("str", "x"),
    "no text": ("str", ""),
    "zero": ("u32", 0),
    "negative": ("i64", -(2**63)),
    "huge": ("u64", 2**64 - 1),
    "NaN": ("f64", float("nan")),
    "infinity": ("f32", float("inf")),
    "denormal": ("f64", 5e-324),
    "bool": ("bool", True),
    "no numbers": ("i32[]", []),
    "one number": ("i32[]", [3]),
    "numbers": ("f32[]", [0.5, 1.5, float("nan")]),
    "bools": ("bool[]", [0, 1]),
    "no texts": ("str[]", []),
    "texts": ("str[]", ["x", "x"]),
}


# What reads the keys with that first word.
READERS: dict[str, Callable[[GgufFile], object]] = {
    "llama": lambda file: LlamaModel(file, hal.device("cpu_ref")),
    "tokenizer": Tokenizer,
}


@pytest.mark.parametrize("key", KEYS)
def test_a_value_of_a_wrong_kind(key: str, tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    for label, (kind, value) in WRONG.items():
        writer = build(Tiny(layers=1))
        entries = [(k, v) for k, v in writer.entries if k != key]
        writer.entries = [*entries, (key, value_bytes(kind, value))]
        path.write_bytes(writer.build())
        for name, use in READERS.items():
            if key.partition(".")[0] not in (name, "general", "split"):
                continue  # it does not read this key
            try:
                use(open_gguf(path))
            except hal.HalError as why:
                assert str(path) in str(why), (key, label)
            except Exception as why:
                pytest.fail(f"{key} is {label}: {type(why).__name__}: {why}")


@pytest.mark.parametrize("label", WRONG)
def test_a_chat_template_of_a_wrong_kind(label: str, tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    writer = build(Tiny(layers=1))
    writer.entries = [(k, v) for k, v in writer.entries if k != "tokenizer.chat_template"]
    path.write_bytes(writer.add("tokenizer.chat_template", *WRONG[label]).build())
    if label in ("text", "no text"):
        assert render_chat(open_gguf(path), []) in ("x", "")
        return
    with pytest.raises(hal.UnsupportedError, match="has no chat template"):
        render_chat(open_gguf(path), [])


def _fifo(path: Path) -> None:
    os.mkfifo(path)


NO_MODELS: dict[str, Callable[[Path], object]] = {
    "nothing": lambda path: None,
    "folder": Path.mkdir,
    "pipe": _fifo,
    "empty": Path.touch,
    "text": lambda path: path.write_text("a model\n" * 9),
    "brackets": lambda path: path.write_text("[" * 100_000),
    "link to itself": lambda path: path.symlink_to(path),
}


@pytest.mark.parametrize("kind", NO_MODELS)
def test_what_is_no_model(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    NO_MODELS[kind](path)
    with pytest.raises(GgufError, match=r"model\.gguf.*; "):
        open_gguf(path)


@pytest.mark.parametrize("path", [None, 3, b"", "", "a\0b", "\ud800", "x" * 5000, "/dev/zero"])
def test_what_is_no_path(path: Any) -> None:
    with pytest.raises(GgufError):
        open_gguf(path)
