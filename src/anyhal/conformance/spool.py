"""Arrays handed from the backend's process to the oracle's: raw bytes in a file of their own.
SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from anyhal.conformance.suite import Answer, Part
from anyhal.dtypes import dtype


def write(answer: Answer, file: Path) -> list[dict[str, Any]]:
    """Writes the arrays; returns what `read` needs besides, as plain JSON data."""
    rows: list[dict[str, Any]] = []
    with file.open("xb") as out:
        for part in answer.parts:
            arrays: list[Any] = []
            for one in part.arrays:
                if one is None:
                    arrays.append(None)
                    continue
                one = np.ascontiguousarray(one).reshape(np.shape(one))
                arrays.append([dtype(one.dtype).short, list(one.shape), out.tell()])
                out.write(one.reshape(-1).view(np.uint8).data)
            words = {"refusal": part.refusal, "code": part.code, "failed": part.failed}
            rows.append({"label": part.label, "arrays": arrays, **words})
    return rows


def read(rows: list[dict[str, Any]], file: Path) -> Answer:
    data = file.read_bytes()
    return Answer(
        tuple(
            Part(
                row["label"],
                tuple(None if a is None else _array(data, *a) for a in row["arrays"]),
                row["refusal"],
                row["code"],
                row["failed"],
            )
            for row in rows
        )
    )


def _array(data: bytes, short: str, shape: list[int], offset: int) -> Any:
    count = int(np.prod(shape, dtype=np.int64))
    return np.frombuffer(data, dtype(short).numpy, count, offset).reshape(shape)
