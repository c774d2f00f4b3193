"""Pictures of a report as SVG text: measured precision classes, and speed against the roofs.
SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import io
from collections.abc import Mapping
from typing import Any


def classes(report: Mapping[str, Any]) -> str:
    """Effective bits of each cell that measured them, beside what its dtype holds; "" for none."""
    rows = {
        name: row for name, row in sorted(report.get("classes", {}).items()) if "eff_bits" in row
    }
    if not rows:
        return ""
    figure, axes = _figure(max(2.0, 0.28 * len(rows) + 1.0))
    places = range(len(rows))
    axes.barh(places, [row["eff_bits"] for row in rows.values()], color="#4c78a8", height=0.6)
    for place, row in zip(places, rows.values(), strict=True):
        wanted = row.get("declared_bits")
        if wanted is not None:
            axes.plot([wanted, wanted], [place - 0.4, place + 0.4], color="#d62728", linewidth=2)
    axes.set_yticks(list(places), [f"{n} ({row['class']})" for n, row in rows.items()], fontsize=8)
    axes.invert_yaxis()
    axes.set_xlabel("effective bits measured; red: what the declared class must keep")
    return _svg(figure)


def roofline(report: Mapping[str, Any]) -> str:
    """Each measured op under the device's own roofs; "" when no speed was measured."""
    perf = report.get("perf", {})
    points, roofs = perf.get("points", []), perf.get("roofs", {})
    if not points or not roofs:
        return ""
    import numpy as np

    figure, axes = _figure(4.2)
    intensities = [p["flops"] / max(p["bytes"], 1) for p in points]
    span = np.geomspace(min(*intensities, 0.1) / 2, max(*intensities, 10) * 4, 200)
    for dtype, flops in sorted(roofs.get("flops_per_s", {}).items()):
        line = np.minimum(flops, span * roofs["bytes_per_s"]) / 1e9
        axes.plot(span, line, linewidth=1, label=f"roof {dtype}")
    for point, x in zip(points, intensities, strict=True):
        y = point["flops"] / point["seconds"] / 1e9
        axes.plot([x], [y], "o", markersize=4)
        axes.annotate(
            f"{point['op']} {point['dtype']}",
            (x, y),
            fontsize=7,
            xytext=(3, 3),
            textcoords="offset points",
        )
    axes.set(xscale="log", yscale="log", xlabel="flops per byte", ylabel="Gflop/s")
    axes.legend(fontsize=7)
    return _svg(figure)


def _figure(height: float) -> Any:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, height), layout="constrained")
    axes = figure.subplots()
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis="x", alpha=0.3)
    return figure, axes


def _svg(figure: Any) -> str:
    out = io.StringIO()
    figure.savefig(out, format="svg", metadata={"Date": None, "Creator": None})
    text = out.getvalue()
    return text[text.index("<svg") :]
