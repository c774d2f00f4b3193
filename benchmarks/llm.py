"""The language model: prefill of 512 tokens and decode, against llama.cpp on the same threads.
SPDX-License-Identifier: Apache-2.0

    python benchmarks/llm.py [--json] [--blocks N] [--device NAME] [--prefill N] [--decode N]

The peer is the package llama-cpp-python (pip install llama-cpp-python), same file, same thread
count. Without it the figures stand alone, with a ratio of 0. A peer below 110 decoded tokens/s was
held back by something, and the run says so.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable
from statistics import median
from typing import Any

import numpy as np
from timing import Figure, compare, invalid, show, threads

import anyhal as hal
from anyhal.frontends.gguf.fetch import locate_model
from anyhal.frontends.gguf.llama import LlamaModel
from anyhal.frontends.gguf.reader import open_gguf
from anyhal.frontends.gguf.session import Session

HEALTHY_PEER_TOKENS_PER_S = 110  # of llama.cpp's decode on a machine of the usual kind


class Ours:
    def __init__(self, path: str, device: Any, prompt: list[int], decode: int) -> None:
        self.prompt, self.decode_count = prompt, decode
        self.session = Session(LlamaModel(open_gguf(path), device), len(prompt) + decode + 1)

    def prefill(self) -> None:
        self.session.resume([])  # forgets the text, keeps the buffers
        self.session.feed(self.prompt)
        self.session.best()

    def decode(self) -> None:
        self.session.resume(self.prompt[:1])
        token = self.prompt[0]
        for _ in range(self.decode_count):
            self.session.feed([token])
            token = self.session.best()


class Peer:
    def __init__(self, path: str, prompt: list[int], decode: int) -> None:
        import llama_cpp

        self.version = f"llama-cpp-python {llama_cpp.__version__}"
        self.last_logits = llama_cpp.llama_get_logits_ith
        self.prompt, self.decode_count = prompt, decode
        self.model = llama_cpp.Llama(
            path,
            n_ctx=len(prompt) + decode + 1,
            n_batch=len(prompt),
            n_ubatch=len(prompt),
            n_threads=threads(),
            n_threads_batch=threads(),
            logits_all=False,
            verbose=False,
        )

    def prefill(self) -> None:
        self.model.reset()
        self.model.eval(self.prompt)

    def decode(self) -> None:
        self.model.reset()
        token = self.prompt[0]
        for _ in range(self.decode_count):
            self.model.eval([token])
            logits = self.last_logits(self.model.ctx, -1)
            token = int(np.argmax(np.ctypeslib.as_array(logits, (self.model.n_vocab(),))))


def alone(function: Callable[[], None], blocks: int) -> float:
    function()
    times = []
    for _ in range(blocks):
        started = time.perf_counter()
        function()
        times.append(time.perf_counter() - started)
    return median(times)


def figures(ours: Ours, peer: Peer | None, blocks: int, device: str) -> list[Figure]:
    found = []
    details: dict[str, object] = {"threads": threads(), "device": device}
    if peer is not None:
        details["peer"] = peer.version
    for what, count in (("prefill", len(ours.prompt)), ("decode", ours.decode_count)):
        name = f"{what} of {count}"
        if peer is None:
            mine = count / alone(getattr(ours, what), blocks)
            found.append(
                Figure(name, mine, "tok/s", "no peer installed", 0.0, 0.0, (0, 0), details)
            )
            continue
        mine_s, theirs_s, (low, high) = compare(getattr(ours, what), getattr(peer, what), blocks)
        # Speeds, so the ratio is the other way round than that of times.
        interval = (1 / high, 1 / low)
        ratio = theirs_s / mine_s
        found.append(
            Figure(
                name,
                count / mine_s,
                "tok/s",
                "llama.cpp",
                count / theirs_s,
                ratio,
                interval,
                details,
            )
        )
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--blocks", type=int, default=15)
    parser.add_argument("--device", default=None)
    parser.add_argument("--model", default="smollm2")
    parser.add_argument("--prefill", type=int, default=512)
    parser.add_argument("--decode", type=int, default=64)
    given = parser.parse_args()
    os.environ.setdefault("OMP_NUM_THREADS", str(threads()))
    device = hal.device(given.device) if given.device else hal.device()
    path = str(locate_model(given.model))
    rng = np.random.default_rng(11)
    prompt = rng.integers(100, 40_000, given.prefill).tolist()  # ids that no tokenizer reserves
    try:
        peer: Peer | None = Peer(path, prompt, given.decode)
    except ImportError:
        peer = None
    with hal.use(device=device):
        ours = Ours(path, device, prompt, given.decode)
        found = figures(ours, peer, given.blocks, device.name)
    show(found, given.json)
    if peer is not None and found[-1].baseline_value < HEALTHY_PEER_TOKENS_PER_S:
        invalid(
            f"llama.cpp decoded {found[-1].baseline_value:.0f} tokens/s, below"
            f" {HEALTHY_PEER_TOKENS_PER_S}: something held it back"
        )


if __name__ == "__main__":
    main()
