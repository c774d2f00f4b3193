// reduce: one function over whole axes. Long folds take a block each, short ones a thread; which of
// the two depends on the folded length alone, so a row's bits do not depend on the other rows.
// SPDX-License-Identifier: Apache-2.0
#include "device.cuh"

namespace hal::cuda {

struct Total {
  double f;
  long long z;
};

HAL_DEVICE Total start(int fn, int dtype) {
  const double infinity = 1e300 * 1e300;
  switch (fn) {
    case ANYHAL_REDUCE_FN_PROD:
      return {1, 1};
    case ANYHAL_REDUCE_FN_MAX:
      return {-infinity, is_unsigned(dtype) ? 0 : -0x7fffffffffffffffll - 1};
    case ANYHAL_REDUCE_FN_MIN:
      return {infinity, is_unsigned(dtype) ? -1 : 0x7fffffffffffffffll};
    case ANYHAL_REDUCE_FN_ALL:
      return {0, 1};
    default:
      return {0, 0};
  }
}

HAL_DEVICE double fold_float(int fn, double total, double x) {
  switch (fn) {
    case ANYHAL_REDUCE_FN_PROD:
      return total * x;
    case ANYHAL_REDUCE_FN_MAX:
      return total != total || x <= total ? total : x;  // NaN wins
    case ANYHAL_REDUCE_FN_MIN:
      return total != total || x >= total ? total : x;
    default:
      return total + x;
  }
}

HAL_DEVICE long long fold_int(int fn, bool is_positive, long long total, long long x) {
  const unsigned long long a = (unsigned long long)total, b = (unsigned long long)x;
  const bool greater = is_positive ? b > a : x > total;
  switch (fn) {
    case ANYHAL_REDUCE_FN_SUM:
      return (long long)(a + b);
    case ANYHAL_REDUCE_FN_PROD:
      return (long long)(a * b);
    case ANYHAL_REDUCE_FN_MAX:
    case ANYHAL_REDUCE_FN_ANY:
      return greater ? x : total;
    default:
      return greater ? total : x;  // min, all
  }
}

// Every `step`-th of the folded positions from `first` on.
HAL_DEVICE Total fold(const Reduce& p, long long base, long long first, long long step) {
  Total total = start(p.fn, p.dtype);
  for (long long i = first; i < p.folded.count; i += step) {
    const long long at = base + locate(p.folded, p.side + 2, i).at[0];
    if (is_float(p.dtype)) {
      total.f = fold_float(p.fn, total.f, load_float(p.dtype, p.side[0].data, at));
    } else {
      total.z =
          fold_int(p.fn, is_unsigned(p.dtype), total.z, load_int(p.dtype, p.side[0].data, at));
    }
  }
  return total;
}

HAL_DEVICE void finish(const Reduce& p, long long at, Total total) {
  if (p.fn == ANYHAL_REDUCE_FN_MEAN) total.f /= (double)p.folded.count;  // NaN over nothing
  if (is_float(p.dtype)) {
    store_float(p.out_dtype, p.side[1].data, at, total.f);
  } else {
    store_int(p.out_dtype, p.side[1].data, at, total.z);
  }
}

HAL_KERNEL(anyhal_reduce_short, Reduce) {
  HAL_EACH(i, p.kept.count) {
    const Place place = locate(p.kept, p.side, i);
    finish(p, place.at[1], fold(p, place.at[0], 0, 1));
  }
}

HAL_KERNEL(anyhal_reduce_long, Reduce) {
  HAL_SHARED double floats[kBlock];
  HAL_SHARED long long whole[kBlock];
  HAL_EACH_BLOCK(i, p.kept.count) {
    const Place place = locate(p.kept, p.side, i);
    HAL_PHASE(t) {
      const Total total = fold(p, place.at[0], t, kBlock);
      floats[t] = total.f;
      whole[t] = total.z;
    }
    for (int width = kBlock / 2; width > 0; width /= 2) {
      HAL_PHASE(t) {
        if (t < width) {
          floats[t] = fold_float(p.fn, floats[t], floats[t + width]);
          whole[t] = fold_int(p.fn, is_unsigned(p.dtype), whole[t], whole[t + width]);
        }
      }
    }
    HAL_PHASE(t) {
      if (t == 0) finish(p, place.at[1], {floats[0], whole[0]});
    }
  }
}

}  // namespace hal::cuda
