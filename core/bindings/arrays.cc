// Making arrays, views of arrays, and moving bytes between the host and a device.
// SPDX-License-Identifier: Apache-2.0
#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <cstring>
#include <optional>
#include <utility>

#include "core/bindings/array.hpp"
#include "core/bindings/scope.hpp"
#include "core/bindings/wait.hpp"
#include "core/graph.hpp"

namespace nb = nanobind;
using namespace nb::literals;

namespace hal {

void drop_owner(void* owner) {
  if (!Py_IsInitialized()) return;
  const PyGILState_STATE state = PyGILState_Ensure();
  Py_DECREF(static_cast<PyObject*>(owner));
  PyGILState_Release(state);
}

void require_readable(const ArrayObject& a) {
  Device& device = *a.device();
  const Graph* open = queue_for(current_scope(), device).capture;
  if ((open && open->thread == std::this_thread::get_id()) || a.buffer->captured)
    throw Error(ANYHAL_STATUS_INVALID_ARGUMENT,
                "the host cannot read or write arrays of " + device.name +
                    " while a graph is being captured; end the graph first",
                ANYHAL_REASON_CAPTURE);
  if (a.buffer->unwritten)
    throw Error(ANYHAL_STATUS_INVALID_ARGUMENT,
                "reading " + describe(*a.spec()) + " on " + device.name +
                    ": the graph that makes it has not run; launch it first",
                ANYHAL_REASON_CAPTURE);
}

namespace {

using Dims = std::vector<int64_t>;

ArrayObject& array_of(nb::handle h) {
  if (!is_array(h.ptr())) throw nb::type_error("expected an anyhal Array");
  return *as_array(h.ptr());
}

nb::object steal(PyObject* p) {
  if (!p) throw nb::python_error();
  return nb::steal(p);
}

nb::object empty(Device& device, uint32_t dtype, const Dims& shape, uint32_t purpose) {
  device.require_alive();
  const Spec* spec = intern_spec(&device, dtype, int32_t(shape.size()), shape.data(), nullptr);
  Queue& queue = queue_for(current_scope(), device);
  if (queue.capture) purpose = ANYHAL_PURPOSE_ARENA;
  nb::object out = steal(empty_array(&device, spec, purpose));
  if (queue.capture) queue.capture->hold(as_array(out.ptr())->buffer);
  return out;
}

// Another description of the same bytes, `offset` bytes further.
nb::object view(nb::handle base, uint32_t dtype, const Dims& shape, const Dims& strides,
                int64_t offset) {
  ArrayObject& a = array_of(base);
  const Spec* spec =
      intern_spec(a.device(), dtype, int32_t(shape.size()), shape.data(), strides.data());
  const uint64_t data = a.data + uint64_t(offset);
  const uint64_t first = data_of(*a.buffer), last = first + a.buffer->bytes;
  if (spec->size && (offset < 0 ? data < first : false)) {
    spec->release();
    throw Error(ANYHAL_STATUS_INVALID_ARGUMENT, "a view begins before its array's memory");
  }
  if (spec->size && data + uint64_t(spec->span_bytes) > last) {
    spec->release();
    throw Error(ANYHAL_STATUS_INVALID_ARGUMENT, "a view reaches past its array's memory");
  }
  a.buffer->retain();
  return steal(make_array(spec, a.buffer, data));
}

std::atomic<uint64_t> g_next_content{1};

void freeze(Buffer& b) {
  b.constant = true;
  b.content_id = g_next_content.fetch_add(1);
}

// Host memory as an array of a device that can address it. `owner` is kept until its last use.
nb::object import_host(Device& device, uint64_t address, uint64_t bytes, uint32_t dtype,
                       const Dims& shape, const Dims& strides, nb::object owner, bool constant) {
  if (!device.address_block)
    throw Error(ANYHAL_STATUS_UNSUPPORTED,
                "device " + device.name + " cannot use host memory in place; copy it with asarray",
                ANYHAL_REASON_MEMORY_KIND);
  const Spec* spec =
      intern_spec(&device, dtype, int32_t(shape.size()), shape.data(), strides.data());
  if (uint64_t(spec->span_bytes) > bytes) {
    const std::string text = "an array " + describe(*spec) + " needs " +
                             std::to_string(spec->span_bytes) + " bytes, the memory given has " +
                             std::to_string(bytes);
    spec->release();
    throw Error(ANYHAL_STATUS_INVALID_ARGUMENT, text);
  }
  auto* b = new Buffer;
  b->device = &device, b->memory = device.address_block, b->offset = address, b->bytes = bytes;
  b->host = reinterpret_cast<uint8_t*>(address);
  b->deleter = drop_owner, b->owner = owner.release().ptr();
  b->purpose = constant ? ANYHAL_PURPOSE_WEIGHTS : ANYHAL_PURPOSE_ACTIVATIONS;
  if (constant) freeze(*b);
  return steal(make_array(spec, b, address));
}

// The same bytes, marked immutable from now on (the old Array object stays writable-looking but is
// dropped by the caller).
nb::object as_constant(nb::handle h) {
  ArrayObject& a = array_of(h);
  if (a.buffer->captured)
    throw Error(ANYHAL_STATUS_INVALID_ARGUMENT,
                "making a constant on " + a.device()->name +
                    ": its values are computed by the graph that is being recorded; make it before",
                ANYHAL_REASON_CAPTURE);
  if (!a.buffer->constant) freeze(*a.buffer);
  a.spec()->retain();
  a.buffer->retain();
  return steal(make_array(a.spec(), a.buffer, a.data));
}

// A host address for the array's bytes once they may be read (written), or 0. `fresh`: nobody has
// seen the array yet, so that it may be filled even while a graph is being captured.
uint64_t host_pointer(nb::handle h, bool for_write, bool fresh) {
  ArrayObject& a = array_of(h);
  Device& device = *a.device();
  device.require_alive();
  if (!device.host_memory) return 0;
  if (!fresh) require_readable(a);
  if (!device.synchronous) {
    nb::gil_scoped_release nogil;
    wait_idle_interruptibly(*a.buffer, for_write);
  }
  return reinterpret_cast<uint64_t>(a.host());
}

// What the values are waiting for, found out without waiting: "ready", "pending", "failed", "lost",
// "recording" or "recorded"; why, where they never come; whether they are read without a wait.
nb::tuple state(nb::handle h) {
  ArrayObject& a = array_of(h);
  Device& device = *a.device();
  const auto answer = [](const char* word, const std::string& why = {}, bool readable = false) {
    return nb::make_tuple(word, why, readable);
  };
  if (a.buffer->captured) return answer("recording");
  if (a.buffer->unwritten) return answer("recorded");
  Use written{nullptr, 0};
  if (!device.synchronous) {
    std::lock_guard guard(a.buffer->uses);
    written = a.buffer->written;
  }
  Queue& queue = queue_for(current_scope(), device);
  bool readable = device.host_memory && !queue.capture;
  try {
    if (written.queue && !device.lost) {
      if (!written.queue->reached(written.value)) return answer("pending");
      written.queue->require_good(written.value);
    }
    if (!readable && !device.lost) readable = !queue.capture && queue.reached(queue.submitted);
  } catch (const Error& e) {
    if (!device.lost) return answer("failed", e.text);
  }
  if (device.lost) return answer("lost", device.lost_text);
  return answer("ready", {}, readable);
}

struct Staging {
  Staging(Device& d, uint64_t bytes)
      : buffer(d.memory.alloc(bytes, ANYHAL_PURPOSE_STAGING, d.queue, true)) {}
  ~Staging() { release(buffer); }
  Buffer* buffer;
};

// The span of an array (a cell: its whole block) as bytes; devices the host cannot address.
nb::bytes download(nb::handle h) {
  ArrayObject& a = array_of(h);
  Device& device = *a.device();
  device.require_alive();
  require_readable(a);
  if (a.spec()->span_bytes == 0) {  // the call that made it may have failed all the same
    {
      nb::gil_scoped_release nogil;
      wait_idle_interruptibly(*a.buffer, false);
    }
    return nb::bytes("", 0);
  }
  const uint64_t bytes = a.buffer->cell ? a.buffer->bytes : uint64_t(a.spec()->span_bytes);
  Queue& queue = queue_for(current_scope(), device);
  Staging staging(device, bytes);
  {
    nb::gil_scoped_release nogil;
    const Operand from{a.buffer->cell ? a.buffer->offset : a.data, a.buffer};
    copy_bytes(queue, {staging.buffer->offset, staging.buffer}, from, bytes);
    wait_interruptibly(queue, queue.submitted);
    queue.require_good(queue.submitted);
    wait_idle_interruptibly(*a.buffer, false);
    device.memory.collect_foreign();
  }
  const uint8_t* begin = staging.buffer->host;
  if (a.buffer->cell) {
    const uint64_t skip = a.data - a.buffer->offset;
    return nb::bytes(reinterpret_cast<const char*>(begin + skip), size_t(a.spec()->span_bytes));
  }
  return nb::bytes(reinterpret_cast<const char*>(begin), bytes);
}

// Writes the span of an array (a cell: must be the whole block).
void upload(nb::handle h, nb::bytes data, bool fresh) {
  ArrayObject& a = array_of(h);
  Device& device = *a.device();
  device.require_alive();
  if (!fresh) require_readable(a);
  const uint64_t bytes = uint64_t(a.spec()->span_bytes);
  if (data.size() != bytes)
    throw Error(ANYHAL_STATUS_INVALID_ARGUMENT, "an upload of " + std::to_string(data.size()) +
                                                    " bytes into a span of " +
                                                    std::to_string(bytes));
  if (bytes == 0) return;
  if (a.buffer->cell && bytes != a.buffer->bytes)
    throw Error(ANYHAL_STATUS_UNSUPPORTED,
                "writing part of an array on " + device.name +
                    " from the host is not possible: its memory holds whole tensors; write the "
                    "whole array",
                ANYHAL_REASON_MEMORY_KIND);
  Queue& queue = queue_for(current_scope(), device);
  Staging staging(device, bytes);
  std::memcpy(staging.buffer->host, data.c_str(), bytes);
  nb::gil_scoped_release nogil;
  // The staging buffer is stamped, so the pool will not hand it out before the copy has run.
  copy_bytes(queue, {a.data, a.buffer}, {staging.buffer->offset, staging.buffer}, bytes);
}

bool same_memory(const ArrayObject& a, const ArrayObject& b) {
  return a.device() == b.device() &&
         (a.device()->address_block || a.buffer->memory == b.buffer->memory);
}

// The places of two arrays whose bytes, from the first to the last, meet.
std::optional<std::pair<size_t, size_t>> first_overlap(const std::vector<nb::handle>& arrays) {
  for (size_t j = 0; j < arrays.size(); ++j) {
    const ArrayObject& b = array_of(arrays[j]);
    for (size_t i = 0; i < j; ++i) {
      const ArrayObject& a = array_of(arrays[i]);
      if (a.data < b.end && b.data < a.end && same_memory(a, b)) return std::pair(i, j);
    }
  }
  return std::nullopt;
}

}  // namespace

void bind_arrays(nb::module_& m) {
  m.def("empty", &empty, "device"_a, "dtype"_a, "shape"_a, "purpose"_a = 0u);
  m.def("view", &view, "base"_a, "dtype"_a, "shape"_a, "strides"_a, "offset"_a);
  m.def("import_host", &import_host, "device"_a, "address"_a, "bytes"_a, "dtype"_a, "shape"_a,
        "strides"_a, "owner"_a, "constant"_a);
  m.def("as_constant", &as_constant);
  m.def("host_pointer", &host_pointer, "array"_a, "for_write"_a, "fresh"_a = false);
  m.def("state", &state);
  m.def("download", &download);
  m.def("upload", &upload, "array"_a, "data"_a, "fresh"_a = false);
  m.def("device_of", [](nb::handle h) { return array_of(h).device(); }, nb::rv_policy::reference);
  m.def("content_id", [](nb::handle h) { return array_of(h).buffer->content_id; });
  m.def("array_address", [](nb::handle h) { return array_of(h).data; });
  m.def("same_memory",
        [](nb::handle x, nb::handle y) { return same_memory(array_of(x), array_of(y)); });
  m.def("first_overlap", &first_overlap, "arrays"_a);
  m.def("alignment",
        [](nb::handle h) { return uint32_t(1) << (array_of(h).word & kAlignmentMask); });
  m.def("block_range", [](nb::handle h) {
    ArrayObject& a = array_of(h);
    return nb::make_tuple(a.buffer->cell, a.buffer->bytes, a.data - data_of(*a.buffer));
  });
  m.def("buffer_references", [](nb::handle h) { return array_of(h).buffer->refs.load(); });
  m.def("spec_count", &spec_count);
}

}  // namespace hal
