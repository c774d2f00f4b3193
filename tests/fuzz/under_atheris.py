"""python under_atheris.py TARGET [libFuzzer's options]: a reader in Python under libFuzzer.

SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import sys
from importlib import import_module

import atheris

TARGET = sys.argv.pop(1)
READS = {"model_file": ["anyhal.frontends.gguf.reader"], "manifest": ["anyhal.runtime.manifest"]}

with atheris.instrument_imports(include=[*READS[TARGET], "tomllib"]):
    import_module("tomllib")  # which the reader of manifests imports when it needs it
    one_input = import_module(TARGET).one_input
atheris.Setup(sys.argv, one_input)
atheris.Fuzz()
