"""The `llama` architecture of a GGUF file as a sequence of public ops on one device.
SPDX-License-Identifier: Apache-2.0

Every `llama.*` key and every tensor of the file is used or the file is refused by name: a model
that runs with a part of it ignored gives plausible nonsense.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

import anyhal as hal
from anyhal.errors import UnsupportedError
from anyhal.frontends.gguf.reader import GgufError, GgufFile

_BLOCK_TYPES = ("q4_0", "q4_1", "q8_0", "q4_k", "q6_k")
_FLOAT_TYPES = ("f32", "f16", "bf16")
_ROPE_LAYOUT = "Meta AI original pth"


class _Keys:
    """The `llama.*` metadata; remembers what was asked for."""

    def __init__(self, file: GgufFile) -> None:
        self._file = file
        self._seen: set[str] = set()

    def fail(self, key: str, why: str) -> GgufError:
        return GgufError(f'reading "llama.{key}" of {self._file.path}: {why}; convert it anew')

    def _get(self, key: str) -> Any:
        self._seen.add("llama." + key)
        value = self._file.metadata.get("llama." + key)
        if isinstance(value, np.ndarray):
            if not len(value):
                return []
            # Newer writers give one number per layer.
            if (value != value[0]).any():
                raise UnsupportedError(
                    f'loading {self._file.path}: "llama.{key}" differs between layers, which is'
                    " not supported; use a model with equal layers"
                )
            return value[0].item()
        return value

    def integer(self, key: str, default: int | None = None) -> int:
        value = self._get(key)
        if value is None and default is not None:
            return default
        if isinstance(value, bool) or not isinstance(value, int) or not 0 < value < 1 << 31:
            raise self.fail(key, f"{value!r} is not a positive integer")
        return value

    def number(self, key: str, default: float | None = None) -> float:
        value = self._get(key)
        if value is None and default is not None:
            return default
        good = isinstance(value, float | int) and not isinstance(value, bool)
        if not good or not 0 < value < float("inf"):
            raise self.fail(key, f"{value!r} is not a positive number")
        return float(value)

    def only(self, key: str, *accepted: object) -> None:
        """Refuses the file unless the key is absent or has one of the harmless values."""
        value = self._get(key)
        if value is not None and value not in accepted:
            raise UnsupportedError(
                f'loading {self._file.path}: "llama.{key}" = {value!r} is not supported; use a'
                " model without it"
            )

    def text(self, key: str, default: str) -> str:
        value = self._get(key)
        return default if value is None else str(value)

    def refuse_unread(self) -> None:
        for key in self._file.metadata:
            if key.startswith("llama.") and key not in self._seen:
                raise UnsupportedError(
                    f'loading {self._file.path}: the key "{key}" is not known and might change the'
                    " model; use a model without it"
                )


@dataclass(frozen=True, slots=True)
class LlamaConfig:
    """The hyperparameters, by the names that the ops use."""

    layers: int
    width: int
    hidden: int
    heads: int
    kv_heads: int
    key_size: int
    value_size: int
    rotary_dims: int
    rope_base: float
    position_scale: float
    eps: float
    context: int

    @classmethod
    def read(cls, file: GgufFile) -> LlamaConfig:
        """The configuration of a file; refuses architectures and keys that are not understood."""
        architecture = file.metadata.get("general.architecture")
        if not isinstance(architecture, str) or architecture != "llama":
            raise UnsupportedError(
                f'loading {file.path}: architecture "{architecture}" is not supported, only'
                ' "llama" is; use a model of that family'
            )
        keys = _Keys(file)
        width = keys.integer("embedding_length")
        heads = keys.integer("attention.head_count")
        kv_heads = keys.integer("attention.head_count_kv", heads)
        if heads % kv_heads:
            raise keys.fail("attention.head_count_kv", f"{kv_heads} does not divide {heads}")
        key_size = keys.integer("attention.key_length", width // heads)
        config = cls(
            layers=keys.integer("block_count"),
            width=width,
            hidden=keys.integer("feed_forward_length"),
            heads=heads,
            kv_heads=kv_heads,
            key_size=key_size,
            value_size=keys.integer("attention.value_length", width // heads),
            rotary_dims=keys.integer("rope.dimension_count", key_size),
            rope_base=keys.number("rope.freq_base", 10000.0),
            position_scale=_position_scale(keys, file),
            eps=keys.number("attention.layer_norm_rms_epsilon"),
            context=keys.integer("context_length"),
        )
        if config.rotary_dims % 2 or config.rotary_dims > key_size:
            raise keys.fail(
                "rope.dimension_count", f"{config.rotary_dims} is odd or above {key_size}"
            )
        _check_vocabulary_size(keys, file)
        keys.only("expert_count", 0)
        keys.only("expert_used_count", 0)
        keys.only("use_parallel_residual", False)
        keys.only("attention.causal", True)
        keys.only("attention.clamp_kqv", 0.0)
        keys.only("attention.max_alibi_bias", 0.0)
        keys.only("attention.sliding_window", 0)
        keys.only("tensor_data_layout", _ROPE_LAYOUT)
        keys.refuse_unread()
        return config


def _position_scale(keys: _Keys, file: GgufFile) -> float:
    kind = keys.text("rope.scaling.type", "none")
    factor = keys.number("rope.scaling.factor", 1.0)
    legacy = keys.number("rope.scale_linear", 1.0)
    # How long the contexts of the training were; it changes nothing with linear scaling.
    keys.integer("rope.scaling.original_context_length", 1)
    keys.only("rope.scaling.finetuned", True, False)
    if kind not in ("none", "linear"):
        raise UnsupportedError(
            f'loading {file.path}: "llama.rope.scaling.type" = "{kind}" is not supported, only'
            ' "none" and "linear" are; use a model with one of these'
        )
    if kind == "linear":
        return 1.0 / factor
    return 1.0 / legacy


def _check_vocabulary_size(keys: _Keys, file: GgufFile) -> None:
    embedding = file.tensors.get("token_embd.weight")
    if embedding is not None and len(embedding.shape) == 2:
        rows = embedding.shape[0]
        if keys.integer("vocab_size", rows) != rows:
            raise keys.fail("vocab_size", f'"token_embd.weight" has {rows} rows')


class _Weights:
    """Hands out the file's tensors as device arrays; remembers what was taken."""

    def __init__(self, file: GgufFile, device: Any) -> None:
        self._file = file
        self._device = device
        self._taken: set[str] = set()

    def has(self, name: str) -> bool:
        return name in self._file.tensors

    def take(self, name: str, *shape: int) -> Any:
        """A constant array; block formats stay as stored and are mapped where the device can."""
        info = self._file.tensors.get(name)
        if info is None:
            raise GgufError(
                f'loading {self._file.path}: the tensor "{name}" is missing; convert it anew'
            )
        if info.shape != shape:
            raise GgufError(
                f'loading {self._file.path}: tensor "{name}" has the shape {list(info.shape)}, the'
                f" keys ask for {list(shape)}; convert it anew"
            )
        self._taken.add(name)
        raw = self._file.data(name)
        if info.type.name in _BLOCK_TYPES:
            return hal.frombuffer(raw, info.type.name, shape, device=self._device, constant=True)
        if info.type.name in _FLOAT_TYPES:
            values = _as_float32(raw, info.type.name).reshape(shape)
            return hal.asarray(values, device=self._device, constant=True)
        raise UnsupportedError(
            f'loading {self._file.path}: tensor "{name}" is stored as {info.type.name}, only'
            f" {', '.join(_FLOAT_TYPES + _BLOCK_TYPES)} are supported; use a file quantised to one"
            " of these"
        )

    def linear(self, name: str, rows: int, columns: int) -> Linear:
        weight = self.take(f"{name}.weight", rows, columns)
        bias = self.take(f"{name}.bias", rows) if self.has(f"{name}.bias") else None
        return Linear(weight, bias)

    def refuse_untaken(self) -> None:
        for name in self._file.tensors:
            if name not in self._taken:
                raise UnsupportedError(
                    f'loading {self._file.path}: the tensor "{name}" has no place in a llama model;'
                    " use a file without it"
                )


