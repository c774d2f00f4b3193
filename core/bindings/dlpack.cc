// DLPack, outwards: arrays and host values as capsules, in order with the consumer's stream.
// SPDX-License-Identifier: Apache-2.0
#include "core/bindings/dlpack.hpp"

#include <nanobind/stl/vector.h>

#include <cstring>
#include <memory>

#include "core/bindings/wait.hpp"
#include "core/foreign.hpp"

namespace nb = nanobind;

namespace hal {
namespace {

using namespace dlpack;

// What an exported tensor keeps alive: shape, strides, and one reference of a buffer or an object.
struct Export {
  int64_t dims[kMaxRank], strides[kMaxRank];
  Buffer* buffer = nullptr;
  PyObject* owner = nullptr;
  DLManagedTensor plain;
  DLManagedTensorVersioned versioned;

  ~Export() {
    if (buffer) release(buffer);
    if (owner) drop_owner(owner);
  }
};

// How a device's memory is called elsewhere. `shared`: whether it can be given away at all.
struct Place {
  DLDevice device;
  bool shared;
};

Place place_of(const ArrayObject& a) {
  Device& device = *a.device();
  if (device.host_memory) return {{kDLCPU, 0}, true};
  const ForeignPlace& foreign = foreign_of(device);
  if (foreign.table) return {{foreign.type, foreign.id}, true};
  return {{kDLExtDev, int32_t(device.info.id)}, false};
}

// Consumers may look at the strides of dims of one element; they get those of a packed tensor.
void describe_dims(Export& e, int32_t rank, const int64_t* dims, const int64_t* strides) {
  std::copy_n(dims, rank, e.dims);
  std::copy_n(strides, rank, e.strides);
  for (int i = rank - 1; i >= 0; --i)
    if (dims[i] == 1) e.strides[i] = i == rank - 1 ? 1 : e.dims[i + 1] * e.strides[i + 1];
}

template <class M>
void end(M* managed) {
  delete static_cast<Export*>(managed->manager_ctx);
}

// A capsule that nobody consumed runs the deleter; a consumer has renamed it and will do so itself.
template <class M>
void end_unused(PyObject* capsule, const char* name) {
  if (!PyCapsule_IsValid(capsule, name)) return;
  PyObject *type, *value, *trace;  // a capsule may end while an exception is on its way
  PyErr_Fetch(&type, &value, &trace);
  auto* m = static_cast<M*>(PyCapsule_GetPointer(capsule, name));
  if (m->deleter) m->deleter(m);
  PyErr_Restore(type, value, trace);
}
void plain_unused(PyObject* capsule) { end_unused<DLManagedTensor>(capsule, kName); }
void versioned_unused(PyObject* capsule) {
  end_unused<DLManagedTensorVersioned>(capsule, kVersionedName);
}

nb::object capsule_of(std::unique_ptr<Export> e, const DLTensor& tensor, bool versioned,
                      uint64_t flags) {
  PyObject* capsule;
  if (versioned) {
    e->versioned = {{DLPACK_MAJOR_VERSION, DLPACK_MINOR_VERSION}, e.get(), end, flags, tensor};
    capsule = PyCapsule_New(&e->versioned, kVersionedName, versioned_unused);
  } else {
    e->plain = {tensor, e.get(), end};
    capsule = PyCapsule_New(&e->plain, kName, plain_unused);
  }
  if (!capsule) throw nb::python_error();
  e.release();
  return nb::steal(capsule);
}

DLTensor tensor_of(Export& e, uint32_t dtype, int32_t rank, DLDevice device, uint64_t address) {
  DLDataType type{};
  for (const Pair& pair : kTypes)
    if (pair.dtype == dtype) type = pair.dl;
  return {reinterpret_cast<void*>(address), device, rank, type, e.dims, e.strides, 0};
}

void require_exportable(const ArrayObject& a, const Place& place, bool versioned) {
  const std::string what =
      "exporting " + describe(*a.spec()) + " of " + a.device()->name + " with DLPack: ";
  if (!place.shared)
    throw nb::buffer_error((what +
                            "other libraries cannot address its memory; ask for a copy on the host "
                            "with dl_device=(1, 0), or pass numpy()")
                               .c_str());
  if (block_of(a.spec()->dtype).elements != 1)
    throw nb::buffer_error((what + "DLPack has no block formats; dequantize it").c_str());
  if (!versioned && a.buffer->constant)
    throw nb::buffer_error((what +
                            "the array is constant, and a consumer without max_version cannot be "
                            "told so; ask for a copy with copy=True")
                               .c_str());
}

enum Order { kNone = 0, kHost = 1, kStream = 2 };

void put_in_order(const ArrayObject& a, int order, uint64_t stream) {
  if (order == kNone || a.device()->synchronous) return;
  nb::gil_scoped_release nogil;
  if (order == kStream)
    order_stream(*a.buffer, stream);
  else
    wait_idle_interruptibly(*a.buffer, true);
}

// `copied`: nobody else holds the array's memory.
nb::object export_array(nb::handle h, bool versioned, bool copied, int order, uint64_t stream) {
  if (!is_array(h.ptr())) throw nb::type_error("expected an anyhal Array");
  const ArrayObject& a = *as_array(h.ptr());
  const Spec& s = *a.spec();
  Device& device = *a.device();
  device.require_alive();
  const Place place = place_of(a);
  require_exportable(a, place, versioned);
  require_readable(a);
  put_in_order(a, order, stream);
  auto e = std::make_unique<Export>();
  a.buffer->retain();
  e->buffer = a.buffer;
  describe_dims(*e, s.rank, s.dims, s.strides);
  uint64_t address = 0;
  if (s.size)
    address = place.device.device_type == kDLCPU
                  ? reinterpret_cast<uint64_t>(a.host())
                  : foreign_address(device, ref_of(device, {a.data, a.buffer}));
  const DLTensor tensor = tensor_of(*e, s.dtype, s.rank, place.device, address);
  const uint64_t flags = (a.buffer->constant ? uint64_t(DLPACK_FLAG_BITMASK_READ_ONLY) : 0) |
                         (copied ? uint64_t(DLPACK_FLAG_BITMASK_IS_COPIED) : 0);
  return capsule_of(std::move(e), tensor, versioned, flags);
}

// Values that were copied to the host, in memory that `owner` keeps; strides in elements.
nb::object export_host(uint64_t address, uint32_t dtype, const std::vector<int64_t>& dims,
                       const std::vector<int64_t>& strides, nb::object owner, bool versioned) {
  auto e = std::make_unique<Export>();
  const auto rank = int32_t(dims.size());
  describe_dims(*e, rank, dims.data(), strides.data());
  e->owner = owner.release().ptr();
  const DLTensor tensor = tensor_of(*e, dtype, rank, {kDLCPU, 0}, address);
  return capsule_of(std::move(e), tensor, versioned, DLPACK_FLAG_BITMASK_IS_COPIED);
}

nb::object place(nb::handle h) {
  if (!is_array(h.ptr())) throw nb::type_error("expected an anyhal Array");
  const DLDevice device = place_of(*as_array(h.ptr())).device;
  return nb::make_tuple(device.device_type, device.device_id);
}

}  // namespace

void bind_dlpack(nb::module_& m) {
  m.def("export_dlpack", &export_array);
  m.def("export_dlpack_host", &export_host);
  m.def("dlpack_place", &place);
  dlpack::bind_import(m);
}

}  // namespace hal
