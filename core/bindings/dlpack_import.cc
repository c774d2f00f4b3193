// DLPack, inwards: capsules as arrays that share their memory, or as host values to copy.
// SPDX-License-Identifier: Apache-2.0
#include <nanobind/stl/string.h>

#include <cstring>
#include <memory>

#include "core/bindings/dlpack.hpp"
#include "core/bindings/scope.hpp"
#include "core/foreign.hpp"

namespace nb = nanobind;
using namespace nb::literals;

namespace hal::dlpack {
namespace {

constexpr uint64_t kBaseAlignment = 256;  // what the alignment of an offset in a block stands for

[[noreturn]] void refuse(const std::string& why) {
  throw nb::buffer_error(("importing a DLPack tensor: " + why).c_str());
}

uint32_t dtype_of(const DLTensor& t) {
  for (const Pair& pair : kTypes)
    if (pair.dl.code == t.dtype.code && pair.dl.bits == t.dtype.bits && t.dtype.lanes == 1)
      return pair.dtype;
  static const char* const kCodes[] = {"signed integer", "unsigned integer",
                                       "float",          "opaque handle",
                                       "bfloat",         "complex",
                                       "bool",           "float8_e3m4",
                                       "float8_e4m3",    "float8_e4m3b11fnuz",
                                       "float8_e4m3fn",  "float8_e4m3fnuz",
                                       "float8_e5m2",    "float8_e5m2fnuz",
                                       "float8_e8m0fnu", "float6_e2m3fn",
                                       "float6_e3m2fn",  "float4_e2m1fn"};
  const unsigned code = t.dtype.code;
  refuse("type code " + std::to_string(code) + " (" +
         (code < std::size(kCodes) ? kCodes[code] : "not of DLPack 1.1") + ") with " +
         std::to_string(t.dtype.bits) + " bits and " + std::to_string(t.dtype.lanes) +
         " lanes is no dtype here; cast it first");
}

// The managed tensor of a capsule, of either kind. Whoever takes it calls the deleter, once.
class Tensor {
 public:
  explicit Tensor(nb::handle capsule) : capsule_(capsule.ptr()) {
    if (PyCapsule_IsValid(capsule_, kVersionedName)) {
      versioned_ =
          static_cast<DLManagedTensorVersioned*>(PyCapsule_GetPointer(capsule_, kVersionedName));
      require_version();
    } else if (PyCapsule_IsValid(capsule_, kName)) {
      plain_ = static_cast<DLManagedTensor*>(PyCapsule_GetPointer(capsule_, kName));
    } else {
      refuse("what __dlpack__ returned is no capsule that is still to be consumed; export again");
    }
  }

  const DLTensor& get() const { return versioned_ ? versioned_->dl_tensor : plain_->dl_tensor; }
  bool read_only() const {
    return versioned_ && (versioned_->flags & DLPACK_FLAG_BITMASK_READ_ONLY);
  }

  struct Taken {
    DLManagedTensor* plain;
    DLManagedTensorVersioned* versioned;
    void end() const {
      if (plain && plain->deleter) plain->deleter(plain);
      if (versioned && versioned->deleter) versioned->deleter(versioned);
    }
  };
  // From here on the capsule counts as consumed.
  Taken take() {
    if (PyCapsule_SetName(capsule_, versioned_ ? kVersionedUsed : kUsed)) throw nb::python_error();
    return {plain_, versioned_};
  }

 private:
  // Of an unknown layout only the version and the deleter are known.
  void require_version() {
    const DLPackVersion version = versioned_->version;
    if (version.major == DLPACK_MAJOR_VERSION) return;
    take().end();
    refuse("it is of version " + std::to_string(version.major) + "." +
           std::to_string(version.minor) + ", and only major 1 is understood; ask for 1.x");
  }

