"""The tables and the progress bar of `anyhal run`.
SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rich import box
from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from anyhal.cli.terminal import cells, escape

if TYPE_CHECKING:
    from anyhal.cli.run import Outcome
    from anyhal.routing.policy import Ranked


_NOT_TIMED = "not timed"
# Narrow enough that a name of an op is whole in 80 columns.
_PLAIN: dict[str, Any] = {"box": box.SIMPLE, "show_edge": False, "pad_edge": False}


@contextlib.contextmanager
def fetch_progress() -> Iterator[Callable[[str, int, int], None]]:
    """A callback that draws a bar on stderr once there is something to fetch."""
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn())
    progress = Progress(*columns, TimeRemainingColumn(), console=Console(stderr=True))
    tasks: dict[str, Any] = {}

    def report(stage: str, done: int, total: int) -> None:
        if stage not in tasks:
            progress.start()
            tasks[stage] = progress.add_task(stage, total=total)
        progress.update(tasks[stage], completed=done)

    try:
        yield report
    finally:
        if tasks:
            progress.stop()


@dataclass(frozen=True, slots=True)
class DeviceRow:
    """One line of the comparison of devices."""

    device: str
    backend: str
    state: str
    identical: str
    prefill: str
    decode: str
    why: str

    @classmethod
    def done(cls, place: Ranked, outcome: Outcome, identical: bool, first: bool) -> DeviceRow:
        device, generation = place.device, outcome.generation
        return cls(
            device.name,
            device.backend,
            device.shown_state,
            "the first" if first else "yes" if identical else "NO",
            _rate(None if device.simulated else generation.prefill_tokens_per_s),
            _rate(None if device.simulated else generation.decode_tokens_per_s),
            place.reason,
        )

    @classmethod
    def failed(cls, place: Ranked, error: Exception) -> DeviceRow:
        device = place.device
        why = f"{place.reason}; failed: {' '.join(str(error).split())}"
        return cls(device.name, device.backend, device.shown_state, "-", "-", "-", why)


def _rate(value: float | None) -> str:
    return "-" if value is None else f"{value:.1f}"


def every_device(rows: list[DeviceRow]) -> None:
    """The same program on every device, on stdout: it is what was asked for."""
    table = Table(title="the same program on every device", title_justify="left", **_PLAIN)
    for heading in ("device", "backend", "state", "same tokens?"):
        table.add_column(heading, overflow="fold")
    for heading in ("prefill tok/s", "decode tok/s"):
        table.add_column(heading, justify="right", overflow="fold")
    for row in rows:
        shown = (row.device, row.backend, row.state, row.identical, row.prefill, row.decode)
        table.add_row(*cells(*shown))
    console = Console(file=sys.stdout)
    console.print(table)
    for row in rows:
        console.print(*cells(f"{row.device}: {row.why}"), highlight=False)


def who_ran_what(outcome: Outcome) -> None:
    """One line per device and backend that took part, on stderr."""
    generation = outcome.generation
    groups: dict[tuple[str, str, str], list[dict[str, Any]]] = {}
    for row in outcome.routes:
        groups.setdefault((row["device"], row["backend"], row["state"]), []).append(row)
    table = Table(title="who ran what", title_justify="left", **_PLAIN)
    for heading in ("device", "backend", "state", "ops", "decomposed"):
        table.add_column(heading, overflow="fold")
    for heading in ("calls", "time ms"):
        table.add_column(heading, justify="right", overflow="fold")
    for (device, backend, state), rows in groups.items():
        ops = ", ".join(sorted({row["op"] for row in rows}))
        decomposed = sum(row["calls"] for row in rows if row["decomposed"])
        calls = sum(row["calls"] for row in rows)
        times = () if outcome.simulated else (row["time_ms"] for row in rows)
        timed = [time_ms for time_ms in times if time_ms is not None]
        shown = (device, backend, state, ops, f"{decomposed} calls" if decomposed else "none")
        time = f"{sum(timed):.1f}" if timed else _NOT_TIMED
        table.add_row(*cells(*shown, calls, time))
    console = Console(file=sys.stderr)
    console.print(table)
    rates = (
        f"prefill {_rate(generation.prefill_tokens_per_s)},"
        f" decode {_rate(generation.decode_tokens_per_s)} tokens/s"
    )
    speed = "simulated, so no figure of it counts" if outcome.simulated else rates
    console.print(f"{len(generation.token_ids)} tokens; {speed}", highlight=False)


def routes_by_op(outcome: Outcome) -> None:
    """Every route of the run, slowest first, on stderr."""
    table = Table(title=escape(f"routes on {outcome.device}"), title_justify="left", **_PLAIN)
    table.add_column("op", no_wrap=True)
    table.add_column("device, state", overflow="fold")
    table.add_column("numerics", no_wrap=True)
    table.add_column("decomposed", overflow="fold")
    for heading in ("calls", "time ms", "µs per call"):
        table.add_column(heading, justify="right", overflow="fold")
    for row in outcome.routes:
        time_ms = None if outcome.simulated else row["time_ms"]
        times = (_NOT_TIMED, "-")
        if time_ms is not None:
            times = (f"{time_ms:.1f}", f"{1000 * time_ms / row['calls']:.1f}")
        decomposed = "yes" if row["decomposed"] else "no"
        where = f"{row['device']}, {row['state']}"
        shown = (row["op"], where, row["numerics"], decomposed)
        table.add_row(*cells(*shown, row["calls"], *times))
    Console(file=sys.stderr).print(table)
