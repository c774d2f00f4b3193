"""What the training examples share: options, the loop, checkpoints, the loss plot.
SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import argparse
import io
import json
import os
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

import ctrl_c
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


NAME = Path(sys.argv[0]).stem


def write_whole(path: Path, write: Callable[[BinaryIO], object]) -> None:
    """All of a file or nothing, whatever happens: one beside it takes its place at the end."""
    part = path.with_name(f"{path.name}.{os.getpid()}.part")
    try:
        with part.open("wb") as file:
            write(file)
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)


class Stop(Exception):
    """Ends the program with a sentence and an exit status."""

    def __init__(self, sentence: str, status: int = 1) -> None:
        super().__init__(sentence)
        self.status = status


def options(purpose: str, steps: int) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog=NAME, description=purpose.splitlines()[0])
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
        """Writes all of it or nothing."""
        from safetensors.numpy import save

        tensors = {
            f"{g}.{n}": a.numpy() for g, held in self.groups().items() for n, a in held.items()
        }
        tensors["losses"] = np.array(self.losses, np.float64)
        data = save(tensors)
        write_whole(path, lambda file: file.write(data))

    def load(self, path: Path) -> None:
        from safetensors import SafetensorError
        from safetensors.numpy import load_file

        try:
            if not path.is_file():  # a named pipe would block here for ever
                path.stat()
                raise OSError(0, "it is not a regular file")
            tensors = load_file(path)
        except OSError as why:
            reason = (why.strerror or str(why)).lower()
            raise Stop(f"resuming: {path}: {reason}; give a checkpoint to --resume") from None
        except (SafetensorError, KeyError, TypeError) as why:  # the last two: dtypes without NumPy
            raise Stop(f"resuming: {path} is no whole checkpoint ({why}); give another") from None
        held = {f"{g}.{n}": a for g, arrays in self.groups().items() for n, a in arrays.items()}
        losses = tensors.pop("losses", np.zeros(()))
        kinds = {name: (a.shape, a.dtype) for name, a in held.items()}
        found = {name: (t.shape, t.dtype.name) for name, t in tensors.items()}
        if found != kinds or losses.ndim != 1 or losses.dtype != np.float64:
            raise Stop(f"resuming: {path} is of another model; give a checkpoint of this one")
        self.losses = losses.tolist()
        for name, array in held.items():
            array.set(tensors[name])


def step(state: State, loss: Loss, rate: float) -> float:
    """One update of every parameter, in place."""
    number = len(state.losses)
    tape = Tape(list(state.parameters.values()))
    value = loss(tape, state.parameters, number)
    gradients = tape.gradients(value)
    clip_grad_norm(gradients, MAX_NORM)
    # Numbers that are new at each step: arrays, made once for all parameters.
    rate *= min(1.0, (number + 1) / 10)
    now = [hal.asarray(x, device=state.device) for x in (np.float32(rate), np.int64(number + 1))]
    for name, gradient in zip(state.parameters, gradients, strict=True):
        hal.adamw_step(
            *(state.parameters[name], state.m[name], state.v[name], gradient, *now),
            **BETAS,
            eps=1e-8,
            weight_decay=0.01,
        )
    return float(value.item())


def plot(losses: list[float], title: str, path: Path) -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 4))
    axes = figure.subplots()
    axes.plot(range(1, len(losses) + 1), losses)
    axes.set(xlabel="step", ylabel="loss", title=title)
    write_whole(path, lambda file: figure.savefig(file, format=path.suffix[1:].lower()))


def check_writable(option: str, path: Path) -> None:
    """A file beside `path` can be made: found out now, not after hours of training."""
    try:
        with tempfile.TemporaryFile(dir=path.parent):
            pass
        if path.is_dir():
            raise IsADirectoryError(0, "is a folder")
    except OSError as why:
        reason = (why.strerror or str(why)).lower()
        raise Stop(f"{option} {path} cannot be written: {reason}; give another path") from None


def can_plot(path: Path) -> bool:
    """Whether there is matplotlib; Stop where it cannot draw files of this ending."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        sentence = "no plot: matplotlib is not installed; pip install 'anyhal[train]'"
        print(sentence, file=sys.stderr)
        return False
    try:
        Figure().savefig(io.BytesIO(), format=path.suffix[1:].lower() or "none")
    except Exception as why:  # each format has its own kind of failure
        reason = " ".join(str(why).split())
        raise Stop(f"--plot {path} cannot be drawn: {reason}; try the ending .svg") from None
    return True


