// The Op type: one table-driven entry for every op. A hit goes parse -> key -> plan -> enqueue;
// a miss asks Python (anyhal/dispatch.py) for the plan.
// SPDX-License-Identifier: Apache-2.0
#define PY_SSIZE_T_CLEAN
#include "core/bindings/op.hpp"

#include <Python.h>
#include <structmember.h>

#include <cstring>
#include <iterator>

#include "core/bindings/array.hpp"
#include "core/graph.hpp"

namespace hal {
namespace {

constexpr int kMaxArrays = 12;
constexpr int kMaxAttrs = 24;

struct AttrSlot {
  PyObject* name;  // interned
  char kind;       // i int, n ints, f float, b bool, a axis, x axes, e enum, d dtype
  bool required;
  PyObject* table;  // dict for e and d
  uint64_t initial;
};

struct OpObject {
  PyObject_HEAD vectorcallfunc call;
  PyObject* dict;
  PyObject* name;
  PyObject* bind;     // (op) -> what `take_shape` takes; asked at the first call
  PyObject* resolve;  // (op, arrays, attrs, outs) -> Plan, Array or tuple of Arrays
  PyObject* coerce;   // (op, args, kwargs) -> result; operands that are not arrays
  uint32_t id;
  int array_count, required_count, attr_count, out_count;
  bool variadic, in_place;
  PyObject* array_names[kMaxArrays];
  AttrSlot attrs[kMaxAttrs];
};

PyObject* g_out_name;

// A parsed call. Arrays are borrowed.
struct Parsed {
  PyObject* arrays[kMaxOperands];
  int count = 0;
  // What the caller gave as `out`: one Array (the first output), or a tuple with an Array or None
  // for each output.
  PyObject* out = nullptr;
  PyObject* outs[kMaxOutputs] = {};
  uint64_t attrs[kMaxAttrs];
  bool cacheable = true;  // false: a value only Python understands
};

// A tuple of up to 15 ints in one word: the count, and as many bits for each as there are. 0: some
// value needs more bits, and Python looks at each call.
uint64_t ints_word(PyObject* v) {
  const Py_ssize_t count = PyTuple_GET_SIZE(v);
  if (count > 15) return 0;
  const int bits = count ? 60 / int(count) : 60;
  uint64_t word = 0;
  for (Py_ssize_t i = 0; i < count; ++i) {
    PyObject* item = PyTuple_GET_ITEM(v, i);
    int overflow = 1;
    const long long n = PyLong_CheckExact(item) ? PyLong_AsLongLongAndOverflow(item, &overflow) : 0;
    const long long limit = 1ll << (bits - 1);
    if (overflow || n < -limit || n >= limit) return 0;
    word = word << bits | (uint64_t(n) & ((1ull << bits) - 1));
  }
  return word << 4 | uint64_t(count + 1);
}

bool fits_axis(long long v) { return v >= -64 && v < 64; }

// The word of an attribute value; clears `cacheable` where Python must look.
uint64_t attr_word(const AttrSlot& slot, PyObject* v, Parsed& p) {
  switch (slot.kind) {
    case 'f': {
      double d;
      if (PyFloat_Check(v)) {  // NumPy's float64 is one
        d = PyFloat_AS_DOUBLE(v);
      } else {
        // All else with __float__ (bools of NumPy, 0-d arrays) Python judges, also of a known plan.
        if (!PyLong_CheckExact(v)) break;
        d = PyLong_AsDouble(v);
        if (d == -1.0 && PyErr_Occurred()) break;
      }
      uint64_t bits;
      std::memcpy(&bits, &d, 8);
      return bits;
    }
    case 'b':
      if (v == Py_True) return 1;
      if (v == Py_False) return 0;
      break;
    case 'i':
    case 'a':
      if (PyLong_CheckExact(v)) {
        const long long n = PyLong_AsLongLong(v);
        if (n != -1 || !PyErr_Occurred()) return uint64_t(n);
      }
      break;
    case 'n':
      if (v == Py_None) return 0;
      if (PyTuple_CheckExact(v))
        if (const uint64_t word = ints_word(v)) return word;
      break;
    case 'x': {
      if (v == Py_None) return 0;
      if (PyLong_CheckExact(v)) {
        const long long n = PyLong_AsLongLong(v);
        if ((n != -1 || !PyErr_Occurred()) && fits_axis(n)) return 1ull << (n & 63);
        break;
      }
      if (!PyTuple_CheckExact(v) || PyTuple_GET_SIZE(v) == 0) break;
      uint64_t bits = 0;
      for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(v); ++i) {
        PyObject* item = PyTuple_GET_ITEM(v, i);
        const long long n = PyLong_CheckExact(item) ? PyLong_AsLongLong(item) : 99;
        if (!fits_axis(n) || bits & (1ull << (n & 63))) {
          bits = 0;
          break;
        }
        bits |= 1ull << (n & 63);
      }
      if (bits && !PyErr_Occurred()) return bits;
      break;
    }
    case 'e':
    case 'd':
      if (slot.kind == 'd' && v == Py_None) return 0;
      if (PyUnicode_CheckExact(v))
        if (PyObject* n = PyDict_GetItem(slot.table, v)) return PyLong_AsUnsignedLongLong(n);
      break;
  }
  PyErr_Clear();
  p.cacheable = false;
  return 0;
}

int find_name(PyObject* const* names, size_t stride, int count, PyObject* name) {
  const auto at = [&](int i) {
    return *reinterpret_cast<PyObject* const*>(reinterpret_cast<const char*>(names) + i * stride);
  };
  for (int i = 0; i < count; ++i)
    if (at(i) == name) return i;
  for (int i = 0; i < count; ++i)
    if (PyUnicode_Compare(at(i), name) == 0) return i;
  return -1;
}

// Spreads `out` over the outputs. 0: done. 1: something is not an Array or not a tuple of them.
int parse_out(const OpObject* op, Parsed& p) {
  if (!p.out) return 0;
  if (op->out_count == 1 || is_array(p.out)) {  // one array is the first output
    p.outs[0] = p.out;
    return !is_array(p.out);
  }
  if (!PyTuple_CheckExact(p.out) || PyTuple_GET_SIZE(p.out) != op->out_count) return 1;
  int result = 0;
  for (int i = 0; i < op->out_count; ++i) {
    PyObject* a = PyTuple_GET_ITEM(p.out, i);
    p.outs[i] = a == Py_None ? nullptr : a;
    if (p.outs[i] && !is_array(a)) result = 1;
  }
  return result;
}

// 0: parsed. 1: some operand is not an Array or the call does not fit: Python coerces or refuses.
int parse(const OpObject* op, PyObject* const* args, size_t nargs, PyObject* kwnames, Parsed& p) {
  int result = 0;
  for (int i = 0; i < op->attr_count; ++i) p.attrs[i] = op->attrs[i].initial;
  if (op->variadic) {
    if (nargs != 1) return 1;
    PyObject* list = args[0];
    if (!PyList_CheckExact(list) && !PyTuple_CheckExact(list)) return 1;
    p.count = int(PySequence_Fast_GET_SIZE(list));
    if (p.count == 0) return 1;
    if (p.count >= int(kMaxOperands)) return 1;
    for (int i = 0; i < p.count; ++i) {
      p.arrays[i] = PySequence_Fast_GET_ITEM(list, i);
      if (!is_array(p.arrays[i])) result = 1;
    }
  } else {
    p.count = op->array_count;
    if (nargs > size_t(op->array_count)) return 1;
    for (int i = 0; i < p.count; ++i) p.arrays[i] = i < int(nargs) ? args[i] : nullptr;
  }
  uint32_t given = 0;
  const Py_ssize_t nkw = kwnames ? PyTuple_GET_SIZE(kwnames) : 0;
  for (Py_ssize_t k = 0; k < nkw; ++k) {
    PyObject* name = PyTuple_GET_ITEM(kwnames, k);
    PyObject* value = args[nargs + k];
    if (name == g_out_name || PyUnicode_Compare(name, g_out_name) == 0) {
      p.out = value == Py_None ? nullptr : value;
      continue;
    }
    int i = find_name(&op->attrs[0].name, sizeof(AttrSlot), op->attr_count, name);
    if (i >= 0) {
      p.attrs[i] = attr_word(op->attrs[i], value, p);
      given |= 1u << i;
      continue;
    }
    i = op->variadic ? -1 : find_name(op->array_names, sizeof(PyObject*), op->array_count, name);
    if (i < 0) return 1;
    if (p.arrays[i]) return 1;
    p.arrays[i] = value;
  }
  for (int i = 0; i < op->attr_count; ++i)
    if (op->attrs[i].required && !(given & (1u << i))) return 1;
  if (parse_out(op, p)) result = 1;
  if (op->variadic) return result;
  for (int i = 0; i < p.count; ++i) {
    PyObject*& a = p.arrays[i];
    if (a == Py_None) a = nullptr;
    if (!a) {
      if (i < op->required_count) return 1;
    } else if (!is_array(a)) {
      result = 1;
    }
  }
  return result;
}

// 0: apart; 1: exactly the same bytes and layout; 2: overlapping otherwise.
uint64_t overlap(const ArrayObject* out, const ArrayObject* in) {
  if (out->data >= in->end || in->data >= out->end) return 0;
  if (!out->device()->address_block && out->buffer->memory != in->buffer->memory) return 0;
  if (out->data == in->data && out->spec() == in->spec()) return 1;
  return 2;
}

// A cell backend compiles the place of a view in its block into the plan.
void add_cell(const ArrayObject& a, Key& key) {
  if (a.buffer->cell) key.add(a.data - a.buffer->offset), key.add(a.buffer->bytes);
}

void build_key(const OpObject* op, const Parsed& p, const Scope& scope, Key& key) {
  uint64_t alias = 0;
  key.add(0);
  for (int i = 0; i < p.count; ++i) {
    if (!p.arrays[i]) {
      key.add(0);
      continue;
    }
    const ArrayObject* a = as_array(p.arrays[i]);
    key.add(a->word);
    add_cell(*a, key);
    if (p.outs[0]) alias = alias * 3 + overlap(as_array(p.outs[0]), a);
  }
  key.add(p.outs[0] ? as_array(p.outs[0])->word : 0);
  if (p.outs[0]) add_cell(*as_array(p.outs[0]), key);
  for (int o = 1; o < op->out_count; ++o) {
    const ArrayObject* out = p.outs[o] ? as_array(p.outs[o]) : nullptr;
    key.add(out ? out->word : 0);
    if (!out) continue;
    add_cell(*out, key);
    // A further output has a word of its own for what it shares with inputs and earlier outputs.
    uint64_t shared = 0;
    for (int i = 0; i < p.count; ++i)
      if (p.arrays[i]) shared = shared * 3 + overlap(out, as_array(p.arrays[i]));
    for (int i = 0; i < o; ++i)
      if (p.outs[i]) shared = shared * 3 + overlap(out, as_array(p.outs[i]));
    key.add(shared);
  }
  for (int i = 0; i < op->attr_count; ++i) key.add(p.attrs[i]);
  // Up to 23 operands would need 37 bits of alias pattern; a mixed word keeps all of them apart
  // because more than twelve inputs happen only for concat, whose out may overlap nothing.
  key.words[0] = uint64_t(op->id) | uint64_t(scope.contract & 0xffff) << 12 |
                 (alias & 0xffffff) << 28 | uint64_t(key.count) << 52;
}

PyObject* given_attrs(const OpObject* op, PyObject* const* args, size_t nargs, PyObject* kwnames) {
  PyObject* attrs = PyDict_New();
  const Py_ssize_t nkw = kwnames ? PyTuple_GET_SIZE(kwnames) : 0;
  for (Py_ssize_t k = 0; attrs && k < nkw; ++k) {
    PyObject* name = PyTuple_GET_ITEM(kwnames, k);
    if (find_name(&op->attrs[0].name, sizeof(AttrSlot), op->attr_count, name) >= 0)
      PyDict_SetItem(attrs, name, args[nargs + k]);
  }
  return attrs;
}

// The miss: Python validates, decides and prepares. New reference to a Plan object or the result.
PyObject* resolve(OpObject* op, const Parsed& p, PyObject* attrs) {
  PyObject* arrays = PyTuple_New(p.count);
  if (!arrays || !attrs) return nullptr;
  for (int i = 0; i < p.count; ++i) {
    PyObject* a = p.arrays[i] ? p.arrays[i] : Py_None;
    Py_INCREF(a);
    PyTuple_SET_ITEM(arrays, i, a);
  }
  PyObject* outs = PyTuple_New(op->out_count);
  for (int o = 0; outs && o < op->out_count; ++o) {
    PyObject* a = p.outs[o] ? p.outs[o] : Py_None;
    Py_INCREF(a);
    PyTuple_SET_ITEM(outs, o, a);
  }
  PyObject* argv[] = {reinterpret_cast<PyObject*>(op), arrays, attrs, outs};
  PyObject* answer = outs ? PyObject_Vectorcall(op->resolve, argv, 4, nullptr) : nullptr;
  Py_DECREF(arrays);
  Py_XDECREF(outs);
  return answer;
}

// The outputs of one call: given by the caller or fresh. Owns a reference of each. `kCount` 0: as
// many as the op has; nearly every op has one, and its calls are the ones that are counted.
template <int kCount>
struct Outputs {
  PyObject* arrays[kCount ? kCount : int(kMaxOutputs)] = {};
  int count;
  bool made = true;  // false: a Python error is set

