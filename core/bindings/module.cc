// The Python module _core: everything whose calls are not counted, through nanobind.
// SPDX-License-Identifier: Apache-2.0
#include <nanobind/nanobind.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>
#include <unistd.h>

#include <chrono>
#include <cstring>

#include "anyhal/ops.h"
#include "core/bindings/array.hpp"
#include "core/bindings/op.hpp"
#include "core/bindings/scope.hpp"
#include "core/bindings/wait.hpp"
#include "core/executor.hpp"
#include "core/graph.hpp"
#include "core/open.hpp"
#include "core/process.hpp"
#include "core/sha256.hpp"

namespace nb = nanobind;
using namespace nb::literals;

namespace hal {

void bind_arrays(nb::module_& m);           // arrays.cc
void bind_plans(nb::module_& m);            // plans.cc
void bind_dlpack(nb::module_& m);           // dlpack.cc
void bind_native(nb::module_& m);           // native.cc
void bind_python_backends(nb::module_& m);  // python_backend.cc

namespace {

PyObject* g_error_types = nullptr;  // tuple by status
PyObject* g_scope_var = nullptr;    // ContextVar
bool g_scope_used = false;          // sticky: copied contexts outlive their scope
Scope g_default_scope;

}  // namespace

thread_local bool t_interrupted = false;

void set_python_error(const Error& e) noexcept {
  if (std::exchange(t_interrupted, false)) return PyErr_SetNone(PyExc_KeyboardInterrupt);
  PyObject* type = PyExc_RuntimeError;
  if (!e.stage.empty() && g_error_types)
    type = PyTuple_GET_ITEM(g_error_types, PyTuple_GET_SIZE(g_error_types) - 1);
  else if (g_error_types && e.status > 0 && e.status < PyTuple_GET_SIZE(g_error_types) - 1)
    type = PyTuple_GET_ITEM(g_error_types, e.status);
  PyObject* text = PyUnicode_DecodeUTF8(e.text.data(), Py_ssize_t(e.text.size()), "replace");
  PyObject* exc = text ? PyObject_CallOneArg(type, text) : nullptr;
  Py_XDECREF(text);
  if (!exc) return;
  const auto attribute = [&](const char* name, const char* value) {
    PyObject* v = PyUnicode_FromString(value);
    if (!v || PyObject_SetAttrString(exc, name, v) < 0) PyErr_Clear();
    Py_XDECREF(v);
  };
  if (!e.stage.empty()) {
    attribute("stage", e.stage.c_str());
    attribute("status", status_name(e.status));
    if (*e.code) attribute("reason", e.code);
  }
  if (e.stage.empty() && e.status == ANYHAL_STATUS_UNSUPPORTED)
    attribute("reason", reason_name(e.reason));
  PyErr_SetObject(type, exc);
  Py_DECREF(exc);
}

const Scope& current_scope() {
  if (!g_scope_used) return g_default_scope;
  PyObject* value = nullptr;
  if (PyContextVar_Get(g_scope_var, nullptr, &value) < 0 || !value) {
    PyErr_Clear();
    return g_default_scope;
  }
  const Scope* s = nb::inst_ptr<Scope>(nb::handle(value));
  Py_DECREF(value);  // the context still holds it
  return *s;
}

namespace {

nb::dict device_record(const anyhal_device_info& info,
                       const std::vector<anyhal_memory_kind>& kinds) {
  nb::dict d;
  d["id"] = info.id, d["flags"] = info.flags;
  d["uuid"] = nb::bytes(reinterpret_cast<const char*>(info.uuid), 16);
  d["pci_domain"] = info.pci_domain, d["pci_function"] = info.pci_function;
  d["name"] = std::string(info.name), d["arch"] = std::string(info.arch);
  d["driver"] = std::string(info.driver), d["queue_depth"] = info.queue_depth;
  d["preferred_alignment"] = info.preferred_alignment, d["rank_max"] = info.rank_max;
  d["recovery"] = info.recovery, d["own_threads"] = info.own_threads;
  d["tensor_bytes_max"] = info.tensor_bytes_max;
  nb::list list;
  for (const anyhal_memory_kind& k : kinds) {
    nb::dict kind;
    kind["flags"] = k.flags, kind["heap"] = k.heap, kind["heap_bytes"] = k.heap_bytes;
    kind["offset_alignment"] = k.offset_alignment, kind["block_bytes_max"] = k.block_bytes_max;
    list.append(kind);
  }
  d["kinds"] = list;
  return d;
}

void bind_instances(nb::module_& m) {
  nb::class_<Instance>(m, "Instance")
      .def_ro("name", &Instance::name)
      .def_ro("path", &Instance::path)
      .def_ro("build_id", &Instance::build_id)
      .def_ro("settings", &Instance::settings)
      .def_prop_ro("synchronous", &Instance::synchronous)
      .def_prop_ro("abi", [](const Instance& i) { return i.reply.chosen; })
      .def_prop_ro("registry_version", [](const Instance& i) { return i.reply.registry_version; })
      .def_prop_ro("flags", [](const Instance& i) { return i.reply.flags; })
      .def("list_devices",
           [](Instance& i) {
             nb::list out;
             for (const ListedDevice& d : i.list_devices())
               out.append(device_record(d.info, d.kinds));
             return out;
           })
      .def(
          "open",
          [](Instance& i, uint64_t id, const std::string& name) {
            return open_device(&i, id, name);
          },
          nb::rv_policy::reference);
  m.def(
      "load",
      [](const std::string& path, const std::string& sha256, const std::string& name,
         std::vector<std::pair<std::string, std::string>> settings,
         std::vector<std::string> first) {
        return load_trusted({path, sha256, std::move(first)}, name, std::move(settings));
      },
      "path"_a, "sha256"_a, "name"_a, "settings"_a, "first"_a = std::vector<std::string>(),
      nb::rv_policy::reference, nb::call_guard<nb::gil_scoped_release>());
  m.def("mapped_libraries", [] {
    nb::list names;
    for (const std::string& name : mapped_libraries())
      names.append(nb::steal(PyUnicode_DecodeFSDefaultAndSize(name.data(), name.size())));
    return names;
  });
}

void bind_devices(nb::module_& m) {
  nb::class_<Device>(m, "NativeDevice")
      .def_ro("name", &Device::name)
      .def_ro("synchronous", &Device::synchronous)
      .def_ro("host_memory", &Device::host_memory)
      .def_ro("cells", &Device::cells)
      .def_ro("instance", &Device::instance, nb::rv_policy::reference)
      .def_prop_ro("record", [](const Device& d) { return device_record(d.info, d.kinds); })
      .def_prop_ro("lost", [](const Device& d) { return d.lost ? d.lost_text : std::string(); })
      .def_prop_ro(
          "queue", [](Device& d) { return d.queue; }, nb::rv_policy::reference)
      .def(
          "query",
          [](const Device& d, uint32_t key, uint64_t argument) {
            const auto v = d.query(key, argument);
            return nb::bytes(reinterpret_cast<const char*>(v.data()), v.size());
          },
          "key"_a, "argument"_a = 0)
      .def("counters",
           [](const Device& d) {
             const Counters& c = d.counters;
             nb::dict out;
             out["plans_prepared"] = c.plans_prepared.load();
             out["driver_allocs"] = c.driver_allocs.load();
             out["driver_frees"] = c.driver_frees.load();
             out["pool_allocs"] = c.pool_allocs.load();
             out["host_waits"] = c.host_waits.load();
             out["copies"] = c.copies.load();
             out["graph_launches"] = c.graph_launches.load();
             return out;
           })
      .def("ledger",
           [](Device& d) {
             nb::dict out;
             const auto lines = d.memory.ledger();
             for (int i = 0; i < kPurposes; ++i) {
               nb::dict line;
               line["in_use"] = lines[i].in_use, line["cached"] = lines[i].cached;
               line["peak"] = lines[i].peak;
               out[purpose_name(uint32_t(i))] = line;
             }
             std::lock_guard lock(d.instance->mutex);
             if (!d.instance->notes.empty()) {
               int64_t held = 0;
               for (const auto& [label, bytes] : d.instance->notes) held += bytes;
               nb::dict line;
               line["in_use"] = held, line["cached"] = 0, line["peak"] = held;
               out["outside"] = line;  // what the backend says it holds outside blocks
             }
             return out;
           })
      .def("trim", [](Device& d) { return d.memory.trim(); })
      .def(
          "synchronize",
          [](Device& d, uint64_t limit_ns) {
            d.require_alive();
            std::exception_ptr first;
            using Clock = std::chrono::steady_clock;
            const auto start = Clock::now();
            const auto left = [&] {  // of the limit, for all queues together
              if (limit_ns == ANYHAL_NO_LIMIT) return limit_ns;
              const auto used =
                  static_cast<uint64_t>(std::chrono::nanoseconds(Clock::now() - start).count());
              return used < limit_ns ? limit_ns - used : 0;
            };
            for (Queue* q : d.queues()) try {
                if (limit_ns == ANYHAL_NO_LIMIT) wait_interruptibly(*q, q->submitted);
                q->wait_all(left());
              } catch (const nb::python_error&) {
                throw;  // the user's interrupt
              } catch (...) {
                if (!first) first = std::current_exception();
              }
            d.memory.collect_foreign();
            if (first) std::rethrow_exception(first);
          },
          "limit_ns"_a = uint64_t(ANYHAL_NO_LIMIT), nb::call_guard<nb::gil_scoped_release>());
  m.def("devices", [] {
    nb::list out;
    for (Device* d : all_devices()) out.append(nb::cast(d, nb::rv_policy::reference));
    return out;
  });
}

void bind_queues(nb::module_& m) {
  nb::class_<Queue>(m, "NativeQueue")
      .def_prop_ro("submitted", [](const Queue& q) { return q.submitted.load(); })
      .def_prop_ro(
          "device", [](Queue& q) { return q.device; }, nb::rv_policy::reference)
      .def_prop_ro(
          "completed",
          [](Queue& q) { return q.device->synchronous ? q.submitted.load() : q.completed.load(); })
      .def("signal", &Queue::signal)
      .def("reached", &Queue::reached)
      .def(
          "wait",
          [](Queue& q, uint64_t value, uint64_t limit_ns) {
            if (limit_ns == ANYHAL_NO_LIMIT) return wait_interruptibly(q, value);
            q.wait(value, limit_ns);
          },
          "value"_a, "limit_ns"_a = uint64_t(ANYHAL_NO_LIMIT),
          nb::call_guard<nb::gil_scoped_release>())
      .def("renew", &Queue::renew, nb::call_guard<nb::gil_scoped_release>())
      .def(
          "wait_all",
          [](Queue& q, uint64_t limit_ns) {
            if (limit_ns == ANYHAL_NO_LIMIT) wait_interruptibly(q, q.submitted);
            q.wait_all(limit_ns);
          },
          "limit_ns"_a = uint64_t(ANYHAL_NO_LIMIT), nb::call_guard<nb::gil_scoped_release>())
      .def("wait_for", &Queue::wait_for, nb::call_guard<nb::gil_scoped_release>())
      .def_prop_ro("capturing", [](Queue& q) { return q.capture != nullptr; });
  m.def("new_queue", [](Device& d) { return new Queue(&d); }, nb::rv_policy::reference);
  nb::class_<Graph>(m, "NativeGraph")
      .def(
          "__init__", [](Graph* g, Queue& q) { new (g) Graph(q); }, nb::keep_alive<1, 2>(),
          nb::call_guard<nb::gil_scoped_release>())
      .def("end", &Graph::end)
      .def("abort", &Graph::abort)
      .def("launch", &Graph::launch, nb::call_guard<nb::gil_scoped_release>())
      .def("hold",
           [](Graph& g, nb::handle array) {
             if (!is_array(array.ptr())) throw nb::type_error("not an Array");
             g.hold(as_array(array.ptr())->buffer);
           })
      .def_ro("capturing", &Graph::capturing)
      .def_prop_ro("size", &Graph::size)
      .def_prop_ro("form", [](const Graph& g) { return std::string(g.form()); })
      .def_prop_ro("why", &Graph::why);
}

void bind_scope(nb::module_& m) {
  nb::class_<Scope>(m, "Scope")
      .def(
          "__init__",
          [](Scope* s, uint32_t contract, Queue* queue) { new (s) Scope{contract, queue}; },
          "contract"_a, "queue"_a.none())
      .def_ro("contract", &Scope::contract)
      .def_prop_ro("queue", [](const Scope& s) { return s.queue; }, nb::rv_policy::reference);
  m.def("set_scope_variable", [](nb::handle var) {
    Py_INCREF(var.ptr());
    g_scope_var = var.ptr();
  });
  m.def("use_scopes", [] { g_scope_used = true; });
  m.def("set_error_types", [](nb::tuple types) {
    Py_INCREF(types.ptr());
    g_error_types = types.ptr();
  });
}

// Python's hashlib would bring OpenSSL into every process.
void bind_hashes(nb::module_& m) {
  m.def("sha256", [](nb::bytes data) {
    Sha256 hash;
    hash.add(data.c_str(), data.size());
    return hex_of(hash.finish());
  });
  m.def("sha256_of_file", [](int descriptor) {
    Sha256 hash;
    std::vector<char> piece(1 << 18);
    int failed = 0;
    {
      nb::gil_scoped_release release;
      for (;;) {
        const ssize_t n = read(descriptor, piece.data(), piece.size());
        failed = n < 0 ? errno : 0;
        if (n > 0) hash.add(piece.data(), uint64_t(n));
        if (n <= 0 && failed != EINTR) break;
      }
    }
    if (failed) {
      errno = failed;
      PyErr_SetFromErrno(PyExc_OSError);
      throw nb::python_error();
    }
    return hex_of(hash.finish());
  });
}

}  // namespace

Plan* plan_of(PyObject* object) {
  return nb::isinstance<PlanRef>(nb::handle(object))
             ? nb::inst_ptr<PlanRef>(nb::handle(object))->plan
             : nullptr;
}

}  // namespace hal

