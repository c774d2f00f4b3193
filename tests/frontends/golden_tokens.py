"""Small vocabularies and odd texts; run as a program it asks llama.cpp for the right token ids.
SPDX-License-Identifier: Apache-2.0

    python tests/frontends/golden_tokens.py      needs llama-cpp-python, writes data/tokens.json
"""

from __future__ import annotations

import itertools
import json
import random
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

from gguf_writer import GgufWriter

DATA = Path(__file__).parent / "data" / "tokens.json"
PRE_TOKENIZERS = ("smollm", "gpt-2", "llama-bpe", "qwen2", "default")
CONTROL, USER_DEFINED = ("<|im_start|>", "<|im_end|>"), ("<tool>", "<tool>>")

TEXTS = (
    "",
    " ",
    "  ",
    "   leading spaces and\ttabs\n\n\nand newlines",
    "trailing spaces   ",
    "\t\ttab\t after tab",
    " \n \n\t\n ",
    "a\r\nb\rc\n\r\nd",
    "Hello, y'all! I'LL we'Ve can't 'tis 'TWAS",
    "12345 007 3.14 1,000,000 x2y3 ½ ² ١٢٣ Ⅳ",
    "😁 ok 😶‍🌫️🚀🇫🇷👨‍👩‍👧 ✅",
    "我想在apple工作1314151天～ こんにちは 안녕하세요",
    "Ünïcödé é e\u0301 ñandú ΑΒΓ привет مرحبا",
    "no\u00a0break\u3000wide\u2028line\u0085next\ufeffmark",
    "$10.00+<=>^~| !!! ... --- ___ (a[b]{c})",
    "\x00nul\x01\x1b[0m",
    "<s> </s> <unk> <0x0A> <|im_start|>user<|im_end|><tool><tool>> <tool",
    "▁▁ x▁y",
    "def f(x):\n    return x + 1\n\n\n    # end\n",
    "a" * 40 + " " * 17 + "b",
)

_CORPUS = (
    "the cat and the other cats were there in the morning then they went on to the town 2024 "
    "def f(x): return x + 1  if it's not the end, it'll be; 我想 工作 привет мир  apple apples "
    "user assistant hello world hello there!!! ... 100 1000 10 \t\t\n\n    x == y\n"
)


def byte_alphabet() -> list[str]:
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    hidden = [byte for byte in range(256) if byte not in printable]
    characters = {byte: chr(byte) for byte in printable}
    characters.update({byte: chr(0x100 + index) for index, byte in enumerate(hidden)})
    return [characters[byte] for byte in range(256)]


def learn_merges(symbols: list[str], count: int) -> list[tuple[str, str]]:
    """Plain pair counting over one sequence: some merges, not a good vocabulary."""
    merges: list[tuple[str, str]] = []
    while len(merges) < count:
        pairs = Counter(itertools.pairwise(symbols))
        pair, times = max(pairs.items(), key=lambda entry: (entry[1], entry[0]))
        if times < 2:
            break
        merges.append(pair)
        joined: list[str] = []
        for symbol in symbols:
            if joined and (joined[-1], symbol) == pair:
                joined[-1] += symbol
            else:
                joined.append(symbol)
        symbols = joined
    return merges


def _hyperparameters() -> GgufWriter:
    writer = GgufWriter().add("general.architecture", "str", "llama")
    for name, value in (("context_length", 64), ("embedding_length", 8), ("block_count", 1)):
        writer.add(f"llama.{name}", "u32", value)
    writer.add("llama.feed_forward_length", "u32", 8).add("llama.attention.head_count", "u32", 1)
    return writer.add("llama.attention.layer_norm_rms_epsilon", "f32", 1e-5)


