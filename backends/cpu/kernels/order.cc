// sort and topk: the first elements along one axis in order, and where they stood.
// SPDX-License-Identifier: Apache-2.0
//
// Values become unsigned keys in the order asked for, NaN above every number, and a radix sort by
// bytes keeps equal keys in the order of their indices.
#include "math.h"
#include "rows.h"

namespace hal::cpu::HAL_CPU_ISA {
namespace {

struct Item {
  uint64_t key;
  int64_t index;
};

struct State {
  Nest outer;
  int64_t size, kept;
  int64_t x_stride, value_stride, index_stride;  // bytes along the axis
  int64_t parts;
  int bytes;  // of a key
  void (*load)(const char* x, int64_t stride, int64_t n, uint64_t flip, Item* items);
  uint64_t flip;  // all ones for descending order
  int64_t element_bytes;
};

// Larger keys for larger values; both zeros are one value, and so are all NaN.
static inline uint64_t key_of(float x) {
  if (x != x) return 0xffffffffu;
  uint32_t bits = bit_cast<uint32_t>(x + 0.0f);
  return bits >> 31 ? ~bits : bits | 0x80000000u;
}
static inline uint64_t key_of(double x) {
  if (x != x) return ~uint64_t{0};
  uint64_t bits = bit_cast<uint64_t>(x + 0.0);
  return bits >> 63 ? ~bits : bits | uint64_t{1} << 63;
}
static inline uint64_t key_of(F16 x) { return key_of(to_f32(x)); }
static inline uint64_t key_of(BF16 x) { return key_of(to_f32(x)); }
template <class T>
static inline uint64_t key_of(T x) {
  constexpr bool kSigned = T(-1) < T(0);
  constexpr uint64_t kTop = uint64_t{1} << (8 * sizeof(T) - 1);
  constexpr uint64_t kMask = kTop | (kTop - 1);
  return (static_cast<uint64_t>(x) & kMask) ^ (kSigned ? kTop : 0);
}

template <class T>
void load_items(const char* x, int64_t stride, int64_t n, uint64_t flip, Item* items) {
  for (int64_t i = 0; i < n; ++i)
    items[i] = {key_of(*reinterpret_cast<const T*>(x + i * stride)) ^ flip, i};
}

void insertion_sort(Item* items, int64_t n) {
  for (int64_t i = 1; i < n; ++i) {
    Item moving = items[i];
    int64_t at = i;
    for (; at > 0 && items[at - 1].key > moving.key; --at) items[at] = items[at - 1];
    items[at] = moving;
  }
}

// Sorts by the low `bytes` bytes of the keys; the result is in what is returned.
Item* radix_sort(Item* items, Item* other, int64_t n, int bytes) {
  for (int byte = 0; byte < bytes; ++byte) {
    int64_t start[256] = {};
    for (int64_t i = 0; i < n; ++i) ++start[items[i].key >> 8 * byte & 255];
    if (start[items[0].key >> 8 * byte & 255] == n) continue;  // all have the same
    int64_t sum = 0;
    for (int64_t& s : start) {
      int64_t count = s;
      s = sum;
      sum += count;
    }
    for (int64_t i = 0; i < n; ++i) other[start[items[i].key >> 8 * byte & 255]++] = items[i];
    Item* swap = items;
    items = other;
    other = swap;
  }
  return items;
}

void order_line(const State& s, const char* x, char* values, char* indices, Item* items) {
  constexpr int64_t kFew = 64;
  s.load(x, s.x_stride, s.size, s.flip, items);
  Item* sorted = items;
  if (s.size <= kFew)
    insertion_sort(items, s.size);
  else
    sorted = radix_sort(items, items + s.size, s.size, s.bytes);
  for (int64_t n = 0; n < s.kept; ++n) {
    const char* from = x + sorted[n].index * s.x_stride;
    char* to = values + n * s.value_stride;
    for (int64_t b = 0; b < s.element_bytes; ++b) to[b] = from[b];
    *reinterpret_cast<int64_t*>(indices + n * s.index_stride) = sorted[n].index;
  }
}

anyhal_status run(const Plan& plan, char* const* data, char* workspace, anyhal_error*) {
  struct Job {
    const State* s;
    char* const* data;
    Item* items;
  };
  const State& s = plan.get_state<State>();
  if (s.outer.count == 0 || s.kept == 0) return ANYHAL_STATUS_OK;
  Job job = {&s, data, reinterpret_cast<Item*>(workspace)};
  plan.team.run(
      static_cast<uint32_t>(s.parts),
      [](void* argument, uint32_t part) {
        const Job& j = *static_cast<Job*>(argument);
        struct Place {
          const State* s;
          Item* items;
        };
        Place place = {j.s, j.items + 2 * j.s->size * part};
        int64_t begin = j.s->outer.count * part / j.s->parts;
        int64_t end = j.s->outer.count * (part + 1) / j.s->parts;
        walk_nest(
            j.s->outer, j.data, begin, end,
            [](const void* context, char* const* p, const int64_t* strides, int64_t n) {
              const Place& at = *static_cast<const Place*>(context);
              for (int64_t i = 0; i < n; ++i)
                order_line(*at.s, p[0] + i * strides[0], p[1] + i * strides[1],
                           p[2] + i * strides[2], at.items);
            },
            &place);
      },
      &job);
  return ANYHAL_STATUS_OK;
}

bool choose(State& s, uint32_t dtype) {
  s.bytes = static_cast<int>(element_bytes(dtype));
  switch (dtype) {
    case ANYHAL_DTYPE_F32:
      s.load = load_items<float>;
      return true;
    case ANYHAL_DTYPE_F16:
      s.load = load_items<F16>;
      s.bytes = 4;
      return true;
    case ANYHAL_DTYPE_BF16:
      s.load = load_items<BF16>;
      s.bytes = 4;
      return true;
    case ANYHAL_DTYPE_F64:
      s.load = load_items<double>;
      return true;
    case ANYHAL_DTYPE_I64:
      s.load = load_items<int64_t>;
      return true;
    case ANYHAL_DTYPE_I32:
      s.load = load_items<int32_t>;
      return true;
    case ANYHAL_DTYPE_I16:
      s.load = load_items<int16_t>;
      return true;
    case ANYHAL_DTYPE_I8:
      s.load = load_items<int8_t>;
      return true;
    case ANYHAL_DTYPE_U64:
      s.load = load_items<uint64_t>;
      return true;
    case ANYHAL_DTYPE_U32:
      s.load = load_items<uint32_t>;
      return true;
    case ANYHAL_DTYPE_U16:
      s.load = load_items<uint16_t>;
      return true;
    case ANYHAL_DTYPE_U8:
      s.load = load_items<uint8_t>;
      return true;
    default:
      return false;
  }
}

bool prepare(Plan& plan, int32_t axis, bool descending) {
  State& s = plan.make_state<State>();
  Tensor x = plan.operands[0], values = plan.operands[1], indices = plan.operands[2];
  uint32_t at = positive_axis(axis, x.rank);
  s.size = x.dims[at];
  s.kept = values.dims[at];
  s.element_bytes = element_bytes(x.dtype);
  s.x_stride = x.strides[at] * s.element_bytes;
  s.value_stride = values.strides[at] * s.element_bytes;
  s.index_stride = indices.strides[at] * static_cast<int64_t>(sizeof(int64_t));
  x.dims[at] = values.dims[at] = indices.dims[at] = 1;
  const Tensor* tensors[] = {&x, &values, &indices};
  make_nest(s.outer, tensors, 3);
  if (!choose(s, x.dtype)) return false;
  s.flip = descending ? ~uint64_t{0} >> (64 - 8 * s.bytes) : 0;
  s.parts = s.outer.count < plan.team.threads ? s.outer.count : plan.team.threads;
  if (s.outer.count * s.size < kParallelGrain || s.parts < 1) s.parts = 1;
  plan.workspace_bytes = sizeof(Item) * 2 * static_cast<uint64_t>(s.size * s.parts);
  plan.run = run;
  plan.kernel = "radix";
  plan.library = "";
  return true;
}

}  // namespace

bool prepare_sort(Plan& plan) {
  const auto& attrs = plan.attribute<anyhal_attrs_sort>();
  return prepare(plan, attrs.axis, attrs.descending != 0);
}

bool prepare_topk(Plan& plan) {
  const auto& attrs = plan.attribute<anyhal_attrs_topk>();
  return prepare(plan, attrs.axis, attrs.largest != 0);
}

}  // namespace hal::cpu::HAL_CPU_ISA
