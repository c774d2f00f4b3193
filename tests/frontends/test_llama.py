"""Small random models against the float64 oracle on every device, and what the loader refuses.
SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from oracle import Oracle
from tiny_llama import F16, F32, Q4_0, Q4_1, Q4_K, Q6_K, Q8_0, Tiny, build

import anyhal as hal
from anyhal.errors import HalError, InvalidArgumentError, UnsupportedError
from anyhal.frontends.gguf.generate import Sampler, generate
from anyhal.frontends.gguf.llama import LlamaModel
from anyhal.frontends.gguf.reader import GgufFile, open_gguf
from anyhal.frontends.gguf.session import Session
from anyhal.frontends.gguf.tokenizer import Tokenizer
from device_runs import devices

PROMPT = [72, 101, 108, 108, 111, 33, 10]
TIE, BOUND = 0.02, 1e-3
DEVICES = devices()

VARIANTS = {
    "blocks": Tiny(),
    "multi-head": Tiny(kv_heads=4, linear=Q8_0, embedding=Q8_0),
    "one key head": Tiny(kv_heads=1, layers=1),
    "own head": Tiny(head=Q4_1),
    "q4_0": Tiny(linear=Q4_0, embedding=Q4_0),
    "q4_K, q6_K": Tiny(width=256, hidden=256, layers=1, linear=Q4_K, embedding=Q6_K, head=Q6_K),
    "f32": Tiny(linear=F32, embedding=F32, head=F32),
    "f16": Tiny(linear=F16, embedding=F16),
    "biases": Tiny(biases=True),
    "wide heads": Tiny(head_size=32),
    "partial rotary": Tiny(rotary_dims=8),
    "frequency factors": Tiny(rope_freqs=True),
    "linear scaling": Tiny(
        keys=[
            ("llama.rope.scaling.type", "str", "linear"),
            ("llama.rope.scaling.factor", "f32", 4.0),
            ("llama.rope.freq_base", "f32", 500.0),
        ]
    ),
}


def write(folder: Path, tiny: Tiny) -> GgufFile:
    path = folder / "tiny.gguf"
    path.write_bytes(build(tiny).build())
    return open_gguf(path)


@pytest.fixture(params=DEVICES)
def device(request: pytest.FixtureRequest) -> Any:
    found = hal.device(request.param)
    with hal.use(device=found):
        yield found


@pytest.fixture
def file(tmp_path: Path) -> GgufFile:
    return write(tmp_path, Tiny())


@pytest.mark.parametrize("variant", VARIANTS)
def test_logits_and_tokens_equal_the_oracle(tmp_path: Path, device: Any, variant: str) -> None:
    file = write(tmp_path, VARIANTS[variant])
    expected = Oracle(file).run(PROMPT, 12)
    session = Session(LlamaModel(file, device), len(PROMPT) + 12)
    session.feed(PROMPT)
    assert np.abs(session.logits() - expected.first_logits).max() < BOUND
    for token, margin in zip(expected.token_ids, expected.margins, strict=True):
        if margin < TIE:
            break
        assert session.best() == token
        session.feed([token])


def test_how_a_text_is_fed_does_not_matter(file: GgufFile, device: Any) -> None:
    model = LlamaModel(file, device)
    whole, parts, single = (Session(model, 32) for _ in range(3))
    whole.feed(PROMPT)
    parts.feed(PROMPT[:3])
    parts.feed(PROMPT[3:])
    for token in PROMPT:
        single.feed([token])
    for other in (parts, single):
        np.testing.assert_allclose(other.logits(), whole.logits(), atol=1e-4)


def test_after_the_second_token_nothing_is_prepared_or_allocated(
    file: GgufFile, device: Any
) -> None:
    session = Session(LlamaModel(file, device), 64)
    session.feed(PROMPT)
    session.feed([session.best()])
    session.best()
    before = dict(hal.counters(device))
    for _ in range(20):
        session.feed([session.best()])
    session.best()
    after = hal.counters(device)
    for name in ("plans_prepared", "driver_allocs", "driver_frees"):
        assert after[name] == before[name], name


def test_a_text_can_go_on_from_what_it_shares(file: GgufFile, device: Any) -> None:
    model = LlamaModel(file, device)
    other = [*PROMPT[:4], 90, 91]
    session, fresh = Session(model, 32), Session(model, 32)
    session.feed(PROMPT)
    rest = session.resume(other)
    assert rest == [90, 91]
    session.feed(rest)
    fresh.feed(other)
    np.testing.assert_allclose(session.logits(), fresh.logits(), atol=1e-4)
    assert session.resume(other) == [91]


def test_generation_ends_at_the_end_token_and_keeps_it(file: GgufFile, device: Any) -> None:
    tokenizer = Tokenizer(file)
    model = LlamaModel(file, device)
    free = generate(Session(model, 32), tokenizer, PROMPT, max_tokens=8)
    assert len(free.token_ids) == 8
    assert free.text == tokenizer.decode(free.token_ids)
    stop = free.token_ids[3]
    first = free.token_ids.index(stop)
    tokenizer.ends = frozenset({stop})
    pieces: list[str] = []
    ended = generate(Session(model, 32), tokenizer, PROMPT, max_tokens=8, on_text=pieces.append)
    assert ended.token_ids == free.token_ids[: first + 1]
    assert ended.text == "".join(pieces) == tokenizer.decode(free.token_ids[:first])
    best = max(ended.top_logits, key=lambda token: ended.top_logits[token])
    assert (best, len(ended.top_logits)) == (ended.token_ids[0], 5)


def test_a_full_text_ends(file: GgufFile, device: Any) -> None:
    model = LlamaModel(file, device)
    result = generate(Session(model, 192), Tokenizer(file), PROMPT * 27, max_tokens=99)
    assert len(PROMPT * 27) + len(result.token_ids) == 192 + 1


def test_sampling_depends_on_the_seed_alone(file: GgufFile, device: Any) -> None:
    model, tokenizer = LlamaModel(file, device), Tokenizer(file)

    def draw(seed: int) -> list[int]:
        sampler = Sampler(2.0, seed)
        session = Session(model, 32)
        return generate(session, tokenizer, PROMPT, max_tokens=12, sampler=sampler).token_ids

    assert draw(1) == draw(1)
    assert draw(1) != draw(2)


def test_sampling_follows_the_distribution() -> None:
    class Two:
        def logits(self) -> np.ndarray[Any, Any]:
            return np.log(np.array([3.0, 1.0], dtype=np.float32))

    sampler = Sampler(1.0, 7)
    drawn = [sampler.choose(Two()) for _ in range(4000)]  # type: ignore[arg-type]
    # Four standard deviations of a binomial with p = 1/4.
    assert abs(sum(drawn) - 1000) < 4 * (4000 * 0.25 * 0.75) ** 0.5


@pytest.mark.parametrize(("temperature", "seed"), [(-1.0, 0), (float("nan"), 0), (0.5, -1)])
def test_bad_sampling(temperature: float, seed: int) -> None:
    with pytest.raises(InvalidArgumentError, match="sampling"):
        Sampler(temperature, seed)


def test_what_a_session_refuses(file: GgufFile, device: Any) -> None:
    model = LlamaModel(file, device)
    with pytest.raises(InvalidArgumentError, match="context holds 192"):
        Session(model, 193)
    session = Session(model, 1)
    with pytest.raises(InvalidArgumentError, match="no tokens"):
        session.feed([])
    with pytest.raises(InvalidArgumentError, match="the text holds 64"):
        session.feed([1] * 65)
    for token in (-1, model.vocabulary):
        with pytest.raises(InvalidArgumentError, match="the model has"):
            session.feed([1, token])


REFUSED_KEYS: list[tuple[str, str, Any, str]] = [
    ("llama.new_feature", "u32", 1, '"llama.new_feature" is not known'),
    ("llama.expert_count", "u32", 8, '"llama.expert_count" = 8'),
    ("llama.attention.sliding_window", "u32", 64, "sliding_window"),
    ("llama.rope.scaling.type", "str", "yarn", '"yarn" is not supported'),
    ("llama.vocab_size", "u32", 300, "has 258 rows"),
    ("llama.attention.clamp_kqv", "f32", 8.0, "clamp_kqv"),
    ("llama.tensor_data_layout", "str", "other", "tensor_data_layout"),
    ("llama.logit_scale", "f32", 0.5, "logit_scale"),
    ("llama.rope.freq_base", "f32", float("nan"), "not a positive number"),
    ("llama.rope.freq_base", "str", "x", "not a positive number"),
]


@pytest.mark.parametrize(("key", "kind", "value", "words"), REFUSED_KEYS)
def test_keys_that_are_refused_by_name(
    tmp_path: Path, key: str, kind: str, value: Any, words: str
) -> None:
    file = write(tmp_path, Tiny(keys=[(key, kind, value)]))
    with pytest.raises(HalError) as caught:
        LlamaModel(file, hal.device(DEVICES[0]))
    assert words in str(caught.value)


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        ("llama.block_count", 3, '"blk.2.attn_norm.weight" is missing'),
        ("llama.block_count", 1, '"blk.1.attn_norm.weight" has no place'),
        ("llama.feed_forward_length", 128, "has the shape"),
        ("llama.attention.head_count_kv", 3, "does not divide"),
        ("llama.attention.head_count", 0, "not a positive integer"),
        ("llama.attention.head_count", None, "not a positive integer"),
        ("llama.rope.dimension_count", 7, "is odd"),
        ("llama.attention.head_count_kv", np.array([2, 1]), "differs between layers"),
        ("general.architecture", "qwen2", 'architecture "qwen2"'),
        ("llama.attention.layer_norm_rms_epsilon", None, "not a positive number"),
    ],
)
def test_files_that_do_not_fit_together(
    file: GgufFile, key: str, value: object, words: str
) -> None:
    if value is None:
        del file.metadata[key]
    else:
        file.metadata[key] = value
    with pytest.raises(HalError) as caught:
        LlamaModel(file, hal.device(DEVICES[0]))
    assert words in str(caught.value)


def test_per_layer_numbers_that_agree_are_one_number(file: GgufFile) -> None:
    file.metadata["llama.attention.head_count_kv"] = np.array([2, 2])
    assert LlamaModel(file, hal.device(DEVICES[0])).config.kv_heads == 2


def test_tensors_that_are_refused_by_name(tmp_path: Path) -> None:
    writer = build(Tiny())
    writer.array("blk.0.extra.weight", np.zeros(4, dtype=np.float32))
    path = tmp_path / "tiny.gguf"
    path.write_bytes(writer.build())
    with pytest.raises(UnsupportedError, match=r'"blk\.0\.extra\.weight" has no place'):
        LlamaModel(open_gguf(path), hal.device(DEVICES[0]))
    writer = build(Tiny())
    writer.tensors[0].type, writer.tensors[0].data = 6, bytes(258 * 64 // 32 * 22)
    path.write_bytes(writer.build())
    with pytest.raises(UnsupportedError, match='"token_embd.weight" is stored as q5_0'):
        LlamaModel(open_gguf(path), hal.device(DEVICES[0]))
