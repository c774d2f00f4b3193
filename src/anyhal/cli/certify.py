"""`anyhal certify`: puts a backend to the conformance suite. SPDX-License-Identifier: Apache-2.0"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

from anyhal.cli.files import check_writable, is_stdout, write
from anyhal.cli.terminal import cells, escape, printable

CERTIFIED, NOT_CERTIFIED, COULD_NOT_RUN = 0, 1, 2
_FAILURES_SHOWN = 20
_TELL_S = 10.0  # between lines in a log


def certify(
    backend: Annotated[
        str,
        typer.Argument(help="A backend or device (cpu, cpu:0), or the path of a backend.toml."),
    ] = "cpu",
    tier: Annotated[str, typer.Option(help="How much is asked: smoke, quick or full.")] = "quick",
    op: Annotated[list[str] | None, typer.Option(help="Only cases of this op; repeatable.")] = None,
    group: Annotated[
        list[str] | None, typer.Option(help="Only numerics, capabilities or behaviour.")
    ] = None,
    case: Annotated[list[str] | None, typer.Option(help="Only the case of this name.")] = None,
    seed: Annotated[
        int | None, typer.Option(help="With --case: the seed that a report names.")
    ] = None,
    nonce: Annotated[
        str | None, typer.Option(help="What all inputs follow from; drawn when it is not given.")
    ] = None,
    shard: Annotated[str, typer.Option(help="I/N: one of N parts, from 1.")] = "1/1",
    fresh: Annotated[
        bool, typer.Option("--fresh", help="Begin again instead of resuming what was interrupted.")
    ] = False,
    json_: Annotated[
        Path | None, typer.Option("--json", help="Write the report there; - is stdout.")
    ] = None,
    html: Annotated[Path | None, typer.Option(help="Write the report as one page there.")] = None,
    junit: Annotated[Path | None, typer.Option(help="Write the report as JUnit XML there.")] = None,
    key: Annotated[
        Path | None, typer.Option(help="Sign with this Ed25519 key; else with this user's own.")
    ] = None,
    self_test: Annotated[
        bool, typer.Option("--self-test", help="Prove the suite: broken backends must not pass.")
    ] = False,
    sample: Annotated[
        int, typer.Option(min=0, help="With --self-test: so many of them, by --seed; 0: all.")
    ] = 0,
    list_: Annotated[bool, typer.Option("--list", help="Print the cases and stop.")] = False,
) -> int:
    """Judge a backend's numbers, claims and behaviour; exits 0 certified, 1 not, 2 not run."""
    from anyhal.conformance import runner, suite
    from anyhal.errors import HalError

    files = {"--json": json_, "--html": html, "--junit": junit}
    try:
        check_writable(files)
        if self_test:
            from anyhal.cli.self_test import self_test as prove

            return prove(sample, seed, case or (), json_)
        # A build server's way to stop it: as Ctrl-C, it leaves nothing behind.
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
        if list_:
            for one in suite.chosen(tier, op or (), case or ()):
                print(printable(one.id))
            return CERTIFIED
        name, environ = _target(backend)
        with _progress(f"{name} {tier}") as progress:
            report = runner.certify(
                name,
                tier,
                ops=_known_ops(op or ()),
                groups=_known_groups(group or ()),
                ids=case or (),
                seed=seed,
                nonce=nonce or "",
                shard=_shard(shard),
                environ=environ,
                fresh=fresh,
                progress=progress,
                called=backend if environ is None else os.path.abspath(backend),
            )
        if report["certified"]:
            report["certificate"] = str(_issued(report, key))
        write(json_, json.dumps(report, indent=1, allow_nan=False) + "\n")
        _write_pages(report, html, junit)
    except HalError as why:
        from anyhal.cli import _say

        _say(str(why))
        return COULD_NOT_RUN
    if not any(map(is_stdout, files.values())):
        _print(report)
    limited = op or group or case or shard != "1/1"
    failed = report["outcomes"]["fail"]
    return CERTIFIED if report["certified"] or (limited and not failed) else NOT_CERTIFIED


def _issued(report: dict[str, Any], key: Path | None) -> Path:
    from anyhal.conformance.certificates import issue

    return issue(report, key)


