"""`anyhal explain`: where one call would run, what every candidate answered, and why.
SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import json
from typing import Annotated, Any

import typer

from anyhal.routing.explain import as_dict
from anyhal.routing.facts import Decision, cost_text


def explain(
    call: Annotated[
        list[str], typer.Argument(help='An op and its operands: "matmul f32[4,8] f32[8,16]".')
    ],
    device: Annotated[
        str | None, typer.Option(help="Where the operands are; else the default device.")
    ] = None,
    fallback: Annotated[str | None, typer.Option(help="never, decompose or any.")] = None,
    numerics: Annotated[str | None, typer.Option(help="The numeric contract.")] = None,
    json_: Annotated[bool, typer.Option("--json", help="One JSON object on stdout.")] = False,
) -> None:
    """Say where a call would run and why, without running it."""
    import anyhal as hal

    with hal.use(device=device, fallback=fallback, numerics=numerics):
        decision = hal.explain(" ".join(call))
    if json_:
        print(json.dumps(as_dict(decision), allow_nan=False))
    else:
        _print(decision)
    if not decision.choice:
        raise typer.Exit(1)


def _print(decision: Decision) -> None:
    from rich import box
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    console = Console()
    console.print(escape(decision.sentence), style="bold", highlight=False)
    table = Table("device", "form", "state", "answer", "cost", box=box.SIMPLE)
    refusals = {(r.device, r.form): r for r in decision.refusals}
    for candidate in decision.considered:
        where = (candidate.device.name, candidate.form)
        if where == (decision.choice, decision.form):
            answer, style = "[green]chosen[/green]", "bold"
        else:
            refusal = refusals[where]
            answer, style = escape(f"{refusal.reason}: {refusal.sentence}"), "dim"
        cost = cost_text(candidate.cost_ns) if candidate.accepts else "-"
        table.add_row(*where, candidate.device.state, answer, cost, style=style)
    console.print(table)
    if decision.work is not None:
        console.print(
            f"work: {decision.work}; cost: {cost_text(decision.cost_ns)}", highlight=False
        )
    for copy in decision.copies:
        console.print(_copy_line(copy), highlight=False)


def _copy_line(copy: Any) -> str:
    return f"copies operand {copy.operand}, {copy.nbytes} bytes, {copy.source} → {copy.target}"