  Outputs(const Plan& plan, const Parsed& p, int given, Queue& queue)
      : count(kCount ? kCount : given) {
    for (int o = 0; o < (kCount ? kCount : count); ++o) {
      if (p.outs[o]) {
        Py_INCREF(p.outs[o]);
        arrays[o] = p.outs[o];
        continue;
      }
      const Spec* spec = plan.out_specs[o];
      if (!spec) continue;
      Buffer* b;
      try {
        b = queue.device->memory.alloc(
            uint64_t(spec->span_bytes),
            queue.capture ? ANYHAL_PURPOSE_ARENA : ANYHAL_PURPOSE_ACTIVATIONS, &queue);
      } catch (...) {
        drop();  // no destructor runs for an object whose constructor throws
        throw;
      }
      spec->retain();
      arrays[o] = make_array(spec, b, data_of(*b));
      if (!arrays[o]) {
        made = false;
        return;
      }
    }
  }
  ~Outputs() { drop(); }
  Outputs(const Outputs&) = delete;
  Outputs& operator=(const Outputs&) = delete;

  // What the caller gets (new reference): the one output that there is, or a tuple of them.
  PyObject* take() {
    if constexpr (kCount == 1) {
      PyObject* only = arrays[0];
      arrays[0] = nullptr;
      return only;
    }
    int present = 0;
    for (int o = 0; o < count; ++o) present += arrays[o] != nullptr;
    PyObject* tuple = present == 1 ? nullptr : PyTuple_New(present);
    if (present != 1 && !tuple) return nullptr;
    int at = 0;
    for (int o = 0; o < count; ++o) {
      PyObject* a = arrays[o];
      if (!a) continue;
      arrays[o] = nullptr;
      if (!tuple) return a;
      PyTuple_SET_ITEM(tuple, at++, a);
    }
    return tuple;
  }

