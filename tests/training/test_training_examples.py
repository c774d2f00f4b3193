"""The training examples: losses fall, devices agree, a resumed run is the same run to the bit.
SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import json
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
