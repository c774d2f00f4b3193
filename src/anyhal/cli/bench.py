"""`anyhal bench`: speed of a backend, kept as a baseline, or gated against one.
SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

from anyhal.cli.files import check_writable, is_stdout, write
from anyhal.cli.terminal import cells, escape

PASSED, FAILED, UNFIT = 0, 1, 2


def bench(
    backend: Annotated[str, typer.Argument(help="A backend or device: cpu, cpu:0.")] = "cpu",
    save: Annotated[
        str | None, typer.Option(help="Keep the library and its figures under this name.")
    ] = None,
    gate: Annotated[
        str | None, typer.Option(help="Compare with the baseline of this name, in turns.")
    ] = None,
    op: Annotated[list[str] | None, typer.Option(help="Only this op; repeatable.")] = None,
    blocks: Annotated[int, typer.Option(min=6, max=200, help="Blocks of old, new, new, old.")] = 15,
    json_: Annotated[
        Path | None, typer.Option("--json", help="Write all block times there; - is stdout.")
    ] = None,
) -> int:
    """Time a backend's ops; with --gate exits 0 as fast, 1 slower, 2 this host cannot tell."""
    from anyhal.conformance.performance import baselines, items, snapshot
    from anyhal.conformance.performance import gate as gating
    from anyhal.errors import InvalidArgumentError

    check_writable({"--json": json_})
    if save and gate:
        raise InvalidArgumentError("timing: --save and --gate were given; first gate, then save")
    if save is not None:
        baselines.check_name(save)  # before the minutes that it takes
    known = {name for i in items.ITEMS for name in (i.name, i.op, i.function)}
    for name in op or ():
        if name not in known:
            raise InvalidArgumentError(
                f"timing: nothing times {name!r}; use one of {', '.join(sorted(known))}"
            )
    device = backend if ":" in backend else f"{backend}:0"
    wanted = [i.name for i in items.chosen(op or ())]
    if gate is not None:
        base = baselines.load(gate)
        if base.backend != device.partition(":")[0]:
            raise InvalidArgumentError(
                f"comparing {device} with {gate!r}: that is a baseline of {base.backend}; name"
                " that backend, or another baseline"
            )
        with _progress(f"{device} against {gate}", len(wanted)) as progress:
            verdict = gating.gate(device, base, wanted, blocks=blocks, progress=progress)
        _write(json_, _document(device, verdict, base.name))
        if not is_stdout(json_):
            _print_gate(device, verdict, base)
        return verdict.status
    with _progress(device, len(wanted)) as progress:
        rows = gating.measure(device, wanted, blocks=blocks, progress=progress)
    found = snapshot.taken(device, rows)
    if save is not None:
        baselines.save(save, device.partition(":")[0], Path(found["library_file"]), found)
    _write(json_, found)
    if not is_stdout(json_):
        _print_bench(found)
        if save is not None:
            print(f"kept as {save}")
    return PASSED


def _write(file: Path | None, data: dict[str, Any]) -> None:
    write(file, json.dumps(data, indent=1, allow_nan=False) + "\n")


def _document(device: str, verdict: Any, baseline: str) -> dict[str, Any]:
    def plain(shifts: dict[str, Any]) -> dict[str, Any]:
        return {
            name: {"percent": s.percent, "low": s.low, "high": s.high, "p": s.p}
            for name, s in shifts.items()
        }

    return {
        "schema": 1,
        "device": device,
        "baseline": baseline,
        "status": verdict.status,
        "slower": list(verdict.slower),
        "families": list(verdict.families),
        "noisy": list(verdict.noisy),
        "shifts": plain(verdict.shifts),
        "noise": plain(verdict.noise),
        "rows": verdict.rows,
    }


@contextmanager
def _progress(title: str, total: int) -> Iterator[Any]:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
    from rich.progress import TimeRemainingColumn as Left

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), Left())
    console = Console(stderr=True)
    quiet = not console.is_terminal  # a log wants no bar
    with Progress(*columns, console=console, transient=True, disable=quiet) as bar:
        task = bar.add_task(escape(title), total=total)
        yield lambda name: bar.update(task, advance=1, description=escape(f"{title}: {name}"))


def _print_bench(found: dict[str, Any]) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table

    from anyhal.conformance.performance.roofs import score_name

    table = Table(box=box.SIMPLE)
    for heading in ("call", "time", "Gflop/s", "GB/s", "of the roof"):
        table.add_column(heading, justify="left" if heading == "call" else "right")
    perf = found["perf"]
    for p in perf["points"]:
        rates = (f"{p[what] / p['seconds'] / 1e9:.1f}" for what in ("flops", "bytes"))
        score = perf["scores"][score_name(p)]
        table.add_row(*cells(p["name"], f"{p['seconds'] * 1e6:.0f} us", *rates, f"{score:.0%}"))
    console = Console()
    console.print(table)
    if perf["refused"]:
        console.print(f"refused: {escape(', '.join(perf['refused']))}", soft_wrap=True)
    said = ": ".join(filter(None, (found["device"], perf["tier"], perf["why"])))
    console.print(escape(said), highlight=False, soft_wrap=True)


def _print_gate(device: str, verdict: Any, base: Any) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table

    table = Table(box=box.SIMPLE)
    for heading in ("call", "slower by", "99 % interval", "noise", ""):
        table.add_column(heading, justify="left" if heading == "call" else "right")
    for name, s in verdict.shifts.items():
        span = " to ".join(f"{100 * math.expm1(x):+.1f} %" for x in (s.low, s.high))
        word = "slower" if name in verdict.slower else "noisy" if name in verdict.noisy else ""
        noise = f"{abs(verdict.noise[name].percent):.1f} %"
        table.add_row(*cells(name, f"{s.percent:+.1f} %", span, noise, word))
    console = Console()
    console.print(table)
    said = {
        PASSED: f"{device} is as fast as {base.name} ({base.saved})",
        FAILED: f"{device} is slower than {base.name}: {', '.join(verdict.slower)}"
        + (f"; families: {', '.join(verdict.families)}" if verdict.families else ""),
        UNFIT: "host unfit: two runs of the same build differ in"
        f" {', '.join(verdict.noisy)}; run again on a quiet machine",
    }
    console.print(said[verdict.status], soft_wrap=True, highlight=False, markup=False)
