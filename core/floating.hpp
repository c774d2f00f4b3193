// How this thread computes: rounding, denormals, precision. Code of others may change it, and every
// number after that is another one.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cfenv>
#include <cstdint>

namespace hal {

// The control words alone; the flags of exceptions that happened are not part of it.
struct FloatingControl {
  uint32_t scalar = 0, vector = 0;
  bool operator==(const FloatingControl&) const = default;
};

inline FloatingControl control_of(const std::fenv_t& state) {
#if defined(__x86_64__)
  constexpr uint32_t kFlags = 0x3f;  // of MXCSR: what happened
  return {state.__control_word, state.__mxcsr & ~kFlags};
#elif defined(__aarch64__)
  return {uint32_t(state.__fpcr), 0};
#else
  (void)state;
  return {uint32_t(std::fegetround()), 0};
#endif
}

inline FloatingControl floating_control() {
  std::fenv_t now;
  std::fegetenv(&now);
  return control_of(now);
}

// Puts back how this thread computed, and says whether that was needed.
class FloatingGuard {
 public:
  FloatingGuard() { std::fegetenv(&before_); }
  ~FloatingGuard() { restore(); }
  FloatingGuard(const FloatingGuard&) = delete;
  FloatingGuard& operator=(const FloatingGuard&) = delete;

  bool restore() {
    const bool changed = floating_control() != control_of(before_);
    std::fesetenv(&before_);
    return changed;
  }

 private:
  std::fenv_t before_;
};

}  // namespace hal
