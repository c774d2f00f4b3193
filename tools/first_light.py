"""First light on a machine with an NVIDIA card: what works there, in one JSON object.
SPDX-License-Identifier: Apache-2.0

    python tools/first_light.py --out first_light.json

Needs a checkout in which anyhal is installed with its extra `llm`, NVRTC (nvidia-cuda-nvrtc-cu12)
unless the build had it, and for full speed cuBLASLt (nvidia-cublas-cu12); no network. Six minutes
at most: each step is a process of its own with its own limit, and one that fails or takes too long
costs only itself; the file is written after each. On the simulated driver it is a rehearsal:
figures are left out, since they say nothing.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import os
import platform
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "tools"), str(ROOT / "tests"), str(ROOT / "tests" / "ops")]
sys.path[:0] = [str(ROOT / "tests" / "frontends"), str(ROOT / "backends" / "cuda" / "tests")]
SCENARIOS = ("round_trip", "graph", "native", "bad_index")

Result = dict[str, Any]


def simulated() -> bool:
    import anyhal as hal

    return hal.device("cuda:0").fact.simulated


def devices(_: argparse.Namespace) -> Result:
    """What is there, and what the backend says limits it."""
    import anyhal as hal
    from anyhal.runtime.device import facts

    found = facts()
    rows = [d for d in found.devices if d.backend == "cuda"]
    refused = [r.sentence for r in found.refused if r.name == "cuda"]
    assert rows, refused
    return {
        "devices": [
            {"name": d.name, "arch": d.arch, "identity": d.identity, "memory": d.memory_bytes}
            for d in rows
        ],
        "notes": [hal.device("cuda:0").notes(), hal.device("cuda:0").fact.note],
        "version": importlib.metadata.version("anyhal"),
        "simulated": simulated(),
    }


def primitives(_: argparse.Namespace) -> Result:
    """The samples and random cases of the ten core ops against their references."""
    import test_property as cases

    from anyhal.conformance.cases import CASES, random_case
    from anyhal.ops import BY_NAME

    wrong: list[str] = []
    ran = 0
    for op in (name for name in CASES if BY_NAME[name].is_core):
        judged = [*cases.samples(op), *(cases.judged(op, random_case(op, s)) for s in range(12))]
        for i, case in enumerate(judged):
            ran += 1
            if found := cases.outcome(BY_NAME[op], case, "cuda:0", "chosen", i):
                wrong.append(found)
    assert not wrong, f"{len(wrong)} of {ran}: {wrong[:5]}"
    return {"cases": ran}


def table(_: argparse.Namespace) -> Result:
    """The table called directly: a graph replayed and rebound, native work, a bad index."""
    import anyhal

    compiler = shutil.which("g++")
    if compiler is None:
        return {"skipped": "g++ is not on the path"}
    library = Path(anyhal.__file__).parent / "backends" / "cuda" / "libanyhal_cuda.so"
    with tempfile.TemporaryDirectory() as folder:
        program = Path(folder) / "table_driver"
        source = ROOT / "backends" / "cuda" / "tests" / "table_driver.cc"
        command = [compiler, "-std=c++20", "-O1", f"-I{ROOT / 'include'}", str(source)]
        subprocess.run([*command, "-o", str(program), "-ldl", "-lpthread"], check=True)
        environment = {**os.environ, "CUBLASLT": str(cublaslt() or "")}
        for scenario in (*SCENARIOS, "schedule"):
            done = subprocess.run(
                [program, library, scenario, "200"], capture_output=True, text=True,
                env=environment, check=False,
            )  # fmt: skip
            assert done.returncode == 0, f"{scenario}: {done.stdout}{done.stderr}"
    return {"scenarios": [*SCENARIOS, "schedule"]}


def model(given: argparse.Namespace) -> Result:
    """The language model's first tokens against the float64 oracle."""
    from oracle import DATA

    case = next(c for c in json.loads(DATA.read_text()) if c["kind"] == "raw")
    count = 3 if simulated() else given.tokens
    command = [sys.executable, "-c", "from anyhal_command import main; main()", "run", "smollm2"]
    command += [case["prompt"], "--raw", "--max-tokens", str(count), "--device", "cuda:0", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-400:]
    found = json.loads(done.stdout)
    wanted = list(zip(case["token_ids"], case["margins"], strict=True))[:count]
    for i, (want, margin) in enumerate(wanted):
        if margin < 0.02:
            break
        assert found["token_ids"][i] == want, f"token {i} is {found['token_ids'][i]}, not {want}"
    made: Result = {"tokens": found["token_ids"], "text": found.get("text")}
    if not simulated():
        made |= {k: v for k, v in found.items() if "per_s" in k or "seconds" in k or "rate" in k}
    return made


def cublaslt() -> Path | str | None:
    """cuBLASLt as the backend finds it: beside a named driver, in a wheel, in the system."""
    import ctypes

    from anyhal.runtime.discovery import discover

    given = os.environ.get("ANYHAL_CUDA_DRIVER", "")
    if Path(given).is_dir() and given:
        return next(iter(sorted(Path(given).glob("libcublasLt.so.1?"))), None)
    for record in discover().backends:
        path = dict(record.settings).get("cublaslt", "") if record.name == "cuda" else ""
        if path:
            return Path(path)
    for name in ("libcublasLt.so.13", "libcublasLt.so.12"):
        try:
            ctypes.CDLL(name)
        except OSError:
            continue
        return name
    return None


