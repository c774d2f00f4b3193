"""What `anyhal --version` prints: core, contract and backends, without opening any library.
SPDX-License-Identifier: Apache-2.0

So it says whose each library is, and not whether its device is here: `anyhal doctor` does.
"""

from __future__ import annotations

from collections.abc import Iterator
from importlib import metadata

from anyhal.runtime.discovery import BackendRecord, discover


def lines() -> Iterator[str]:
    from anyhal import _core

    version = metadata.version("anyhal")
    yield f"anyhal {version}"
    # One build makes package and core; the registry's number is what a backend may differ in.
    yield f"core {version}, op registry {_core.REGISTRY_VERSION}"
    yield f"ABI {_core.ABI_VERSION}"
    for record in discover().backends:
        if record.hidden:
            continue
        stop = record.stages.first_failure
        if stop is not None and stop.status == "absent" and record.manifest is not None:
            made_by = f"{record.manifest.vendor}, ABI {record.manifest.abi}"
            yield f"backend {record.name} ({made_by}, not here: {stop.detail})"
        elif record.error is not None or record.manifest is None:
            yield f"backend {record.name} refused: {record.error}"
        else:
            yield (
                f"backend {record.name} ({record.manifest.vendor}, ABI {record.manifest.abi},"
                f" {record.state}, not opened, sha256 {record.sha256[:12]}){_lacks(record)}"
            )


def _lacks(record: BackendRecord) -> str:
    """What a bridge lacks of others, known without opening it."""
    opens = record.manifest.opens if record.manifest else None
    if opens is None or dict(record.settings).get(opens.setting):
        return ""
    return ": none of the files that it opens is here"
