"""Kernels in C for the tests, and a scope that takes the device under test.
SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

SOURCE = """
#include <stdint.h>
#include <unistd.h>
struct values { float factor; int64_t count; };
int32_t scale(void* const* arrays, const struct values* v, uint32_t part, uint32_t parts) {
  const float* x = arrays[0];
  float* y = arrays[1];
  for (int64_t i = v->count * part / parts; i < v->count * (part + 1) / parts; ++i)
    y[i] = v->factor * x[i];
  return 0;
}
int32_t fails(void* const* arrays, const void* v, uint32_t part, uint32_t parts) {
  (void)arrays, (void)v, (void)parts;
  return part == 1 ? 42 : 0;
}
struct all { int8_t a; uint8_t b; int16_t c; uint16_t d; int32_t e; uint32_t f; float g; int64_t h;
             uint64_t i; double j; uint8_t k; };
int32_t sums(void* const* arrays, const struct all* v, uint32_t part, uint32_t parts) {
  (void)part, (void)parts;
  double* out = arrays[0];
  out[0] = v->a, out[1] = v->b, out[2] = v->c, out[3] = v->d, out[4] = v->e, out[5] = v->f;
  out[6] = v->g, out[7] = (double)v->h, out[8] = (double)v->i, out[9] = v->j, out[10] = v->k;
  return 0;
}
int32_t slow(void* const* arrays, const int64_t* us, uint32_t part, uint32_t parts) {
  (void)arrays, (void)part, (void)parts;
  usleep((useconds_t)*us);
  return 0;
}
"""


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A shared library of C functions."""
    compiler = shutil.which("gcc")
    if compiler is None:
        pytest.skip("gcc is not on the path, so no user's kernel can be compiled")
    folder = tmp_path_factory.mktemp("kernels")
    (folder / "kernels.c").write_text(SOURCE)
    built = folder / "kernels.so"
    command = [compiler, "-shared", "-fPIC", "-O2", "-Wall", "-Wextra", "-Werror"]
    subprocess.run([*command, folder / "kernels.c", "-o", built], check=True)
    return built