 private:
  void drop() {
    for (int o = 0; o < (kCount ? kCount : count); ++o) Py_CLEAR(arrays[o]);
  }
};

[[gnu::noinline]] anyhal_status run_without_gil(Plan& plan, const anyhal_ref* refs, uint32_t count,
                                                Queue& queue, anyhal_error* error) {
  plan.retain();  // another thread may clear the cache
  PyThreadState* const state = PyEval_SaveThread();
  std::exception_ptr refused;
  anyhal_status status = ANYHAL_STATUS_OK;
  try {
    status = run_simple(plan, refs, count, queue, error);
  } catch (...) {
    refused = std::current_exception();
  }
  PyEval_RestoreThread(state);
  release(&plan);
  if (refused) std::rethrow_exception(refused);
  return status;
}

// Runs a found plan and returns what the caller gets (new reference).
template <int kCount>
PyObject* execute_as(Plan& plan, const Parsed& p, int given, Queue& queue) {
  Outputs<kCount> outs(plan, p, given, queue);
  if (!outs.made) return nullptr;
  const int out_count = kCount ? kCount : given;
  const uint32_t n = uint32_t(p.count + out_count);
  if (plan.simple && queue.idles() && !receipts_on()) {
    anyhal_ref refs[kMaxOperands];
    for (int i = 0; i < p.count; ++i)
      refs[i] = p.arrays[i] ? ref_of(*plan.device,
                                     {as_array(p.arrays[i])->data, as_array(p.arrays[i])->buffer})
                            : anyhal_ref{0, 0};
    for (int o = 0; o < out_count; ++o)
      refs[p.count + o] = outs.arrays[o] ? ref_of(*plan.device, {as_array(outs.arrays[o])->data,
                                                                 as_array(outs.arrays[o])->buffer})
                                         : anyhal_ref{0, 0};
    anyhal_error error;
    error.size = sizeof(error);
    anyhal_status status;
    // Whoever has the queue may run a user's kernel in Python: nobody waits for it with the GIL.
    if (!plan.release_gil && __builtin_expect(queue.lock.try_lock(), 1)) {
      status = run_simple_locked(plan, refs, n, queue, &error);
      queue.lock.unlock();
    } else {
      status = run_without_gil(plan, refs, n, queue, &error);
    }
    if (__builtin_expect(status == ANYHAL_STATUS_OK, 1)) return outs.take();
    // Not accepted for want of memory: the general path frees what it can and tries once more.
    if (status != ANYHAL_STATUS_OUT_OF_MEMORY) {
      ErrorRecord record;
      record.record = error;
      raise_call(plan, status, record.record);
    }
  }
  Operand operands[kMaxOperands];
  for (int i = 0; i < p.count; ++i)
    if (p.arrays[i]) operands[i] = {as_array(p.arrays[i])->data, as_array(p.arrays[i])->buffer};
  for (int o = 0; o < out_count; ++o)
    if (outs.arrays[o])
      operands[p.count + o] = {as_array(outs.arrays[o])->data, as_array(outs.arrays[o])->buffer};
  // The plan is held: without the GIL another thread may clear the cache. Capturing keeps the GIL.
  plan.retain();
  std::exception_ptr failure;
  const auto run = [&] {
    try {
      run_plan(plan, operands, queue);
    } catch (...) {
      failure = std::current_exception();
    }
  };
  if (queue.capture) {
    run();
  } else {
    Py_BEGIN_ALLOW_THREADS run();
    Py_END_ALLOW_THREADS
  }
  release(&plan);
  if (failure) std::rethrow_exception(failure);
  return outs.take();
}

PyObject* execute(Plan& plan, const Parsed& p, int out_count, Queue& queue) {
  return out_count == 1 ? execute_as<1>(plan, p, 1, queue)
                        : execute_as<0>(plan, p, out_count, queue);
}

PyObject* call_checked(OpObject* op, PyObject* const* args, size_t nargs, PyObject* kwnames) {
  Parsed p;
  if (parse(op, args, nargs, kwnames, p)) {
    PyObject* kwargs = PyDict_New();
    const Py_ssize_t nkw = kwnames ? PyTuple_GET_SIZE(kwnames) : 0;
    for (Py_ssize_t k = 0; kwargs && k < nkw; ++k)
      PyDict_SetItem(kwargs, PyTuple_GET_ITEM(kwnames, k), args[nargs + k]);
    PyObject* positional = PyTuple_New(Py_ssize_t(nargs));
    for (size_t i = 0; positional && i < nargs; ++i) {
      Py_INCREF(args[i]);
      PyTuple_SET_ITEM(positional, Py_ssize_t(i), args[i]);
    }
    PyObject* result = nullptr;
    if (kwargs && positional) {
      PyObject* argv[] = {reinterpret_cast<PyObject*>(op), positional, kwargs};
      result = PyObject_Vectorcall(op->coerce, argv, 3, nullptr);
    }
    Py_XDECREF(kwargs);
    Py_XDECREF(positional);
    return result;
  }
  if (op->in_place && !p.out)
    for (int o = 0; o < op->out_count; ++o) p.outs[o] = p.arrays[o];
  const Scope& scope = current_scope();
  Queue& queue = queue_for(scope, *as_array(p.arrays[0])->device());
  Key key;
  if (p.cacheable) {
    build_key(op, p, scope, key);
    if (Plan* plan = plan_cache().find(key)) return execute(*plan, p, op->out_count, queue);
  }
  require_outside_call();  // planning takes locks, and may ask for known answers
  PyObject* attrs = given_attrs(op, args, nargs, kwnames);
  PyObject* answer = resolve(op, p, attrs);
  Py_XDECREF(attrs);
  if (!answer || is_array(answer) || PyTuple_CheckExact(answer)) return answer;
  Plan* plan = plan_of(answer);
  if (!plan) {
    Py_DECREF(answer);
    PyErr_SetString(PyExc_TypeError, "dispatch gave neither a plan nor an array");
    return nullptr;
  }
  PyObject* result = nullptr;
  try {
    if (p.cacheable) {
      std::vector<const Spec*> specs;
      for (int i = 0; i < p.count; ++i)
        if (p.arrays[i]) specs.push_back(as_array(p.arrays[i])->spec());
      for (PyObject* out : p.outs)
        if (out) specs.push_back(as_array(out)->spec());
      plan->retain();
      plan_cache().insert(key, plan, specs);
    }
    result = execute(*plan, p, op->out_count, queue);
  } catch (...) {
    Py_DECREF(answer);
    throw;
  }
  Py_DECREF(answer);
  return result;
}

PyObject* op_call(PyObject* self, PyObject* const* args, size_t flags, PyObject* kwnames) {
  try {
    return call_checked(reinterpret_cast<OpObject*>(self), args, size_t(PyVectorcall_NARGS(flags)),
                        kwnames);
  } catch (const Error& e) {
    set_python_error(e);
  } catch (const std::exception& e) {
    PyErr_SetString(PyExc_RuntimeError, e.what());
  }
  return nullptr;
}

bool read_attrs(OpObject* op, PyObject* attrs) {
  if (PyTuple_GET_SIZE(attrs) > kMaxAttrs) {
    PyErr_SetString(PyExc_ValueError, "an op has too many attributes");
    return false;
  }
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(attrs); ++i) {
    PyObject *name, *table, *value;
    const char* kind;
    int required;
    if (!PyArg_ParseTuple(PyTuple_GET_ITEM(attrs, i), "UsOpO", &name, &kind, &table, &required,
                          &value))
      return false;
    AttrSlot& slot = op->attrs[op->attr_count++];
    Py_INCREF(name), Py_INCREF(table);
    PyUnicode_InternInPlace(&name);
    slot = {name, kind[0], bool(required), table, 0};
    if (required) continue;
    Parsed scratch;
    slot.initial = attr_word(slot, value, scratch);
    if (!scratch.cacheable) {
      PyErr_Format(PyExc_ValueError, "attribute %U has a default that its kind cannot hold", name);
      return false;
    }
  }
  return true;
}

