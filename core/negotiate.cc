// Hello and reply: versions, flags and slots are checked here, whatever the backend has checked.
// SPDX-License-Identifier: Apache-2.0
#include "core/negotiate.hpp"

#include <algorithm>
#include <cstring>

#include "anyhal/fingerprints.h"
#include "core/fingerprints.hpp"
#include "core/floating.hpp"
#include "core/services.hpp"

namespace hal {

void refuse(const char* stage, anyhal_status status, const Instance& in, const std::string& why,
            const char* code) {
  throw Error(status, "backend '" + in.name + "' was not loaded from " + in.path + ": " + why, 0,
              stage, code);
}

std::string version_text(uint32_t v) {
  return std::to_string(v >> 16) + "." + std::to_string(v & 0xffff);
}

namespace {

// A draft loads itself; from 1.0 on its own major and the one before. Numbers of a major go on
// where those of the one before end, so that one range says both.
constexpr uint32_t kOldest = ANYHAL_ABI_MAJOR == 0   ? ANYHAL_ABI_VERSION
                             : ANYHAL_ABI_MAJOR == 1 ? ANYHAL_ABI(1, 0)
                                                     : ANYHAL_ABI(ANYHAL_ABI_MAJOR - 1, 0);

std::string range_text(uint32_t from, uint32_t to) {
  return from == to ? version_text(from) + " only" : version_text(from) + " to " + version_text(to);
}

// Both ranges, and which side to upgrade.
std::string ranges_of(const anyhal_reply& r) {
  return "it offers " + range_text(r.abi_min, r.abi_max) + ", this core loads " +
         range_text(kOldest, ANYHAL_ABI_VERSION) + "; upgrade the " +
         (r.abi_max < kOldest ? "backend" : "core");
}

enum Need { NO, UNLESS_SYNCHRONOUS, YES };

// A slot that is not there answers UNSUPPORTED, so that nothing has to ask; one that is required
// since a version that the backend has is named.
template <class... A>
void take_slot(const Instance& in, anyhal_status (*&slot)(A...), const char* name, Need need,
               uint32_t since) {
  if (slot) return;
  const bool wanted = need == YES || (need == UNLESS_SYNCHRONOUS && !in.synchronous());
  if (wanted && since <= in.reply.abi_max)
    refuse("fingerprint", ANYHAL_STATUS_ABI_MISMATCH, in,
           std::string("its table lacks the required slot ") + name +
               (need == UNLESS_SYNCHRONOUS ? " (it is not SYNCHRONOUS)" : "") +
               "; fill it and rebuild",
           "slot_missing");
  slot = [](A...) -> anyhal_status { return ANYHAL_STATUS_UNSUPPORTED; };
}

void take_table(Instance& in) {
  const anyhal_table* theirs = in.reply.table;
  if (!theirs) refuse("fingerprint", ANYHAL_STATUS_ABI_MISMATCH, in, "its reply has no table");
  if (theirs->size < offsetof(anyhal_table, queue_create))
    refuse("fingerprint", ANYHAL_STATUS_ABI_MISMATCH, in,
           "its table of " + std::to_string(theirs->size) +
               " bytes ends before the required slots " + "(" +
               std::to_string(offsetof(anyhal_table, queue_create)) +
               " bytes); rebuild it with this backend.h");
  // Tables grow by slots: no header will ever have this many, so the word is garbage.
  constexpr uint32_t kTableMax = 1u << 16;
  if (theirs->size > kTableMax || theirs->size % sizeof(void*))
    refuse("fingerprint", ANYHAL_STATUS_ABI_MISMATCH, in,
           "its table says a size of " + std::to_string(theirs->size) +
               " bytes, which no table has; rebuild it with this backend.h");
  if (theirs->flags)
    refuse("fingerprint", ANYHAL_STATUS_ABI_MISMATCH, in,
           "its table sets flags that this core does not know; upgrade anyhal");
  // No further than the fingerprints say what lies there.
  const uint32_t stated = std::min(theirs->size, in.sizes.table);
  std::memcpy(&in.table, theirs, std::min<size_t>(stated, sizeof(in.table)));
  anyhal_table& t = in.table;
  in.has_queue_wait = t.queue_wait;
  in.has_device_query = t.device_query;
  in.has_constant_pack = t.constant_pack;
  in.has_queue_native = t.queue_native;
  in.has_graph_prepare = t.graph_prepare;
#define TAKE(slot, need, since) take_slot(in, t.slot, #slot, need, since);
  ANYHAL_SLOT_LIST(TAKE)
#undef TAKE
}

void check_reply(const Instance& in) {
  const anyhal_reply& r = in.reply;
  if (r.size != sizeof(anyhal_reply))
    refuse("negotiate", ANYHAL_STATUS_ABI_MISMATCH, in,
           "its reply says a size of " + std::to_string(r.size) + " bytes, the frozen record has " +
               std::to_string(sizeof(anyhal_reply)) + "; rebuild it with this backend.h");
  if (r.chosen < kOldest || r.chosen > ANYHAL_ABI_VERSION)
    refuse("negotiate", ANYHAL_STATUS_ABI_MISMATCH, in,
           "it chose contract " + version_text(r.chosen) + "; " + ranges_of(r));
  if (r.chosen < r.abi_min || r.chosen > r.abi_max)
    refuse("negotiate", ANYHAL_STATUS_ABI_MISMATCH, in,
           "it chose contract " + version_text(r.chosen) + " outside its own range " +
               version_text(r.abi_min) + " to " + version_text(r.abi_max) +
               "; report this to the backend's vendor");
  const uint32_t known =
      ANYHAL_REPLY_SYNCHRONOUS | ANYHAL_REPLY_HIDDEN_MEMORY | ANYHAL_REPLY_FAULT_ABORTS;
  if ((r.flags & ~known) || r.reserved)
    refuse("negotiate", ANYHAL_STATUS_ABI_MISMATCH, in,
           "its reply sets flags or reserved words that this core does not know; upgrade anyhal");
  if (r.registry_version == 0)
    refuse("negotiate", ANYHAL_STATUS_ABI_MISMATCH, in, "its reply names no registry version");
}

}  // namespace

void negotiate(Instance& in, anyhal_backend_main_fn entry) {
  give_services(in);
  in.asked.resize(in.settings.size());
  for (const auto& [key, value] : in.settings) in.given.push_back({key.c_str(), value.c_str()});
  const anyhal_hello hello = {sizeof(anyhal_hello),
                              0,
                              kOldest,
                              ANYHAL_ABI_VERSION,
                              &in.services,
                              in.name.c_str(),
                              in.given.data(),
                              uint32_t(in.given.size()),
                              0};
  in.reply.size = sizeof(anyhal_reply);
  ErrorRecord error;
  FloatingGuard floating;
  const anyhal_status status = entry(&hello, &in.reply, error);
  in.changed_floating |= floating.restore();
  if (status != ANYHAL_STATUS_OK) {
    std::string why = said(error.record, in);
    if (why.empty()) why = std::string("it answered ") + status_name(status);
    const bool versions = status == ANYHAL_STATUS_ABI_MISMATCH;
    if (versions && in.reply.abi_max && why.find("upgrade") == std::string::npos)
      why += "; " + ranges_of(in.reply);
    refuse(versions ? "negotiate" : "init", status, in, why);
  }
  check_reply(in);
  compare_fingerprints(in);
  take_table(in);
}

}  // namespace hal
