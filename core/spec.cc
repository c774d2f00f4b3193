// The table of interned descriptions.
// SPDX-License-Identifier: Apache-2.0
#include "core/spec.hpp"

#include <algorithm>
#include <cstring>
#include <memory>
#include <mutex>
#include <unordered_map>

namespace hal {
namespace {

struct Row {
  uint32_t dtype;
  const char* name;
  Block block;
};
constexpr Row kRows[] = {
    {ANYHAL_DTYPE_F32, "f32", {1, 4}},
    {ANYHAL_DTYPE_F16, "f16", {1, 2}},
    {ANYHAL_DTYPE_BF16, "bf16", {1, 2}},
    {ANYHAL_DTYPE_F64, "f64", {1, 8}},
    {ANYHAL_DTYPE_I64, "i64", {1, 8}},
    {ANYHAL_DTYPE_I32, "i32", {1, 4}},
    {ANYHAL_DTYPE_I16, "i16", {1, 2}},
    {ANYHAL_DTYPE_I8, "i8", {1, 1}},
    {ANYHAL_DTYPE_U64, "u64", {1, 8}},
    {ANYHAL_DTYPE_U32, "u32", {1, 4}},
    {ANYHAL_DTYPE_U16, "u16", {1, 2}},
    {ANYHAL_DTYPE_U8, "u8", {1, 1}},
    {ANYHAL_DTYPE_BOOL, "bool", {1, 1}},
    {ANYHAL_DTYPE_Q4_1, "q4_1", {32, 20}},
    {ANYHAL_DTYPE_Q8_0, "q8_0", {32, 34}},
    {ANYHAL_DTYPE_I4, "i4", {2, 1}},
    {ANYHAL_DTYPE_U4, "u4", {2, 1}},
    {ANYHAL_DTYPE_Q4_0, "q4_0", {32, 18}},
    {ANYHAL_DTYPE_Q4_K, "q4_k", {256, 144}},
    {ANYHAL_DTYPE_Q6_K, "q6_k", {256, 210}},
    {ANYHAL_DTYPE_F8_E4M3FN, "f8_e4m3fn", {1, 1}},
    {ANYHAL_DTYPE_F8_E5M2, "f8_e5m2", {1, 1}},
    {ANYHAL_DTYPE_F8_E4M3FNUZ, "f8_e4m3fnuz", {1, 1}},
    {ANYHAL_DTYPE_F8_E5M2FNUZ, "f8_e5m2fnuz", {1, 1}},
};

const Row* find_row(uint32_t dtype) {
  for (const Row& row : kRows)
    if (row.dtype == dtype) return &row;
  return nullptr;
}

uint64_t mix(uint64_t h, uint64_t v) {
  h ^= v + 0x9e3779b97f4a7c15ull + (h << 6) + (h >> 2);
  return h * 0xff51afd7ed558ccdull;
}

uint64_t hash_of(const Spec& s) {
  uint64_t h = mix(reinterpret_cast<uintptr_t>(s.device), s.dtype * 64u + uint32_t(s.rank));
  for (int i = 0; i < s.rank; ++i) h = mix(mix(h, uint64_t(s.dims[i])), uint64_t(s.strides[i]));
  return h;
}

bool same(const Spec& a, const Spec& b) {
  return a.device == b.device && a.dtype == b.dtype && a.rank == b.rank &&
         std::equal(a.dims, a.dims + a.rank, b.dims) &&
         std::equal(a.strides, a.strides + a.rank, b.strides);
}

struct Table {
  std::mutex mutex;
  std::unordered_multimap<uint64_t, std::unique_ptr<Spec>> specs;
  size_t sweep_at = 4096;
};
Table& table() {
  static Table* t = new Table;  // never destroyed: arrays may outlive static destructors
  return *t;
}

void sweep(Table& t) {
  for (auto it = t.specs.begin(); it != t.specs.end();)
    it = it->second->refs.load(std::memory_order_acquire) == 0 ? t.specs.erase(it) : std::next(it);
  t.sweep_at = std::max<size_t>(4096, 2 * t.specs.size());
}

// Fills strides where missing, and everything that follows from dims and strides.
void complete(Spec& s, const int64_t* strides) {
  const Row* row = find_row(s.dtype);
  const Block block = row->block;
  s.size = 1;
  int64_t dense[kMaxRank] = {}, step = 1;
  for (int i = s.rank - 1; i >= 0; --i) {
    if (s.dims[i] < 0)
      throw Error(ANYHAL_STATUS_INVALID_ARGUMENT,
                  "a tensor's size " + std::to_string(s.dims[i]) + " is negative; sizes are >= 0");
    int64_t blocks = s.dims[i];
    if (i == s.rank - 1) {
      if (s.dims[i] % block.elements)
        throw Error(ANYHAL_STATUS_INVALID_ARGUMENT,
                    std::string(row->name) + " tensors end in a dim that is a multiple of " +
                        std::to_string(block.elements) + ", not " + std::to_string(s.dims[i]));
      blocks /= block.elements;
    }
    dense[i] = step;
    if (__builtin_mul_overflow(s.size, s.dims[i], &s.size) ||
        __builtin_mul_overflow(step, std::max<int64_t>(blocks, 1), &step))
      throw Error(ANYHAL_STATUS_INVALID_ARGUMENT,
                  "a tensor's element count does not fit 63 bits; use smaller dims");
    s.strides[i] = strides ? strides[i] : dense[i];
    if (s.strides[i] < 0)
      throw Error(ANYHAL_STATUS_INVALID_ARGUMENT,
                  "a tensor's stride is negative; copy the data first");
  }
  s.dense = true;
  int64_t last = 0;
  for (int i = 0; i < s.rank; ++i) {
    const int64_t n = i == s.rank - 1 ? s.dims[i] / block.elements : s.dims[i];
    if (s.dims[i] != 1 && s.strides[i] != dense[i]) s.dense = false;
    int64_t reach;
    if (n > 0 && (__builtin_mul_overflow(n - 1, s.strides[i], &reach) ||
                  __builtin_add_overflow(last, reach, &last)))
      throw Error(ANYHAL_STATUS_INVALID_ARGUMENT, "a tensor's byte range does not fit 63 bits");
  }
  if (__builtin_add_overflow(last, 1, &last) ||
      __builtin_mul_overflow(last, block.bytes, &s.span_bytes))
    throw Error(ANYHAL_STATUS_INVALID_ARGUMENT, "a tensor's byte range does not fit 63 bits");
  if (s.size == 0) s.span_bytes = 0, s.dense = true;
}

}  // namespace

Block block_of(uint32_t dtype) {
  if (const Row* row = find_row(dtype)) return row->block;
  throw Error(ANYHAL_STATUS_INVALID_ARGUMENT,
              "dtype number " + std::to_string(dtype) + " is not in the contract");
}

const char* dtype_short(uint32_t dtype) {
  const Row* row = find_row(dtype);
  return row ? row->name : "?";
}

std::string describe(const Spec& spec) {
  std::string text = dtype_short(spec.dtype);
  text += '[';
  for (int i = 0; i < spec.rank; ++i) {
    if (i) text += ',';
    text += std::to_string(spec.dims[i]);
  }
  return text + ']';
}

const Spec* intern_spec(Device* device, uint32_t dtype, int32_t rank, const int64_t* dims,
                        const int64_t* strides) {
  if (rank < 0 || rank > kMaxRank)
    throw Error(ANYHAL_STATUS_INVALID_ARGUMENT, "a tensor has " + std::to_string(rank) +
                                                    " dims; at most " + std::to_string(kMaxRank) +
                                                    " are supported");
  block_of(dtype);
  auto spec = std::make_unique<Spec>();
  spec->device = device;
  spec->dtype = dtype;
  spec->rank = rank;
  std::copy(dims, dims + rank, spec->dims);
  complete(*spec, strides);
  const uint64_t h = hash_of(*spec);
  Table& t = table();
  std::lock_guard lock(t.mutex);
  auto [first, last] = t.specs.equal_range(h);
  for (auto it = first; it != last; ++it)
    if (same(*it->second, *spec)) {
      it->second->retain();
      return it->second.get();
    }
  if (t.specs.size() >= t.sweep_at) sweep(t);
  spec->retain();
  return t.specs.emplace(h, std::move(spec))->second.get();
}

void specs_before_fork() { table().mutex.lock(); }
void specs_after_fork() { table().mutex.unlock(); }

size_t spec_count() {
  std::lock_guard lock(table().mutex);
  return table().specs.size();
}

}  // namespace hal
