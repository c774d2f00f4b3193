// DLPack: arrays out as capsules, host capsules in without a copy.
// SPDX-License-Identifier: Apache-2.0
#include "anyhal/dlpack.h"

#include <nanobind/nanobind.h>

#include <cstring>

#include "core/bindings/array.hpp"

namespace nb = nanobind;

namespace hal {
namespace {

constexpr char kName[] = "dltensor", kUsed[] = "used_dltensor";
constexpr char kVersionedName[] = "dltensor_versioned",
               kVersionedUsed[] = "used_dltensor_versioned";

struct Pair {
  uint32_t dtype;
  DLDataType dl;
};
constexpr Pair kTypes[] = {{ANYHAL_DTYPE_F32, {kDLFloat, 32, 1}},
                           {ANYHAL_DTYPE_F16, {kDLFloat, 16, 1}},
                           {ANYHAL_DTYPE_BF16, {kDLBfloat, 16, 1}},
                           {ANYHAL_DTYPE_F64, {kDLFloat, 64, 1}},
                           {ANYHAL_DTYPE_I64, {kDLInt, 64, 1}},
                           {ANYHAL_DTYPE_I32, {kDLInt, 32, 1}},
                           {ANYHAL_DTYPE_I16, {kDLInt, 16, 1}},
                           {ANYHAL_DTYPE_I8, {kDLInt, 8, 1}},
                           {ANYHAL_DTYPE_U64, {kDLUInt, 64, 1}},
                           {ANYHAL_DTYPE_U32, {kDLUInt, 32, 1}},
                           {ANYHAL_DTYPE_U16, {kDLUInt, 16, 1}},
                           {ANYHAL_DTYPE_U8, {kDLUInt, 8, 1}},
                           {ANYHAL_DTYPE_BOOL, {kDLBool, 8, 1}},
                           {ANYHAL_DTYPE_F8_E4M3FN, {kDLFloat8_e4m3fn, 8, 1}},
                           {ANYHAL_DTYPE_F8_E5M2, {kDLFloat8_e5m2, 8, 1}},
                           {ANYHAL_DTYPE_F8_E4M3FNUZ, {kDLFloat8_e4m3fnuz, 8, 1}},
                           {ANYHAL_DTYPE_F8_E5M2FNUZ, {kDLFloat8_e5m2fnuz, 8, 1}}};

// What an exported tensor keeps alive: shape, strides and one buffer reference.
struct Export {
  int64_t dims[kMaxRank], strides[kMaxRank];
  Buffer* buffer;
  DLManagedTensor plain;
  DLManagedTensorVersioned versioned;
};

void fill_tensor(Export& e, ArrayObject& a, DLTensor& t) {
  const Spec& s = *a.spec();
  std::memcpy(e.dims, s.dims, sizeof(e.dims));
  std::memcpy(e.strides, s.strides, sizeof(e.strides));
  for (const Pair& pair : kTypes)
    if (pair.dtype == s.dtype) t.dtype = pair.dl;
  t.data = s.size ? a.host() : nullptr;
  t.device = {kDLCPU, 0};
  t.ndim = s.rank, t.shape = e.dims, t.strides = e.strides, t.byte_offset = 0;
}

void drop(Export* e) {
  release(e->buffer);
  delete e;
}

// A capsule that nobody consumed runs the deleter; a consumer has renamed it and will do so itself.
void plain_unused(PyObject* capsule) {
  if (!PyCapsule_IsValid(capsule, kName)) return;
  auto* m = static_cast<DLManagedTensor*>(PyCapsule_GetPointer(capsule, kName));
  if (m && m->deleter) m->deleter(m);
}
void versioned_unused(PyObject* capsule) {
  if (!PyCapsule_IsValid(capsule, kVersionedName)) return;
  auto* m = static_cast<DLManagedTensorVersioned*>(PyCapsule_GetPointer(capsule, kVersionedName));
  if (m && m->deleter) m->deleter(m);
}

nb::object export_dlpack(nb::handle h, bool versioned) {
  if (!is_array(h.ptr())) throw nb::type_error("expected an anyhal Array");
  ArrayObject& a = *as_array(h.ptr());
  if (a.device()->address_block == 0 && !a.buffer->host)
    throw nb::buffer_error(
        ("exporting an array of " + a.device()->name +
         " with DLPack: the host cannot address its memory; export a.numpy() instead")
            .c_str());
  if (block_of(a.spec()->dtype).elements != 1)
    throw nb::buffer_error(
        "exporting a block format with DLPack: it has no such dtype; use astype");
  if (!versioned && a.constant())
    throw nb::buffer_error(
        "exporting a constant array to a consumer without max_version: only DLPack 1.0 can say "
        "that it is read-only; export a copy");
  wait_idle(*a.buffer, true);
  auto* e = new Export{};
  a.buffer->retain();
  e->buffer = a.buffer;
  PyObject* capsule;
  if (versioned) {
    DLManagedTensorVersioned& m = e->versioned;
    m.version = {DLPACK_MAJOR_VERSION, DLPACK_MINOR_VERSION};
    m.manager_ctx = e;
    m.flags = a.constant() ? uint64_t(DLPACK_FLAG_BITMASK_READ_ONLY) : 0;
    m.deleter = [](DLManagedTensorVersioned* self) {
      drop(static_cast<Export*>(self->manager_ctx));
    };
    fill_tensor(*e, a, m.dl_tensor);
    capsule = PyCapsule_New(&m, kVersionedName, versioned_unused);
  } else {
    DLManagedTensor& m = e->plain;
    m.manager_ctx = e;
    m.deleter = [](DLManagedTensor* self) { drop(static_cast<Export*>(self->manager_ctx)); };
    fill_tensor(*e, a, m.dl_tensor);
    capsule = PyCapsule_New(&m, kName, plain_unused);
  }
  if (!capsule) {
    drop(e);
    throw nb::python_error();
  }
  return nb::steal(capsule);
}

uint32_t dtype_of(const DLTensor& t) {
  for (const Pair& pair : kTypes)
    if (pair.dl.code == t.dtype.code && pair.dl.bits == t.dtype.bits && t.dtype.lanes == 1)
      return pair.dtype;
  throw nb::buffer_error(("importing a DLPack tensor: type code " + std::to_string(t.dtype.code) +
                          " with " + std::to_string(t.dtype.bits) + " bits and " +
                          std::to_string(t.dtype.lanes) + " lanes is not supported; cast it first")
                             .c_str());
}

template <class M>
void drop_import(void* managed) {
  auto* m = static_cast<M*>(managed);
  if (m->deleter) m->deleter(m);
}

// Checks everything before the capsule counts as consumed.
template <class M>
nb::object take(nb::handle capsule, M* m, const char* used, Device& device, bool read_only) {
  const DLTensor& t = m->dl_tensor;
  if (t.device.device_type != kDLCPU)
    throw nb::buffer_error("importing a DLPack tensor: it is not in host memory; move it first");
  if (!device.address_block)
    throw nb::buffer_error(("importing a DLPack tensor: " + device.name +
                            " cannot use host memory in place; use asarray")
                               .c_str());
  const uint32_t dtype = dtype_of(t);
  if (t.ndim < 0 || t.ndim > kMaxRank)
    throw nb::buffer_error("importing a DLPack tensor: at most 8 dims are supported; reshape it");
  for (int i = 0; t.strides && i < t.ndim; ++i)
    if (t.strides[i] < 0 && t.shape[i] > 1)
      throw nb::buffer_error(
          "importing a DLPack tensor: a stride is negative, which views cannot express; copy it");
  int64_t strides[kMaxRank] = {};
  for (int i = 0; t.strides && i < t.ndim; ++i) strides[i] = t.strides[i] < 0 ? 0 : t.strides[i];
  const uint64_t address = reinterpret_cast<uint64_t>(t.data) + t.byte_offset;
  if (address % uint64_t(block_of(dtype).bytes))
    throw nb::buffer_error(
        "importing a DLPack tensor: its data is not aligned to its type; copy it");
  const Spec* spec = intern_spec(&device, dtype, t.ndim, t.shape, t.strides ? strides : nullptr);
  auto* b = new Buffer;
  b->device = &device, b->memory = device.address_block, b->offset = address;
  b->bytes = uint64_t(spec->span_bytes), b->host = reinterpret_cast<uint8_t*>(address);
  b->deleter = drop_import<M>, b->owner = m;
  b->constant = read_only;
  PyCapsule_SetName(capsule.ptr(), used);
  PyObject* out = make_array(spec, b, address);
  if (!out) throw nb::python_error();
  return nb::steal(out);
}

nb::object import_dlpack(nb::handle capsule, Device& device) {
  PyObject* c = capsule.ptr();
  if (PyCapsule_IsValid(c, kVersionedName)) {
    auto* m = static_cast<DLManagedTensorVersioned*>(PyCapsule_GetPointer(c, kVersionedName));
    if (m->version.major != DLPACK_MAJOR_VERSION)
      throw nb::buffer_error(("importing a DLPack tensor of version " +
                              std::to_string(m->version.major) + "." +
                              std::to_string(m->version.minor) +
                              ": only major 1 is understood; upgrade anyhal or ask for 1.x")
                                 .c_str());
    return take(capsule, m, kVersionedUsed, device, m->flags & DLPACK_FLAG_BITMASK_READ_ONLY);
  }
  if (PyCapsule_IsValid(c, kName))
    return take(capsule, static_cast<DLManagedTensor*>(PyCapsule_GetPointer(c, kName)), kUsed,
                device, false);
  throw nb::buffer_error("importing a DLPack tensor: it is no unconsumed capsule; export again");
}

}  // namespace

void bind_dlpack(nb::module_& m) {
  m.def("export_dlpack", &export_dlpack);
  m.def("import_dlpack", &import_dlpack);
}

}  // namespace hal