def bpe_vocabulary(pre: str) -> bytes:
    """A byte-level vocabulary with a few hundred merges."""
    alphabet = byte_alphabet()
    merges = learn_merges([alphabet[byte] for byte in _CORPUS.encode()], 150)
    plain = list(dict.fromkeys([*alphabet, *(left + right for left, right in merges)]))
    plain.append(alphabet[0x20] + "wholeword")
    tokens = [*plain, *CONTROL, *USER_DEFINED]
    types = [1] * len(plain) + [3] * len(CONTROL) + [4] * len(USER_DEFINED)
    writer = _hyperparameters().add("tokenizer.ggml.model", "str", "gpt2")
    writer.add("tokenizer.ggml.pre", "str", pre).add("tokenizer.ggml.tokens", "str[]", tokens)
    writer.add("tokenizer.ggml.token_type", "i32[]", types)
    writer.add("tokenizer.ggml.merges", "str[]", [f"{left} {right}" for left, right in merges])
    writer.add("tokenizer.ggml.bos_token_id", "u32", tokens.index("<|im_start|>"))
    writer.add("tokenizer.ggml.eos_token_id", "u32", tokens.index("<|im_end|>"))
    return writer.build()


def spm_vocabulary(space_prefix: bool) -> bytes:
    """A score-merge vocabulary with byte tokens."""
    text = _CORPUS.replace(" ", "\u2581")
    merges = learn_merges([each for each in text if each not in "\n\t"], 150)
    pieces = list(dict.fromkeys([*(a + b for a, b in merges), *sorted(set(text) - set("\n\t"))]))
    bytes_ = [f"<0x{byte:02X}>" for byte in range(256)]
    tokens = ["<unk>", "<s>", "</s>", *bytes_, *pieces, *USER_DEFINED]
    types = [2, 3, 3] + [6] * 256 + [1] * len(pieces) + [4] * len(USER_DEFINED)
    # Equal scores occur in real vocabularies and are decided by position.
    scores = [0.0] * 259 + [-float(rank // 3) for rank in range(len(pieces))] + [0.0, 0.0]
    writer = _hyperparameters().add("tokenizer.ggml.model", "str", "llama")
    writer.add("tokenizer.ggml.tokens", "str[]", tokens)
    writer.add("tokenizer.ggml.scores", "f32[]", scores)
    writer.add("tokenizer.ggml.token_type", "i32[]", types)
    for name, value in (("bos", 1), ("eos", 2), ("unknown", 0)):
        writer.add(f"tokenizer.ggml.{name}_token_id", "u32", value)
    return writer.add("tokenizer.ggml.add_space_prefix", "bool", space_prefix).build()


def vocabularies() -> dict[str, bytes]:
    found = {pre: bpe_vocabulary(pre) for pre in PRE_TOKENIZERS}
    return found | {"spm": spm_vocabulary(True), "spm-bare": spm_vocabulary(False)}


def random_texts(count: int, seed: int) -> list[str]:
    """Strings that mix what tokenizers stumble over."""
    rng = random.Random(seed)
    parts = list("  \t\n\rabtheXYZ'sdtmlr0129.,!?$+<=>^~|-_*/\\\"\x00")
    parts += ["😀", "中", "我想", "é", "ß", "½", "²", "Ω", "я", "م", "한", "\u00a0", "\u3000"]
    parts += [
        "\u200d",
        "e\u0301",
        "١",
        "Ⅳ",
        "<|im_end|>",
        "</s>",
        "\u2581",
        "\u2028",
        "\x85",
        "the",
    ]
    return ["".join(rng.choices(parts, k=rng.randrange(1, 40))) for _ in range(count)]


def llama_cpp_ids(path: Path, texts: tuple[str, ...] | list[str]) -> list[dict[str, Any]]:
    from llama_cpp import Llama

    model = Llama(str(path), vocab_only=True, verbose=False)
    return [
        {
            "text": text,
            "plain": model.tokenize(text.encode(), add_bos=False, special=False),
            "parsed": model.tokenize(text.encode(), add_bos=False, special=True),
            "with_bos": model.tokenize(text.encode(), add_bos=True, special=False),
        }
        for text in texts
    ]


def main() -> None:
    golden: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder:
        for name, data in vocabularies().items():
            path = Path(folder) / f"{name}.gguf"
            path.write_bytes(data)
            golden[name] = llama_cpp_ids(path, TEXTS)
    DATA.parent.mkdir(exist_ok=True)
    lines = [
        f'"{name}": [\n' + ",\n".join(json.dumps(case) for case in cases) + "\n]"
        for name, cases in golden.items()
    ]
    DATA.write_text("{\n" + ",\n".join(lines) + "\n}\n")


if __name__ == "__main__":
    main()
