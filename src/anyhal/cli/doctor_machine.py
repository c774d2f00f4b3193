"""What `anyhal doctor` says of the machine: processor, limits, driver nodes, environment, mappings.
SPDX-License-Identifier: Apache-2.0

All that names a vendor is data, in the two tables.
"""

from __future__ import annotations

import os
import platform
import stat
from collections.abc import Iterable, Iterator
from fnmatch import fnmatchcase
from glob import glob
from pathlib import Path
from typing import Any

from anyhal import settings
from anyhal.runtime.discovery import BackendRecord, hash_of
from anyhal.runtime.hardware import cpu_features, pci_ids
from anyhal.runtime.mapped import copies_of_runtimes

# Where kernel drivers show their devices.
NODES = (
    "/dev/nvidia*",
    "/dev/kfd",
    "/dev/dri/*",
    "/dev/accel/*",
    "/dev/accel[0-9]*",
    "/dev/davinci*",
    "/dev/habanalabs*",
    "/dev/neuron*",
    "/dev/tenstorrent/*",
    "/dev/apex_*",
    "/dev/vfio/*",
    "/dev/dxg",
)
# Variables of others that change what runs or what comes out.
VARIABLES = (
    ("ONEDNN_DEFAULT_FPMATH_MODE", "lets products of f32 be computed in fewer bits"),
    ("DNNL_DEFAULT_FPMATH_MODE", "lets products of f32 be computed in fewer bits"),
    ("ONEDNN_*", "tunes or limits oneDNN"),
    ("DNNL_*", "tunes or limits oneDNN"),
    ("NVIDIA_TF32_OVERRIDE", "allows or forbids TF32 in NVIDIA's libraries, whatever is asked for"),
    ("CUBLAS_WORKSPACE_CONFIG", "changes which algorithms cuBLAS may take"),
    ("CUDA_VISIBLE_DEVICES", "hides NVIDIA devices from the driver"),
    ("CUDA_DEVICE_ORDER", "changes the numbers of NVIDIA devices"),
    ("CUDA_LAUNCH_BLOCKING", "makes every launch wait"),
    ("CUDA_*", "changes the behaviour of NVIDIA's driver or libraries"),
    ("HSA_OVERRIDE_GFX_VERSION", "makes AMD devices say they are another architecture"),
    ("ROCR_VISIBLE_DEVICES", "hides AMD devices from the run-time library"),
    ("HIP_VISIBLE_DEVICES", "hides AMD devices from programs"),
    ("ZE_AFFINITY_MASK", "hides Intel devices from the driver"),
    ("OCL_ICD_*", "changes which OpenCL platforms are found"),
    ("OPENCL_*", "changes which OpenCL platforms are found"),
    ("POCL_*", "tunes the PoCL platform"),
    ("XLA_FLAGS", "changes what XLA plugins compile"),
    ("TPU_*", "configures TPU plugins"),
    ("LD_PRELOAD", "puts libraries before all others in every process"),
    ("LD_AUDIT", "puts a library between the process and its loader"),
    ("LD_LIBRARY_PATH", "makes the system's loader look there first"),
    ("LD_BIND_NOW", "binds every symbol when a library is opened"),
    ("OMP_*", "changes the threads of OpenMP runtimes"),
    ("GOMP_*", "changes the threads of GNU's OpenMP runtime"),
    ("KMP_*", "changes the threads of Intel's and LLVM's OpenMP runtime"),
    ("MKL_*", "tunes or limits MKL"),
    ("OPENBLAS_*", "changes threads and kernels of OpenBLAS"),
    ("BLIS_*", "changes threads and kernels of BLIS"),
    ("MALLOC_*", "changes the C library's allocator"),
    ("GLIBC_TUNABLES", "changes the C library"),
)


def environment(environ: Iterable[tuple[str, str]] | None = None) -> list[dict[str, str]]:
    """Variables that are set and change behaviour, anyhal's own first, each with what it does."""
    given = sorted(os.environ.items() if environ is None else environ)
    own = [pair for pair in given if pair[0].startswith(settings.PREFIX) and pair[1].strip()]
    found = [{"name": name, "value": value, "does": _own(name)} for name, value in own]
    for name, value in given:
        does = next((text for pattern, text in VARIABLES if fnmatchcase(name, pattern)), None)
        if does is not None:
            found.append({"name": name, "value": value, "does": does})
    return found


