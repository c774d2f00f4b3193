"""Builds backends of which one op does something it should not.
SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
BINARY = 5  # ANYHAL_OP_BINARY
_CC = ("cc", "-std=gnu11", "-O2", "-fPIC", f"-I{ROOT / 'include'}")
_MANIFEST = """# A backend of a test. SPDX-License-Identifier: Apache-2.0
name = "{name}"
vendor = "tests"
library = "libanyhal_{name}.so"
abi = "0.3"
licence = "none"
summary = "right, but for one op"
rank = 1
own_threads = false
test_equipment = false
"""


class OneOpBackend:
    """Its folder, whose library `build` makes anew with another deed of one_op.c."""

    def __init__(self, root: Path, name: str = "oneopchip") -> None:
        self.name, self.folder = name, root / name
        self._objects = root / "objects"
        self.folder.mkdir(parents=True)
        (self.folder / "backend.toml").write_text(_MANIFEST.format(name=name))
        self._compile()

    @property
    def library(self) -> Path:
        return self.folder / f"libanyhal_{self.name}.so"

    def _compile(self) -> None:
        source = ROOT / "backends" / "dayone"
        files = [*source.glob("*.c"), *source.glob("kernels/*.c")]
        self._objects.mkdir()

        def compiled(file: Path) -> None:
            rename = "-Danyhal_backend_main=honest_main"
            made = self._objects / f"{file.stem}.o"
            command = [*_CC, f"-I{source}", rename, "-c", str(file), "-o", str(made)]
            subprocess.run(command, check=True)

        with ThreadPoolExecutor(2) as workers:
            list(workers.map(compiled, files))

    def build(self, deed: str, percent: int = 0, op: int = BINARY) -> None:
        script = self._objects / "one.map"
        script.write_text("{ global: anyhal_backend_main; local: *; };\n")
        new = self.library.with_suffix(".new")
        command = [*_CC, "-shared", f"-DOP={op}", f"-DDEED={deed}"]
        command += [f"-DPERCENT={percent}.0"]
        command += [str(Path(__file__).with_name("one_op.c")), *map(str, self._objects.glob("*.o"))]
        command += [f"-Wl,--version-script={script}", "-lm", "-o", str(new)]
        subprocess.run(command, check=True)
        new.replace(self.library)
