"""One self-contained page of one or more reports: matrix, details of each cell, pictures.
SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from anyhal.conformance.reports import matrix, pictures
from anyhal.errors import NotFoundError

_OUTCOMES = ("fail", "waived", "refused", "pass")  # the worst first


def page(reports: Sequence[Mapping[str, Any]]) -> str:
    """HTML without anything to load. NotFoundError names the extra where it is not installed."""
    try:
        import jinja2
    except ImportError:
        raise NotFoundError(
            "writing the page of a report: jinja2 is not installed; pip install 'anyhal[certify]'"
        ) from None
    environment = jinja2.Environment(
        autoescape=True, trim_blocks=True, lstrip_blocks=True, undefined=jinja2.StrictUndefined
    )
    template = environment.from_string(
        (Path(__file__).parent / "page.html.j2").read_text(encoding="utf-8")
    )
    tables = [matrix.cells(report) for report in reports]
    shown = [_shown(report, table) for report, table in zip(reports, tables, strict=True)]
    try:
        return template.render(
            reports=shown,
            ops=matrix.ops_of(tables),
            dtypes=matrix.dtypes_of(tables),
            signs=matrix.SIGNS,
            sentences=matrix.SENTENCES,
        )
    except jinja2.UndefinedError as why:  # a report that lacks something
        raise KeyError(str(why)) from None


def _shown(report: Mapping[str, Any], table: Mapping[Any, matrix.Cell]) -> dict[str, Any]:
    try:
        drawn = {"classes": pictures.classes(report), "roofline": pictures.roofline(report)}
    except ImportError:
        drawn = {"classes": "", "roofline": ""}
    return {
        "report": report,
        "cells": table,
        "pictures": drawn,
        "groups": _groups(report),
        "stale": sorted(matrix.stale_ops(report)),
        "id": "".join(c if c.isalnum() else "-" for c in report["device"]),
    }


def _groups(report: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Per group and op, the cases with the worst first."""
    rows: dict[tuple[str, str], list[Mapping[str, Any]]] = {}
    for case in report["cases"]:
        rows.setdefault((case["group"], case["op"]), []).append(case)
    found: list[dict[str, Any]] = []
    for (group, op), cases in sorted(rows.items()):
        cases.sort(key=lambda case: (_OUTCOMES.index(case["outcome"]), case["id"]))
        counts = {o: sum(case["outcome"] == o for case in cases) for o in _OUTCOMES}
        found.append({"group": group, "op": op, "cases": cases, "counts": counts})
    found.sort(key=lambda row: -row["counts"]["fail"])
    return found
