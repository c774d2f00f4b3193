// The Array type: fields only. Its methods are Python (anyhal/runtime/array.py).
// SPDX-License-Identifier: Apache-2.0
#include "core/bindings/array.hpp"

#include <structmember.h>

#include <cstddef>

namespace hal {

PyTypeObject* g_array_type = nullptr;

namespace {

// Array objects are all of one size: keep some for the next call.
constexpr int kFreeListMax = 256;
ArrayObject* g_free[kFreeListMax];
int g_free_count = 0;

void array_dealloc(PyObject* self) {
  ArrayObject* a = as_array(self);
  if (a->weak) PyObject_ClearWeakRefs(self);
  if (a->buffer) release(a->buffer);
  if (a->word & kSpecMask) a->spec()->release();
  PyTypeObject* type = Py_TYPE(self);
  if (g_free_count < kFreeListMax)
    g_free[g_free_count++] = a;
  else
    PyObject_Free(self);
  Py_DECREF(type);
}

PyObject* tuple_of(const int64_t* values, int32_t n) {
  PyObject* t = PyTuple_New(n);
  for (int32_t i = 0; t && i < n; ++i) PyTuple_SET_ITEM(t, i, PyLong_FromLongLong(values[i]));
  return t;
}

PyObject* get_shape(PyObject* self, void*) {
  const Spec* s = as_array(self)->spec();
  return tuple_of(s->dims, s->rank);
}
PyObject* get_strides(PyObject* self, void*) {
  const Spec* s = as_array(self)->spec();
  return tuple_of(s->strides, s->rank);
}
PyObject* get_dtype_value(PyObject* self, void*) {
  return PyLong_FromUnsignedLong(as_array(self)->spec()->dtype);
}
PyObject* get_device_name(PyObject* self, void*) {
  return PyUnicode_FromString(as_array(self)->device()->name.c_str());
}
PyObject* get_size(PyObject* self, void*) {
  return PyLong_FromLongLong(as_array(self)->spec()->size);
}
PyObject* get_ndim(PyObject* self, void*) { return PyLong_FromLong(as_array(self)->spec()->rank); }
PyObject* get_dense(PyObject* self, void*) {
  return PyBool_FromLong(as_array(self)->spec()->dense);
}
PyObject* get_constant(PyObject* self, void*) {
  return PyBool_FromLong(as_array(self)->constant());
}
PyObject* get_span(PyObject* self, void*) {
  return PyLong_FromLongLong(as_array(self)->spec()->span_bytes);
}

PyGetSetDef g_getters[] = {
    {"shape", get_shape, nullptr, "Sizes of the dims, in elements.", nullptr},
    {"strides", get_strides, nullptr, "Steps between elements of each dim, in elements (blocks).",
     nullptr},
    {"_dtype_value", get_dtype_value, nullptr, nullptr, nullptr},
    {"_device_name", get_device_name, nullptr, nullptr, nullptr},
    {"size", get_size, nullptr, "Number of elements.", nullptr},
    {"ndim", get_ndim, nullptr, "Number of dims.", nullptr},
    {"constant", get_constant, nullptr, "Whether writes are refused.", nullptr},
    {"_dense", get_dense, nullptr, nullptr, nullptr},
    {"_span_bytes", get_span, nullptr, nullptr, nullptr},
    {nullptr, nullptr, nullptr, nullptr, nullptr}};

PyMemberDef g_members[] = {
    {"__weaklistoffset__", T_PYSSIZET, offsetof(ArrayObject, weak), READONLY, nullptr},
    {nullptr, 0, 0, 0, nullptr}};

PyType_Slot g_slots[] = {{Py_tp_dealloc, reinterpret_cast<void*>(array_dealloc)},
                         {Py_tp_getset, g_getters},
                         {Py_tp_members, g_members},
                         {Py_bf_getbuffer, reinterpret_cast<void*>(get_buffer)},
                         {Py_bf_releasebuffer, reinterpret_cast<void*>(release_buffer)},
                         {Py_tp_doc, const_cast<char*>("An n-dimensional array on a device.")},
                         {0, nullptr}};
PyType_Spec g_type_spec = {"anyhal.Array", sizeof(ArrayObject), 0,
                           Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION, g_slots};

}  // namespace

PyObject* make_array(const Spec* spec, Buffer* buffer, uint64_t data) {
  ArrayObject* a;
  if (g_free_count > 0) {
    a = g_free[--g_free_count];
    PyObject_Init(reinterpret_cast<PyObject*>(a), g_array_type);
  } else {
    a = PyObject_New(ArrayObject, g_array_type);
    if (!a) {
      spec->release();
      release(buffer);
      return nullptr;
    }
  }
  a->word = reinterpret_cast<uint64_t>(spec) | alignment_class(data) |
            (buffer->constant ? kConstantBit : 0);
  a->data = data;
  a->end = data + uint64_t(spec->span_bytes);
  a->buffer = buffer;
  a->weak = nullptr;
  return reinterpret_cast<PyObject*>(a);
}

PyObject* empty_array(Device* device, const Spec* spec, uint32_t purpose) {
  Buffer* b;
  try {
    b = device->memory.alloc(uint64_t(spec->span_bytes), purpose, device->queue);
  } catch (...) {
    spec->release();
    throw;
  }
  return make_array(spec, b, data_of(*b));
}

int init_array_type(PyObject* module) {
  g_array_type = reinterpret_cast<PyTypeObject*>(PyType_FromSpec(&g_type_spec));
  if (!g_array_type) return -1;
  Py_INCREF(g_array_type);
  return PyModule_AddObject(module, "Array", reinterpret_cast<PyObject*>(g_array_type));
}

}  // namespace hal
