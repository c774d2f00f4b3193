"""The training examples: losses fall, devices agree, a resumed run is the same run to the bit.
SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from functools import cache
from pathlib import Path

import numpy as np
import pytest

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
PROGRAMS = ("train_mlp", "train_gpt")
# Both computed in f32 from the same start; each step multiplies a difference, but not by much.
STEPS, FIRST_STEP, LATER_STEPS = 20, 1e-6, 1e-3
FALLS_TO = {"train_mlp": 0.75, "train_gpt": 0.85}


def run(program: str, *options: str) -> list[float]:
    command = [sys.executable, str(EXAMPLES / f"{program}.py"), "--json", *options]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert "20/20" in done.stderr or f"{STEPS // 2}/{STEPS // 2}" in done.stderr
    return list(json.loads(done.stdout)["losses"])


@cache
def straight(program: str, device: str) -> list[float]:
    return run(program, "--device", device, "--steps", str(STEPS))


@pytest.mark.parametrize("program", PROGRAMS)
def test_losses_fall_and_devices_agree(program: str) -> None:
    one, two = (np.array(straight(program, device)) for device in ("cpu:0", "dayone:0"))
    assert len(one) == len(two) == STEPS
    np.testing.assert_allclose(two[0], one[0], rtol=FIRST_STEP)
    np.testing.assert_allclose(two, one, rtol=LATER_STEPS)
    assert one[-3:].mean() < FALLS_TO[program] * one[0]


@pytest.mark.parametrize("device", ["cpu:0", "dayone:0"])
@pytest.mark.parametrize("program", PROGRAMS)
def test_a_resumed_run_is_the_same_run(program: str, device: str, tmp_path: Path) -> None:
    pytest.importorskip("safetensors", reason="the extra train is not installed")
    half, whole, again = (tmp_path / f"{name}.safetensors" for name in ("half", "whole", "again"))
    on, steps = ("--device", device), ("--steps", str(STEPS))
    run(program, *on, "--steps", str(STEPS // 2), "--checkpoint", str(half))
    resumed = run(program, *on, *steps, "--resume", str(half), "--checkpoint", str(again))
    losses = run(program, *on, *steps, "--checkpoint", str(whole))
    assert resumed == losses == straight(program, device)
    assert again.read_bytes() == whole.read_bytes()
    assert sorted(p.name for p in tmp_path.iterdir()) == sorted(
        p.name for p in (half, whole, again)
    )


def test_a_checkpoint_of_another_model_is_refused(tmp_path: Path) -> None:
    pytest.importorskip("safetensors", reason="the extra train is not installed")
    path = tmp_path / "mlp.safetensors"
    run("train_mlp", "--steps", str(STEPS // 2), "--checkpoint", str(path))
    command = [
        sys.executable,
        str(EXAMPLES / "train_gpt.py"),
        "--steps",
        "1",
        "--resume",
        str(path),
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 1 and "of another model" in done.stderr


def test_a_plot_is_drawn(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="the extra train is not installed")
    path = tmp_path / "loss.svg"
    run("train_mlp", "--steps", str(STEPS), "--plot", str(path))
    assert "<svg" in path.read_text(encoding="utf-8")


def test_without_matplotlib_a_sentence_says_so(tmp_path: Path) -> None:
    (tmp_path / "matplotlib").mkdir()
    (tmp_path / "matplotlib" / "__init__.py").write_text("raise ImportError\n")
    code = (
        f"import sys; sys.path[:0] = [{str(tmp_path)!r}, {str(EXAMPLES)!r}]\n"
        f"sys.argv = ['train_mlp.py', '--steps', '1', '--plot', {str(tmp_path / 'x.svg')!r}]\n"
        f"import runpy; runpy.run_path({str(EXAMPLES / 'train_mlp.py')!r}, run_name='__main__')\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert "pip install 'anyhal[train]'" in done.stderr and not (tmp_path / "x.svg").exists()


def refused(program: str, *options: str) -> tuple[int, str]:
    """Exit status and the one line that it says."""
    command = [sys.executable, str(EXAMPLES / f"{program}.py"), *options]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.stdout == "" and done.stderr.count("\n") == 1, done.stderr
    assert done.stderr.startswith(f"{program}: "), done.stderr
    return done.returncode, done.stderr


@pytest.mark.parametrize(
    ("options", "status", "says"),
    [
        (("--steps", "0"), 2, "--steps 0 trains nothing; give 1 or more"),
        (("--steps", "-3"), 2, "--steps -3 trains nothing"),
        (("--device", "nowhere:0"), 1, "nowhere:0"),
        (("--checkpoint", "{folder}/none/x.safetensors"), 1, "no such file or directory"),
        (("--checkpoint", "{folder}"), 1, "is a folder"),
        (("--plot", "{folder}/none/x.svg"), 1, "no such file or directory"),
        (("--plot", "{folder}/x.nothing"), 1, "cannot be drawn"),
        (("--plot", "{folder}/x"), 1, "cannot be drawn"),
        (("--resume", "{folder}/none"), 1, "no such file or directory"),
        (("--resume", "{folder}"), 1, "resuming: "),
        (("--resume", "{folder}/empty"), 1, "no whole checkpoint"),
        (("--resume", "{folder}/foreign"), 1, "of another model"),
    ],
)
def test_what_would_fail_later_is_refused_at_once(
    options: tuple[str, ...], status: int, says: str, tmp_path: Path
) -> None:
    safetensors = pytest.importorskip("safetensors.numpy", reason="the extra train is missing")
    pytest.importorskip("matplotlib", reason="the extra train is not installed")
    (tmp_path / "empty").write_bytes(b"")
    safetensors.save_file({"a": np.zeros(3, np.float32)}, tmp_path / "foreign")
    got = refused("train_mlp", *(o.format(folder=tmp_path) for o in options))
    assert got[0] == status and says in got[1]
    assert sorted(p.name for p in tmp_path.iterdir()) == ["empty", "foreign"]


def test_a_checkpoint_is_whole_and_has_fewer_steps_than_are_asked_for(tmp_path: Path) -> None:
    pytest.importorskip("safetensors", reason="the extra train is not installed")
    path = tmp_path / "mlp.safetensors"
    run("train_mlp", "--steps", str(STEPS // 2), "--checkpoint", str(path))
    for steps in (1, STEPS // 2):
        status, said = refused("train_mlp", "--resume", str(path), "--steps", str(steps))
        assert status == 2 and f"has {STEPS // 2} steps already; give more" in said
    path.write_bytes(path.read_bytes()[:-100])
    status, said = refused("train_mlp", "--resume", str(path))
    assert status == 1 and "no whole checkpoint" in said


@pytest.mark.parametrize("saved", [True, False])
def test_an_interrupt_is_one_line_and_the_state_so_far_is_saved(
    saved: bool, tmp_path: Path
) -> None:
    pytest.importorskip("safetensors", reason="the extra train is not installed")
    path = tmp_path / "mlp.safetensors"
    # Ctrl-C comes in the middle of the fifth step, whatever the speed of the machine.
    code = (
        f"import sys, signal; sys.path.insert(0, {str(EXAMPLES)!r})\n"
        f"sys.argv = ['train_mlp.py', '--steps', '{STEPS}', *sys.argv[1:]]\n"
        "import train_mlp, training_run\n"
        "clip, calls = training_run.clip_grad_norm, []\n"
        "def interrupted(*given):\n"
        "    calls.append(0)\n"
        f"    if len(calls) == 5: signal.raise_signal({int(signal.SIGINT)})\n"
        "    return clip(*given)\n"
        "training_run.clip_grad_norm = interrupted\n"
        "chosen = training_run.options('x', 9)\n"
        "training_run.run(chosen, train_mlp.initial, train_mlp.loss, 0.02)\n"
    )
    options = ["--checkpoint", str(path)] if saved else []
    command = [sys.executable, "-c", code, *options]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    last = done.stderr.splitlines()[-1]
    assert done.returncode == 130 and "Traceback" not in done.stderr, done.stderr
    assert "interrupted after step 5" in last and ("--resume" in last) == saved
    assert [p.name for p in tmp_path.iterdir()] == [path.name] * saved
    if saved:
        resumed = run("train_mlp", "--steps", str(STEPS), "--resume", str(path))
        assert resumed == straight("train_mlp", "cpu:0")


def program_with(change: str, program: str, *options: str) -> subprocess.CompletedProcess[str]:
    """A run of the program after `change`, in the same process."""
    code = (
        f"import runpy, signal, sys; sys.path.insert(0, {str(EXAMPLES)!r})\n{change}\n"
        f"sys.argv = [{program + '.py'!r}, *sys.argv[1:]]\n"
        f"runpy.run_path({str(EXAMPLES / f'{program}.py')!r}, run_name='__main__')\n"
    )
    command = [sys.executable, "-c", code, *options]
    return subprocess.run(command, capture_output=True, text=True, timeout=120)


@pytest.mark.parametrize("module", ["numpy", "rich.progress", "anyhal._core"])
@pytest.mark.parametrize("program", PROGRAMS)
def test_an_interrupt_of_an_import_is_one_line(program: str, module: str) -> None:
    change = (
        "class Slow:\n"
        "    def find_spec(self, name, *_):\n"
        f"        if name == {module!r}: signal.raise_signal(signal.SIGINT)\n"
        "sys.meta_path.insert(0, Slow())"
    )
    done = program_with(change, program, "--steps", "1")
    assert (done.returncode, done.stderr) == (130, f"{program}: interrupted\n")


@pytest.mark.parametrize("option", ["--checkpoint", "--plot"])
def test_an_interrupt_of_a_write_leaves_what_was_there(option: str, tmp_path: Path) -> None:
    pytest.importorskip("safetensors", reason="the extra train is not installed")
    pytest.importorskip("matplotlib", reason="the extra train is not installed")
    path = tmp_path / "there.svg"
    path.write_bytes(b"before")
    change = "import os; os.fsync = lambda file: signal.raise_signal(signal.SIGINT)"
    done = program_with(change, "train_mlp", "--steps", "1", option, str(path))
    assert done.returncode == 130 and done.stderr.endswith("train_mlp: interrupted\n"), done.stderr
    assert "Traceback" not in done.stderr
    assert [(p.name, p.read_bytes()) for p in tmp_path.iterdir()] == [(path.name, b"before")]


CHECKPOINTS = {
    "pipe": os.mkfifo,
    "text": lambda path: path.write_text("a checkpoint"),
    "brackets": lambda path: path.write_bytes((100_000).to_bytes(8, "little") + b"[" * 100_000),
    "header past the end": lambda path: path.write_bytes((1 << 60).to_bytes(8, "little") + b"{}"),
    "zeros": lambda path: path.write_bytes(bytes(64)),
    "link to itself": lambda path: path.symlink_to(path),
}


@pytest.mark.parametrize("kind", CHECKPOINTS)
def test_what_is_no_checkpoint_is_one_line(kind: str, tmp_path: Path) -> None:
    pytest.importorskip("safetensors", reason="the extra train is not installed")
    path = tmp_path / "x.safetensors"
    CHECKPOINTS[kind](path)
    status, said = refused("train_mlp", "--resume", str(path))
    assert status == 1 and "resuming: " in said and str(path) in said


@pytest.mark.parametrize("program", PROGRAMS)
def test_the_help_is_about_the_program(program: str) -> None:
    command = [sys.executable, str(EXAMPLES / f"{program}.py"), "--help"]
    shown = subprocess.run(command, capture_output=True, text=True, timeout=120).stdout
    assert shown.startswith(f"usage: {program} ") and "Trains a small" in shown
    assert "SPDX" not in shown