// Takes what the registry says of the op: (array_names, required_count, variadic, in_place,
// out_count, attrs).
bool take_shape(OpObject* op, PyObject* shape) {
  PyObject *names, *attrs;
  int required, variadic, in_place, outs;
  if (!PyArg_ParseTuple(shape, "O!ippiO!", &PyTuple_Type, &names, &required, &variadic, &in_place,
                        &outs, &PyTuple_Type, &attrs))
    return false;
  if (PyTuple_GET_SIZE(names) > kMaxArrays || outs < 1 || outs > int(kMaxOutputs) ||
      (in_place && outs > required)) {
    PyErr_SetString(PyExc_ValueError, "an op has too many operands or outputs");
    return false;
  }
  op->required_count = required, op->out_count = outs;
  op->variadic = variadic, op->in_place = in_place;
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(names); ++i) {
    PyObject* n = PyTuple_GET_ITEM(names, i);
    Py_INCREF(n);
    PyUnicode_InternInPlace(&n);
    op->array_names[op->array_count++] = n;
  }
  return read_attrs(op, attrs);
}

// The first call: the op's file is imported only now. Later calls go to op_call at once.
PyObject* op_first_call(PyObject* self, PyObject* const* args, size_t flags, PyObject* kwnames) {
  auto* op = reinterpret_cast<OpObject*>(self);
  PyObject* shape = PyObject_CallOneArg(op->bind, self);
  if (!shape) return nullptr;
  // Another thread may have been here while the file was imported.
  const bool bound = op->call == op_call || take_shape(op, shape);
  Py_DECREF(shape);
  if (!bound) return nullptr;
  op->call = op_call;
  return op_call(self, args, flags, kwnames);
}

