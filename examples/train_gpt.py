"""Trains a small character-level transformer on Python's own help texts.
SPDX-License-Identifier: Apache-2.0
"""

from pydoc_data.topics import topics
from typing import Any

import ctrl_c  # noqa: F401 (before what takes long to import)
import numpy as np
import training_run

import anyhal as hal
from anyhal.training import Tape

LAYERS, HEADS, WIDTH, CONTEXT, BATCH = 2, 4, 32, 32, 8
TEXT = "".join(topics[name] for name in sorted(topics))
LETTERS = sorted(set(TEXT))
NUMBERS = {letter: number for number, letter in enumerate(LETTERS)}
IDS = np.array([NUMBERS[letter] for letter in TEXT])


def batch(step: int) -> tuple[Any, Any]:
    """Pieces of the text, and the same pieces one letter on."""
    starts = training_run.random(1, step).integers(0, len(IDS) - CONTEXT - 1, BATCH)
    places = starts[:, None] + np.arange(CONTEXT)
    return IDS[places], IDS[places + 1]


def initial() -> dict[str, Any]:
    rng = training_run.random(0)

    def weight(*shape: int) -> Any:
        return (rng.standard_normal(shape) / np.sqrt(WIDTH)).astype(np.float32)

    one, found = np.ones(WIDTH, np.float32), {"letters": weight(len(LETTERS), WIDTH)}
    for i in range(LAYERS):
        found |= {f"{i}.{n}": weight(WIDTH, WIDTH) for n in ("query", "key", "value", "out")}
        found |= {f"{i}.up": weight(WIDTH, 4 * WIDTH), f"{i}.down": weight(4 * WIDTH, WIDTH) / 2}
        found |= {f"{i}.attention_norm": one, f"{i}.mlp_norm": one}
    return found | {"norm": one}


class Model:
    """The layers as calls on a tape."""

    def __init__(self, tape: Tape, p: training_run.Parameters, positions: hal.Array) -> None:
        self.tape, self.p, self.positions = tape, p, positions

    def norm(self, x: hal.Array, name: str) -> hal.Array:
        made = self.tape.rms_norm(x, self.p[name], eps=1e-5)
        return made[0] if isinstance(made, tuple) else made

    def heads(self, x: hal.Array, name: str) -> hal.Array:
        t = self.tape
        x = t.reshape(t.matmul(x, self.p[name]), (BATCH, CONTEXT, HEADS, WIDTH // HEADS))
        return t.permute_dims(x, (0, 2, 1, 3))

    def turned(self, x: hal.Array) -> hal.Array:
        return self.tape.rope(x, self.positions, pairing="half_split", base=10000.0)

    def layer(self, x: hal.Array, i: int) -> hal.Array:
        t, y = self.tape, self.norm(x, f"{i}.attention_norm")
        q, k = (self.turned(self.heads(y, f"{i}.{n}")) for n in ("query", "key"))
        scale = (WIDTH // HEADS) ** -0.5
        y = t.attention(q, k, self.heads(y, f"{i}.value"), scale=scale, causal="first_key")
        y = t.reshape(t.permute_dims(y, (0, 2, 1, 3)), (BATCH, CONTEXT, WIDTH))
        x = t.add(x, t.matmul(y, self.p[f"{i}.out"]))
        y = t.gelu_tanh(t.matmul(self.norm(x, f"{i}.mlp_norm"), self.p[f"{i}.up"]))
        return t.add(x, t.matmul(y, self.p[f"{i}.down"]))

    def logits(self, ids: hal.Array) -> hal.Array:
        letters = self.p["letters"]
        x = self.tape.embedding(letters, ids)
        for i in range(LAYERS):
            x = self.layer(x, i)
        x = self.norm(x, "norm")
        return self.tape.matmul(x, self.tape.permute_dims(letters, (1, 0)))


def loss(device: hal.Device) -> training_run.Loss:
    positions = hal.arange(CONTEXT, device=device)

    def compute(tape: Tape, p: training_run.Parameters, step: int) -> hal.Array:
        ids, targets = (hal.asarray(x, device=device) for x in batch(step))
        return tape.cross_entropy(Model(tape, p, positions).logits(ids), targets, reduction="mean")

    return compute


if __name__ == "__main__":
    training_run.run(training_run.options(__doc__, 200), initial, loss, rate=0.01)
