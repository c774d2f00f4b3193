// cache_append: cache[b, h, position[b] + t, d] = update[b, h, t, d], in place.
// SPDX-License-Identifier: Apache-2.0
#include "conditions.h"
#include "part.h"

namespace hal::cpu_ref {

Answer cache_append_fits(const Desc& desc) {
  Answer count = operands_are(desc, 3);
  if (!count.yes()) return count;
  const Tensor& cache = sdk::operand(desc, 0);
  const Tensor& update = sdk::operand(desc, 1);
  const Tensor& position = sdk::operand(desc, 2);
  Answer ranks = all({rank_is(desc, 0, 4), rank_is(desc, 1, 4), dims_equal(desc, 3, 0),
                      dtypes_equal(desc, 1, 0), dtypes_equal(desc, 3, 0),
                      dtype_in(desc, 2, sdk::kIndices), output_is_single(desc)});
  if (!ranks.yes()) return ranks;
  if (update.dims[0] != cache.dims[0] || update.dims[1] != cache.dims[1] ||
      update.dims[2] > cache.dims[2] || update.dims[3] != cache.dims[3])
    return sdk::invalid("the update must be [B, H, T, D] with T up to the cache's", 1);
  if (position.rank > 1 || (position.rank == 1 && position.dims[0] != cache.dims[0]))
    return sdk::invalid("position must be one number or one for each batch entry", 2);
  if (sdk::output(desc).alias_of != 1)
    return sdk::no(ANYHAL_REASON_LAYOUT, "the output must be the cache itself", 3);
  return output_may_alias(desc, {0});
}

void cache_append(const Call& call) {
  const Tensor& cache = sdk::operand(call.desc(), 0);
  const Tensor& update = sdk::operand(call.desc(), 1);
  const Tensor& position = sdk::operand(call.desc(), 2);
  const int64_t rows = update.dims[2];
  check_indices(position, call.data(2), cache.dims[2] - rows + 1);
  Part window(cache), source(update);
  window.cut(2, rows).remove(0, 1);
  source.remove(0, 1);
  for (int64_t b = 0; b < cache.dims[0]; ++b) {
    const int64_t start =
        index_at(position, call.data(2), position.rank == 0 ? 0 : b * position.strides[0]);
    move(source, call.data(1) + b * step_bytes(update, 0), window,
         call.data(3) + b * step_bytes(cache, 0) + start * step_bytes(cache, 2));
  }
}

}  // namespace hal::cpu_ref
