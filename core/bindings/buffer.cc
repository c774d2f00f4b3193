// The buffer protocol: memoryview and NumPy on arrays that lie in the host's memory.
// SPDX-License-Identifier: Apache-2.0
#include <nanobind/nanobind.h>

#include <memory>

#include "core/bindings/array.hpp"
#include "core/bindings/wait.hpp"
#include "core/queue.hpp"

namespace nb = nanobind;

namespace hal {
namespace {

struct Format {
  uint32_t dtype;
  const char* letter;  // of the struct module; 64 bits are a long here
};
constexpr Format kFormats[] = {
    {ANYHAL_DTYPE_F32, "f"}, {ANYHAL_DTYPE_F16, "e"}, {ANYHAL_DTYPE_F64, "d"},
    {ANYHAL_DTYPE_I64, "l"}, {ANYHAL_DTYPE_I32, "i"}, {ANYHAL_DTYPE_I16, "h"},
    {ANYHAL_DTYPE_I8, "b"},  {ANYHAL_DTYPE_U64, "L"}, {ANYHAL_DTYPE_U32, "I"},
    {ANYHAL_DTYPE_U16, "H"}, {ANYHAL_DTYPE_U8, "B"},  {ANYHAL_DTYPE_BOOL, "?"}};

const char* letter_of(uint32_t dtype) {
  for (const Format& format : kFormats)
    if (format.dtype == dtype) return format.letter;
  return nullptr;
}

int refuse(const ArrayObject& a, const char* why) {
  PyErr_Format(PyExc_BufferError, "a buffer of %s on %s: %s", describe(*a.spec()).c_str(),
               a.device()->name.c_str(), why);
  return -1;
}

bool is_packed(const Spec& s, bool columns_first) {
  if (s.size == 0) return true;
  int64_t step = 1;
  for (int i = 0; i < s.rank; ++i) {
    const int axis = columns_first ? i : s.rank - 1 - i;
    if (s.dims[axis] != 1 && s.strides[axis] != step) return false;
    step *= s.dims[axis];
  }
  return true;
}

const char* refusal(const ArrayObject& a, int flags) {
  const Spec& s = *a.spec();
  if (!letter_of(s.dtype)) return "the protocol has no such dtype; use numpy() or from_dlpack";
  if (!a.device()->host_memory)
    return "the host cannot address its memory; use numpy(), which copies";
  if ((flags & PyBUF_WRITABLE) && a.buffer->constant)
    return "the array is constant, so it cannot be written; make a writable copy with asarray";
  const bool rows = is_packed(s, false), columns = is_packed(s, true);
  if ((flags & PyBUF_C_CONTIGUOUS) == PyBUF_C_CONTIGUOUS && !rows)
    return "it is not packed by rows; copy it first";
  if ((flags & PyBUF_F_CONTIGUOUS) == PyBUF_F_CONTIGUOUS && !columns)
    return "it is not packed by columns; copy it first";
  if ((flags & PyBUF_ANY_CONTIGUOUS) == PyBUF_ANY_CONTIGUOUS && !rows && !columns)
    return "it is not packed; copy it first";
  if ((flags & PyBUF_STRIDES) != PyBUF_STRIDES && !rows)
    return "it has strides, which the consumer does not ask for; copy it first";
  return nullptr;
}

void settle(const ArrayObject& a) {
  a.device()->require_alive();
  require_readable(a);
  if (a.device()->synchronous) return;
  PyThreadState* const state = PyEval_SaveThread();
  try {
    wait_idle_interruptibly(*a.buffer, !a.buffer->constant);
  } catch (...) {
    PyEval_RestoreThread(state);
    throw;
  }
  PyEval_RestoreThread(state);
}

}  // namespace

int get_buffer(PyObject* self, Py_buffer* view, int flags) {
  view->obj = nullptr;
  ArrayObject& a = *as_array(self);
  const Spec& s = *a.spec();
  if (const char* why = refusal(a, flags)) return refuse(a, why);
  static_assert(sizeof(Py_ssize_t) == sizeof(int64_t) && sizeof(long) == sizeof(int64_t));
  std::unique_ptr<Py_ssize_t[]> shape;
  try {
    settle(a);
    shape.reset(new Py_ssize_t[2 * kMaxRank]);
  } catch (const Error& error) {
    set_python_error(error);
    return -1;
  } catch (nb::python_error& interrupt) {
    interrupt.restore();
    return -1;
  } catch (const std::bad_alloc&) {
    PyErr_NoMemory();
    return -1;
  }
  const Py_ssize_t item = block_of(s.dtype).bytes;
  for (int i = 0; i < s.rank; ++i)
    shape[i] = s.dims[i], shape[kMaxRank + i] = Py_ssize_t(s.strides[i]) * item;
  static uint64_t nothing;  // what an array without elements points at
  view->buf = s.size ? static_cast<void*>(a.host()) : &nothing;
  view->len = s.size * item;
  view->itemsize = item;
  view->readonly = a.buffer->constant;
  view->ndim = (flags & PyBUF_ND) ? s.rank : 1;  // without a shape: bytes, one after another
  view->format = (flags & PyBUF_FORMAT) ? const_cast<char*>(letter_of(s.dtype)) : nullptr;
  const bool strided = (flags & PyBUF_STRIDES) == PyBUF_STRIDES;
  view->shape = s.rank && (flags & PyBUF_ND) ? shape.get() : nullptr;
  view->strides = s.rank && strided ? shape.get() + kMaxRank : nullptr;
  view->suboffsets = nullptr;
  view->internal = shape.release();
  view->obj = Py_NewRef(self);  // and with it the memory
  return 0;
}

void release_buffer(PyObject*, Py_buffer* view) {
  delete[] static_cast<Py_ssize_t*>(view->internal);
}

}  // namespace hal
