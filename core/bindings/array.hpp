// The Python array: a view of a buffer, one cache line, never changed after construction.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#ifdef Py_GIL_DISABLED
#error "anyhal needs a Python with the GIL for now: its plan cache relies on it (docs/adr/0013)"
#endif

#include <algorithm>

#include "core/dispatch.hpp"
#include "core/spec.hpp"

namespace hal {

inline constexpr uint64_t kConstantBit = 8;    // of ArrayObject::word
inline constexpr uint64_t kAlignmentMask = 7;  // log2 of the address's alignment, at most 6
inline constexpr uint64_t kSpecMask = ~63ull;

struct ArrayObject {
  PyObject_HEAD uint64_t
      word;       // interned Spec | alignment class | constant flag: the operand's part of a key
  uint64_t data;  // as Operand::data
  uint64_t end;   // data + span
  Buffer* buffer;
  PyObject* weak;  // list of weak references

  const Spec* spec() const { return reinterpret_cast<const Spec*>(word & kSpecMask); }
  bool constant() const { return word & kConstantBit; }
  Device* device() const { return spec()->device; }
  // Where the host finds the bytes, or null.
  uint8_t* host() const {
    if (device()->address_block) return reinterpret_cast<uint8_t*>(data);
    return buffer->host ? buffer->host + (data - buffer->offset) : nullptr;
  }
};

extern PyTypeObject* g_array_type;
inline bool is_array(PyObject* o) { return Py_TYPE(o) == g_array_type; }
inline ArrayObject* as_array(PyObject* o) { return reinterpret_cast<ArrayObject*>(o); }

inline uint64_t alignment_class(uint64_t data) {
  return data ? uint64_t(std::min(__builtin_ctzll(data), 6)) : 6;
}

// Takes over one reference of each; null with a Python error set.
PyObject* make_array(const Spec* spec, Buffer* buffer, uint64_t data);
// A new array with memory of its own.
PyObject* empty_array(Device* device, const Spec* spec_retained, uint32_t purpose);
int init_array_type(PyObject* module);
// The host may touch these bytes: this thread captures nothing, no capture elsewhere is about to
// write them, and somebody has computed them. Throws.
void require_readable(const ArrayObject& a);
// Lets go of a Python object from any thread.
void drop_owner(void* owner);
// The buffer protocol (buffer.cc).
int get_buffer(PyObject* self, Py_buffer* view, int flags);
void release_buffer(PyObject* self, Py_buffer* view);
int init_op_type(PyObject* module);

// The one place where a core Error becomes a Python exception.
void set_python_error(const Error& error) noexcept;
// The user interrupted a backend's Python code on this thread: its error, next to come here, is
// raised as that.
extern thread_local bool t_interrupted;

}  // namespace hal