def _own(name: str) -> str:
    """The first sentence of what the variable means."""
    row = next((row for row in settings.TABLE if row.name == name), None)
    if row is None:
        return "nothing; anyhal reads no variable of that name"
    if not settings.environment_is_trusted():
        return "nothing; this process has more rights than its user"
    return row.meaning.partition(". ")[0].rstrip(".")


def processor() -> dict[str, Any]:
    return {"machine": platform.machine(), "features": sorted(cpu_features())}


def nodes() -> list[dict[str, Any]]:
    """Driver nodes that are here, and whether this user may use them."""
    found = []
    for path in sorted({path for pattern in NODES for path in glob(pattern)}):
        try:
            info = os.stat(path)
        except OSError:
            continue
        found.append(
            {
                "path": path,
                "mode": stat.filemode(info.st_mode),
                "owner": info.st_uid,
                "group": info.st_gid,
                "usable": os.access(path, os.R_OK | os.W_OK),
            }
        )
    return found


def quota() -> dict[str, Any]:
    """What this process may use: processor cores (None where nothing limits), bytes, affinity."""
    cpus, memory = [], []
    for folder in _control_groups():
        cpus += _cpu_limit(folder)
        memory += _memory_limit(folder)
    return {
        "cpus": min(cpus, default=None),
        "memory_bytes": min(memory, default=None),
        "affinity": sorted(os.sched_getaffinity(0)),
    }


def _control_groups() -> Iterator[Path]:
    """Folders of this process's groups, own and above, in either version's layout."""
    try:
        lines = Path("/proc/self/cgroup").read_text(encoding="utf-8").splitlines()
    except OSError:
        return
    root = Path("/sys/fs/cgroup")
    for line in lines:
        _, controllers, group = line.split(":", 2)
        tops = [root / name for name in controllers.split(",") if name in ("cpu", "memory")]
        for top in tops if controllers else (root, root / "unified"):
            at = top / group.lstrip("/")
            # In a container the group's own name may not exist: its folder is then the top one.
            for folder in dict.fromkeys((at, *at.parents, top)):
                if folder == top or top in folder.parents:
                    yield folder


def _numbers(path: Path) -> list[int]:
    try:
        return [int(w) for w in path.read_text(encoding="ascii").split() if w.lstrip("-").isdigit()]
    except (OSError, ValueError):
        return []


def _cpu_limit(folder: Path) -> list[float]:
    both = _numbers(folder / "cpu.max")
    if len(both) != 2:
        both = [*_numbers(folder / "cpu.cfs_quota_us"), *_numbers(folder / "cpu.cfs_period_us")]
    return [both[0] / both[1]] if len(both) == 2 and both[0] > 0 and both[1] > 0 else []


def _memory_limit(folder: Path) -> list[int]:
    known = _numbers(folder / "memory.max") + _numbers(folder / "memory.limit_in_bytes")
    return [n for n in known if 0 < n < 1 << 60]  # version 1 writes "no limit" as a huge number


def libraries(records: Iterable[BackendRecord], mapped: list[str]) -> dict[str, Any]:
    """What is really mapped, whose it is, and runtimes that are there twice."""
    owners: dict[str, str] = {}
    vendors: dict[str, str] = {}
    for record in records:
        if record.library:
            owners[record.library] = record.name
        for path in (*dict(record.settings).values(), *record.first):
            vendors[os.path.realpath(path)] = record.name
    rows = []
    for path in dict.fromkeys(mapped):
        vendor = vendors.get(os.path.realpath(path), "")
        row = {"path": path, "backend": owners.get(path, ""), "vendor_of": vendor}
        if vendor:
            row["sha256"] = _hash(path)
        rows.append(row)
    copies = copies_of_runtimes(mapped)
    return {
        "mapped": rows,
        "duplicates": [{"runtime": c.family, "files": list(c.files)} for c in copies],
    }


def _hash(path: str) -> str:
    try:
        return hash_of(path)
    except OSError:
        return ""


def buses() -> list[str]:
    """Vendors on the PCI bus."""
    return sorted(name for name in pci_ids() if ":" in name)
