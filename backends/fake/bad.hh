// Behaviours that a device may not have, each by name: bad=NAME plays it, and conformance finds it.
// SPDX-License-Identifier: Apache-2.0
#ifndef ANYHAL_BACKENDS_FAKE_BAD_HH_
#define ANYHAL_BACKENDS_FAKE_BAD_HH_

#include <cstdint>

// README.md says what each does; a test compares the two.
// clang-format off
#define ANYHAL_FAKE_BAD(X) \
  X(copies_first) X(no_wait) X(early_value) X(blocking) X(signal_waits) X(thread_queue) \
  X(falls) X(early_done) X(no_limit) X(notice_twice) X(span_us) X(late_pattern) X(keeps_blocks) \
  X(shared_blocks) X(odd_blocks) X(oom_internal) X(oom_sticky) X(trim_drops) X(heaps_shared) \
  X(hiccup) X(hot_services) X(hot_malloc) X(any_index) X(failure_forgotten) \
  X(unchecked_service) X(unchecked_malloc) X(key_dtype) X(key_shape) X(key_strides) \
  X(key_offset) X(key_function) X(key_attribute) X(key_scalar) X(key_in_place) X(key_target) \
  X(cached_result) X(second_differs) X(bakes_refs) X(reads_workspace) X(needs_memory) \
  X(random_bits) X(part_order) X(batch_lie) X(writes_input) X(reads_around) X(writes_around) \
  X(reads_on) X(stale_graph) X(last_graph) X(graph_in_place) X(plan_scratch) X(one_prepare) \
  X(leaks_runs) X(leaks_plans) X(leaks_refusals) X(leaks_files) X(drifts) X(host_computing) \
  X(host_locale) X(host_signals) X(host_environment) X(host_directory) X(host_umask) \
  X(host_limits) X(host_thread_name) X(host_affinity) X(host_output) X(host_loading) \
  X(fork_hangs) X(fork_crashes) X(exit_crashes) X(instances_share) X(no_reopen) X(any_version) \
  X(strict_settings) X(devices_share) X(capability_changes) X(query_overruns) X(long_records) \
  X(takes_unknown) X(any_extension) X(untyped) X(fickle_refusal) X(no_lie) X(over_limit) \
  X(undeclared) X(mapping_copied) X(any_kind) X(any_count)
// clang-format on

namespace hal::fake {

struct Instance;
struct Device;
struct Plan;
struct Operand;
struct Block;
struct Queue;
struct Item;
struct Description;

enum class Bad : uint8_t {
#define ANYHAL_FAKE_ENUM(name) name,
  ANYHAL_FAKE_BAD(ANYHAL_FAKE_ENUM)
#undef ANYHAL_FAKE_ENUM
      count
};

}  // namespace hal::fake

#endif  // ANYHAL_BACKENDS_FAKE_BAD_HH_
