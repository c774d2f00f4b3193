"""Random models of the llama family, small enough to compute in the blink of an eye.
SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from gguf_writer import GgufWriter
from golden_tokens import CONTROL, byte_alphabet

F32, F16, Q4_0, Q4_1, Q8_0, Q4_K, Q6_K = 0, 1, 2, 3, 8, 12, 14


@dataclass
class Tiny:
    """What varies between the small models; the defaults mix block formats."""

    width: int = 64
    hidden: int = 96
    heads: int = 4
    kv_heads: int = 2
    layers: int = 2
    context: int = 192
    linear: int = Q4_1
    embedding: int = Q8_0
    head: int | None = None
    head_size: int | None = None
    rotary_dims: int | None = None
    biases: bool = False
    rope_freqs: bool = False
    keys: list[tuple[str, str, Any]] = field(default_factory=list)
    seed: int = 1


def build(tiny: Tiny) -> GgufWriter:
    """A complete file: hyperparameters, byte vocabulary, weights of sensible size."""
    rng = np.random.default_rng(tiny.seed)
    writer = GgufWriter().add("general.architecture", "str", "llama")
    size = tiny.head_size or tiny.width // tiny.heads
    for key, value in (
        ("block_count", tiny.layers),
        ("context_length", tiny.context),
        ("embedding_length", tiny.width),
        ("feed_forward_length", tiny.hidden),
        ("attention.head_count", tiny.heads),
        ("attention.head_count_kv", tiny.kv_heads),
        ("rope.dimension_count", tiny.rotary_dims or size),
    ):
        writer.add("llama." + key, "u32", value)
    if tiny.head_size:
        writer.add("llama.attention.key_length", "u32", size)
        writer.add("llama.attention.value_length", "u32", size)
    writer.add("llama.attention.layer_norm_rms_epsilon", "f32", 1e-5)
    for key, kind, value in tiny.keys:
        writer.add(key, kind, value)
    vocabulary = _add_vocabulary(writer)
    _add_weights(writer, tiny, size, vocabulary, rng)
    return writer


def _add_vocabulary(writer: GgufWriter) -> int:
    tokens = [*byte_alphabet(), *CONTROL]
    writer.add("tokenizer.ggml.model", "str", "gpt2").add("tokenizer.ggml.pre", "str", "gpt-2")
    writer.add("tokenizer.ggml.tokens", "str[]", tokens)
    writer.add("tokenizer.ggml.token_type", "i32[]", [1] * 256 + [3] * len(CONTROL))
    writer.add("tokenizer.ggml.merges", "str[]", [])
    writer.add("tokenizer.ggml.eos_token_id", "u32", 257)
    writer.add(
        "tokenizer.chat_template",
        "str",
        "{% for m in messages %}{{ m.role[0] }}:{{ m.content }};{% endfor %}a:",
    )
    return len(tokens)


def _add_weights(
    writer: GgufWriter, tiny: Tiny, size: int, vocabulary: int, rng: np.random.Generator
) -> None:
    def matrix(name: str, rows: int, columns: int, kind: int, bias: bool = False) -> None:
        writer.tensor(f"{name}.weight", (rows, columns), kind, weights(rng, rows, columns, kind))
        if bias:
            writer.array(f"{name}.bias", 0.1 * rng.standard_normal(rows).astype(np.float32))

    def norm(name: str) -> None:
        writer.array(f"{name}.weight", (1 + 0.1 * rng.standard_normal(tiny.width)).astype("f4"))

    matrix("token_embd", vocabulary, tiny.width, tiny.embedding)
    for index in range(tiny.layers):
        prefix = f"blk.{index}."
        norm(prefix + "attn_norm")
        norm(prefix + "ffn_norm")
        for name, rows, columns in (
            ("attn_q", tiny.heads * size, tiny.width),
            ("attn_k", tiny.kv_heads * size, tiny.width),
            ("attn_v", tiny.kv_heads * size, tiny.width),
            ("attn_output", tiny.width, tiny.heads * size),
            ("ffn_gate", tiny.hidden, tiny.width),
            ("ffn_up", tiny.hidden, tiny.width),
            ("ffn_down", tiny.width, tiny.hidden),
        ):
            matrix(prefix + name, rows, columns, tiny.linear, tiny.biases)
    norm("output_norm")
    if tiny.head is not None:
        matrix("output", vocabulary, tiny.width, tiny.head)
    if tiny.rope_freqs:
        factors = 1 + rng.random((tiny.rotary_dims or size) // 2)
        writer.array("rope_freqs.weight", factors.astype(np.float32))


def weights(rng: np.random.Generator, rows: int, columns: int, kind: int) -> bytes:
    """Random weights of about unit gain in the stored form of one tensor type."""
    scale = columns**-0.5
    if kind in (F32, F16):
        dtype = "<f4" if kind == F32 else "<f2"
        return (scale * rng.standard_normal((rows, columns))).astype(dtype).tobytes()
    if kind in (Q4_K, Q6_K):
        return _super_blocks(rng, rows * columns // 256, scale, kind)
    blocks = rows * columns // 32
    if kind == Q8_0:
        steps = (scale * (0.5 + rng.random(blocks)) / 64).astype("<f2")
        codes = rng.integers(-127, 128, (blocks, 32)).astype(np.int8)
        return np.concatenate([steps[:, None].view(np.uint8), codes.view(np.uint8)], 1).tobytes()
    steps = (scale * (0.5 + rng.random(blocks)) / 4).astype("<f2")
    if kind == Q4_0:
        codes = rng.integers(0, 256, (blocks, 16)).astype(np.uint8)
        return np.concatenate([steps[:, None].view(np.uint8), codes], 1).tobytes()
    least = (-7.5 * steps.astype("f4") * (0.8 + 0.4 * rng.random(blocks))).astype("<f2")
    codes = rng.integers(0, 256, (blocks, 16)).astype(np.uint8)
    head = np.stack([steps, least], 1).view(np.uint8)
    return np.concatenate([head, codes], 1).tobytes()


def _super_blocks(rng: np.random.Generator, blocks: int, scale: float, kind: int) -> bytes:
    """Blocks of 256 whose groups have scales of their own; every other bit is random."""
    steps = scale * (0.5 + rng.random((blocks, 1)))
    if kind == Q6_K:
        body = rng.integers(0, 256, (blocks, 192)).astype(np.uint8)
        scales = rng.integers(16, 64, (blocks, 16)) * rng.choice([-1, 1], (blocks, 16))
        head = (steps / 640).astype("<f2").view(np.uint8)
        return np.concatenate([body, scales.astype(np.int8).view(np.uint8), head], 1).tobytes()
    factors = np.concatenate([steps / 128, steps / 18], 1).astype("<f2").view(np.uint8)
    # 6-bit scales and minima anywhere in the range: their mean makes the values centre on zero.
    body = rng.integers(0, 256, (blocks, 140)).astype(np.uint8)
    return np.concatenate([factors, body], 1).tobytes()
