"""`anyhal explain`: where one call would run, what every candidate answered, and why.
SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Annotated, Any

import typer

from anyhal.cli.terminal import cells, escape
from anyhal.errors import InvalidArgumentError
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
    numerics: Annotated[
        str | None, typer.Option(help="strict, or what may be used: tf32, bf16, int8.")
    ] = None,
    determinism: Annotated[
        str | None,
        typer.Option(help="run_to_run, none, batch_invariant or cross_device."),
    ] = None,
    facts: Annotated[
        Path | None, typer.Option(help="Decide from this facts file, without any device.")
    ] = None,
    write_facts: Annotated[
        Path | None, typer.Option(help="Also write what was asked to this file.")
    ] = None,
    json_: Annotated[bool, typer.Option("--json", help="One JSON object on stdout.")] = False,
) -> None:
    """Say where a call would run and why, without running it."""
    text = " ".join(call)
    if facts is not None:
        if write_facts is not None:
            raise InvalidArgumentError(
                "explain: --facts reads a file and --write-facts writes one; give one of the two"
            )
        decision = _from_file(facts, text, device, fallback, numerics, determinism)
    else:
        decision = _ask(text, device, fallback, numerics, determinism, write_facts)
    if json_:
        print(json.dumps(as_dict(decision), allow_nan=False))
    else:
        _print(decision)
    if not decision.choice:
        raise typer.Exit(1)


def _ask(
    text: str,
    device: str | None,
    fallback: str | None,
    numerics: str | None,
    determinism: str | None,
    write_facts: Path | None,
) -> Decision:
    import anyhal as hal

    with hal.use(device=device, fallback=fallback, numerics=numerics, determinism=determinism):
        decision = hal.explain(text)
        if write_facts is not None:
            hal.facts(write_facts)
    return decision


def _from_file(
    path: Path,
    text: str,
    device: str | None,
    fallback: str | None,
    numerics: str | None,
    determinism: str | None,
) -> Decision:
    from anyhal.routing import replay
    from anyhal.routing.facts import Contract

    if numerics is not None or determinism is not None:
        raise InvalidArgumentError(
            "explain: --numerics and --determinism were asked with the recorded answers and cannot"
            " be changed; record another file under them"
        )
    recording = replay.from_data(_read_facts(path), str(path))
    contract = Contract() if fallback is None else Contract(fallback=fallback)  # type: ignore[arg-type]
    return replay.decide_again(recording, text, device, contract)


_FACTS_BYTES = 64 << 20  # a call takes some kilobytes, and a process records a thousand


def _read_facts(path: Path) -> Any:
    from anyhal.runtime.small_file import read_small_file

    def no_number(word: str) -> Any:
        raise ValueError(f"it holds {word}, which is no number")

    try:
        text = read_small_file(path, _FACTS_BYTES).decode("utf-8")
        return json.loads(text, parse_constant=no_number)
    except OSError as why:
        raise InvalidArgumentError(
            f"reading facts from {path}: {(why.strerror or str(why)).lower()}; check the path"
        ) from None
    except (ValueError, RecursionError) as why:
        raise InvalidArgumentError(
            f"reading facts from {path}: it is no JSON ({why}); write one with hal.facts(path)"
        ) from None


def _print(decision: Decision) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table

    console = Console()
    console.print(escape(decision.sentence), style="bold", highlight=False)
    table = Table(box=box.SIMPLE)
    for heading in ("device", "form", "state"):
        table.add_column(heading, overflow="fold")
    table.add_column("answer", overflow="fold")  # at words where it can, and nothing cut off
    priced = any(candidate.accepts and candidate.cost_ns for candidate in decision.considered)
    if priced:
        table.add_column("cost", no_wrap=True)
    refusals = {(r.device, r.form): r for r in decision.refusals}
    for candidate in decision.considered:
        where = (candidate.device.name, candidate.form)
        if where == (decision.choice, decision.form):
            answer, style = "[green]chosen[/green]", "bold"
        else:
            refusal = refusals[where]
            answer, style = escape(f"{refusal.reason}: {refusal.sentence}"), "dim"
        known = candidate.accepts and candidate.cost_ns
        cost = [cost_text(candidate.cost_ns) if known else "-"] * priced
        table.add_row(*cells(*where, candidate.device.shown_state), answer, *cost, style=style)
    console.print(table)
    if decision.work is not None:
        console.print(
            f"work: {decision.work}; cost: {cost_text(decision.cost_ns)}", highlight=False
        )
    for kernel, times in Counter(decision.kernels).items():
        library = f" of {kernel.library}" if kernel.library else ""
        often = f", {times} times" if times > 1 else ""
        console.print(
            escape(
                f"runs {kernel.op}: kernel {kernel.kernel or 'not named'}{library},"
                f" {kernel.numerics} numerics{often}"
            ),
            highlight=False,
        )
    for copy in decision.copies:
        console.print(escape(_copy_line(copy)), highlight=False)


def _copy_line(copy: Any) -> str:
    return f"copies operand {copy.operand}, {copy.nbytes} bytes, {copy.source} → {copy.target}"
