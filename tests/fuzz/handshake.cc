// A backend that answers hello with any bytes, then lists devices with any bytes. The core takes it
// or refuses it with a stage and a sentence; it reads nothing that the answer does not hold.
// SPDX-License-Identifier: Apache-2.0
#include <cstdlib>
#include <memory>

#include "anyhal/fingerprints.h"
#include "anyhal/ops.h"
#include "core/negotiate.hpp"
#include "core/services.hpp"
#include "tests/fuzz/source.hpp"

namespace {

fuzz::Source* source;

// Each with the exact size that the answer states, so that a read past it is seen.
std::unique_ptr<uint8_t[]> table_bytes;
std::vector<std::unique_ptr<anyhal_memory_kind[]>> kinds;
std::unique_ptr<uint64_t[]> prints;
std::string build;

template <class... A>
anyhal_status no(A...) {
  return ANYHAL_STATUS_UNSUPPORTED;
}

anyhal_status answer(anyhal_error* error) {
  const auto status = anyhal_status(source->mostly<int32_t>(ANYHAL_STATUS_OK));
  if (status != ANYHAL_STATUS_OK && error) {
    error->reason = source->take<int32_t>();
    source->fill(error->text);
  }
  return status;
}

anyhal_status device_list(anyhal_self*, anyhal_device_info* infos, uint32_t capacity,
                          uint32_t* total, anyhal_error* error) {
  *total = source->mostly<uint32_t>(source->take<uint8_t>() % 40);
  for (uint32_t i = 0; i < capacity && i < *total; ++i) {
    anyhal_device_info& d = infos[i];
    const anyhal_device_info given = source->take<anyhal_device_info>();
    const uint32_t size = d.size;
    d = given, d.size = source->mostly(size);
    // More than it has room for is a lie that no reader can see; the core takes at most 64.
    const uint32_t count = source->mostly<uint32_t>(1);
    kinds.emplace_back(new anyhal_memory_kind[count <= 64 ? count : 0]);
    for (uint32_t k = 0; count <= 64 && k < count; ++k)
      kinds.back()[k] = source->take<anyhal_memory_kind>(),
      kinds.back()[k].size = sizeof(anyhal_memory_kind);
    d.kinds = source->rarely() ? nullptr : kinds.back().get(), d.kind_count = count;
  }
  return answer(error);
}

const anyhal_table* make_table() {
  if (source->rarely()) return nullptr;
  const uint32_t size = source->mostly<uint32_t>(sizeof(anyhal_table));
  const size_t held = size < 8 ? 8 : size > 1u << 17 ? 1u << 17 : size;
  table_bytes.reset(new uint8_t[held]());
  anyhal_table t{};
  t.size = size, t.flags = source->mostly<uint32_t>(0);
  // A slot is there or is not: what a pointer leads to cannot be looked at.
  const uint32_t absent = source->mostly<uint32_t>(0);
  uint32_t slot = 0;
  const auto put = [&]<class... A>(anyhal_status (*& to)(A...)) {
    if (!(absent >> slot++ & 1)) to = no<A...>;
  };
  put(t.device_list), put(t.device_open), put(t.memory_alloc), put(t.op_query);
  put(t.op_prepare), put(t.op_enqueue), put(t.release), put(t.queue_create);
  put(t.queue_signal), put(t.queue_wait), put(t.host_wait), put(t.queue_copy);
  if (t.device_list) t.device_list = device_list;
  std::memcpy(table_bytes.get(), &t, held < sizeof(t) ? held : sizeof(t));
  return reinterpret_cast<const anyhal_table*>(table_bytes.get());
}

void give_fingerprints(anyhal_reply* reply) {
  const uint32_t count = source->mostly<uint32_t>(ANYHAL_FINGERPRINT_COUNT);
  // As with tables, more words than there are would be a lie that nobody sees.
  const uint32_t held = count < 1u << 16 ? count : 0;
  prints.reset(new uint64_t[held]());
  for (uint32_t i = 0; i < held && i < ANYHAL_FINGERPRINT_COUNT; ++i)
    prints[i] = anyhal_fingerprints[i];
  for (uint32_t changes = source->mostly<uint32_t>(0) % 8; held && changes; --changes)
    prints[source->take<uint16_t>() % held] = source->take<uint64_t>();
  reply->fingerprints = held && !source->rarely() ? prints.get() : nullptr;
  reply->fingerprint_count = count;
}

anyhal_status entry(const anyhal_hello*, anyhal_reply* reply, anyhal_error* error) {
  const anyhal_status status = answer(error);
  reply->size = source->mostly(reply->size);
  reply->flags = source->mostly<uint32_t>(ANYHAL_REPLY_SYNCHRONOUS);
  reply->chosen = source->mostly<uint32_t>(ANYHAL_ABI_VERSION);
  reply->abi_min = source->mostly<uint32_t>(ANYHAL_ABI_VERSION);
  reply->abi_max = source->mostly<uint32_t>(ANYHAL_ABI_VERSION);
  reply->registry_version = source->mostly<uint32_t>(ANYHAL_REGISTRY_VERSION);
  reply->table = make_table();
  build = source->text(64);
  reply->build_id = source->rarely() ? nullptr : build.c_str();
  reply->reserved = source->mostly<uint32_t>(0);
  give_fingerprints(reply);
  return status;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  fuzz::Source bytes(data, size);
  source = &bytes;
  hal::set_log_level(4);
  hal::Instance in;
  in.name = "fuzz", in.path = "/fuzz.so";
  try {
    hal::negotiate(in, entry);
    for (const hal::ListedDevice& d : in.list_devices())
      if (d.kinds.empty() || std::memchr(d.info.name, 0, sizeof(d.info.name)) == nullptr) abort();
  } catch (const hal::Error& e) {
    if (!*e.what() || e.status == ANYHAL_STATUS_OK) abort();
  }
  kinds.clear();
  return 0;
}
