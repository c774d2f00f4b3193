"""A language model of the llama family in plain float64 NumPy, independent of the package's ops.
SPDX-License-Identifier: Apache-2.0

Weights are dequantised, activations stay exact, every token is computed from the whole text
without a cache. Slow and plain on purpose.

    python tests/frontends/oracle.py model.gguf      writes data/smollm2.json
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from anyhal.frontends.gguf.chat import render_chat
from anyhal.frontends.gguf.reader import GgufFile, open_gguf
from anyhal.frontends.gguf.tokenizer import Tokenizer

Array = np.ndarray[Any, np.dtype[np.float64]]


def dequantise(raw: np.ndarray[Any, np.dtype[np.uint8]], kind: str) -> Array:
    """The numbers of a tensor, flat."""
    if kind == "f32":
        return raw.view("<f4").astype(np.float64)
    if kind == "f16":
        return raw.view("<f2").astype(np.float64)
    if kind == "q8_0":
        blocks = raw.reshape(-1, 34)
        scale = blocks[:, :2].copy().view("<f2").astype(np.float64)
        return (blocks[:, 2:].view(np.int8).astype(np.float64) * scale).reshape(-1)
    if kind == "q4_1":
        blocks = raw.reshape(-1, 20)
        scale = blocks[:, 0:2].copy().view("<f2").astype(np.float64)
        least = blocks[:, 2:4].copy().view("<f2").astype(np.float64)
        # The low nibbles are the block's first half, the high nibbles its second.
        codes = np.concatenate([blocks[:, 4:] & 15, blocks[:, 4:] >> 4], axis=1)
        return (codes.astype(np.float64) * scale + least).reshape(-1)
    if kind == "q4_0":
        return np.concatenate([_q4_0(block) for block in raw.reshape(-1, 18)])
    if kind == "q4_k":
        return np.concatenate([_q4_k(block) for block in raw.reshape(-1, 144)])
    if kind == "q6_k":
        return np.concatenate([_q6_k(block) for block in raw.reshape(-1, 210)])
    raise ValueError(kind)


def _half(block: np.ndarray[Any, np.dtype[np.uint8]], at: int) -> float:
    return float(np.frombuffer(block[at : at + 2].tobytes(), "<f2")[0])


def _q4_0(block: np.ndarray[Any, np.dtype[np.uint8]]) -> Array:
    codes = [int(block[2 + i % 16]) >> 4 * (i // 16) & 15 for i in range(32)]
    return _half(block, 0) * (np.array(codes, np.float64) - 8)


def _q4_k(block: np.ndarray[Any, np.dtype[np.uint8]]) -> Array:
    """Value by value, as the format is described: eight groups, each with a scale and a minimum."""
    packed, codes = [int(b) for b in block[4:16]], [int(b) for b in block[16:]]
    out = np.empty(256)
    for i in range(256):
        group = i // 32
        if group < 4:
            scale, least = packed[group] % 64, packed[group + 4] % 64
        else:
            scale = packed[group + 4] % 16 + packed[group - 4] // 64 * 16
            least = packed[group + 4] // 16 + packed[group] // 64 * 16
        byte = codes[i // 64 * 32 + i % 32]
        code = byte // 16 if group % 2 else byte % 16
        out[i] = _half(block, 0) * scale * code - _half(block, 2) * least
    return out


def _q6_k(block: np.ndarray[Any, np.dtype[np.uint8]]) -> Array:
    """Four bits from the first 128 bytes, two more from the next 64, then 16 signed scales."""
    low, high = [int(b) for b in block[:128]], [int(b) for b in block[128:192]]
    scales = block[192:208].view(np.int8).astype(np.float64)
    out = np.empty(256)
    for i in range(256):
        half, place = divmod(i, 128)
        byte = low[64 * half + place % 64]
        code = (byte // 16 if place >= 64 else byte % 16) + 16 * (
            high[32 * half + place % 32] // 4 ** (place // 32) % 4
        )
        out[i] = _half(block, 208) * scales[i // 16] * (code - 32)
    return out


@dataclass
class OracleRun:
    """Greedy continuation: tokens, how far the runner-up was behind, logits of the first step."""

    token_ids: list[int]
    margins: list[float]
    first_logits: Array


class Oracle:
    def __init__(self, file: GgufFile) -> None:
        self.meta = file.metadata
        self.weights = {
            name: dequantise(file.data(name), info.type.name).reshape(info.shape)
            for name, info in file.tensors.items()
        }

    def _number(self, key: str, default: float | None = None) -> Any:
        return self.meta.get("llama." + key, default)

    def _norm(self, x: Array, name: str) -> Array:
        eps = self._number("attention.layer_norm_rms_epsilon")
        mean_square = np.mean(x * x, axis=-1, keepdims=True)
        return x / np.sqrt(mean_square + eps) * self.weights[name + ".weight"]

    def _linear(self, x: Array, name: str) -> Array:
        y = x @ self.weights[name + ".weight"].T
        bias = self.weights.get(name + ".bias")
        return y if bias is None else y + bias

    def _rotate(self, x: Array) -> Array:
        """Turns neighbouring pairs of each head by an angle that grows with the position."""
        length, _, size = x.shape
        dims = int(self._number("rope.dimension_count", size))
        frequency = float(self._number("rope.freq_base", 10000.0)) ** (
            -np.arange(0, dims, 2) / dims
        )
        if "rope_freqs.weight" in self.weights:
            frequency = frequency / self.weights["rope_freqs.weight"]
        scaling = self._number("rope.scaling.type", "none")
        factor = float(self._number("rope.scaling.factor", 1.0)) if scaling == "linear" else 1.0
        turn = np.exp(1j * np.outer(np.arange(length) / factor, frequency))[:, None, :]
        pairs = (x[..., 0:dims:2] + 1j * x[..., 1:dims:2]) * turn
        out = x.copy()
        out[..., 0:dims:2], out[..., 1:dims:2] = pairs.real, pairs.imag
        return out

    def _attend(self, x: Array, prefix: str) -> Array:
        length = len(x)
        heads = int(self._number("attention.head_count"))
        kv_heads = int(self._number("attention.head_count_kv", heads))
        q = self._rotate(self._linear(x, prefix + "attn_q").reshape(length, heads, -1))
        k = self._rotate(self._linear(x, prefix + "attn_k").reshape(length, kv_heads, -1))
        v = self._linear(x, prefix + "attn_v").reshape(length, kv_heads, -1)
        future = np.triu(np.ones((length, length), dtype=bool), 1)
        out = []
        for head in range(heads):
            kv = head * kv_heads // heads
            scores = q[:, head] @ k[:, kv].T / np.sqrt(q.shape[-1])
            scores[future] = -np.inf
            scores = np.exp(scores - scores.max(axis=1, keepdims=True))
            out.append(scores / scores.sum(axis=1, keepdims=True) @ v[:, kv])
        return self._linear(np.concatenate(out, axis=1), prefix + "attn_output")

    def logits(self, tokens: Sequence[int]) -> Array:
        """Scores of what follows the text."""
        x = self.weights["token_embd.weight"][list(tokens)]
        for index in range(int(self._number("block_count"))):
            prefix = f"blk.{index}."
            x = x + self._attend(self._norm(x, prefix + "attn_norm"), prefix)
            h = self._norm(x, prefix + "ffn_norm")
            gate = self._linear(h, prefix + "ffn_gate")
            hidden = gate / (1 + np.exp(-gate)) * self._linear(h, prefix + "ffn_up")
            x = x + self._linear(hidden, prefix + "ffn_down")
        last = self._norm(x[-1:], "output_norm")
        head = "output" if "output.weight" in self.weights else "token_embd"
        return self._linear(last, head)[0]

    def run(self, prompt: Sequence[int], count: int) -> OracleRun:
        text, result = list(prompt), None
        for _ in range(count):
            scores = self.logits(text)
            second, first = np.partition(scores, -2)[-2:]
            result = result or OracleRun([], [], scores)
            result.token_ids.append(int(np.argmax(scores)))
            result.margins.append(float(first - second))
            text.append(result.token_ids[-1])
        assert result is not None
        return result


CASES = (
    ("raw", "def fibonacci(n):"),
    ("raw", "SELECT name, age FROM users WHERE"),
    ("raw", "   leading spaces and\ttabs\n\n\nand newlines"),
    ("chat", "What is the capital of France?"),
)
DATA = Path(__file__).parent / "data" / "smollm2.json"


def main(model: str) -> None:
    file = open_gguf(model)
    oracle, tokenizer = Oracle(file), Tokenizer(file)
    cases = []
    for kind, prompt in CASES:
        text = prompt
        if kind == "chat":
            text = render_chat(file, [{"role": "user", "content": prompt}])
        ids = tokenizer.encode(text, parse_special=kind == "chat")
        run = oracle.run(ids, 8 if kind == "chat" else 16)
        top = np.argsort(-run.first_logits)[:8]
        cases.append(
            {
                "kind": kind,
                "prompt": prompt,
                "prompt_token_ids": ids,
                "token_ids": run.token_ids,
                "margins": [round(margin, 4) for margin in run.margins],
                "first_logits": {int(i): round(float(run.first_logits[i]), 5) for i in top},
            }
        )
    lines = ",\n".join(json.dumps(case) for case in cases)
    DATA.write_text(f"[\n{lines}\n]\n")


if __name__ == "__main__":
    main(sys.argv[1])
