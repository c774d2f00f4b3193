// oneDNN, opened at run time: one f32 contraction, called single-threaded with our partition.
// SPDX-License-Identifier: Apache-2.0
#ifndef BACKENDS_CPU_ONEDNN_H_
#define BACKENDS_CPU_ONEDNN_H_

#include <stdint.h>

#include <mutex>
#include <string>

#include "anyhal/backend.h"

namespace hal::cpu {

struct Plan;
class OneDnn;

// out[m, n] = a[m, k] · b[k, n], all f32; strides in elements.
struct Contraction {
  int64_t m, n, k;
  int64_t a_row, a_column;
  int64_t b_row, b_column;
  int64_t out_row, out_column;
};

// The library at an absolute path, opened by the first product that wants it: that takes some
// milliseconds, which a program of small products never pays. Never closed: its thread-local state
// outlives us.
class OneDnnLibrary {
 public:
  OneDnnLibrary(const char* path, const anyhal_services* services)
      : path_(path != nullptr ? path : ""), services_(services) {}
  bool given() const { return !path_.empty(); }
  OneDnn* get();       // null when it cannot be used; where it was given, that is logged once
  const char* note();  // what was opened, or why it cannot be used

 private:
  std::string path_;
  const anyhal_services* services_;
  std::once_flag once_;
  OneDnn* opened_ = nullptr;
  char note_[400] = {};
};

// Sets the plan's library state, workspace, kernel and library names; false = the library does
// not take this layout.
bool onednn_prepare(Plan& plan, const Contraction& contraction);
anyhal_status onednn_run(const Plan& plan, const char* a, const char* b, char* out, char* workspace,
                         anyhal_error* error);

}  // namespace hal::cpu

#endif  // BACKENDS_CPU_ONEDNN_H_
