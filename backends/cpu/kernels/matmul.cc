// matmul and matmul_epilogue: small and thin products in place, the rest on packed panels.
// SPDX-License-Identifier: Apache-2.0
#include "../onednn.h"
#include "direct.h"
#include "gemm.h"
#include "kernel.h"
#include "pairs.h"

namespace hal::cpu::HAL_CPU_ISA {
namespace {

enum Operand { kA, kB, kBias, kMultiplier, kResidual, kOut, kOperandCount };

// Byte strides of one operand: the product's two dims, and those of its batch.
struct Strides {
  int64_t row, column;
  int64_t batch[kRankMax];
};

struct State {
  int64_t m, n, k;
  int64_t batch;
  int32_t batch_rank;
  int64_t batch_dims[kRankMax];
  Strides strides[kOperandCount];
  uint32_t position[kOperandCount];  // number of the operand in the call
  bool present[kOperandCount];
  bool finish_needed;
  Finish finish;
  int64_t item_bytes;  // workspace of one product with its share of threads
};

constexpr uint32_t kAbsent = UINT32_MAX;

void set_strides(State& s, Operand which, const Tensor& t, int64_t row_dim, int64_t column_dim) {
  int64_t bytes = element_bytes(t.dtype);
  Strides& out = s.strides[which];
  // A dim of the operand that is missing (bias has no rows) or 1 does not move.
  auto stride = [&](int64_t dim) { return dim >= 0 ? t.strides[dim] * bytes : 0; };
  out.row = stride(row_dim);
  out.column = stride(column_dim);
  for (int32_t d = 0; d < s.batch_rank; ++d) out.batch[d] = row_dim >= 0 ? t.strides[d] * bytes : 0;
}

struct Item {
  char* data[kOperandCount];
};

Item item_at(const State& s, char* const* data, int64_t index) {
  Item item;
  for (int i = 0; i < kOperandCount; ++i)
    item.data[i] = s.present[i] ? data[s.position[i]] : nullptr;
  for (int32_t d = s.batch_rank - 1; d >= 0; --d) {
    int64_t at = index % s.batch_dims[d];
    index /= s.batch_dims[d];
    for (int i = 0; i < kOperandCount; ++i)
      if (s.present[i]) item.data[i] += at * s.strides[i].batch[d];
  }
  return item;
}

// How operands of type S become panels of type T.
template <class S, class T>
struct Packing {
  static Product<T> product(const State& s, const Item& item) {
    Product<T> p = {};
    p.m = s.m;
    p.n = s.n;
    p.k = s.k;
    p.a = item.data[kA];
    p.a_across = s.strides[kA].row;
    p.a_along = s.strides[kA].column;
    p.pack_a = pack_panel<S, T, Tile<T>::kRows>;
    p.b = item.data[kB];
    p.b_across = s.strides[kB].column;
    p.b_along = s.strides[kB].row;
    p.pack_b = pack_panel<S, T, Tile<T>::kColumns>;
    p.out = item.data[kOut];
    p.out_row_stride = s.strides[kOut].row;
    p.out_column_stride = s.strides[kOut].column;
    return p;
  }
};

SideOperand side_of(const State& s, const Item& item, Operand which, ReadRow read) {
  return {item.data[which], s.strides[which].row, s.strides[which].column, read};
}

#if defined(__AVX512F__)
// Numbers of type S, rounded to bf16 and taken in pairs along k.
template <class S>
struct Pairs {};
template <class S>
struct Packing<Pairs<S>, float> {
  static Product<float> product(const State& s, const Item& item) {
    Product<float> p = Packing<S, float>::product(s, item);
    p.k = s.k / 2;
    p.a_along *= 2;
    p.b_along *= 2;
    p.pack_a = pack_pairs<S, Tile<float>::kRows>;
    p.pack_b = pack_pairs<S, Tile<float>::kColumns>;
    p.tile = run_pairs_tile;
    return p;
  }
};
#endif

template <class S, class T>
void run_item(const State& s, const Item& item, const Team& team, char* workspace) {
  Product<T> p = Packing<S, T>::product(s, item);
  Finish finish;
  if (s.finish_needed) {
    finish = s.finish;
    finish.bias = side_of(s, item, kBias, s.finish.bias.read);
    finish.multiplier = side_of(s, item, kMultiplier, s.finish.multiplier.read);
    finish.residual = side_of(s, item, kResidual, s.finish.residual.read);
    p.finish = &finish;
  }
  run_product(p, team, workspace);
}

template <class S, class T>
anyhal_status run_packed(const Plan& plan, char* const* data, char* workspace, anyhal_error*) {
  const State& s = plan.get_state<State>();
  int64_t each = s.m * s.n * s.k;
  if (s.batch >= plan.team.threads && plan.team.threads > 1 && s.batch > 1 &&
      each * s.batch > 64 * 64 * 64) {
    Team solo = {nullptr, 1};
    share_items(plan.team, s.batch, [&](int64_t index, int64_t worker) {
      run_item<S, T>(s, item_at(s, data, index), solo, workspace + worker * s.item_bytes);
    });
    return ANYHAL_STATUS_OK;
  }
  for (int64_t i = 0; i < s.batch; ++i)
    run_item<S, T>(s, item_at(s, data, i), plan.team, workspace);
  return ANYHAL_STATUS_OK;
}

DirectOperands direct_operands(const State& s, const Item& item) {
  constexpr int64_t kBytes = sizeof(float);
  return {s.k,
          reinterpret_cast<const float*>(item.data[kA]),
          s.strides[kA].row / kBytes,
          s.strides[kA].column / kBytes,
          reinterpret_cast<const float*>(item.data[kB]),
          s.strides[kB].row / kBytes,
          reinterpret_cast<float*>(item.data[kOut]),
          s.strides[kOut].row / kBytes};
}

// One small product: nothing but the arithmetic on the path.
anyhal_status run_small(const Plan& plan, char* const* data, char*, anyhal_error*) {
  const State& s = plan.get_state<State>();
  Item item = {};
  item.data[kA] = data[0];
  item.data[kB] = data[1];
  item.data[kOut] = data[2];
  direct_product(direct_operands(s, item), s.m, 0, s.n);
  return ANYHAL_STATUS_OK;
}

anyhal_status run_small_batch(const Plan& plan, char* const* data, char*, anyhal_error*) {
  const State& s = plan.get_state<State>();
  int64_t each = s.m * s.n * s.k / kF32Lanes;
  split_range(plan.team, s.batch, kParallelGrain / (each < 1 ? 1 : each), 1,
              [&](int64_t begin, int64_t end) {
                for (int64_t i = begin; i < end; ++i)
                  direct_product(direct_operands(s, item_at(s, data, i)), s.m, 0, s.n);
              });
  return ANYHAL_STATUS_OK;
}

// Few rows: B is read once, so packing it would cost as much as the product.
anyhal_status run_thin(const Plan& plan, char* const* data, char*, anyhal_error*) {
  const State& s = plan.get_state<State>();
  for (int64_t i = 0; i < s.batch; ++i) {
    DirectOperands o = direct_operands(s, item_at(s, data, i));
    split_range(plan.team, s.n, 8 * kParallelGrain / (s.k < 1 ? 1 : s.k), 4 * kF32Lanes,
                [&](int64_t begin, int64_t end) { direct_product(o, s.m, begin, end); });
  }
  return ANYHAL_STATUS_OK;
}

// Few rows, and B's columns contiguous (x · wᵀ): dot products.
anyhal_status run_dots(const Plan& plan, char* const* data, char*, anyhal_error*) {
  const State& s = plan.get_state<State>();
  for (int64_t i = 0; i < s.batch; ++i) {
    Item item = item_at(s, data, i);
    split_range(plan.team, s.n, 8 * kParallelGrain / (s.k < 1 ? 1 : s.k), 16,
                [&](int64_t begin, int64_t end) {
                  for (int64_t j = begin; j < end; ++j) {
                    const float* b =
                        reinterpret_cast<const float*>(item.data[kB] + j * s.strides[kB].column);
                    for (int64_t r = 0; r < s.m; ++r) {
                      const float* a =
                          reinterpret_cast<const float*>(item.data[kA] + r * s.strides[kA].row);
                      *reinterpret_cast<float*>(item.data[kOut] + r * s.strides[kOut].row +
                                                j * s.strides[kOut].column) = dot(a, b, s.k);
                    }
                  }
                });
  }
  return ANYHAL_STATUS_OK;
}

anyhal_status run_nothing(const Plan&, char* const*, char*, anyhal_error*) {
  return ANYHAL_STATUS_OK;
}

anyhal_status run_library(const Plan& plan, char* const* data, char* workspace,
                          anyhal_error* error) {
  const State& s = plan.get_state<State>();
  for (int64_t i = 0; i < s.batch; ++i) {
    Item item = item_at(s, data, i);
    anyhal_status status =
        onednn_run(plan, item.data[kA], item.data[kB], item.data[kOut], workspace, error);
    if (status != ANYHAL_STATUS_OK) return status;
  }
  return ANYHAL_STATUS_OK;
}

template <class S, class T>
bool use_packed(Plan& plan, State& s) {
  plan.run = run_packed<S, T>;
  plan.kernel = "packed panels";
  s.item_bytes = product_workspace<T>(s.m, s.n, s.k, plan.team.threads);
  int64_t solo = product_workspace<T>(s.m, s.n, s.k, 1);
  if (s.batch >= plan.team.threads && s.batch > 1) s.item_bytes = solo;
  int64_t items = s.batch >= plan.team.threads && s.batch > 1 ? plan.team.threads : 1;
  int64_t shared = product_workspace<T>(s.m, s.n, s.k, plan.team.threads);
  int64_t bytes = items * s.item_bytes;
  plan.workspace_bytes = static_cast<uint64_t>(bytes > shared ? bytes : shared);
  return true;
}

#if defined(__AVX512F__)
template <class S>
bool use_pairs(Plan& plan, State& s) {
  if (!pairs_pay(plan, s.m, s.n, s.k)) return false;
  State half = s;
  half.k = s.k / 2;
  use_packed<float, float>(plan, half);
  s.item_bytes = half.item_bytes;
  plan.run = run_packed<Pairs<S>, float>;
  plan.kernel = "packed panels, bf16 dot products";
  plan.accumulated = ANYHAL_ACCUMULATE_BF16;
  return true;
}
#else
template <class S>
bool use_pairs(Plan&, State&) {
  return false;
}
#endif

bool choose_f32(Plan& plan, State& s) {
  constexpr int64_t kBytes = sizeof(float);
  if (use_pairs<float>(plan, s)) return true;
  if (plan.ordered) return use_packed<float, float>(plan, s);
  bool adjacent = s.strides[kOut].column == kBytes || s.n == 1;
  bool rows_of_b = s.strides[kB].column == kBytes || s.n == 1;
  if (!s.finish_needed && adjacent && rows_of_b) {
    if (s.m * s.n * s.k <= 64 * 64 * 64) {
      plan.run = s.batch == 1 ? run_small : run_small_batch;
      plan.kernel = "small, in place";
      return true;
    }
    if (s.m <= 4) {
      plan.run = run_thin;
      plan.kernel = "thin, in place";
      return true;
    }
  }
  if (!s.finish_needed && s.m <= 4 && s.strides[kA].column == kBytes &&
      s.strides[kB].row == kBytes) {
    plan.run = run_dots;
    plan.kernel = "dot products";
    return true;
  }
  if (!s.finish_needed && s.m * s.n * s.k > 64 * 64 * 64 && plan.onednn != nullptr) {
    Contraction c = {s.m,
                     s.n,
                     s.k,
                     s.strides[kA].row / kBytes,
                     s.strides[kA].column / kBytes,
                     s.strides[kB].row / kBytes,
                     s.strides[kB].column / kBytes,
                     s.strides[kOut].row / kBytes,
                     s.strides[kOut].column / kBytes};
    if (onednn_prepare(plan, c)) {
      plan.run = run_library;
      return true;
    }
  }
  return use_packed<float, float>(plan, s);
}

bool choose(Plan& plan, State& s) {
  switch (plan.input(0).dtype) {
    case ANYHAL_DTYPE_F32:
      return choose_f32(plan, s);
    case ANYHAL_DTYPE_F16:
      return use_packed<F16, float>(plan, s);
    case ANYHAL_DTYPE_BF16:
      return use_pairs<BF16>(plan, s) || use_packed<BF16, float>(plan, s);
    case ANYHAL_DTYPE_F64:
      return use_packed<double, double>(plan, s);
    case ANYHAL_DTYPE_I8:
      return use_packed<int8_t, uint32_t>(plan, s);
    case ANYHAL_DTYPE_U8:
      return use_packed<uint8_t, uint32_t>(plan, s);
    case ANYHAL_DTYPE_I32:
      return use_packed<uint32_t, uint32_t>(plan, s);
    case ANYHAL_DTYPE_I64:
      return use_packed<uint64_t, uint64_t>(plan, s);
    default:
      return false;
  }
}

}  // namespace

bool prepare_matmul(Plan& plan) {
  State& s = plan.make_state<State>();
  bool epilogue = plan.operand_count == 6;
  for (int i = 0; i < kOperandCount; ++i) s.position[i] = kAbsent;
  s.position[kA] = 0;
  s.position[kB] = 1;
  s.position[kOut] = plan.operand_count - 1;
  if (epilogue) {
    s.position[kBias] = 2;
    s.position[kMultiplier] = 3;
    s.position[kResidual] = 4;
  }
  const Tensor& a = plan.input(0);
  const Tensor& out = plan.output();
  int64_t rank = out.rank;
  s.m = out.dims[rank - 2];
  s.n = out.dims[rank - 1];
  s.k = a.dims[rank - 1];
  s.batch_rank = static_cast<int32_t>(rank - 2);
  s.batch = 1;
  for (int64_t d = 0; d < rank - 2; ++d) {
    s.batch_dims[d] = out.dims[d];
    s.batch *= out.dims[d];
  }
  for (int i = 0; i < kOperandCount; ++i) {
    s.present[i] = s.position[i] != kAbsent && !plan.operands[s.position[i]].absent();
    if (!s.present[i]) continue;
    const Tensor& t = plan.operands[s.position[i]];
    bool bias = i == kBias;
    set_strides(s, static_cast<Operand>(i), t, bias ? -1 : rank - 2,
                bias ? static_cast<int64_t>(t.rank) - 1 : rank - 1);
  }
  s.finish_needed = epilogue || (is_f32_or_half(a.dtype) && out.dtype != ANYHAL_DTYPE_F32);
  s.finish = {1.0f, ANYHAL_ACTIVATION_NONE, {}, {}, {}, writer_of(out.dtype)};
  if (epilogue) {
    const auto& attrs = plan.attribute<anyhal_attrs_matmul_epilogue>();
    s.finish.scale = attrs.scale;
    s.finish.activation = attrs.activation;
    SideOperand* sides[] = {&s.finish.bias, &s.finish.multiplier, &s.finish.residual};
    for (int i = 0; i < 3; ++i)
      if (s.present[kBias + i]) sides[i]->read = reader_of(plan.input(2 + i).dtype);
  }
  plan.library = "";
  if (s.m == 0 || s.n == 0 || s.batch == 0) {
    plan.run = run_nothing;
    plan.kernel = "empty";
    return true;
  }
  return choose(plan, s);
}

}  // namespace hal::cpu::HAL_CPU_ISA
