// StableHLO in the making: one function of tensors, written as generic text.
// SPDX-License-Identifier: Apache-2.0
#ifndef ANYHAL_BACKENDS_PJRT_TEXT_H_
#define ANYHAL_BACKENDS_PJRT_TEXT_H_

#include <cstdint>
#include <string>
#include <vector>

#include "anyhal/backend.h"

namespace hal::pjrt {

using Dims = std::vector<int64_t>;

// A tensor of the program. dtype bool is i1 here; in memory it is a byte.
struct Value {
  std::string name;
  uint32_t dtype = 0;
  Dims dims;
  int64_t count() const;
};

// A text's order of operations and attributes is fixed, since its hash names the program.
class Text {
 public:
  // Argument number n, in the order of the calls.
  Value parameter(uint32_t dtype, const Dims& dims);
  // Lets result `result` take the memory of argument `parameter`.
  void alias(size_t parameter, size_t result);
  void result(const Value& value);
  size_t parameter_count() const { return parameters_.size(); }
  size_t result_count() const { return results_.size(); }

  // Element by element; all operands have one shape.
  Value map(const char* op, const std::vector<Value>& operands, uint32_t dtype = 0);
  Value unary(const char* op, const Value& x) { return map(op, {x}); }
  Value binary(const char* op, const Value& a, const Value& b) { return map(op, {a, b}); }
  // a / b of floats, rounded once: where XLA sees that b repeats, it multiplies by 1 / b instead.
  Value divide(const Value& a, const Value& b) {
    return map("divide", {a, map("optimization_barrier", {b})});
  }
  Value compare(const char* direction, const Value& a, const Value& b);
  Value select(const Value& condition, const Value& a, const Value& b);
  Value convert(const Value& x, uint32_t dtype);
  Value bitcast(const Value& x, uint32_t dtype, const Dims& dims);

  // A number everywhere; `literal` as StableHLO writes it ("1.0", "0xFF800000", "true").
  Value constant(const std::string& literal, uint32_t dtype, const Dims& dims = {});
  Value number(double value, uint32_t dtype, const Dims& dims = {});
  Value number_like(double value, const Value& x) { return number(value, x.dtype, x.dims); }
  Value infinity(bool negative, uint32_t dtype, const Dims& dims = {});
  Value nan(uint32_t dtype, const Dims& dims = {});
  Value iota(uint32_t dtype, const Dims& dims, size_t axis);

  Value reshape(const Value& x, const Dims& dims);
  Value transpose(const Value& x, const std::vector<int64_t>& order);
  // Dim i of x becomes dim axes[i] of the result.
  Value broadcast(const Value& x, const Dims& dims, const std::vector<int64_t>& axes);
  Value slice(const Value& x, const Dims& start, const Dims& stop, const Dims& step);
  Value concatenate(const std::vector<Value>& parts, size_t axis);
  Value pad(const Value& x, const Dims& before, const Dims& after);
  Value pad_end(const Value& x, const Dims& more) { return pad(x, Dims(more.size(), 0), more); }
  Value update(const Value& x, const Value& part, const Dims& start);
  // The same, chosen number by number into memory of its own.
  Value merge(const Value& x, const Value& part, const Dims& start);
  // `body` combines two numbers of `compute`; x has that dtype already.
  Value reduce(const char* op, const Value& x, const Value& start,
               const std::vector<int64_t>& axes);
  // The slices of x along `axis` at a list of i32 or i64 positions, which must lie inside.
  Value gather(const Value& x, const Value& positions, int64_t axis);
  Value scatter_add(const Value& x, const Value& positions, const Value& updates, int64_t axis);
  Value scatter_set(const Value& flat, const Value& positions, const Value& updates);
  // A function that was registered with the plugin; `numbers` go along, as a list of i64.
  Value custom_call(const char* name, const std::vector<Value>& operands,
                    const std::string& numbers, uint32_t dtype, const Dims& dims);
  Value dot(const Value& a, const Value& b, size_t batch_dims, uint32_t dtype);

  // Notes a condition (0-d bool) without which the run is a failure of the caller's values.
  void require(const Value& condition) { conditions_.push_back(condition); }
  size_t condition_count() const { return conditions_.size(); }
  void forget_conditions(size_t kept) { conditions_.resize(kept); }
  // Appends one result of bytes, 1 = held, for the conditions so far.
  void emit_conditions();

  std::string str() const;

 private:
  Value emit(const std::string& op, const std::vector<Value>& operands, const std::string& tail,
             uint32_t dtype, const Dims& dims);
  Value scatter(const Value& x, const Value& positions, const Value& updates, int64_t axis,
                bool add);

  struct Parameter {
    Value value;
    int64_t aliased = -1;
  };
  std::vector<Parameter> parameters_;
  std::vector<Value> results_, conditions_;
  std::string body_;
  uint64_t next_ = 0;
};

// 8-bit floats as numbers of a program; under the contract's numbers they are bytes.
enum Number8 : uint32_t { kF8E4M3FN = 1000, kF8E5M2, kF8E4M3FNUZ, kF8E5M2FNUZ };

std::string type_of(uint32_t dtype, const Dims& dims);
bool is_float(uint32_t dtype);
bool is_signed(uint32_t dtype);
uint32_t bytes_of(uint32_t dtype);
// The unsigned integer of the same size, for what only moves.
uint32_t bits_of(uint32_t dtype);
// f16 and bf16 are computed in f32.
uint32_t wide_of(uint32_t dtype);

}  // namespace hal::pjrt

#endif  // ANYHAL_BACKENDS_PJRT_TEXT_H_