  PyObject* capsule_;
  DLManagedTensor* plain_ = nullptr;
  DLManagedTensorVersioned* versioned_ = nullptr;
};

void require_shape(const DLTensor& t) {
  if (t.ndim < 0 || t.ndim > kMaxRank)
    refuse("it has " + std::to_string(t.ndim) + " dims, and at most " + std::to_string(kMaxRank) +
           " are supported; reshape it");
  if (t.ndim && !t.shape) refuse("its shape is missing; the producer must give one");
  for (int i = 0; i < t.ndim; ++i)
    if (t.shape[i] < 0)
      refuse("its size " + std::to_string(t.shape[i]) +
             " is negative; the producer must correct it");
}

int64_t count_of(const DLTensor& t) {
  int64_t count = 1;
  for (int i = 0; i < t.ndim; ++i)
    if (__builtin_mul_overflow(count, t.shape[i], &count))
      refuse("its element count does not fit 63 bits; use smaller dims");
  return count;
}

uint64_t address_of(const DLTensor& t) {
  return reinterpret_cast<uint64_t>(t.data) + t.byte_offset;
}

// Refuses a tensor whose elements would lie where no address is: a producer's numbers are added up
// by whoever reads it.
void require_reach(const DLTensor& t, int64_t count, int64_t bytes) {
  if (count == 0) return;
  if (count > INT64_MAX / bytes) refuse("its byte count does not fit 63 bits; use smaller dims");
  __int128 low = reinterpret_cast<uint64_t>(t.data), step = bytes;
  low += t.byte_offset;
  __int128 high = low + bytes;
  for (int i = t.ndim - 1; i >= 0; --i) {
    const __int128 stride = t.strides ? __int128(t.strides[i]) * bytes : step;
    const __int128 far = t.shape[i] > 1 ? stride * (t.shape[i] - 1) : 0;
    (far < 0 ? low : high) += far;
    step *= t.shape[i];
  }
  constexpr __int128 kEnd = __int128(1) << 63;  // of what a process can map
  if (low < 0 || high > kEnd)
    refuse(
        "its elements reach beyond any address; the producer must correct data, offset or "
        "strides");
}

// Strides as the core has them; those of dims of at most one element are of no account, and a
// producer may have written anything there.
void read_strides(const DLTensor& t, int64_t* strides) {
  int64_t step = 1;
  for (int i = t.ndim - 1; i >= 0; --i) {
    if (t.strides[i] < 0 && t.shape[i] > 1)
      refuse("a stride is negative, which views cannot express; pass copy=True");
    strides[i] = t.shape[i] > 1 ? t.strides[i] : step;
    step *= t.shape[i];
  }
}

// The description, with one reference; refuses what cannot be shared.
const Spec* spec_of(const DLTensor& t, Device& device) {
  require_shape(t);
  const uint32_t dtype = dtype_of(t);
  const int64_t count = count_of(t);
  const bool empty = count == 0;
  const uint64_t bytes = uint64_t(block_of(dtype).bytes);
  require_reach(t, count, int64_t(bytes));
  int64_t strides[kMaxRank] = {};
  if (t.strides && !empty) read_strides(t, strides);
  if (!empty && !t.data) refuse("its data is missing; the producer must give an address");
  if (!empty && address_of(t) % bytes)
    refuse("its data is not aligned to the " + std::to_string(bytes) +
           " bytes of its type; pass copy=True");
  try {
    return intern_spec(&device, dtype, t.ndim, t.shape, t.strides && !empty ? strides : nullptr);
  } catch (const Error& e) {
    refuse(e.text);
  }
}

// Memory of another library behind an array, until its last queued use.
struct Owner {
  Tensor::Taken tensor;
  Device* device;
  uint64_t block;  // 0: none of its own

