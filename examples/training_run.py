"""What the training examples share: options, the loop, checkpoints, the loss plot.
SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

import anyhal as hal
from anyhal.training import Tape, clip_grad_norm

Parameters = dict[str, Any]
Loss = Callable[[Tape, Parameters, int], hal.Array]
SEED = 2024
MAX_NORM = 1.0
BETAS = {"beta1": 0.9, "beta2": 0.99}


def options(purpose: str, steps: int) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=purpose)
    parser.add_argument("--device", default="cpu:0", help="as anyhal devices lists them")
    parser.add_argument("--steps", type=int, default=steps, help="how many steps in all")
    parser.add_argument("--checkpoint", type=Path, help="write the state here at the end")
    parser.add_argument("--resume", type=Path, help="go on from this checkpoint")
    parser.add_argument("--plot", type=Path, help="draw the losses here; the ending is the format")
    parser.add_argument("--json", action="store_true", help="print the losses as JSON")
    return parser.parse_args()


def random(*keys: int) -> np.random.Generator:
    """Numbers that depend on nothing but the keys, so a resumed run sees the same batches."""
    return np.random.Generator(np.random.Philox(np.random.SeedSequence((SEED, *keys))))


class State:
    """Parameters, the two moments of AdamW, and the losses so far; all of it is the checkpoint."""

    def __init__(self, initial: dict[str, np.ndarray[Any, Any]], device: hal.Device) -> None:
        self.device = device
        self.losses: list[float] = []
        self.parameters = {n: hal.asarray(x, device=device) for n, x in initial.items()}
        self.m = {n: hal.zeros(x.shape, device=device) for n, x in initial.items()}
        self.v = {n: hal.zeros(x.shape, device=device) for n, x in initial.items()}

    def groups(self) -> dict[str, Parameters]:
        return {"parameter": self.parameters, "m": self.m, "v": self.v}

    def save(self, path: Path) -> None:
        """Writes all of it or nothing: a file beside it takes its place at the end."""
        from safetensors.numpy import save

        tensors = {
            f"{g}.{n}": a.numpy() for g, held in self.groups().items() for n, a in held.items()
        }
        tensors["losses"] = np.array(self.losses, np.float64)
        part = path.with_name(f"{path.name}.part")
        with part.open("wb") as file:
            file.write(save(tensors))
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)

    def load(self, path: Path) -> None:
        from safetensors.numpy import load_file

        tensors = load_file(path)
        self.losses = tensors.pop("losses").tolist()
        held = {f"{g}.{n}": a for g, arrays in self.groups().items() for n, a in arrays.items()}
        shapes = {name: a.shape for name, a in held.items()}
        if {name: t.shape for name, t in tensors.items()} != shapes:
            raise SystemExit(f"resuming: {path} is of another model; give a checkpoint of this one")
        for name, array in held.items():
            array.set(tensors[name])


def step(state: State, loss: Loss, rate: float) -> float:
    """One update of every parameter, in place."""
    number = len(state.losses)
    tape = Tape(list(state.parameters.values()))
    value = loss(tape, state.parameters, number)
    gradients = tape.gradients(value)
    clip_grad_norm(gradients, MAX_NORM)
    rate *= min(1.0, (number + 1) / 10)
    for name, gradient in zip(state.parameters, gradients, strict=True):
        hal.adamw_step(
            *(state.parameters[name], state.m[name], state.v[name], gradient, rate, number + 1),
            **BETAS,
            eps=1e-8,
            weight_decay=0.01,
        )
    return float(value.item())


def plot(losses: list[float], title: str, path: Path) -> None:
    try:
        from matplotlib.figure import Figure
    except ImportError:
        sentence = "no plot: matplotlib is not installed; pip install 'anyhal[train]'"
        print(sentence, file=sys.stderr)
        return
    figure = Figure(figsize=(7, 4))
    axes = figure.subplots()
    axes.plot(range(1, len(losses) + 1), losses)
    axes.set(xlabel="step", ylabel="loss", title=title)
    figure.savefig(path)


def run(
    chosen: argparse.Namespace,
    initial: dict[str, np.ndarray[Any, Any]],
    loss: Callable[[hal.Device], Loss],
    rate: float,
) -> None:
    device = hal.select_backend(chosen.device)
    if chosen.checkpoint or chosen.resume:
        try:
            import safetensors  # noqa: F401
        except ImportError:
            raise SystemExit(
                "checkpoints: safetensors is not installed; pip install 'anyhal[train]'"
            ) from None
    state = State(initial, device)
    if chosen.resume:
        state.load(chosen.resume)
    first, compute, began = len(state.losses), loss(device), time.perf_counter()
    columns = (
        "[bold]step",
        MofNCompleteColumn(),
        BarColumn(),
        TextColumn("loss {task.fields[loss]:.3f}"),
    )
    with Progress(*columns, TimeRemainingColumn(), console=Console(stderr=True)) as bar:
        task = bar.add_task("", total=chosen.steps, completed=first, loss=float("nan"))
        while len(state.losses) < chosen.steps:
            state.losses.append(step(state, compute, rate))
            bar.update(task, advance=1, loss=state.losses[-1])
    seconds = time.perf_counter() - began
    if chosen.checkpoint:
        state.save(chosen.checkpoint)
    if chosen.plot:
        plot(state.losses, f"{Path(sys.argv[0]).stem} on {device.name}", chosen.plot)
    if chosen.json:
        print(json.dumps({"device": device.name, "seconds": seconds, "losses": state.losses}))
    elif state.losses:
        done = f"steps {first + 1} to {len(state.losses)} on {device.name} in {seconds:.1f} s"
        print(f"{done}: loss {state.losses[0]:.3f} at step 1, {state.losses[-1]:.3f} now")
