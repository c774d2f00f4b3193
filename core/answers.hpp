// What a backend writes into the core's records, looked at before anything is done with it. All of
// it lies beside the hot path: devices, verdicts, plans and blocks are asked for once.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <string>

#include "core/device.hpp"
#include "core/plan.hpp"

namespace hal {

inline constexpr uint64_t kGuard = 0x5ca1ab1e0ddba11ull;
// More than any machine has: sums of sizes below it do not overflow.
inline constexpr uint64_t kBytesMax = uint64_t(1) << 56;

// A record handed to a backend, and behind it what no backend may touch: one that was built with a
// longer record, and does not look at `size`, shows there.
template <class T>
struct Guarded {
  T record{};
  std::array<uint64_t, 32> guard = filled();

  Guarded() { record.size = sizeof(T); }
  static constexpr std::array<uint64_t, 32> filled() {
    std::array<uint64_t, 32> words{};
    words.fill(kGuard);
    return words;
  }
  void check(const std::string& what) const {
    if (guard != filled())
      throw Error(ANYHAL_STATUS_INTERNAL,
                  what +
                      ": the backend wrote past the record's end, which its `size` gives; "
                      "report this to its vendor");
  }
};

// Each throws an Error that says what is impossible about the answer.
// The first two also put what they look at into this core's form: texts end, sizes are its own.
void check_device(const Instance& in, anyhal_device_info& info);
void check_kind(const Instance& in, const anyhal_device_info& info, anyhal_memory_kind& kind);
void check_verdict(const anyhal_verdict& verdict, uint32_t operand_count, const std::string& what);
void check_prepared(const Device& device, const anyhal_plan* plan, const anyhal_prepared* prepared,
                    uint32_t operand_count, const std::string& what);
// For receipts: what a checked record names, as far as it can be shown.
std::string kernel_of(const anyhal_prepared& prepared);
std::string library_of(const anyhal_prepared& prepared);
void check_block(const Device& device, const anyhal_memory_request& request,
                 const anyhal_memory_block& block, const std::string& what);

}  // namespace hal
