"""Whether the hardware that a manifest names is on this machine; nothing is opened to find out.
SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import os
import re
from functools import lru_cache

from anyhal.runtime.manifest import Hardware
from anyhal.runtime.stages import Stop
from anyhal.runtime.versions import release

_PCI_DEVICES = "/sys/bus/pci/devices"
_CPU = "/proc/cpuinfo"
_MODALIAS = r"pci:v0000([0-9A-F]{4})d0000([0-9A-F]{4})"


def misfit(wanted: Hardware, file: str) -> Stop | None:
    """Why a backend with this manifest `file` has nothing to do here, or None."""
    here = os.uname().machine
    if wanted.machine and here not in wanted.machine:
        why = f"it is for {', '.join(wanted.machine)}, this machine is {here}"
        return Stop("other_machine", file, why, "install the build for this machine")
    lacking = [name for name in wanted.cpu_features if name not in cpu_features()]
    if lacking:
        why = f"this processor lacks {', '.join(lacking)}"
        return Stop("hardware_absent", file, why, "use another backend", absent=True)
    if not _is_here(wanted):
        why = f"none of {', '.join((*wanted.device_nodes, *_pci_names(wanted)))} is here"
        hint = "connect the device, and install its kernel driver"
        return Stop("hardware_absent", file, why, hint, absent=True)
    return _old_driver(wanted)


def _is_here(wanted: Hardware) -> bool:
    if not wanted.device_nodes and not wanted.pci:
        return True
    if any(_matches(pattern) for pattern in wanted.device_nodes):
        return True
    here = pci_ids() if wanted.pci else frozenset()
    return any(name in here for name in wanted.pci)


def _matches(pattern: str) -> bool:
    if not any(sign in pattern for sign in "*?["):
        return os.path.lexists(pattern)
    from glob import glob  # most name their nodes

    return bool(glob(pattern))


def _pci_names(wanted: Hardware) -> list[str]:
    return [f"PCI {name}" for name in wanted.pci]


def _old_driver(wanted: Hardware) -> Stop | None:
    driver = wanted.driver
    if driver is None:
        return None
    try:
        said = _text_of(driver.file)[:4096]
    except OSError:
        return None  # the driver tells its version elsewhere, or is not there: the backend says so
    found = re.search(r"\d+(\.\d+)*", said)
    if found is None or release(found[0]) >= release(driver.least):
        return None
    why = f"its kernels need driver {driver.least} or newer, this driver is {found[0]}"
    return Stop("driver_too_old", driver.file, why, "install a newer driver")


@lru_cache(maxsize=1)
def cpu_features() -> frozenset[str]:
    """What the kernel says the processor has, in the kernel's words."""
    try:
        text = _text_of(_CPU)
    except OSError:
        return frozenset()
    found = re.search(r"^(?:flags|Features)\s*:(.*)$", text, re.MULTILINE)
    return frozenset(found[1].split()) if found else frozenset()


@lru_cache(maxsize=1)
def pci_ids() -> frozenset[str]:
    """Every device on the PCI bus, as "10de" and as "10de:2330"."""
    from glob import glob

    found: set[str] = set()
    for device in glob(f"{_PCI_DEVICES}/*/modalias"):
        try:
            match = re.match(_MODALIAS, _text_of(device))
        except OSError:
            continue
        if match is not None:
            vendor, number = match[1].lower(), match[2].lower()
            found |= {vendor, f"{vendor}:{number}"}
    return frozenset(found)


def _text_of(file: str) -> str:
    with open(file, encoding="utf-8", errors="replace") as stream:
        return stream.read()
