// The core's side of loading, built from the sources of this tree and a header of any age: loads
// each library named and prints, a line each, "FILE key=value ...".
// SPDX-License-Identifier: Apache-2.0
#include "anyhal/ops.h"

#define give_services give_services_of_this_tree
#include "core/services.cc"
#undef give_services

// A later core serves more; here are the services that the derived headers add.
namespace hal {
inline void give_services(Instance& in) {
  give_services_of_this_tree(in);
#if ANYHAL_ABI_VERSION >= ANYHAL_ABI(1, 1)
  in.services.clock_ns = [](void*) -> uint64_t { return 1234; };
#endif
}
}  // namespace hal

#include "core/answers.cc"
#include "core/error.cc"
#include "core/executor.cc"
#include "core/fingerprints.cc"
#include "core/loader.cc"
#include "core/negotiate.cc"
#include "core/records.hpp"

namespace {

using namespace hal;

template <class T>
void say(const char* key, const T& value) {
  if constexpr (std::is_integral_v<T>)
    std::printf(" %s=%llu", key, static_cast<unsigned long long>(value));
  else
    std::printf(" %s=%s", key, value);
}

void devices(Instance& in) {
  const auto listed = in.list_devices();
  for (const ListedDevice& d : listed) {
    say("name", d.info.name + sizeof("aged ") - 1);
    say("hz", d.info.timestamp_hz);
    say("heap", d.kinds.at(1).heap_bytes);
#if ANYHAL_ABI_VERSION >= ANYHAL_ABI(1, 1)
    say("cores", d.info.core_count);
    say("bandwidth", d.kinds.at(1).bandwidth);
#endif
  }
}

void verdict_of(Instance& in, const char* key, const anyhal_op_desc& op) {
  anyhal_verdict v{};
  v.size = sizeof(v);
  ErrorRecord error;
  check(in.table.op_query(nullptr, &op, &v, error), error, "asking", in);
  std::printf(" %s=%llu/%llu/%llu/%llu", key, (unsigned long long)v.workspace_bytes,
              (unsigned long long)v.hidden_bytes, (unsigned long long)v.baked_bytes,
              (unsigned long long)v.cost_ns);
#if ANYHAL_ABI_VERSION >= ANYHAL_ABI(1, 1)
  say("energy", v.energy);
#endif
#if ANYHAL_ABI_VERSION >= ANYHAL_ABI(1, 2)
  say("heat", v.heat);
#endif
}

// As the core asks, then with the newer words filled.
void questions(Instance& in) {
  OpDesc desc;
  desc.op = ANYHAL_OP_COPY, desc.input_count = 2;
  for (const uint32_t dtype : {ANYHAL_DTYPE_F32, ANYHAL_DTYPE_F16, ANYHAL_DTYPE_I64})
    desc.operands.emplace_back().dtype = dtype;
  Records records(in, 0, desc);
  verdict_of(in, "asked", records.op);
#if ANYHAL_ABI_VERSION >= ANYHAL_ABI(1, 1)
  records.op.deadline_ns = 77;
  for (anyhal_tensor_desc& t : records.operands) t.grain = 5 + t.dtype;
  std::vector<uint64_t> room;
  records.op.operands = laid_out(records.operands, in.sizes.tensor_desc, room);
  verdict_of(in, "filled", records.op);
#endif
}

void rest(Instance& in) {
  anyhal_plan* plan = nullptr;
  const anyhal_prepared* prepared = nullptr;
  anyhal_op_desc op{};
  op.size = sizeof(op);
  ErrorRecord error;
  check(in.table.op_prepare(nullptr, &op, &plan, &prepared, error), error, "preparing", in);
  const auto known = known_part<anyhal_prepared>(prepared, prepared->size);
  say("kernel", known.kernel);
  anyhal_memory_request request{};
  request.size = sizeof(request), request.bytes = 8;
  anyhal_memory_block block{};
  block.size = sizeof(block);
  check(in.table.memory_alloc(nullptr, &request, &block, error), error, "allocating", in);
  say("bytes", block.bytes);
#if ANYHAL_ABI_VERSION >= ANYHAL_ABI(1, 1)
  say("code", known.code_bytes);
  say("physical", block.physical);
  uint64_t number = 0;
  const auto slot = [&](const char* key, auto function) {
    number = 0;
    const anyhal_status status = function(nullptr, &number, error);
    if (status == ANYHAL_STATUS_OK)
      say(key, number);
    else
      say(key, status_name(status));
  };
  slot("slot26", in.table.device_rest);
#if ANYHAL_ABI_VERSION >= ANYHAL_ABI(1, 2)
  slot("slot27", in.table.queue_rest);
#endif
#if ANYHAL_ABI_VERSION >= ANYHAL_ABI(2, 0)
  slot("slot28", in.table.device_wake);
#endif
#endif
}

}  // namespace

int main(int count, char** files) {
  for (int i = 1; i < count; ++i) {
    std::printf("%s", files[i]);
    try {
      Instance* in = load_instance(files[i], "aged", {});
      say("chosen", version_text(in->reply.chosen).c_str());
      devices(*in);
      questions(*in);
      rest(*in);
    } catch (const Error& error) {
      std::printf(" stage=%s status=%s code=%s text=%s", error.stage.c_str(),
                  status_name(error.status), *error.code ? error.code : "-", error.what());
    }
    std::printf("\n");
  }
  return 0;
}