def _write_pages(report: dict[str, Any], html: Path | None, junit: Path | None) -> None:
    if html is not None:
        from anyhal.conformance.reports.html import page

        write(html, page([report]))
    if junit is not None:
        from anyhal.conformance.reports.junit import junit as junit_text

        write(junit, junit_text(report))


def _target(backend: str) -> tuple[str, dict[str, str] | None]:
    """The name that workers use, and their environment where a manifest was named."""
    if not backend.endswith(".toml") and os.sep not in backend:
        return backend, None
    from anyhal import settings
    from anyhal.errors import InvalidArgumentError
    from anyhal.runtime.manifest import FILE_NAME, ManifestError, read_manifest

    path = Path(backend)
    path = path / FILE_NAME if path.is_dir() else path
    try:
        name = read_manifest(path).name
    except (OSError, ManifestError) as why:
        said = (why.strerror or str(why)).lower() if isinstance(why, OSError) else str(why)
        raise InvalidArgumentError(f"certifying {backend}: {said}") from None
    found = os.environ.get(settings.BACKEND_PATH.name, "")
    places = [str(path.resolve().parent), *filter(None, [found])]
    return name, os.environ | {settings.BACKEND_PATH.name: os.pathsep.join(places)}


def _known_ops(names: Sequence[str]) -> Sequence[str]:
    from anyhal.ops import lookup

    return [lookup(name).name for name in names]


def _known_groups(names: Sequence[str]) -> Sequence[str]:
    from anyhal.conformance.suite import GROUPS
    from anyhal.errors import InvalidArgumentError

    for name in names:
        if name not in GROUPS:
            raise InvalidArgumentError(
                f"choosing cases: there is no group {name!r}; use {', '.join(GROUPS)}"
            )
    return names


def _shard(text: str) -> tuple[int, int]:
    from anyhal.errors import InvalidArgumentError

    part, _, of = text.partition("/")
    if not (part.isdecimal() and of.isdecimal() and 1 <= int(part) <= int(of)):
        raise InvalidArgumentError(f"--shard {text!r} is not I/N with 1 <= I <= N, as 2/4")
    return int(part), int(of)


@contextmanager
def _progress(title: str) -> Iterator[Any]:
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
    )

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    console = Console(stderr=True)
    left = TimeRemainingColumn()
    quiet = not console.is_terminal  # a log wants no bar
    with Progress(*columns, left, console=console, transient=True, disable=quiet) as bar:
        task = bar.add_task(escape(title), total=None)

        failed, told = 0, time.monotonic()

        def show(done: int, total: int, found: Any) -> None:
            nonlocal failed, told
            failed += found.finding.outcome == "fail"
            words = f"{title}, {failed} failed" if failed else title
            bar.update(task, completed=done, total=total, description=escape(words))
            if quiet and time.monotonic() - told > _TELL_S:
                told = time.monotonic()
                print(f"{words}: {done} of {total}", file=sys.stderr, flush=True)

        yield show


def _print(report: dict[str, Any]) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table

    console = Console()
    failed = [c for c in report["cases"] if c["outcome"] == "fail"]
    for case in failed[:_FAILURES_SHOWN]:
        console.print(
            f"[red]fail[/red] {escape(case['id'])}: {escape(case['reason'])}", soft_wrap=True
        )
        console.print(f"     {escape(case['reproduce'])}", soft_wrap=True, style="dim")
    if len(failed) > _FAILURES_SHOWN:
        console.print(f"and {len(failed) - _FAILURES_SHOWN} more; --json writes them all")
    table = Table(box=box.SIMPLE)
    for heading in ("group", "pass", "refused", "waived", "fail"):
        table.add_column(heading, justify="left" if heading == "group" else "right")
    for group in sorted({c["group"] for c in report["cases"]}):
        rows = [c["outcome"] for c in report["cases"] if c["group"] == group]
        counts = (rows.count(o) for o in ("pass", "refused", "waived", "fail"))
        table.add_row(*cells(group, *counts))
    console.print(table)
    what = f"{report['device']}, {report['tier']}, {report['seconds']:.1f} s"
    if report["certified"]:
        said = f"certified: {what}\ncertificate: {report['certificate']}"
    else:
        said = f"not certified: {what}: {'; '.join(report['why_not'])}"
    for line in said.splitlines():
        console.print(escape(line), soft_wrap=True)