// Op(name, id, bind, resolve, coerce)
PyObject* op_new(PyTypeObject* type, PyObject* args, PyObject*) {
  PyObject *name, *binder, *resolver, *coercer;
  unsigned id;
  if (!PyArg_ParseTuple(args, "UIOOO", &name, &id, &binder, &resolver, &coercer)) return nullptr;
  if (id >= 4096) {
    PyErr_SetString(PyExc_ValueError, "an op has too large an id");
    return nullptr;
  }
  auto* op = reinterpret_cast<OpObject*>(type->tp_alloc(type, 0));
  if (!op) return nullptr;
  op->call = op_first_call;
  op->dict = PyDict_New();
  op->id = id;
  Py_INCREF(name), Py_INCREF(binder), Py_INCREF(resolver), Py_INCREF(coercer);
  op->name = name, op->bind = binder, op->resolve = resolver, op->coerce = coercer;
  if (!op->dict) {
    Py_DECREF(op);
    return nullptr;
  }
  return reinterpret_cast<PyObject*>(op);
}

void op_dealloc(PyObject* self) {
  auto* op = reinterpret_cast<OpObject*>(self);
  Py_XDECREF(op->dict);
  Py_XDECREF(op->name);
  Py_XDECREF(op->bind);
  Py_XDECREF(op->resolve);
  Py_XDECREF(op->coerce);
  for (int i = 0; i < op->array_count; ++i) Py_XDECREF(op->array_names[i]);
  for (int i = 0; i < op->attr_count; ++i) {
    Py_XDECREF(op->attrs[i].name);
    Py_XDECREF(op->attrs[i].table);
  }
  PyTypeObject* type = Py_TYPE(self);
  type->tp_free(self);
  Py_DECREF(type);
}

