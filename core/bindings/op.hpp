// What the Op type needs from the rest of the binding.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "core/bindings/scope.hpp"
#include "core/dispatch.hpp"

namespace hal {

// The plan inside a Python Plan object (borrowed), or null.
Plan* plan_of(PyObject* object);

}  // namespace hal
