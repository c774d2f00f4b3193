"""`anyhal doctor`: how far each backend came, what stopped it, and what is special on this machine.
SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import json
import os
from typing import Annotated, Any

import typer

from anyhal import settings
from anyhal.cli.terminal import cells, escape
from anyhal.errors import HalError

_SHOWN = {"failed": "refused", "absent": "not here", "waiting": "waits"}
_STYLES = {"refused": "yellow", "left out": "yellow", "not here": "dim", "waits": "dim"}


def doctor(
    json_: Annotated[bool, typer.Option("--json", help="One JSON object on stdout.")] = False,
) -> None:
    """Open every backend and say how far it came; exits 0 whatever it finds."""
    report = examine()
    if json_:
        print(json.dumps(report, allow_nan=False))
    else:
        _print(report)


def examine() -> dict[str, Any]:
    """All that the command knows, as its JSON has it."""
    from anyhal import _core
    from anyhal.cli import doctor_machine as machine
    from anyhal.runtime.device import facts, found

    notes: list[str] = []
    try:
        notes += facts().notes
    except HalError as why:  # a variable that cannot be read, or that leaves no device
        notes.append(str(why))
    try:
        discovery = found()
    except HalError:
        discovery = _without_the_environment()
    libraries = machine.libraries(discovery.backends, _core.mapped_libraries())
    for twice in libraries["duplicates"]:
        notes.append(
            f"{len(twice['files'])} {twice['runtime']} runtimes are in this process:"
            f" {', '.join(twice['files'])}; each has its own threads and state"
        )
    notes += [note for record in discovery.backends for note in record.notes]
    left_out = _left_out()
    return {
        "schema": 1,
        "backends": [
            {
                "backend": record.name,
                "manifest": f"{record.path}/backend.toml",
                "state": record.state if _trusted(record) else "",
                "stages": _stages(record, left_out.get(record.name, {})),
            }
            for record in discovery.backends
        ],
        "cpu": machine.processor(),
        "quota": machine.quota(),
        "nodes": machine.nodes(),
        "pci": machine.buses(),
        "environment": machine.environment(),
        "libraries": libraries,
        "searched": list(discovery.searched),
        "notes": list(dict.fromkeys(notes)),
    }


def _trusted(record: Any) -> bool:
    """Whether its library was looked at: before that nobody knows whose it is."""
    return any(row.stage == "trust" and row.status == "ok" for row in record.stages)


def _left_out() -> dict[str, dict[str, bool]]:
    """Each backend's devices, and whether the user leaves it out; nothing where nobody chose."""
    from anyhal.routing.policy import unseen
    from anyhal.runtime.device import known_facts

    try:
        names = settings.VISIBLE_DEVICES.read()
        if names is None:
            return {}
        known = known_facts()
    except HalError:  # told in the notes
        return {}
    hidden = unseen(known, names)
    found: dict[str, dict[str, bool]] = {}
    for device in known.devices:
        found.setdefault(device.backend, {})[device.name] = device.name in hidden
    return found


def _stages(record: Any, devices: dict[str, bool]) -> list[dict[str, Any]]:
    """The record's rows; the gate says which of the devices the user leaves out."""
    rows: list[dict[str, Any]] = record.stages.document()
    gate, hidden = rows[-1], [name for name, is_hidden in devices.items() if is_hidden]
    variable = settings.VISIBLE_DEVICES.name
    said = f"{variable} leaves {', '.join(hidden)} out"
    if hidden and len(hidden) == len(devices):
        hint = f"name it there too, or unset {variable}"
        gate.update(status="waiting", code="left_out", detail=said, hint=hint)
    elif hidden:
        gate["detail"] += f"; {said}"
    return rows


def _without_the_environment() -> Any:
    from anyhal.runtime.certified import Known
    from anyhal.runtime.discovery import Root, discover, package_folder

    root = Root(f"{package_folder()}/backends", "the package itself", strict=False)
    return discover(roots=[root], test_script="1", known=Known(os.devnull))


# ------------------------------------------------------------------------------------- for people


def _print(report: dict[str, Any]) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table

    console = Console()
    table = Table(box=box.SIMPLE, show_edge=False, pad_edge=False)
    table.add_column("backend", overflow="fold", max_width=24)
    table.add_column("outcome", no_wrap=True)
    table.add_column("stage", no_wrap=True)
    table.add_column("why, and what to do", ratio=1, overflow="fold")
    for backend in report["backends"]:
        outcome, stage, why = _line(backend)
        shown = cells(backend["backend"], outcome, stage, why)
        file = "".join(f"\n{escape(file)}" for file in _files(backend, why))
        table.add_row(*shown[:-1], shown[-1] + file, style=_STYLES.get(outcome))
    console.print(table)
    if not report["backends"]:
        console.print(escape(f"no backend; searched {', '.join(report['searched'])}"))
    console.print()
    for title, text in _facts(report):
        console.print(escape(f"{title}: {text}"), highlight=False)
    for note in report["notes"]:
        console.print(f"note: {escape(note)}", highlight=False, style="yellow")


def _line(backend: dict[str, Any]) -> tuple[str, str, str]:
    """Outcome, stage and sentence of the first row that did not pass."""
    row = next((row for row in backend["stages"] if row["status"] != "ok"), None)
    if row is None:
        devices = next(r["detail"] for r in backend["stages"] if r["stage"] == "devices")
        state, gate = backend["state"], backend["stages"][-1]["detail"]
        return "ready", "", f"{state}: {devices}{gate.removeprefix(state)}"
    if row["stage"] == "gate" and row["code"] != "left_out":
        devices = next(r["detail"] for r in backend["stages"] if r["stage"] == "devices")
        return "ready", "", f"{devices}; {row['detail']}; {row['hint']}"
    why = "; ".join(text for text in (row["detail"], row["hint"]) if text)
    code = f" ({row['code']})" if row["code"] else ""
    outcome = "left out" if row["code"] == "left_out" else _SHOWN[row["status"]]
    return outcome, row["stage"], f"{why}{code}"


def _files(backend: dict[str, Any], why: str) -> list[str]:
    """The file that stopped it, unless the sentence has its name already."""
    row = next((row for row in backend["stages"] if row["status"] == "failed"), None)
    return [row["file"]] if row and row["file"] and row["file"] not in why else []


def _facts(report: dict[str, Any]) -> list[tuple[str, str]]:
    quota, cpu = report["quota"], report["cpu"]
    cores = f"{len(quota['affinity'])} cores by affinity"
    cores += f", {quota['cpus']:g} by quota" if quota["cpus"] is not None else ", no quota"
    memory = quota["memory_bytes"]
    cores += f", memory limit {memory / 2**30:.1f} GiB" if memory else ", no memory limit"
    wide = [name for name in cpu["features"] if name.startswith(("avx", "amx", "sve", "asimd"))]
    nodes = [
        n["path"] if n["usable"] else f"{n['path']} (this user may not use it: {n['mode']})"
        for n in report["nodes"]
    ]
    mapped = [row for row in report["libraries"]["mapped"] if row["backend"] or row["vendor_of"]]
    lines = [
        ("processor", f"{cpu['machine']}; {' '.join(wide) or 'no vector extensions named'}"),
        ("allowed", cores),
        ("driver nodes", ", ".join(nodes) or "none"),
        ("libraries", f"{len(mapped)} of backends and vendors are mapped (--json lists them)"),
        ("searched", ", ".join(report["searched"]) or "nowhere"),
    ]
    return lines + [
        ("variable", f"{row['name']}={row['value']}: {row['does']}")
        for row in report["environment"]
    ]
