// What the core must know of the registry's ops to judge a call; the rows are generated.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace hal {

// Which inputs an output may be exactly, by the rules of ops/_spec.py.
enum class Aliasing : uint8_t { kNone, kElementwise, kFirst, kRequired };

struct OpRow {
  uint32_t id;
  const char* name;
  uint32_t inputs, required;  // declared inputs, and how many of the first must be there
  uint32_t outputs;
  bool variadic;  // any number of inputs, none absent
  bool core;      // has no decomposition
  Aliasing aliasing;
  uint32_t attributes_bytes;
};

inline constexpr OpRow kOps[] = {
#include "core/api/op_table.inc"
};

// A word of an attribute record that holds a number of an enumeration.
struct OpChoice {
  uint32_t op, offset;
  const char *field, *type;
  uint64_t known;  // bit n: n is one of its numbers
};

inline constexpr OpChoice kChoices[] = {
#include "core/api/op_choices.inc"
};

// The row of an id, or null; ids are few and small.
inline const OpRow* op_row(uint32_t id) {
  for (const OpRow& row : kOps)
    if (row.id == id) return &row;
  return nullptr;
}

}  // namespace hal
