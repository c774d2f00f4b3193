// Writing StableHLO.
// SPDX-License-Identifier: Apache-2.0
#include "text.h"

#include <cmath>
#include <cstdio>
#include <cstring>

#include "anyhal/sdk/dtypes.hpp"

namespace hal::pjrt {
namespace {

const char* element(uint32_t dtype) {
  switch (dtype) {
    case ANYHAL_DTYPE_F32:
      return "f32";
    case ANYHAL_DTYPE_F16:
      return "f16";
    case ANYHAL_DTYPE_BF16:
      return "bf16";
    case ANYHAL_DTYPE_F64:
      return "f64";
    case ANYHAL_DTYPE_I64:
      return "i64";
    case ANYHAL_DTYPE_I32:
      return "i32";
    case ANYHAL_DTYPE_I16:
      return "i16";
    case ANYHAL_DTYPE_I8:
      return "i8";
    case ANYHAL_DTYPE_U64:
      return "ui64";
    case ANYHAL_DTYPE_U32:
      return "ui32";
    case ANYHAL_DTYPE_U16:
      return "ui16";
    case ANYHAL_DTYPE_BOOL:
      return "i1";
    // Only where a program computes with them; elsewhere they move as bytes.
    case kF8E4M3FN:
      return "f8E4M3FN";
    case kF8E5M2:
      return "f8E5M2";
    case kF8E4M3FNUZ:
      return "f8E4M3FNUZ";
    case kF8E5M2FNUZ:
      return "f8E5M2FNUZ";
    default:
      return "ui8";
  }
}

template <class List>
std::string list(const List& values, const char* open = "array<i64: ", const char* close = ">") {
  if (values.empty()) return std::strcmp(open, "[") == 0 ? "[]" : "array<i64>";
  std::string out = open;
  for (size_t i = 0; i < values.size(); ++i)
    out += (i != 0 ? ", " : "") + std::to_string(values[i]);
  return out + close;
}

Dims range(int64_t first, int64_t last) {
  Dims out;
  for (int64_t i = first; i < last; ++i) out.push_back(i);
  return out;
}

// What a NaN, an infinity or a finite number looks like in a dense attribute.
std::string literal(double value, uint32_t dtype) {
  char text[40];
  if (dtype == ANYHAL_DTYPE_BOOL) return value != 0 ? "true" : "false";
  if (!is_float(dtype)) {
    std::snprintf(text, sizeof text, "%.0f", value);
    return text;
  }
  if (std::isfinite(value)) {
    std::snprintf(text, sizeof text, "%.17e", value);
    return text;
  }
  const bool low = std::signbit(value), none = std::isnan(value);
  switch (dtype) {
    case ANYHAL_DTYPE_F16:
      return none ? "0x7E00" : low ? "0xFC00" : "0x7C00";
    case ANYHAL_DTYPE_BF16:
      return none ? "0x7FC0" : low ? "0xFF80" : "0x7F80";
    case ANYHAL_DTYPE_F64:
      return none ? "0x7FF8000000000000" : low ? "0xFFF0000000000000" : "0x7FF0000000000000";
    default:
      return none ? "0x7FC00000" : low ? "0xFF800000" : "0x7F800000";
  }
}

}  // namespace

int64_t Value::count() const {
  int64_t product = 1;
  for (const int64_t dim : dims) product *= dim;
  return product;
}

std::string type_of(uint32_t dtype, const Dims& dims) {
  std::string out = "tensor<";
  for (const int64_t dim : dims) out += std::to_string(dim) + "x";
  return out + element(dtype) + ">";
}

bool is_float(uint32_t dtype) { return sdk::kFloats.has(dtype); }
bool is_signed(uint32_t dtype) { return sdk::kSigned.has(dtype); }
uint32_t bytes_of(uint32_t dtype) { return sdk::dtype_facts(dtype).block_bytes; }

uint32_t bits_of(uint32_t dtype) {
  switch (bytes_of(dtype)) {
    case 8:
      return ANYHAL_DTYPE_U64;
    case 4:
      return ANYHAL_DTYPE_U32;
    case 2:
      return ANYHAL_DTYPE_U16;
    default:
      return ANYHAL_DTYPE_U8;
  }
}

uint32_t wide_of(uint32_t dtype) {
  return sdk::kHalves.has(dtype) ? uint32_t{ANYHAL_DTYPE_F32} : dtype;
}

Value Text::parameter(uint32_t dtype, const Dims& dims) {
  Value value{"%a" + std::to_string(parameters_.size()), dtype, dims};
  parameters_.push_back({value, -1});
  return value;
}

void Text::alias(size_t parameter, size_t result) {
  parameters_[parameter].aliased = static_cast<int64_t>(result);
}

void Text::result(const Value& value) { results_.push_back(value); }

Value Text::emit(const std::string& op, const std::vector<Value>& operands, const std::string& tail,
                 uint32_t dtype, const Dims& dims) {
  Value made{"%" + std::to_string(next_++), dtype, dims};
  std::string names, types;
  for (const Value& operand : operands) {
    names += (names.empty() ? "" : ", ") + operand.name;
    types += (types.empty() ? "" : ", ") + type_of(operand.dtype, operand.dims);
  }
  const std::string dialect = op.find('.') == std::string::npos ? "stablehlo." : "";
  body_ += "    " + made.name + " = \"" + dialect + op + "\"(" + names + ")" + tail + " : (" +
           types + ") -> " + type_of(dtype, dims) + "\n";
  return made;
}

Value Text::map(const char* op, const std::vector<Value>& operands, uint32_t dtype) {
  return emit(op, operands, "", dtype != 0 ? dtype : operands[0].dtype, operands[0].dims);
}

Value Text::compare(const char* direction, const Value& a, const Value& b) {
  return emit(
      "compare", {a, b},
      std::string(" {comparison_direction = #stablehlo<comparison_direction ") + direction + ">}",
      ANYHAL_DTYPE_BOOL, a.dims);
}

Value Text::select(const Value& condition, const Value& a, const Value& b) {
  return emit("select", {condition, a, b}, "", a.dtype, a.dims);
}

Value Text::convert(const Value& x, uint32_t dtype) {
  return x.dtype == dtype ? x : emit("convert", {x}, "", dtype, x.dims);
}

Value Text::bitcast(const Value& x, uint32_t dtype, const Dims& dims) {
  if (std::strcmp(element(x.dtype), element(dtype)) == 0 && x.dims == dims)
    return {x.name, dtype, x.dims};
  return emit("bitcast_convert", {x}, "", dtype, dims);
}

Value Text::constant(const std::string& text, uint32_t dtype, const Dims& dims) {
  return emit("constant", {}, " {value = dense<" + text + "> : " + type_of(dtype, dims) + "}",
              dtype, dims);
}

Value Text::number(double value, uint32_t dtype, const Dims& dims) {
  return constant(literal(value, dtype), dtype, dims);
}

Value Text::infinity(bool negative, uint32_t dtype, const Dims& dims) {
  return number(negative ? -HUGE_VAL : HUGE_VAL, dtype, dims);
}

Value Text::nan(uint32_t dtype, const Dims& dims) { return number(NAN, dtype, dims); }

Value Text::iota(uint32_t dtype, const Dims& dims, size_t axis) {
  return emit("iota", {}, " {iota_dimension = " + std::to_string(axis) + " : i64}", dtype, dims);
}

Value Text::reshape(const Value& x, const Dims& dims) {
  return x.dims == dims ? x : emit("reshape", {x}, "", x.dtype, dims);
}

Value Text::transpose(const Value& x, const std::vector<int64_t>& order) {
  if (order == range(0, static_cast<int64_t>(order.size()))) return x;
  Dims dims;
  for (const int64_t axis : order) dims.push_back(x.dims[static_cast<size_t>(axis)]);
  return emit("transpose", {x}, " {permutation = " + list(order) + "}", x.dtype, dims);
}

Value Text::broadcast(const Value& x, const Dims& dims, const std::vector<int64_t>& axes) {
  if (x.dims == dims) return x;
  return emit("broadcast_in_dim", {x}, " {broadcast_dimensions = " + list(axes) + "}", x.dtype,
              dims);
}

Value Text::slice(const Value& x, const Dims& start, const Dims& stop, const Dims& step) {
  Dims dims;
  bool whole = true;
  for (size_t i = 0; i < start.size(); ++i) {
    dims.push_back((stop[i] - start[i] + step[i] - 1) / step[i]);
    whole = whole && start[i] == 0 && stop[i] == x.dims[i] && step[i] == 1;
  }
  if (whole) return x;
  return emit("slice", {x},
              " {start_indices = " + list(start) + ", limit_indices = " + list(stop) +
                  ", strides = " + list(step) + "}",
              x.dtype, dims);
}

Value Text::concatenate(const std::vector<Value>& parts, size_t axis) {
  if (parts.size() == 1) return parts[0];
  Dims dims = parts[0].dims;
  dims[axis] = 0;
  for (const Value& part : parts) dims[axis] += part.dims[axis];
  return emit("concatenate", parts, " {dimension = " + std::to_string(axis) + " : i64}",
              parts[0].dtype, dims);
}

Value Text::pad(const Value& x, const Dims& before, const Dims& after) {
  Dims dims = x.dims;
  for (size_t i = 0; i < dims.size(); ++i) dims[i] += before[i] + after[i];
  if (dims == x.dims) return x;
  return emit("pad", {x, number(0, x.dtype)},
              " {edge_padding_low = " + list(before) + ", edge_padding_high = " + list(after) +
                  ", interior_padding = " + list(Dims(dims.size(), 0)) + "}",
              x.dtype, dims);
}

Value Text::update(const Value& x, const Value& part, const Dims& start) {
  std::vector<Value> operands = {x, part};
  for (const int64_t at : start)
    operands.push_back(number(static_cast<double>(at), ANYHAL_DTYPE_I64));
  return emit("dynamic_update_slice", operands, "", x.dtype, x.dims);
}

Value Text::merge(const Value& x, const Value& part, const Dims& start) {
  Dims after = x.dims;
  for (size_t i = 0; i < after.size(); ++i) after[i] -= start[i] + part.dims[i];
  const Value inside = pad(constant("true", ANYHAL_DTYPE_BOOL, part.dims), start, after);
  return select(inside, pad(part, start, after), x);
}

Value Text::reduce(const char* op, const Value& x, const Value& start,
                   const std::vector<int64_t>& axes) {
  Dims dims;
  for (size_t i = 0; i < x.dims.size(); ++i) {
    bool gone = false;
    for (const int64_t axis : axes) gone = gone || axis == static_cast<int64_t>(i);
    if (!gone) dims.push_back(x.dims[i]);
  }
  const std::string type = type_of(x.dtype, {}), n = std::to_string(next_++);
  const std::string body = " ({\n    ^bb0(%l" + n + ": " + type + ", %r" + n + ": " + type +
                           "):\n      %b" + n + " = \"stablehlo." + op + "\"(%l" + n + ", %r" + n +
                           ") : (" + type + ", " + type + ") -> " + type +
                           "\n      \"stablehlo.return\"(%b" + n + ") : (" + type +
                           ") -> ()\n    }) {dimensions = " + list(axes) + "}";
  return emit("reduce", {x, start}, body, x.dtype, dims);
}

Value Text::gather(const Value& x, const Value& positions, int64_t axis) {
  const int64_t rank = static_cast<int64_t>(x.dims.size()),
                many = static_cast<int64_t>(positions.dims.size());
  Dims sizes = x.dims, dims(x.dims.begin(), x.dims.begin() + axis);
  sizes[static_cast<size_t>(axis)] = 1;
  dims.insert(dims.end(), positions.dims.begin(), positions.dims.end());
  dims.insert(dims.end(), x.dims.begin() + axis + 1, x.dims.end());
  Dims offsets = range(0, axis);
  for (int64_t i = axis + many; i < rank - 1 + many; ++i) offsets.push_back(i);
  return emit("gather", {x, positions},
              " {dimension_numbers = #stablehlo.gather<offset_dims = " + list(offsets, "[", "]") +
                  ", collapsed_slice_dims = [" + std::to_string(axis) + "], start_index_map = [" +
                  std::to_string(axis) + "], index_vector_dim = " + std::to_string(many) +
                  ">, slice_sizes = " + list(sizes) + ", indices_are_sorted = false}",
              x.dtype, dims);
}

Value Text::scatter(const Value& x, const Value& positions, const Value& updates, int64_t axis,
                    bool add) {
  const int64_t rank = static_cast<int64_t>(x.dims.size()),
                many = static_cast<int64_t>(positions.dims.size());
  Dims windows = range(0, axis);
  for (int64_t i = axis + many; i < rank - 1 + many; ++i) windows.push_back(i);
  const std::string type = type_of(x.dtype, {}), n = std::to_string(next_++);
  const std::string sum = "\n      %b" + n + " = \"stablehlo.add\"(%l" + n + ", %r" + n + ") : (" +
                          type + ", " + type + ") -> " + type;
  const std::string body =
      " ({\n    ^bb0(%l" + n + ": " + type + ", %r" + n + ": " + type + "):" + (add ? sum : "") +
      "\n      \"stablehlo.return\"(" + (add ? "%b" : "%r") + n + ") : (" + type +
      ") -> ()\n    }) {scatter_dimension_numbers = #stablehlo.scatter<update_window_dims = " +
      list(windows, "[", "]") + ", inserted_window_dims = [" + std::to_string(axis) +
      "], scatter_dims_to_operand_dims = [" + std::to_string(axis) +
      "], index_vector_dim = " + std::to_string(many) +
      ">, indices_are_sorted = false, unique_indices = " + (add ? "false" : "true") + "}";
  return emit("scatter", {x, positions, updates}, body, x.dtype, x.dims);
}

Value Text::scatter_add(const Value& x, const Value& positions, const Value& updates,
                        int64_t axis) {
  return scatter(x, positions, updates, axis, true);
}

Value Text::scatter_set(const Value& flat, const Value& positions, const Value& updates) {
  return scatter(flat, positions, updates, 0, false);
}

Value Text::dot(const Value& a, const Value& b, size_t batch_dims, uint32_t dtype) {
  const int64_t lead = static_cast<int64_t>(batch_dims);
  Dims dims(a.dims.begin(), a.dims.begin() + lead + 1);
  dims.push_back(b.dims.back());
  const std::string batch = list(range(0, lead), "[", "]");
  return emit("dot_general", {a, b},
              " {dot_dimension_numbers = #stablehlo.dot<lhs_batching_dimensions = " + batch +
                  ", rhs_batching_dimensions = " + batch + ", lhs_contracting_dimensions = [" +
                  std::to_string(lead + 1) + "], rhs_contracting_dimensions = [" +
                  std::to_string(lead) +
                  "]>, precision_config = [#stablehlo<precision HIGHEST>, #stablehlo<precision "
                  "HIGHEST>]}",
              dtype, dims);
}

Value Text::custom_call(const char* name, const std::vector<Value>& operands,
                        const std::string& numbers, uint32_t dtype, const Dims& dims) {
  return emit("custom_call", operands,
              std::string(" {call_target_name = \"") + name +
                  "\", api_version = 4 : i32, backend_config = {numbers = array<i64: " + numbers +
                  ">}}",
              dtype, dims);
}

void Text::emit_conditions() {
  std::vector<Value> bytes;
  for (const Value& held : conditions_)
    bytes.push_back(reshape(convert(held, ANYHAL_DTYPE_U8), {1}));
  conditions_.clear();
  result(concatenate(bytes, 0));
}

std::string Text::str() const {
  std::string out = "module @anyhal {\n  func.func public @main(";
  for (size_t i = 0; i < parameters_.size(); ++i) {
    const auto& [value, aliased] = parameters_[i];
    out += (i != 0 ? ", " : "") + value.name + ": " + type_of(value.dtype, value.dims);
    if (aliased >= 0) out += " {tf.aliasing_output = " + std::to_string(aliased) + " : i32}";
  }
  std::string names, types;
  for (const Value& value : results_) {
    names += (names.empty() ? "" : ", ") + value.name;
    types += (types.empty() ? "" : ", ") + type_of(value.dtype, value.dims);
  }
  return out + ") -> (" + types + ") {\n" + body_ + "    \"func.return\"(" + names + ") : (" +
         types + ") -> ()\n  }\n}\n";
}

}  // namespace hal::pjrt