def _as_float32(raw: np.ndarray[Any, Any], kind: str) -> np.ndarray[Any, Any]:
    if kind == "bf16":
        # bfloat16 is the upper half of float32.
        return (raw.view("<u2").astype(np.uint32) << 16).view(np.float32)
    return raw.view("<f2" if kind == "f16" else "<f4").astype(np.float32)


@dataclass(frozen=True, slots=True)
class Linear:
    """x @ weightᵀ + bias with the epilogues of the ops, for block and float weights alike."""

    weight: Any
    bias: Any

    def __call__(
        self, x: Any, *, multiplier: Any = None, residual: Any = None, activation: str = "none"
    ) -> Any:
        options = {"multiplier": multiplier, "residual": residual, "activation": activation}
        if self.weight.dtype in _BLOCK_TYPES:
            return hal.quant_matmul(x, self.weight, bias=self.bias, **options)
        return hal.matmul_epilogue(x, self.weight.T, bias=self.bias, **options)


@dataclass(frozen=True, slots=True)
class _Layer:
    attention_norm: Any
    query: Linear
    key: Linear
    value: Linear
    output: Linear
    feed_forward_norm: Any
    gate: Linear
    up: Linear
    down: Linear


class LlamaModel:
    """The weights of one file on one device, and the forward pass over them."""

    def __init__(self, file: GgufFile, device: Any) -> None:
        self.config = config = LlamaConfig.read(file)
        self.device = device
        weights = _Weights(file, device)
        embedding = file.tensors.get("token_embd.weight")
        self.vocabulary = embedding.shape[0] if embedding is not None else 0
        self._embedding = weights.take("token_embd.weight", self.vocabulary, config.width)
        self._freq_factors = None
        if weights.has("rope_freqs.weight"):
            self._freq_factors = weights.take("rope_freqs.weight", config.rotary_dims // 2)
        self._layers = [_read_layer(weights, config, i) for i in range(config.layers)]
        self._norm = weights.take("output_norm.weight", config.width)
        if weights.has("output.weight"):
            self._head = weights.linear("output", self.vocabulary, config.width)
        else:
            self._head = Linear(self._embedding, None)
        weights.refuse_untaken()

    def new_cache(self, capacity: int) -> list[tuple[Any, Any]]:
        """Keys and values of every layer, [1, kv_heads, capacity, size], zeroed."""
        c = self.config
        return [
            (
                hal.zeros((1, c.kv_heads, capacity, c.key_size), device=self.device),
                hal.zeros((1, c.kv_heads, capacity, c.value_size), device=self.device),
            )
            for _ in range(c.layers)
        ]

    def forward(self, tokens: Any, step: Step, cache: list[tuple[Any, Any]]) -> Any:
        """Logits [1, vocabulary] after the last of `tokens` [T]; appends T rows to the cache."""
        count = tokens.shape[0]
        x = hal.embedding(self._embedding, tokens)
        for layer, (keys, values) in zip(self._layers, cache, strict=True):
            h = hal.rms_norm(x, layer.attention_norm, eps=self.config.eps)
            attended = self._attend(layer, h, step, keys, values)
            x = layer.output(attended, residual=x)
            h = hal.rms_norm(x, layer.feed_forward_norm, eps=self.config.eps)
            gated = layer.gate(h, activation="silu", multiplier=layer.up(h))
            x = layer.down(gated, residual=x)
        last = x if count == 1 else x[count - 1 : count]
        return self._head(hal.rms_norm(last, self._norm, eps=self.config.eps))

    def _attend(self, layer: _Layer, h: Any, step: Step, keys: Any, values: Any) -> Any:
        c = self.config
        q = self._rotate(self._split(layer.query(h), c.heads), step)
        k = self._rotate(self._split(layer.key(h), c.kv_heads), step)
        v = self._split(layer.value(h), c.kv_heads)
        keys = hal.cache_append(keys, k, step.position)
        values = hal.cache_append(values, v, step.position)
        out: Any = hal.attention(  # one array: return_lse is not asked for
            q,
            keys,
            values,
            kv_length=step.kv_length,
            scale=float(c.key_size) ** -0.5,
            causal="last_key",
        )
        return out.transpose(0, 2, 1, 3).reshape(h.shape[0], c.heads * c.value_size)

    def _split(self, x: Any, heads: int) -> Any:
        """[T, heads·size] as [1, heads, T, size]."""
        return x.reshape(1, x.shape[0], heads, x.shape[1] // heads).transpose(0, 2, 1, 3)

    def _rotate(self, x: Any, step: Step) -> Any:
        # Converters store query and key rows so that neighbours form a pair.
        return hal.rope(
            x,
            step.positions,
            self._freq_factors,
            pairing="interleaved",
            rotary_dims=self.config.rotary_dims,
            base=self.config.rope_base,
            position_scale=self.config.position_scale,
        )


@dataclass(frozen=True, slots=True)
class Step:
    """Where the tokens of one pass stand: device arrays, so that a graph can be replayed."""

    positions: Any
    position: Any
    kv_length: Any


def _read_layer(weights: _Weights, config: LlamaConfig, index: int) -> _Layer:
    c, prefix = config, f"blk.{index}."
    return _Layer(
        attention_norm=weights.take(prefix + "attn_norm.weight", c.width),
        query=weights.linear(prefix + "attn_q", c.heads * c.key_size, c.width),
        key=weights.linear(prefix + "attn_k", c.kv_heads * c.key_size, c.width),
        value=weights.linear(prefix + "attn_v", c.kv_heads * c.value_size, c.width),
        output=weights.linear(prefix + "attn_output", c.width, c.heads * c.value_size),
        feed_forward_norm=weights.take(prefix + "ffn_norm.weight", c.width),
        gate=weights.linear(prefix + "ffn_gate", c.hidden, c.width),
        up=weights.linear(prefix + "ffn_up", c.hidden, c.width),
        down=weights.linear(prefix + "ffn_down", c.width, c.hidden),
    )
