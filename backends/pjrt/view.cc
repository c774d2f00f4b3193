// Views as reshapes and slices where the strides allow it, else as a gather or scatter by position.
// SPDX-License-Identifier: Apache-2.0
#include "view.h"

#include <algorithm>
#include <numeric>

#include "anyhal/sdk/view.hpp"

namespace hal::pjrt {
namespace {

// The block as a dense array of which the view is a box: sizes[i] steps of strides[i] each.
struct Box {
  bool found = false;
  std::vector<int64_t> order;  // axes of the view, from the largest stride; broadcast ones are out
  Dims sizes;                  // one for each of `order`, and the innermost step
  Dims start;
  int64_t padded = 0;  // elements that `sizes` needs of the block
};

Box box_of(const Place& place) {
  Box box;
  for (size_t i = 0; i < place.dims.size(); ++i)
    if (place.dims[i] != 1 && place.strides[i] != 0) box.order.push_back(static_cast<int64_t>(i));
  std::stable_sort(box.order.begin(), box.order.end(), [&](int64_t a, int64_t b) {
    return place.strides[static_cast<size_t>(a)] > place.strides[static_cast<size_t>(b)];
  });
  if (box.order.empty()) {
    box.sizes = {place.total};
    box.start = {place.first};
    box.padded = place.total;
    box.found = true;
    return box;
  }
  const auto step = [&](size_t i) { return place.strides[static_cast<size_t>(box.order[i])]; };
  int64_t rest = place.first;
  for (size_t i = 0; i < box.order.size(); ++i) {
    const int64_t outer = i == 0 ? place.total : step(i - 1);
    if (i != 0 && outer % step(i) != 0) return box;
    box.sizes.push_back((outer + step(i) - 1) / step(i));
    box.start.push_back(rest / step(i));
    rest %= step(i);
    if (box.start[i] + place.dims[static_cast<size_t>(box.order[i])] > box.sizes[i]) return box;
  }
  box.sizes.push_back(step(box.order.size() - 1));
  box.start.push_back(rest);
  box.padded = std::accumulate(box.sizes.begin(), box.sizes.end(), int64_t{1}, std::multiplies<>());
  box.found = true;
  return box;
}

Dims stops(const Place& place, const Box& box) {
  Dims stop = box.start;
  for (size_t i = 0; i < box.order.size(); ++i)
    stop[i] += place.dims[static_cast<size_t>(box.order[i])];
  stop.back() += 1;
  return stop;
}

// The element number of each position of the view, flat.
Value positions(Text& text, const Place& place) {
  Value at = text.number(static_cast<double>(place.first), ANYHAL_DTYPE_I64, place.dims);
  for (size_t i = 0; i < place.dims.size(); ++i) {
    if (place.dims[i] == 1 || place.strides[i] == 0) continue;
    const Value step =
        text.number(static_cast<double>(place.strides[i]), ANYHAL_DTYPE_I64, place.dims);
    at = text.binary("add", at,
                     text.binary("multiply", text.iota(ANYHAL_DTYPE_I64, place.dims, i), step));
  }
  return text.reshape(at, {at.count()});
}

Dims ones(size_t n) { return Dims(n, 1); }

Value read_box(Text& text, const Place& place, const Box& box, const Value& block) {
  const Value padded = text.pad_end(block, {box.padded - place.total});
  const Value cut = text.slice(text.reshape(padded, box.sizes), box.start, stops(place, box),
                               ones(box.start.size()));
  Dims dims;
  for (const int64_t axis : box.order) dims.push_back(place.dims[static_cast<size_t>(axis)]);
  // Back to the view's order of axes, then out to its broadcast ones.
  std::vector<int64_t> sorted = box.order, back;
  std::sort(sorted.begin(), sorted.end());
  for (const int64_t axis : sorted)
    back.push_back(std::find(box.order.begin(), box.order.end(), axis) - box.order.begin());
  const Value placed = text.transpose(text.reshape(cut, dims), back);
  return text.broadcast(placed, place.dims, sorted);
}

Value write_box(Text& text, const Place& place, const Box& box, const Value& block,
                const Value& value, bool in_place) {
  Dims kept, sizes;
  std::vector<int64_t> sorted = box.order, order;
  std::sort(sorted.begin(), sorted.end());
  for (const int64_t axis : sorted) kept.push_back(place.dims[static_cast<size_t>(axis)]);
  for (const int64_t axis : box.order)
    order.push_back(std::find(sorted.begin(), sorted.end(), axis) - sorted.begin());
  Value part = text.transpose(text.reshape(value, kept), order);
  for (const int64_t axis : box.order) sizes.push_back(place.dims[static_cast<size_t>(axis)]);
  sizes.push_back(1);
  part = text.reshape(part, sizes);
  if (sizes == box.sizes && box.padded == place.total) return text.reshape(part, {place.total});
  const Value padded = text.pad_end(block, {box.padded - place.total});
  const Value from = text.reshape(padded, box.sizes);
  const Value all =
      in_place ? text.update(from, part, box.start) : text.merge(from, part, box.start);
  return text.slice(text.reshape(all, {box.padded}), {0}, {place.total}, {1});
}

}  // namespace

bool Place::whole() const {
  int64_t count = 1;
  for (const int64_t dim : dims) count *= dim;
  if (count != total || first != 0) return false;
  for (size_t i = 0; i < dims.size(); ++i)
    if (dims[i] > 1 && strides[i] == 0) return false;
  const Box box = box_of(*this);
  return box.found && box.padded == total;
}

Place place_of(const anyhal_tensor_desc& desc) {
  const sdk::DtypeFacts facts = sdk::dtype_facts(desc.dtype);
  const bool blocks = facts.block_elements > 1;
  const int64_t unit = blocks ? facts.block_bytes : 1;
  Place place;
  place.dtype = desc.dtype;
  if (blocks || (facts.block_bytes == 1 && desc.dtype != ANYHAL_DTYPE_I8))
    place.dtype = ANYHAL_DTYPE_U8;
  for (uint32_t i = 0; i < desc.rank; ++i) {
    place.dims.push_back(sdk::steps(desc, i));
    place.strides.push_back(desc.strides[i] * unit);
  }
  if (blocks) place.dims.push_back(unit), place.strides.push_back(1);
  const int64_t size = blocks ? 1 : facts.block_bytes;
  place.first = static_cast<int64_t>(desc.base_offset) / size;
  place.total = static_cast<int64_t>(desc.block_bytes) / size;
  return place;
}

bool fits_block(const anyhal_tensor_desc& desc) {
  const sdk::DtypeFacts facts = sdk::dtype_facts(desc.dtype);
  if (facts.block_elements != 1 || sdk::element_count(desc) == 0) return true;
  return desc.block_bytes % facts.block_bytes == 0 && desc.base_offset % facts.block_bytes == 0;
}

Value read_view(Text& text, const anyhal_tensor_desc& desc, const Value& block) {
  const Place place = place_of(desc);
  Value value;
  if (const Box box = box_of(place); box.found) {
    value = read_box(text, place, box, block);
  } else {
    value = text.reshape(text.gather(block, positions(text, place), 0), place.dims);
  }
  if (desc.dtype == ANYHAL_DTYPE_BOOL) return text.compare("NE", value, text.number_like(0, value));
  value.dtype = desc.dtype;
  return value;
}

Value write_view(Text& text, const anyhal_tensor_desc& desc, const Value& block, const Value& value,
                 bool in_place) {
  const Place place = place_of(desc);
  Value stored = desc.dtype == ANYHAL_DTYPE_BOOL ? text.convert(value, ANYHAL_DTYPE_U8) : value;
  stored.dtype = place.dtype;
  if (const Box box = box_of(place); box.found)
    return write_box(text, place, box, block, stored, in_place);
  return text.scatter_set(block, positions(text, place), text.reshape(stored, {stored.count()}));
}

std::string view_key(const anyhal_tensor_desc& desc) {
  std::string key;
  for (uint32_t i = 0; i < desc.rank; ++i)
    key += "," + std::to_string(desc.dims[i]) + ":" + std::to_string(desc.strides[i]);
  return key;
}

Value as_dtype(Text& text, const Value& block, uint32_t dtype) {
  const int64_t from = bytes_of(block.dtype), to = bytes_of(dtype), count = block.count();
  if (from == to) return text.bitcast(block, dtype, block.dims);
  if (from < to)
    return text.bitcast(text.reshape(block, {count * from / to, to / from}), dtype,
                        {count * from / to});
  return text.reshape(text.bitcast(block, dtype, {count, from / to}), {count * from / to});
}

}  // namespace hal::pjrt
