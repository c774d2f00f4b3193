// A call as the application gave it, read once: operands, their places, its signature.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/api/devices.hpp"
#include "core/api/op_table.hpp"
#include "core/dispatch.hpp"

namespace hal {

// The application's arguments.
struct Given {
  uint32_t op;
  const hal_tensor* const* operands;
  uint32_t input_count, operand_count;
  const void* attributes;
  uint32_t attributes_bytes;
};

// What the key holds of an operand beside dims and strides, in one word: dtype (32 bits), rank (8,
// checked before), alignment class (8), alias (8), frozen (1).
struct OperandWord {
  static constexpr uint64_t kFrozen = uint64_t(1) << 56;
  uint64_t word;
  static OperandWord make(const hal_tensor& t, uint64_t alignment, uint64_t alias, uint64_t flags) {
    return {uint64_t(uint32_t(t.dtype)) | uint64_t(uint32_t(t.rank)) << 32 | alignment << 40 |
            alias << 48 | flags};
  }
  uint32_t alignment() const { return uint32_t(1) << (word >> 40 & 0xff); }
  uint32_t alias() const { return uint32_t(word >> 48 & 0xff); }
  bool frozen() const { return word & kFrozen; }
};

// log2 of the alignment that an address or offset has, at most 6.
inline uint32_t alignment_class(uint64_t offset) { return uint32_t(__builtin_ctzll(offset | 64)); }

// Number of operands, presence, attribute record: what holds for a call before it is looked at
// closely. Throws.
const OpRow& check_given(const Given& given, const std::string& where);

// "matmul f32[4,8] f32[8,16] -> f32[4,16]".
std::string signature_text(const OpRow& row, const Given& given);

// The contract's description of a call, with its operands checked against what the core promises
// backends: geometry, alignment, aliasing. `words` are the operands' words of the key, or null when
// there are no buffers. Sets the span of each operand. Throws InvalidArgument.
OpDesc describe_call(Device& device, const OpRow& row, const Given& given, const OperandWord* words,
                     std::vector<uint64_t>& spans);

// Why the built-in policy cannot run what the backend answered so: a typed refusal, or reason NONE
// when it can.
struct Refusal {
  int32_t reason = HAL_REASON_NONE;
  std::string text;
};
// A cell that gave wrong answers in the self-test, by the registry file.
Refusal quarantine(const ApiDevice& device, const OpRow& row, const OpDesc& desc);
Refusal judge(const OpRow& row, const OpDesc& desc, const Verdict& verdict);

}  // namespace hal