def check(chosen: argparse.Namespace) -> None:
    """Refuses before training what would fail after it."""
    if chosen.steps < 1:
        raise Stop(f"--steps {chosen.steps} trains nothing; give 1 or more", 2)
    if chosen.checkpoint or chosen.resume:
        try:
            import safetensors  # noqa: F401
        except ImportError:
            sentence = "checkpoints: safetensors is not installed; pip install 'anyhal[train]'"
            raise Stop(sentence) from None
    for option in ("checkpoint", "plot"):
        if path := getattr(chosen, option):
            check_writable(f"--{option}", path)
    if chosen.plot and not can_plot(chosen.plot):
        chosen.plot = None


@contextmanager
def interrupts() -> Iterator[list[int]]:
    """Notes the first Ctrl-C, so that a step ends whole; the second one is as ever."""
    noted: list[int] = []

    def note(number: int, frame: object) -> None:
        noted.append(number)
        signal.signal(number, before)

    before = signal.getsignal(signal.SIGINT)
    signal.signal(signal.SIGINT, note)
    try:
        yield noted
    finally:
        signal.signal(signal.SIGINT, before)


def train(state: State, compute: Loss, rate: float, steps: int) -> bool:
    """Whether all steps were done; False after Ctrl-C."""
    columns = (
        "[bold]step",
        MofNCompleteColumn(),
        BarColumn(),
        TextColumn("loss {task.fields[loss]:.3f}"),
    )
    shown = Progress(*columns, TimeRemainingColumn(), console=Console(stderr=True))
    with interrupts() as noted, shown as bar:
        task = bar.add_task("", total=steps, completed=len(state.losses), loss=float("nan"))
        while len(state.losses) < steps and not noted:
            state.losses.append(step(state, compute, rate))
            bar.update(task, advance=1, loss=state.losses[-1])
    return len(state.losses) == steps


def run_checked(
    chosen: argparse.Namespace,
    initial: Callable[[], dict[str, np.ndarray[Any, Any]]],
    loss: Callable[[hal.Device], Loss],
    rate: float,
) -> None:
    check(chosen)
    device = hal.select_backend(chosen.device)
    state = State(initial(), device)
    if chosen.resume:
        state.load(chosen.resume)
    first = len(state.losses)
    if chosen.steps <= first:
        has = f"{chosen.resume} has {first} steps already"
        raise Stop(f"--steps {chosen.steps} counts all steps and {has}; give more", 2)
    compute, began = loss(device), time.perf_counter()
    done = train(state, compute, rate, chosen.steps)
    seconds = time.perf_counter() - began
    if chosen.checkpoint:
        state.save(chosen.checkpoint)
    if not done:
        where = f"; go on with --resume {chosen.checkpoint}" if chosen.checkpoint else ""
        raise Stop(f"interrupted after step {len(state.losses)}{where}", 130)
    if chosen.plot:
        plot(state.losses, f"{NAME} on {device.name}", chosen.plot)
    if chosen.json:
        print(json.dumps({"device": device.name, "seconds": seconds, "losses": state.losses}))
    else:
        span = f"steps {first + 1} to {len(state.losses)} on {device.name} in {seconds:.1f} s"
        print(f"{span}: loss {state.losses[0]:.3f} at step 1, {state.losses[-1]:.3f} now")


def run(
    chosen: argparse.Namespace,
    initial: Callable[[], dict[str, np.ndarray[Any, Any]]],
    loss: Callable[[hal.Device], Loss],
    rate: float,
) -> None:
    """All of a training program; a failure is one line and an exit status."""
    ctrl_c.raises()
    try:
        run_checked(chosen, initial, loss, rate)
        return
    except Stop as why:
        sentence, status = str(why), why.status
    except KeyboardInterrupt:
        sentence, status = "interrupted", 130
    except (hal.HalError, OSError) as why:
        sentence, status = str(why), 1
    print(f"{NAME}: {sentence}", file=sys.stderr)
    sys.exit(status)
