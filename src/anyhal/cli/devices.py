"""`anyhal devices`: every device found, its state and place in the order, and what was refused.
SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from anyhal.cli.terminal import cells, escape, printable
from anyhal.routing.facts import Facts, RefusedBackend
from anyhal.routing.policy import Ranked, physical, rank_devices, routes_to


def devices(
    capabilities: Annotated[
        bool, typer.Option("--capabilities", help="List what each device declares it can run.")
    ] = False,
    json_: Annotated[bool, typer.Option("--json", help="One JSON object on stdout.")] = False,
    write_registry: Annotated[
        bool,
        typer.Option("--write-registry", help="Write the file that C programs find backends by."),
    ] = False,
    registry: Annotated[
        Path | None,
        typer.Option(help="Where --write-registry writes; else where C programs look."),
    ] = None,
    allow: Annotated[
        list[str] | None,
        typer.Option(help="With --write-registry: an uncertified backend to be chosen unnamed."),
    ] = None,
) -> None:
    """List the devices found, in the order of choice with the reason, and the backends that were
    refused."""
    import anyhal as hal
    from anyhal.runtime.device import facts as find_facts

    if write_registry:
        from anyhal.runtime.registry import write_registry as write

        print(printable(str(write(registry, allow or ()))))
        return
    if registry is not None or allow:
        raise typer.BadParameter("--registry and --allow go with --write-registry")

    facts = find_facts()
    rows = {d.name: hal.device(d.name).capabilities() for d in facts.devices if capabilities}
    if json_:
        print(json.dumps(_document(facts, rows), allow_nan=False))
        return
    _print_devices(facts)
    for name, row in rows.items():
        _print_capabilities(name, row)


def _document(facts: Facts, rows: dict[str, list[dict[str, Any]]]) -> dict[str, Any]:
    return {
        "schema": 1,
        "devices": [
            _device(place, ranked, facts, rows)
            for place, ranked in enumerate(rank_devices(facts), start=1)
        ],
        "refused": [
            {
                "name": r.name,
                "path": r.path,
                "stage": r.stage,
                "sentence": r.sentence,
                "absent": r.absent,
            }
            for r in facts.refused
        ],
        "searched": list(facts.searched),
        "notes": list(facts.notes),
    }


def _device(
    place: int, ranked: Ranked, facts: Facts, rows: dict[str, list[dict[str, Any]]]
) -> dict[str, Any]:
    fact = ranked.device
    described: dict[str, Any] = {
        "rank": place,
        "chosen": ranked.eligible and place == 1,
        "why": ranked.reason,
        "name": fact.name,
        "backend": fact.backend,
        "identity": fact.identity,
        "address": fact.address,
        "routes": list(routes_to(fact.name, facts)),
        "arch": fact.arch,
        "memory_bytes": fact.memory_bytes,
        "memory_kinds": list(fact.memory_kinds),
        "state": fact.state,
        "state_code": fact.state_code,
        "state_why": fact.state_why,
        "driver": fact.driver,
        "own_threads": fact.own_threads,
        "simulated": fact.simulated,
        "note": fact.note,
    }
    if fact.name in rows:
        described["capabilities"] = rows[fact.name]
    return described


def _print_devices(facts: Facts) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table

    console = Console()
    table = Table(box=box.SIMPLE)
    for heading in ("device", "state", "arch", "memory"):
        table.add_column(heading, overflow="fold")
    table.add_column("why", overflow="fold")
    cards = physical(facts)
    routes: dict[str, list[str]] = {}  # by card
    for ranked in rank_devices(facts):
        fact = ranked.device
        to_card = routes.setdefault(cards[fact.name], [])
        to_card.append(fact.name)
        table.add_row(  # a card's memory is there once, through however many backends
            *cells(fact.name, fact.shown_state, fact.arch),
            "the same" if len(to_card) > 1 else f"{fact.memory_bytes / 2**30:.1f} GiB",
            escape(ranked.reason),
            style="bold" if ranked.reason.startswith("chosen") else None,
        )
    if facts.devices:
        console.print(table)
    else:
        console.print(escape(f"no device; searched {', '.join(facts.searched) or 'nowhere'}"))
    for card, names in routes.items():
        if card not in names:  # it has an identity
            console.print(escape(f"card {card}: {', '.join(names)}"), highlight=False)
    for fact in facts.devices:
        if fact.state_why and fact.state_code != "uncertified":
            code = f" ({fact.state_code})" if fact.state_code else ""
            console.print(escape(f"{fact.name}: {fact.state_why}{code}"), highlight=False)
        if fact.note:
            console.print(escape(f"note on {fact.name}: {fact.note}"), highlight=False)
    for note in facts.notes:
        console.print(f"note: {escape(note)}", highlight=False, style="yellow")
    for refused in facts.refused:
        if not refused.absent:
            console.print(f"refused: {escape(refused.sentence)}", highlight=False, style="yellow")
    absent = [f"{r.name} ({_why(r)})" for r in facts.refused if r.absent]
    if absent:
        console.print(escape(f"not here: {', '.join(absent)}"), highlight=False, style="dim")


def _why(absent: RefusedBackend) -> str:
    """The reason alone: without who says it and where, what the system's loader said, the cure."""
    reason = absent.sentence.rpartition("; ")[0] or absent.sentence
    reason = re.sub(
        r"^(backend '.*?' was (not loaded from .*?: |loaded and )|backend \S+ is not used here: "
        r"|listing .*?: )",
        "",
        reason,
    )
    return re.sub(r" \(.*\)$", "", reason)


def _print_capabilities(name: str, rows: Sequence[dict[str, Any]]) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table

    if not rows:
        Console().print(escape(f"{name} declares nothing; it is asked op by op"), highlight=False)
        return
    table = Table(box=box.SIMPLE, title=escape(name), title_justify="left")
    table.add_column("op", overflow="fold")
    table.add_column("dtypes", ratio=1, overflow="fold")
    table.add_column("limits", ratio=1, overflow="fold")
    for row in rows:
        table.add_row(*cells(row["op"], " ".join(row["dtypes"]), ", ".join(_limits(row))))
    Console().print(table)


def _limits(row: dict[str, Any]) -> list[str]:
    """What the row says beyond op and dtypes; what is not limited is left out (--json has all)."""
    said = ["strided" if row["strided"] else "dense only"]
    said += [] if row["capture_safe"] else ["not in graphs"]
    said += [f"rank ≤ {row['rank_max']}"] if row["rank_max"] else []
    said += [f"sizes ≤ {row['dim_max']}"] if row["dim_max"] else []
    how = str(row["determinism"]).replace("_", " ")
    return [*said, "not deterministic" if how == "none" else f"deterministic {how}"]
