// paged_cache_append: new rows of a ragged batch go to the last positions of their sequences.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "paged.h"

namespace hal::cpu_ref {
namespace {

// Calls fn(token, page, row) for each token that has a sequence.
template <class Fn>
void each_token(const Sequences& sequences, Fn fn) {
  for (int64_t b = 0; b < sequences.batch(); ++b) {
    const int64_t count = sequences.count(b), first = sequences.length(b) - count;
    for (int64_t i = 0; i < count; ++i)
      fn(sequences.start(b) + i, sequences.page(b, first + i), sequences.row(first + i));
  }
}

}  // namespace

Answer paged_cache_append_fits(const Desc& desc) {
  Answer count = operands_are(desc, 5);
  if (!count.yes()) return count;
  Answer ranks = all({rank_is(desc, 0, 4), rank_is(desc, 1, 3), dims_equal(desc, 5, 0),
                      dtypes_equal(desc, 1, 0), dtypes_equal(desc, 5, 0), output_is_single(desc),
                      Sequences::fit(desc, 2)});
  if (!ranks.yes()) return ranks;
  const int64_t* pages = sdk::operand(desc, 0).dims;
  const int64_t* update = sdk::operand(desc, 1).dims;
  if (update[1] != pages[2] || update[2] != pages[3])
    return sdk::invalid("the update must be [T, H, D] with H and D of the pages", 1);
  const bool empty = std::find(pages, pages + 4, 0) != pages + 4;  // such blocks have no address
  if (sdk::output(desc).alias_of != 1 && !empty)
    return sdk::no(ANYHAL_REASON_LAYOUT, "the output must be the pages themselves", 5);
  return output_may_alias(desc, {0});
}

// Which rows have been written.
uint64_t paged_cache_append_workspace(const Desc& desc) {
  const int64_t* pages = sdk::operand(desc, 0).dims;
  return static_cast<uint64_t>(pages[0] * pages[1]);
}

void paged_cache_append(const Call& call) {
  const Tensor& pages = sdk::operand(call.desc(), 0);
  const Tensor& update = sdk::operand(call.desc(), 1);
  Sequences sequences(call, "paged_cache_append", 2, update.dims[0], pages);
  sequences.check();
  for (int64_t b = 0; b < sequences.batch(); ++b)
    sequences.require("number of new tokens", sequences.count(b), 0, sequences.length(b));
  char* taken = call.workspace();
  const int64_t rows = pages.dims[0] * pages.dims[1];
  if (rows == 0) return;
  std::memset(taken, 0, static_cast<size_t>(rows));
  each_token(sequences, [&](int64_t, int64_t page, int64_t row) {
    char& count = taken[page * pages.dims[1] + row];
    sequences.require("number of tokens for one row", ++count, 1, 1);
  });
  Part from(update), to(pages);
  from.remove(0, 1);
  to.remove(0, 2);
  each_token(sequences, [&](int64_t token, int64_t page, int64_t row) {
    move(from, call.data(1) + token * step_bytes(update, 0), to,
         call.data(5) + page * step_bytes(pages, 0) + row * step_bytes(pages, 1));
  });
}

}  // namespace hal::cpu_ref