NB_MODULE(_core, m) {
  using namespace hal;
  // Backends, devices and plans live until the process ends; nothing is leaked by intent.
  nb::set_leak_warnings(false);
  nb::register_exception_translator([](const std::exception_ptr& p, void*) {
    try {
      std::rethrow_exception(p);
    } catch (const Error& e) {
      set_python_error(e);
    }
  });
  watch_forks();
  m.attr("__version__") = ANYHAL_VERSION;
  m.attr("ABI_VERSION") = std::to_string(ANYHAL_ABI_MAJOR) + "." + std::to_string(ANYHAL_ABI_MINOR);
  m.attr("REGISTRY_VERSION") = ANYHAL_REGISTRY_VERSION;
  bind_instances(m);
  bind_devices(m);
  bind_queues(m);
  bind_scope(m);
  if (init_array_type(m.ptr()) < 0 || init_op_type(m.ptr()) < 0) throw nb::python_error();
  bind_arrays(m);
  bind_plans(m);
  bind_dlpack(m);
  bind_native(m);
  bind_python_backends(m);
  bind_hashes(m);
  m.def("thread_count", &executor_thread_count);
  m.def(
      "set_thread_count",
      [](uint32_t count) {
        require_outside_call();  // else it waits for itself
        executor_set_thread_count(count);
      },
      nb::call_guard<nb::gil_scoped_release>());
  m.def("require_outside_call", &require_outside_call);
  m.def("set_debug_pool", &set_debug_pool);
  m.def("set_log_level", &set_log_level);
  m.def("set_receipts", &set_receipts);
  m.def("receipts_on", &receipts_on);
}
