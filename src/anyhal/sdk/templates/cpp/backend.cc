// mychip: the smallest real backend. Five ops in f32 and f64, on the host, done when the call
// returns. SPDX-License-Identifier: Apache-2.0
//
// Read from the bottom up: entry, table, slots, rows, then the ops.
#include <anyhal/backend.h>
#include <anyhal/ops.h>

#include <anyhal/sdk/core_ops.hpp>
#include <anyhal/sdk/host.hpp>
#include <anyhal/sdk/table.hpp>
#include <cmath>
#include <cstdlib>
#include <new>

namespace sdk = hal::sdk;
using sdk::Answer;
using sdk::Call;
using Desc = anyhal_op_desc;

struct anyhal_self {
  const anyhal_services* services;
  anyhal_memory_kind kind;
};

struct anyhal_device {
  anyhal_self* self;
};

namespace {

// ------------------------------------------------------------------------------------------ ops

using Types = sdk::Types<float, double>;
constexpr sdk::Dtypes kDtypes = sdk::dtypes(ANYHAL_DTYPE_F32, ANYHAL_DTYPE_F64);

// Calls fn(type<T>, rows) with the element type of operand 0 and the rows of all N operands.
template <int N, class Fn>
void each_row(const Call& call, Fn&& fn) {
  const anyhal_tensor_desc* operands[N];
  for (int i = 0; i < N; ++i) operands[i] = &sdk::operand(call.desc(), static_cast<uint32_t>(i));
  sdk::Rows<N> rows(operands);
  sdk::visit(Types{}, operands[0]->dtype, [&](auto type) { fn(type, rows); });
}

Answer copy_fits(const Desc& desc) {
  return sdk::all({sdk::operands_are(desc, 1), sdk::dtypes_equal(desc, 1, 0),
                   sdk::dims_equal(desc, 0, 1), sdk::output_is_single(desc),
                   sdk::output_may_alias(desc, {})});
}

void copy(const Call& call) {
  each_row<2>(call, [&](auto type, sdk::Rows<2>& rows) {
    using T = typename decltype(type)::is;
    const T* x = call.view<T>(0).data();
    T* out = call.view<T>(1).data();
    rows.each([&](const int64_t (&at)[2]) {
      for (int64_t i = 0; i < rows.row_count; ++i)
        out[at[1] + i * rows.row_strides[1]] = x[at[0] + i * rows.row_strides[0]];
    });
  });
}

Answer fill_fits(const Desc& desc) {
  return sdk::all({sdk::operands_are(desc, 1), sdk::rank_is(desc, 0, 0),
                   sdk::dtypes_equal(desc, 1, 0), sdk::output_is_single(desc),
                   sdk::output_may_alias(desc, {})});
}

void fill(const Call& call) {
  const anyhal_tensor_desc* const operands[1] = {&sdk::output(call.desc())};
  sdk::Rows<1> rows(operands);
  sdk::visit(Types{}, operands[0]->dtype, [&](auto type) {
    using T = typename decltype(type)::is;
    const T value = *call.view<T>(0).data();
    T* out = call.view<T>(1).data();
    rows.each([&](const int64_t (&at)[1]) {
      for (int64_t i = 0; i < rows.row_count; ++i) out[at[0] + i * rows.row_strides[0]] = value;
    });
  });
}

template <class T>
T unary_of(int32_t fn, T x) {
  switch (fn) {
    case ANYHAL_UNARY_FN_NEG:
      return -x;
    case ANYHAL_UNARY_FN_ABS:
      return std::fabs(x);
    case ANYHAL_UNARY_FN_SQRT:
      return std::sqrt(x);
    default:
      return std::exp(x);
  }
}

// What the op may be asked for, and of that the functions above.
Answer unary_row(const Desc& desc) {
  const Answer fits = sdk::unary_fits(desc);
  if (!fits.yes()) return fits;
  switch (sdk::attributes<anyhal_attrs_unary>(desc).fn) {
    case ANYHAL_UNARY_FN_NEG:
    case ANYHAL_UNARY_FN_ABS:
    case ANYHAL_UNARY_FN_SQRT:
    case ANYHAL_UNARY_FN_EXP:
      return sdk::yes();
  }
  return sdk::no(ANYHAL_REASON_ATTRIBUTE, "of the functions, neg, abs, sqrt and exp run here");
}

void unary(const Call& call) {
  const int32_t fn = sdk::attributes<anyhal_attrs_unary>(call.desc()).fn;
  each_row<2>(call, [&](auto type, sdk::Rows<2>& rows) {
    using T = typename decltype(type)::is;
    const T* x = call.view<T>(0).data();
    T* out = call.view<T>(1).data();
    rows.each([&](const int64_t (&at)[2]) {
      for (int64_t i = 0; i < rows.row_count; ++i)
        out[at[1] + i * rows.row_strides[1]] = unary_of(fn, x[at[0] + i * rows.row_strides[0]]);
    });
  });
}

template <class T>
T binary_of(int32_t fn, T a, T b) {
  switch (fn) {
    case ANYHAL_BINARY_FN_ADD:
      return a + b;
    case ANYHAL_BINARY_FN_SUBTRACT:
      return a - b;
    case ANYHAL_BINARY_FN_MULTIPLY:
      return a * b;
    default:
      return a / b;
  }
}

Answer binary_row(const Desc& desc) {
  const Answer fits = sdk::binary_fits(desc);
  if (!fits.yes()) return fits;
  const int32_t fn = sdk::attributes<anyhal_attrs_binary>(desc).fn;
  if (fn >= ANYHAL_BINARY_FN_ADD && fn <= ANYHAL_BINARY_FN_DIVIDE) return sdk::yes();
  return sdk::no(ANYHAL_REASON_ATTRIBUTE,
                 "of the functions, add, subtract, multiply and divide run here");
}

void binary(const Call& call) {
  const int32_t fn = sdk::attributes<anyhal_attrs_binary>(call.desc()).fn;
  each_row<3>(call, [&](auto type, sdk::Rows<3>& rows) {
    using T = typename decltype(type)::is;
    const T *a = call.view<T>(0).data(), *b = call.view<T>(1).data();
    T* out = call.view<T>(2).data();
    const auto& s = rows.row_strides;
    rows.each([&](const int64_t (&at)[3]) {
      for (int64_t i = 0; i < rows.row_count; ++i)
        out[at[2] + i * s[2]] = binary_of(fn, a[at[0] + i * s[0]], b[at[1] + i * s[1]]);
    });
  });
}

Answer matmul_fits(const Desc& desc) {
  const Answer count = sdk::operands_are(desc, 2);
  if (!count.yes()) return count;
  return sdk::all({sdk::dtypes_equal(desc, 1, 0), sdk::dtypes_equal(desc, 2, 0),
                   sdk::product_dims_fit(desc), sdk::output_is_single(desc),
                   sdk::output_may_alias(desc, {})});
}

// a [..., M, K] x b [..., K, N] -> out [..., M, N]; transposes and broadcasts are strides.
template <class T>
void multiply(const Call& call) {
  const anyhal_tensor_desc &a = sdk::operand(call.desc(), 0), &b = sdk::operand(call.desc(), 1);
  const anyhal_tensor_desc& out = sdk::operand(call.desc(), 2);
  sdk::Odometer<3> places;  // of the batch, then of m and n
  for (uint32_t d = 0; d < out.rank; ++d)
    places.add(out.dims[d], {d + 1 == out.rank ? 0 : a.strides[d],
                             d + 2 == out.rank ? 0 : b.strides[d], out.strides[d]});
  if (places.empty()) return;
  do {
    const T* x = call.view<T>(0).data() + places.at(0);
    const T* y = call.view<T>(1).data() + places.at(1);
    double sum = 0;
    for (int64_t k = 0; k < sdk::dim(a, -1); ++k)
      sum += static_cast<double>(x[k * sdk::stride(a, -1)]) * y[k * sdk::stride(b, -2)];
    call.view<T>(2).data()[places.at(2)] = static_cast<T>(sum);
  } while (places.next());
}

void matmul(const Call& call) {
  sdk::visit(Types{}, sdk::operand(call.desc(), 0).dtype,
             [&](auto type) { multiply<typename decltype(type)::is>(call); });
}

// The one list: it answers op_query and the capabilities, and it chooses the kernel of a plan.
const sdk::Row kRows[] = {
    {ANYHAL_OP_COPY, "copy", 0, kDtypes, sdk::no_attributes, copy_fits, copy},
    {ANYHAL_OP_FILL, "fill", 0, kDtypes, sdk::no_attributes, fill_fits, fill},
    {ANYHAL_OP_UNARY, "unary", 0, kDtypes, sdk::known_attributes<anyhal_attrs_unary>, unary_row,
     unary},
    {ANYHAL_OP_BINARY, "binary", 0, kDtypes, sdk::known_attributes<anyhal_attrs_binary>, binary_row,
     binary},
    {ANYHAL_OP_MATMUL, "matmul", 0, kDtypes, sdk::no_attributes, matmul_fits, matmul},
};
const sdk::OpTable kOps(kRows);

// ---------------------------------------------------------------------------------------- slots

anyhal_status device_list(anyhal_self* self, anyhal_device_info* infos, uint32_t capacity,
                          uint32_t* out_total, anyhal_error*) {
  *out_total = 1;
  if (capacity == 0) return ANYHAL_STATUS_OK;
  anyhal_device_info info = {};
  info.flags = ANYHAL_DEVICE_UNIFIED;
  std::snprintf(info.name, sizeof(info.name), "mychip");
  std::snprintf(info.arch, sizeof(info.arch), "mychip1");
  info.kinds = &self->kind;
  info.kind_count = 1;
  info.preferred_alignment = 64;
  info.rank_max = sdk::kRankMax;
  info.recovery = ANYHAL_RECOVERY_REOPEN;
  sdk::write_record(infos, info);
  return ANYHAL_STATUS_OK;
}

anyhal_status device_open(anyhal_self* self, uint64_t device_id, const anyhal_setting*, uint32_t,
                          anyhal_device** out_device, uint64_t* out_address_block,
                          anyhal_error* error) {
  if (device_id != 0)
    return sdk::fail(error, ANYHAL_STATUS_NOT_FOUND, 0, "there is device 0 only; list them first");
  return sdk::guard(error, [&] {
    *out_device = new anyhal_device{self};
    *out_address_block = sdk::kAddressBlock;
    return ANYHAL_STATUS_OK;
  });
}

anyhal_status memory_alloc(anyhal_device*, const anyhal_memory_request* request,
                           anyhal_memory_block* out_block, anyhal_error* error) {
  if (request->kind != 0 || request->flags != 0)
    return sdk::fail(error, ANYHAL_STATUS_UNSUPPORTED, ANYHAL_REASON_MEMORY_KIND,
                     "there is memory kind 0 only; use it");
  const uint64_t alignment = request->alignment > 64 ? request->alignment : 64;
  const uint64_t bytes = (request->bytes / alignment + 1) * alignment;
  void* memory = bytes < request->bytes ? nullptr : std::aligned_alloc(alignment, bytes);
  if (memory == nullptr)
    return sdk::fail(error, ANYHAL_STATUS_OUT_OF_MEMORY, 0,
                     "the host has no block of %llu bytes; free arrays",
                     static_cast<unsigned long long>(request->bytes));
  anyhal_memory_block block = {};
  block.memory = block.device_address = block.host_address = reinterpret_cast<uintptr_t>(memory);
  block.bytes = request->bytes;
  sdk::write_record(out_block, block);
  return ANYHAL_STATUS_OK;
}

anyhal_status op_query(anyhal_device*, const Desc* desc, anyhal_verdict* verdict,
                       anyhal_error* error) {
  return kOps.query(desc, verdict, error);
}

anyhal_status op_prepare(anyhal_device* device, const Desc* desc, anyhal_plan** out_plan,
                         const anyhal_prepared** out_prepared, anyhal_error* error) {
  sdk::Plan* plan = nullptr;
  const anyhal_status status =
      kOps.prepare(desc, device->self->services, &plan, out_prepared, error);
  *out_plan = reinterpret_cast<anyhal_plan*>(plan);
  return status;
}

anyhal_status op_enqueue(anyhal_queue*, anyhal_plan* plan, const anyhal_call* call,
                         anyhal_error* error) {
  return sdk::OpTable::enqueue(*reinterpret_cast<const sdk::Plan*>(plan), call, error);
}

anyhal_status release(anyhal_self*, uint32_t object_kind, uint64_t object, uint32_t,
                      anyhal_error* error) {
  switch (object_kind) {
    case ANYHAL_OBJECT_DEVICE:
      delete reinterpret_cast<anyhal_device*>(object);
      return ANYHAL_STATUS_OK;
    case ANYHAL_OBJECT_MEMORY:
      std::free(reinterpret_cast<void*>(object));
      return ANYHAL_STATUS_OK;
    case ANYHAL_OBJECT_PLAN:
      delete reinterpret_cast<sdk::Plan*>(object);
      return ANYHAL_STATUS_OK;
  }
  return sdk::fail(error, ANYHAL_STATUS_INVALID_ARGUMENT, 0, "it makes no such object");
}

anyhal_status device_query(anyhal_device*, uint32_t key, uint64_t, void* value, uint64_t* bytes,
                           anyhal_error* error) {
  if (key == ANYHAL_QUERY_CAPABILITIES) return kOps.capabilities(value, bytes, error);
  if (key == ANYHAL_QUERY_FREE_BYTES)
    return sdk::answer(value, bytes, sdk::host_bytes_free(), error);
  return sdk::fail(error, ANYHAL_STATUS_NOT_FOUND, 0, "key %u is unknown here", key);
}

const anyhal_table kTable = [] {
  anyhal_table table = {};  // slots that stay NULL are unsupported
  table.size = sizeof(table);
  table.device_list = device_list;
  table.device_open = device_open;
  table.memory_alloc = memory_alloc;
  table.op_query = op_query;
  table.op_prepare = op_prepare;
  table.op_enqueue = op_enqueue;
  table.release = release;
  table.device_query = device_query;
  return table;
}();

}  // namespace

extern "C" ANYHAL_EXPORT anyhal_status anyhal_backend_main(const anyhal_hello* hello,
                                                           anyhal_reply* reply,
                                                           anyhal_error* error) {
  const anyhal_status status = sdk::agree(*hello, *reply, error);
  if (status != ANYHAL_STATUS_OK) return status;
  anyhal_self* self = new (std::nothrow) anyhal_self{hello->services, sdk::host_memory_kind()};
  if (self == nullptr) return ANYHAL_STATUS_OUT_OF_MEMORY;
  reply->flags = ANYHAL_REPLY_SYNCHRONOUS;
  reply->table = &kTable;
  reply->self = self;
  reply->build_id = "mychip 0.1, " __VERSION__;
  return ANYHAL_STATUS_OK;
}
