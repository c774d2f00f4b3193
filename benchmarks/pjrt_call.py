"""What an op on an XLA plugin costs over the same plugin calls made directly, in one run.
SPDX-License-Identifier: Apache-2.0

    python benchmarks/pjrt_call.py [--json] [--check]

Both sides add two f32 vectors and wait for every 24th sum; blocks alternate, medians count
(pjrt_call.cc). With --check the exit status is 1 where the difference is above 5 us.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from timing import Figure, show

import anyhal as hal

ROOT = Path(__file__).resolve().parent.parent
PARTS = ("plugin.cc", "program.cc")  # how the backend itself calls a plugin
ELEMENTS = (64, 4096)
OVER_US = 5.0
TRIES = 3  # processes; the one in the middle counts


def plugins() -> list[str]:
    from anyhal.runtime.manifest import read_manifest
    from anyhal.runtime.vendor import plugin_paths

    if given := os.environ.get("PJRT_TEST_PLUGINS", ""):
        return given.split(":")
    opens = read_manifest(ROOT / "backends" / "pjrt" / "backend.toml").opens
    assert opens is not None
    return [str(path) for path in plugin_paths(opens)[0]]


def build(folder: Path) -> Path:
    """The measuring program, compiled against the installed headers and library."""
    compiler = shutil.which("g++")
    if compiler is None:
        sys.exit("g++ is not on the path, so the measuring program cannot be built")
    program, package = folder / "pjrt_call", Path(hal.__file__).parent
    sources = [Path(__file__).with_suffix(".cc"), *(ROOT / "backends/pjrt" / p for p in PARTS)]
    command = [compiler, "-std=c++20", "-O2", f"-I{ROOT}", f"-I{package / 'include'}"]
    command += [*map(str, sources), f"-L{package}", "-lanyhal", f"-Wl,-rpath,{package}", "-ldl"]
    subprocess.run([*command, "-o", str(program)], check=True)
    return program


def measure(program: Path, registry: Path, plugin: str, count: int) -> tuple[float, float]:
    """Microseconds of a call through the contract, and of the direct calls."""
    ran = subprocess.run(
        [str(program), plugin, "pjrt:0", str(count)],
        env={**os.environ, "ANYHAL_REGISTRY": str(registry)},
        capture_output=True, text=True, timeout=300, check=True,
    )  # fmt: skip
    ours, direct, _ = map(float, ran.stdout.split())
    return ours, direct


def figures() -> list[Figure]:
    found = []
    with tempfile.TemporaryDirectory() as name:
        program = build(Path(name))
        for plugin in plugins():
            registry = Path(name) / f"{Path(plugin).stem}.tsv"
            command = Path(sys.executable).parent / "anyhal"
            subprocess.run(
                [command, "devices", "--write-registry", "--registry", registry],
                env={**os.environ, "ANYHAL_PJRT_PLUGINS": plugin},
                check=True, capture_output=True,
            )  # fmt: skip
            for count in ELEMENTS:
                tries = [measure(program, registry, plugin, count) for _ in range(TRIES)]
                ours, direct = sorted(tries, key=lambda t: t[0] - t[1])[TRIES // 2]
                ratios = sorted(ours / direct for ours, direct in tries)
                found.append(
                    Figure(
                        f"add f32[{count}] on {Path(plugin).stem}",
                        ours,
                        "us",
                        "the plugin called directly",
                        direct,
                        ours / direct,
                        (ratios[0], ratios[-1]),
                        details={"over_us": ours - direct, "tries": tries},
                    )  # fmt: skip
                )
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--check", action="store_true", help="exit 1 above 5 us")
    options = parser.parse_args()
    if not plugins():
        sys.exit("there is no PJRT plugin here: see backends/pjrt/README.md")
    measured = figures()
    show(measured, options.json)
    if options.check:
        for f in measured:
            print(f"{f.name}: {f.value - f.baseline_value:.2f} us over", file=sys.stderr)
    high = [f for f in measured if f.value - f.baseline_value > OVER_US]
    for figure in high:
        print(f"above {OVER_US} us: {figure}", file=sys.stderr)
    return 1 if options.check and high else 0


if __name__ == "__main__":
    sys.exit(main())