PyObject* op_repr(PyObject* self) {
  return PyUnicode_FromFormat("<anyhal op %U>", reinterpret_cast<OpObject*>(self)->name);
}

PyMemberDef g_members[] = {
    {"__vectorcalloffset__", T_PYSSIZET, offsetof(OpObject, call), READONLY, nullptr},
    {"__dictoffset__", T_PYSSIZET, offsetof(OpObject, dict), READONLY, nullptr},
    {nullptr, 0, 0, 0, nullptr}};
PyGetSetDef g_getters[] = {
    {"__dict__", PyObject_GenericGetDict, PyObject_GenericSetDict, nullptr, nullptr},
    {nullptr, nullptr, nullptr, nullptr, nullptr}};
PyType_Slot g_slots[] = {{Py_tp_new, reinterpret_cast<void*>(op_new)},
                         {Py_tp_dealloc, reinterpret_cast<void*>(op_dealloc)},
                         {Py_tp_call, reinterpret_cast<void*>(PyVectorcall_Call)},
                         {Py_tp_repr, reinterpret_cast<void*>(op_repr)},
                         {Py_tp_members, g_members},
                         {Py_tp_getset, g_getters},
                         {0, nullptr}};
PyType_Spec g_type_spec = {"anyhal._core.Op", sizeof(OpObject), 0,
                           Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_VECTORCALL, g_slots};

}  // namespace

int init_op_type(PyObject* module) {
  g_out_name = PyUnicode_InternFromString("out");
  PyObject* type = PyType_FromSpec(&g_type_spec);
  return type ? PyModule_AddObject(module, "Op", type) : -1;
}

}  // namespace hal
