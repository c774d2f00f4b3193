// A device whose answers about memory, ops and itself are any bytes. The core refuses them by type
// or keeps them within what it was given: it reads and writes nothing that they do not hold.
// SPDX-License-Identifier: Apache-2.0
#include "core/plan.hpp"

#include <cstdlib>
#include <map>
#include <memory>

#include "anyhal/fingerprints.h"
#include "anyhal/ops.h"
#include "core/device.hpp"
#include "core/negotiate.hpp"
#include "core/services.hpp"
#include "tests/fuzz/source.hpp"

namespace {

fuzz::Source* source;
std::map<uint64_t, std::unique_ptr<uint8_t[]>> blocks;  // by handle
uint64_t next_handle = 1;
anyhal_prepared prepared;
std::unique_ptr<anyhal_pack[]> packs;
std::string key, kernel, library;

anyhal_status answer(anyhal_error* error) {
  const auto status = anyhal_status(source->mostly<int32_t>(ANYHAL_STATUS_OK));
  if (status != ANYHAL_STATUS_OK && error) {
    error->reason = source->take<int32_t>();
    source->fill(error->text);
  }
  // A device that was lost stays lost for every later input.
  return status == ANYHAL_STATUS_DEVICE_LOST ? ANYHAL_STATUS_INTERNAL : status;
}

anyhal_status device_list(anyhal_self*, anyhal_device_info* infos, uint32_t, uint32_t* total,
                          anyhal_error*) {
  static anyhal_memory_kind kind = {sizeof(kind),
                                    ANYHAL_MEMORY_DEVICE_LOCAL | ANYHAL_MEMORY_HOST_VISIBLE |
                                        ANYHAL_MEMORY_COHERENT | ANYHAL_MEMORY_STABLE_ADDRESS,
                                    0,
                                    1,
                                    1,
                                    0,
                                    1,
                                    0,
                                    1u << 30,
                                    0};
  infos[0].kinds = &kind, infos[0].kind_count = 1, *total = 1;
  return ANYHAL_STATUS_OK;
}

anyhal_status device_open(anyhal_self* self, uint64_t, const anyhal_setting*, uint32_t,
                          anyhal_device** device, uint64_t* address_block, anyhal_error*) {
  *device = reinterpret_cast<anyhal_device*>(self), *address_block = 1;
  return ANYHAL_STATUS_OK;
}

anyhal_status memory_alloc(anyhal_device*, const anyhal_memory_request* request,
                           anyhal_memory_block* block, anyhal_error* error) {
  if (request->bytes > 1u << 20) return ANYHAL_STATUS_OUT_OF_MEMORY;
  std::unique_ptr<uint8_t[]>& made = blocks[++next_handle];
  made.reset(new uint8_t[request->bytes]);
  const auto address = reinterpret_cast<uint64_t>(made.get());
  block->memory = source->rarely() ? 0 : next_handle;
  block->bytes = source->mostly<uint64_t>(request->bytes);
  block->flags = source->mostly<uint32_t>(0);
  block->host_address = block->device_address = source->rarely() ? 0 : address;
  return answer(error);
}

anyhal_status op_query(anyhal_device*, const anyhal_op_desc*, anyhal_verdict* v,
                       anyhal_error* error) {
  anyhal_want* wants = v->wants;
  const uint32_t size = v->size;
  *v = source->take<anyhal_verdict>();
  v->size = source->mostly(size), v->wants = source->rarely() ? nullptr : wants;
  for (uint32_t i = 0; wants && i < ANYHAL_WANTS_MAX; ++i) wants[i] = source->take<anyhal_want>();
  return answer(error);
}

anyhal_status op_prepare(anyhal_device*, const anyhal_op_desc*, anyhal_plan** plan,
                         const anyhal_prepared** out, anyhal_error* error) {
  prepared = source->take<anyhal_prepared>();
  prepared.size = source->mostly<uint32_t>(sizeof(prepared));
  // A count without room behind it is a lie that no reader can see, up to the most that there are.
  const uint32_t count = source->mostly<uint32_t>(source->take<uint8_t>() % 3);
  const uint32_t held = count <= hal::kMaxOperands ? count : 0;
  packs.reset(new anyhal_pack[held]);
  key = source->text(32), kernel = source->text(16), library = source->text(16);
  for (uint32_t i = 0; i < held; ++i)
    packs[i] = source->take<anyhal_pack>(), packs[i].key = key.data(),
    packs[i].key_size = uint32_t(key.size());
  prepared.pack_count = count;
  prepared.packs = source->rarely() ? nullptr : packs.get();
  prepared.kernel = source->rarely() ? nullptr : kernel.c_str();
  prepared.library = source->rarely() ? nullptr : library.c_str();
  *plan = source->rarely() ? nullptr : reinterpret_cast<anyhal_plan*>(&prepared);
  *out = source->rarely() ? nullptr : &prepared;
  return answer(error);
}

anyhal_status op_enqueue(anyhal_queue*, anyhal_plan*, const anyhal_call*, anyhal_error* error) {
  return answer(error);
}

anyhal_status release_object(anyhal_self*, uint32_t kind, uint64_t object, uint32_t,
                             anyhal_error* error) {
  if (kind == ANYHAL_OBJECT_MEMORY) blocks.erase(object);
  return answer(error);
}

anyhal_status device_query(anyhal_device*, uint32_t, uint64_t, void* data, uint64_t* bytes,
                           anyhal_error* error) {
  const uint64_t room = data ? *bytes : 0, size = source->mostly<uint64_t>(source->take<uint8_t>());
  for (uint64_t i = 0; i < room && i < size; ++i)
    static_cast<uint8_t*>(data)[i] = source->take<uint8_t>();
  *bytes = size;
  return answer(error);
}

anyhal_status entry(const anyhal_hello*, anyhal_reply* reply, anyhal_error*) {
  static anyhal_table t{};
  t.size = sizeof(t);
  t.device_list = device_list, t.device_open = device_open, t.memory_alloc = memory_alloc;
  t.op_query = op_query, t.op_prepare = op_prepare, t.op_enqueue = op_enqueue;
  t.release = release_object, t.device_query = device_query;
  reply->flags = ANYHAL_REPLY_SYNCHRONOUS;
  reply->chosen = reply->abi_min = reply->abi_max = ANYHAL_ABI_VERSION;
  reply->registry_version = ANYHAL_REGISTRY_VERSION;
  reply->fingerprints = anyhal_fingerprints;
  reply->fingerprint_count = ANYHAL_FINGERPRINT_COUNT;
  reply->table = &t, reply->self = reinterpret_cast<anyhal_self*>(&t);
  return ANYHAL_STATUS_OK;
}

hal::Device& device() {
  static hal::Device* opened = [] {
    hal::set_log_level(4);
    auto* in = new hal::Instance;
    in->name = "fuzz", in->path = "/fuzz.so";
    hal::negotiate(*in, entry);
    in->list_devices();
    return hal::open_device(in, 0, "fuzz:0");
  }();
  return *opened;
}

// Whatever fails must fail with a status and a sentence.
template <class F>
void attempt(F work) {
  try {
    work();
  } catch (const hal::Error& e) {
    if (!*e.what() || e.status == ANYHAL_STATUS_OK) abort();
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  fuzz::Source bytes(data, size);
  source = &bytes;
  hal::Device& d = device();
  hal::OpDesc desc;
  desc.op = ANYHAL_OP_COPY, desc.name = "copy", desc.input_count = 1;
  desc.operands.resize(2);
  for (hal::OperandDesc& o : desc.operands)
    o.dtype = ANYHAL_DTYPE_F32, o.dims = {4, 4}, o.strides = {4, 1};
  attempt([&] { hal::query_op(d, desc); });
  attempt([&] {
    hal::Plan* plan = hal::prepare_op(d, desc);
    if (plan->packs.size() > hal::kMaxOperands) abort();
    hal::release(plan);
  });
  attempt([&] {
    const std::vector<uint8_t> text = d.query(source->take<uint8_t>() % 8);
    if (text.size() > 1u << 24) abort();
  });
  attempt([&] {
    const uint64_t wanted = 1 + source->take<uint16_t>();
    hal::Buffer* buffer = d.memory.alloc(wanted, ANYHAL_PURPOSE_ACTIVATIONS, d.queue);
    if (buffer->bytes < wanted) abort();
    if (buffer->host) std::memset(buffer->host, 1, wanted);
    hal::release(buffer);
  });
  attempt([&] { d.memory.trim(); });
  return 0;
}
