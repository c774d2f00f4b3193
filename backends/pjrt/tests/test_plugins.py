"""Opening plugins: two at once, none that harms others, nothing that ends the process.
SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import anyhal as hal


def run(code: str, plugins: str, **environment: str) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "ANYHAL_PJRT_PLUGINS": plugins, **environment}
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=env, timeout=120
    )


def joined(paths: list[Path]) -> str:
    return ":".join(map(str, paths))


def test_two_plugins_are_two_devices_with_identities(plugins: list[Any]) -> None:
    assert [d.name for d in plugins] == ["pjrtx:0", "pjrtx:1"]
    assert len({d.fact.identity for d in plugins}) == 2
    assert all(len(d.fact.identity) == 32 for d in plugins)
    assert all(d.fact.own_threads > 0 and "cell" in d.fact.memory_kinds[0] for d in plugins)


def test_both_compute_at_once_and_hand_values_over(plugins: list[Any]) -> None:
    first, second = plugins
    rng = np.random.default_rng(0)
    a, b = rng.standard_normal((2, 64, 64)).astype(np.float32)
    x, y = hal.asarray(a, device=first), hal.asarray(b, device=second)
    for _ in range(20):
        x, y = hal.matmul(x, x) * 0.1, hal.matmul(y, y) * 0.1
        x, y = hal.asarray(y, device=first), hal.asarray(x, device=second)
        a, b = (b @ b) * np.float32(0.1), (a @ a) * np.float32(0.1)
    np.testing.assert_allclose(x.numpy(), a, rtol=2e-2, atol=1e-3 * np.abs(a).max())
    np.testing.assert_allclose(y.numpy(), b, rtol=2e-2, atol=1e-3 * np.abs(b).max())


@pytest.mark.parametrize("kind", ["absent", "text", "cut", "stranger", "relative"])
def test_a_bad_plugin_costs_only_itself(paths: list[Path], tmp_path: Path, kind: str) -> None:
    bad = tmp_path / "plugin.so"
    if kind == "text":
        bad.write_text("not a library")
    elif kind == "cut":
        with paths[0].open("rb") as whole:
            bad.write_bytes(whole.read(1 << 20))
    elif kind == "stranger":
        from anyhal.runtime.discovery import package_folder

        bad = Path(package_folder()) / "libanyhal.so"
    code = (
        "import anyhal as hal\n"
        "given = {'plugins': __import__('sys').argv[1]}\n"
        "made = hal.load_backend('pjrt', instance='p', settings=given)\n"
        "print(len(made), hal.add(*[hal.asarray([1.0], device=made[0])] * 2).numpy())\n"
    )
    listed = f"{'plugin.so' if kind == 'relative' else bad}:{paths[0]}"
    done = subprocess.run(
        [sys.executable, "-c", code, listed],
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, "ANYHAL_PJRT_PLUGINS": "none"},
    )
    assert done.stdout.strip() == "1 [2.]", done.stderr
    assert "plugin.so" in done.stderr or "libanyhal.so" in done.stderr


def test_a_plugin_does_not_see_flags_that_would_end_the_process(paths: list[Path]) -> None:
    code = (
        "import os, anyhal as hal\n"
        "print(len([d for d in hal.devices() if d.fact.backend == 'pjrt']))\n"
        "print(os.environ['XLA_FLAGS'])\n"
        "x = hal.asarray([1.0, 2.0], device='pjrt:0')\n"
        "print((x + x).numpy())\n"
    )
    done = run(code, joined(paths), XLA_FLAGS="--xla_no_such_flag=1")
    assert done.returncode == 0, done.stderr
    assert done.stdout.split("\n")[:2] == ["2", "--xla_no_such_flag=1"]


def test_starting_says_nothing_on_stderr(paths: list[Path]) -> None:
    code = "import os, anyhal as hal; hal.devices(); print(os.getenv('TF_CPP_MIN_LOG_LEVEL'))"
    done = run(code, joined(paths))
    assert done.stdout.strip() == "None"
    assert "cpu_client" not in done.stderr and "PJRT" not in done.stderr


def test_a_forked_child_is_refused_and_the_parent_goes_on(paths: list[Path]) -> None:
    code = """
import os, anyhal as hal
x = hal.asarray([1.0, 2.0], device="pjrt:0")
y = hal.add(x, x)
y.numpy()
for attempt in (lambda: hal.add(x, x).numpy(), lambda: hal.asarray([1.0], device="pjrt:1")):
    child = os.fork()
    if child == 0:
        try:
            attempt()
            os._exit(3)
        except hal.DeviceLostError as why:
            os._exit(0 if "fork" in str(why) else 4)
        except BaseException:
            os._exit(5)
    print(os.waitpid(child, 0)[1] >> 8)
print(hal.add(y, x).numpy())
"""
    done = run(code, joined(paths))
    assert done.returncode == 0, done.stderr
    assert done.stdout.split("\n")[:3] == ["0", "0", "[3. 6.]"], done.stdout + done.stderr


def test_the_variable_is_all_and_none_is_none(paths: list[Path]) -> None:
    code = "import anyhal as hal; print([d.name for d in hal.devices() if 'pjrt' in d.name])"
    assert run(code, "none").stdout.strip() == "[]"
    assert run(code, str(paths[1])).stdout.strip() == "['pjrt:0']"


def test_a_compiled_program_is_found_again_by_the_next_process(
    paths: list[Path], tmp_path: Path
) -> None:
    code = (
        "import numpy as np, anyhal as hal\n"
        "d = hal.device('pjrt:0')\n"
        "print((hal.asarray(np.ones((3, 5), np.float32), device=d) * 2.0).numpy().sum())\n"
        "print(d.counter(3), d.counter(4))\n"
    )
    counts = []
    for plugin in (paths[0], paths[0], paths[1]):
        done = run(code, str(plugin), ANYHAL_CACHE=str(tmp_path))
        total, numbers = done.stdout.split("\n")[:2]
        assert total == "30.0", done.stderr
        counts.append([int(n) for n in numbers.split()])
    (first, _), (again, loaded), (other, foreign) = counts
    assert first > 0 and again == 0 and loaded > 0
    assert other > 0 and foreign == 0, "another plugin's programs are not its own"