def gemm(given: argparse.Namespace) -> Result:
    """Products against cuBLASLt called directly: ratio of the two times, block by block."""
    import numpy as np
    from cublaslt_client import Gemm

    import anyhal as hal

    library = cublaslt()
    if library is None:
        return {"skipped": "cuBLASLt is not here"}
    driver = Path(os.environ.get("ANYHAL_CUDA_DRIVER", "libcuda.so.1"))
    rehearsal = simulated()
    sizes = (64,) if rehearsal else (256, 1024, 4096, 8192)
    rows = []
    for dtype in ("f32", "bf16"):
        for size in sizes:
            direct = Gemm(
                driver / "libcuda.so.1" if driver.is_dir() else driver, library, size, dtype
            )
            with hal.use(device="cuda:0"):
                name = {"f32": "float32", "bf16": "bfloat16"}[dtype]
                a = hal.asarray(np.ones((size, size), np.float32)).astype(name)
                out = hal.matmul(a, a)
                times = 2 if rehearsal else max(5, min(200, int(4e12 / size**3)))
                ours, theirs = [], []
                for _ in range(2 if rehearsal else given.blocks):
                    begin = time.perf_counter()
                    for _ in range(times):
                        hal.matmul(a, a, out=out)
                    hal.device("cuda:0").synchronize()
                    ours.append((time.perf_counter() - begin) / times)
                    theirs.append(direct.run(times))
            row: Result = {"dtype": dtype, "size": size}
            if not rehearsal:
                ratio = [t / o for o, t in zip(ours, theirs, strict=True)]
                row["of_direct"] = round(statistics.median(ratio), 3)
                row["tflops"] = round(2 * size**3 / statistics.median(ours) / 1e12, 2)
            rows.append(row)
    return {"library": str(library), "products": rows}


STEPS: dict[str, tuple[Callable[[argparse.Namespace], Result], int]] = {  # seconds at most
    "devices": (devices, 30),
    "primitives": (primitives, 110),
    "table": (table, 60),
    "model": (model, 90),
    "gemm": (gemm, 60),
}


def run_step(name: str, arguments: list[str], limit: int) -> Result:
    """One step in a process of its own; its result, or how it failed."""
    started = time.monotonic()
    command = [sys.executable, str(Path(__file__).resolve()), "--step", name, *arguments]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as step:
        try:
            out, errors = step.communicate(timeout=limit)
        except subprocess.TimeoutExpired:
            os.killpg(step.pid, signal.SIGKILL)  # whatever the step started goes with it
            out, errors = step.communicate()
            error = f"the step {name} was cut: it took more than {limit} s\n{errors[-400:]}"
            return {"passed": False, "error": error.strip(), "seconds": limit}
    lines = out.strip().splitlines()
    good = step.returncode == 0 and bool(lines)
    result: Result = {"passed": good}
    result |= json.loads(lines[-1]) if good else {"error": (out + errors)[-1500:]}
    return result | {"seconds": round(time.monotonic() - started, 1)}


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", type=Path, help="the JSON file; stdout without it")
    parser.add_argument("--step", choices=STEPS, help="this step alone, in this process")
    parser.add_argument("--tokens", type=int, default=16)
    parser.add_argument("--blocks", type=int, default=7, help="of products, the two in turns")
    parser.add_argument("--only", choices=STEPS, action="append", help="these steps and devices")
    parser.add_argument("--limit", type=int, default=360, help="seconds a step, at most its own")
    given = parser.parse_args()
    if given.step:
        print(json.dumps(STEPS[given.step][0](given)))
        return 0
    arguments = ["--tokens", str(given.tokens), "--blocks", str(given.blocks)]
    if given.out:
        given.out.parent.mkdir(parents=True, exist_ok=True)
        given.out.touch()  # a name that cannot be written is said before anything runs
    steps: Result = {}
    chosen = [name for name in STEPS if name == "devices" or name in (given.only or STEPS)]
    for name in chosen:
        steps[name] = run_step(name, arguments, min(given.limit, STEPS[name][1]))
        print(f"{name}: {'passed' if steps[name]['passed'] else 'FAILED'}", file=sys.stderr)
        write(given.out, steps)  # what was measured is kept, whatever ends the run
        if name == "devices" and not steps[name]["passed"]:
            break
    if given.out is None:
        print(report(steps))
    return 0 if len(steps) == len(chosen) and all(s["passed"] for s in steps.values()) else 1


def report(steps: Result) -> str:
    made: Result = {"schema": 1, "host": platform.platform()}
    if steps["devices"].get("simulated"):
        made["simulated"] = "a rehearsal on a test double: no figure of it says anything"
    made["steps"] = steps
    return json.dumps(made, indent=1)


def write(path: Path | None, steps: Result) -> None:
    if path is not None:
        path.write_text(report(steps) + "\n", encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
