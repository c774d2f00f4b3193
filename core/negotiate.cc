// Hello and reply: versions, flags and slots are checked here, whatever the backend has checked.
// SPDX-License-Identifier: Apache-2.0
#include "core/negotiate.hpp"

#include <algorithm>
#include <cstring>

#include "core/floating.hpp"
#include "core/services.hpp"

namespace hal {

void refuse(const char* stage, anyhal_status status, const Instance& in, const std::string& why) {
  throw Error(status, "backend '" + in.name + "' was not loaded from " + in.path + ": " + why, 0,
              stage);
}

namespace {

std::string version_text(uint32_t v) {
  return std::to_string(v >> 16) + "." + std::to_string(v & 0xffff);
}

template <class... A>
void stub(anyhal_status (*&slot)(A...)) {
  if (!slot) slot = [](A...) -> anyhal_status { return ANYHAL_STATUS_UNSUPPORTED; };
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
  if (theirs->size > kTableMax)
    refuse("fingerprint", ANYHAL_STATUS_ABI_MISMATCH, in,
           "its table says a size of " + std::to_string(theirs->size) +
               " bytes, which no table has; rebuild it with this backend.h");
  if (theirs->flags)
    refuse("fingerprint", ANYHAL_STATUS_ABI_MISMATCH, in,
           "its table sets flags that this core does not know; upgrade anyhal");
  std::memcpy(&in.table, theirs, std::min<size_t>(theirs->size, sizeof(in.table)));
  anyhal_table& t = in.table;
  const auto require = [&](bool present, const char* slot) {
    if (!present)
      refuse("fingerprint", ANYHAL_STATUS_ABI_MISMATCH, in,
             std::string("its table lacks the required slot ") + slot + "; fill it and rebuild");
  };
  require(t.device_list, "device_list");
  require(t.device_open, "device_open");
  require(t.memory_alloc, "memory_alloc");
  require(t.op_query, "op_query");
  require(t.op_prepare, "op_prepare");
  require(t.op_enqueue, "op_enqueue");
  require(t.release, "release");
  if (!in.synchronous()) {
    require(t.queue_create, "queue_create (it is not SYNCHRONOUS)");
    require(t.queue_signal, "queue_signal (it is not SYNCHRONOUS)");
    require(t.host_wait, "host_wait (it is not SYNCHRONOUS)");
  }
  in.has_queue_wait = t.queue_wait;
  in.has_device_query = t.device_query;
  in.has_constant_pack = t.constant_pack;
  in.has_queue_native = t.queue_native;
  in.has_graph_prepare = t.graph_prepare;
  stub(t.queue_create), stub(t.queue_signal), stub(t.queue_wait), stub(t.host_wait);
  stub(t.queue_copy), stub(t.device_query), stub(t.memory_map), stub(t.memory_import);
  stub(t.constant_pack), stub(t.queue_fill), stub(t.queue_notify), stub(t.graph_prepare);
  stub(t.module_load), stub(t.kernel_prepare), stub(t.queue_native), stub(t.native_handle);
  stub(t.notify), stub(t.extension);
}

void check_reply(const Instance& in) {
  const anyhal_reply& r = in.reply;
  if (r.size != sizeof(anyhal_reply))
    refuse("negotiate", ANYHAL_STATUS_ABI_MISMATCH, in,
           "its reply says a size of " + std::to_string(r.size) + " bytes, the frozen record has " +
               std::to_string(sizeof(anyhal_reply)) + "; rebuild it with this backend.h");
  if (r.chosen != ANYHAL_ABI_VERSION)
    refuse("negotiate", ANYHAL_STATUS_ABI_MISMATCH, in,
           "it chose contract " + version_text(r.chosen) + " (it offers " +
               version_text(r.abi_min) + " to " + version_text(r.abi_max) + "), this core loads " +
               version_text(ANYHAL_ABI_VERSION) + " only; upgrade the " +
               (r.abi_max < ANYHAL_ABI_VERSION ? "backend" : "core"));
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
                              ANYHAL_ABI_VERSION,
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
    const std::string why = said(error.record, in);
    refuse(status == ANYHAL_STATUS_ABI_MISMATCH ? "negotiate" : "init", status, in,
           why.empty() ? std::string("it answered ") + status_name(status) : why);
  }
  check_reply(in);
  take_table(in);
}

}  // namespace hal
