// What a script can ask of the fake backend, parsed.
// SPDX-License-Identifier: Apache-2.0
#ifndef ANYHAL_BACKENDS_FAKE_SCRIPT_HH_
#define ANYHAL_BACKENDS_FAKE_SCRIPT_HH_

#include <bitset>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "anyhal/backend.h"
#include "anyhal/ops.h"
#include "bad.hh"

namespace hal::fake {

constexpr uint32_t kSlotCount = 25;
constexpr uint32_t kOpCount = ANYHAL_OP_CLIP;
constexpr int64_t kForever = INT64_MAX / 2;

// A refusal: what a slot answers instead of doing its work.
struct Fault {
  anyhal_status status;
  anyhal_reason reason;
  std::string text;
};

// "fail the n-th call of this slot": slot 0 is the entry.
struct Failure {
  uint32_t slot = 0;
  uint64_t call = 0;    // counts from 1; 0 = every call
  bool onward = false;  // this call and all later ones
  int32_t device = -1;  // only calls on this device count; -1 = all
  anyhal_status status = ANYHAL_STATUS_INTERNAL;
};

// What one device claims to be. Keys of the script without a device number set all devices.
struct DeviceScript {
  std::string name = "Fake device", arch = "fake1", driver = "fake 1.0";
  uint8_t uuid[16] = {};
  uint32_t pci_domain = 0, pci_function = 0, flags = 0;
  uint64_t heap = 1ull << 30, block_max = 0, blocks_max = 0, tensor_max = 0;
  uint32_t offset_alignment = 1, queue_count = 0, queue_depth = 0, rank_max = 16, own_threads = 0;
  uint32_t recovery = ANYHAL_RECOVERY_NONE;
  bool dead = false;  // device_open fails
};

struct Script {
  std::vector<DeviceScript> devices;
  bool cell = false, async = false;
  uint32_t partial = 0;  // ANYHAL_MEMORY_PARTIAL_*
  bool compute = true;   // false: operations return at once and write nothing
  bool rebind = true;
  bool addresses = true;  // host memory may be named by address
  bool compiles = false;  // graphs: taken as programs, not as recordings
  int64_t delay_ns = 0, prepare_ns = 0;
  uint64_t workspace = 0;
  uint32_t edge = 2;
  int32_t foreign = 0;        // DLPack device type that it plays; 0: shares host memory at most
  bool stream_waits = true;   // foreign streams can wait for its queues
  std::set<uint32_t> ops;     // claimed
  std::set<uint32_t> dtypes;  // claimed
  std::map<uint32_t, anyhal_reason> refuse;           // op_query says no
  std::map<uint32_t, anyhal_reason> refuse_in_place;  // op_query says no where output is input
  std::map<uint32_t, anyhal_reason> refuse_prepare;   // op_query does not know, op_prepare refuses
  std::set<uint32_t> lie;                             // op_query says yes, op_prepare refuses
  std::set<uint32_t> wrong, hang, dense, unsafe, pack;  // ops with that property
  // Lies of other kinds, and refusals that are not clean; see the README.
  std::set<uint32_t> hidden, boast, moody, other_reason, mistake, scribble, ignore_strides;
  std::set<uint32_t> any_numerics;
  bool fickle = false;
  uint64_t forget = 0;  // bytes that each refusal leaves behind
  std::vector<Failure> failures;
  std::set<uint64_t> late_oom, late_failure;  // numbers of op_enqueue calls
  std::set<uint32_t> absent;                  // slots
  std::string note;
  std::bitset<static_cast<size_t>(Bad::count)> bad;

  bool is(Bad one) const { return bad[static_cast<size_t>(one)]; }
};

// Reads a script; throws Fault(INVALID_ARGUMENT) with the part that makes no sense.
Script parse_script(const std::string& text);

const char* op_name(uint32_t op);
const char* slot_name(uint32_t slot);
const char* dtype_name(uint32_t dtype);

}  // namespace hal::fake

#endif  // ANYHAL_BACKENDS_FAKE_SCRIPT_HH_