  static void drop(void* self) {
    const std::unique_ptr<Owner> owner(static_cast<Owner*>(self));
    if (owner->block) release_block(*owner->device, owner->block);
    // At the interpreter's end a producer's deleter may no longer run; the process is about to go.
    if (Py_IsInitialized()) owner->tensor.end();
  }
};

void require_place(const DLTensor& t, const Device& device, const ForeignPlace& foreign) {
  const bool here = device.address_block ? t.device.device_type == kDLCPU
                                         : foreign.table && t.device.device_type == foreign.type &&
                                               t.device.device_id == foreign.id;
  if (!here)
    refuse("it lies on DLPack device (" + std::to_string(t.device.device_type) + ", " +
           std::to_string(t.device.device_id) + "), which " + device.name +
           " cannot use in place; pass copy=True");
}

// An array of the device that shares the tensor's memory. Checks the tensor before the capsule
// counts as consumed.
nb::object import_array(nb::handle capsule, Device& device) {
  device.require_alive();
  device.memory.collect_foreign();
  Queue& queue = queue_for(current_scope(), device);
  if (queue.capture)
    refuse("a graph is being captured on " + device.name + "; import before it or after it");
  Tensor tensor(capsule);
  const DLTensor& t = tensor.get();
  require_place(t, device, foreign_of(device));
  const Spec* spec = spec_of(t, device);
  const bool constant = tensor.read_only();
  const uint64_t address = address_of(t);
  // Before anything that may run Python, where another consumer could take the capsule too.
  const Tensor::Taken taken = tensor.take();
  if (spec->size == 0) {
    taken.end();
    nb::object out = nb::steal(empty_array(&device, spec, ANYHAL_PURPOSE_ACTIVATIONS));
    if (!out.is_valid()) throw nb::python_error();
    if (constant) {
      as_array(out.ptr())->buffer->constant = true;
      as_array(out.ptr())->word |= kConstantBit;
    }
    return out;
  }
  auto b = std::make_unique<Buffer>();
  auto owner = std::make_unique<Owner>(Owner{taken, &device, 0});
  b->device = &device, b->bytes = uint64_t(spec->span_bytes), b->constant = constant;
  if (device.address_block) {
    b->memory = device.address_block, b->offset = address;
    b->host = reinterpret_cast<uint8_t*>(address);
  } else {
    try {
      b->offset = address % kBaseAlignment;
      owner->block = import_block(device, address - b->offset, b->offset + b->bytes);
    } catch (...) {
      spec->release();
      Owner::drop(owner.release());
      throw;
    }
    b->memory = owner->block;
    // The producer has made the queue wait; other queues have to wait for this one.
    std::lock_guard guard(queue.lock);
    b->written = {&queue, queue.accept()};
  }
  b->deleter = Owner::drop, b->owner = owner.release();
  const uint64_t data = data_of(*b);
  PyObject* out = make_array(spec, b.release(), data);
  if (!out) throw nb::python_error();
  return nb::steal(out);
}

void end_borrowed(PyObject* holder) {
  auto* taken = static_cast<Tensor::Taken*>(PyCapsule_GetPointer(holder, nullptr));
  taken->end();
  delete taken;
}

// A tensor in host memory for whoever copies it: address, dtype, shape, strides in elements, and
// what keeps the memory.
nb::object borrow_host(nb::handle capsule) {
  auto empty = std::make_unique<Tensor::Taken>(Tensor::Taken{nullptr, nullptr});
  nb::object holder = nb::steal(PyCapsule_New(empty.get(), nullptr, end_borrowed));
  if (!holder.is_valid()) throw nb::python_error();
  Tensor::Taken& held = *empty.release();  // the holder's
  Tensor tensor(capsule);
  const DLTensor& t = tensor.get();
  if (t.device.device_type != kDLCPU) refuse("it is not in host memory; move it there first");
  require_shape(t);
  const uint32_t dtype = dtype_of(t);
  const int64_t count = count_of(t);
  if (count && !t.data) refuse("its data is missing; the producer must give an address");
  require_reach(t, count, int64_t(block_of(dtype).bytes));
  // Before anything that may run Python, where another consumer could take the capsule too.
  held = tensor.take();
  nb::list dims, strides;
  int64_t step = 1;
  for (int i = t.ndim - 1; i >= 0; --i) {
    dims.insert(0, t.shape[i]);
    // Of no account where there is at most one element.
    strides.insert(0, t.strides && count && t.shape[i] > 1 ? t.strides[i] : step);
    if (count) step *= t.shape[i];
  }
  return nb::make_tuple(count ? address_of(t) : 0, dtype, dims, strides, holder);
}

bool shares(Device& device, int32_t type, int32_t id) {
  if (device.address_block) return type == kDLCPU;
  const ForeignPlace& foreign = foreign_of(device);
  return foreign.table && foreign.type == type && foreign.id == id;
}

}  // namespace

void bind_import(nb::module_& m) {
  m.def("import_dlpack", &import_array, "capsule"_a.none(), "device"_a);
  m.def("borrow_dlpack", &borrow_host, "capsule"_a.none());
  m.def("shares_dlpack", &shares);
  m.def("foreign_stream", &foreign_stream);
}

}  // namespace hal::dlpack
