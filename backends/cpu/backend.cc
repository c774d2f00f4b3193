// The cpu backend: this computer's processor, code chosen by instruction set, oneDNN where present.
// SPDX-License-Identifier: Apache-2.0
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <memory>
#include <vector>

#include "anyhal/sdk/guard.hpp"
#include "anyhal/sdk/host_kernel.hpp"
#include "anyhal/sdk/kernel_limits.h"
#include "anyhal/sdk/view.hpp"
#include "conditions.h"
#include "isa.h"
#include "onednn.h"

using hal::cpu::Isa;
using hal::cpu::OneDnnLibrary;

struct anyhal_self {
  const anyhal_services* services = nullptr;
  Isa isa = Isa::kBaseline;
  bool int8_dots = false;
  const hal::cpu::KernelSet* kernels = nullptr;
  std::unique_ptr<OneDnnLibrary> onednn;
  anyhal_memory_kind kind = {};
  char arch[32] = {};
};

struct anyhal_device {
  anyhal_self* self;
};

struct anyhal_module {
  const anyhal_services* services;
  hal::sdk::HostModule code;
};

struct anyhal_plan {
  hal::cpu::Plan plan = {};
  std::vector<hal::cpu::Tensor> tensors;
  uint64_t inline_mask = 0;  // operands whose value stands in the call's ref
  anyhal_pack pack = {};
  anyhal_prepared prepared = {};

  anyhal_plan() = default;
  anyhal_plan(const anyhal_plan&) = delete;
  anyhal_plan& operator=(const anyhal_plan&) = delete;
  ~anyhal_plan() {
    if (plan.end_library_state != nullptr) plan.end_library_state(plan.library_state);
  }
};

namespace hal::cpu {

anyhal_status fail(anyhal_error* error, anyhal_status status, int32_t reason, const char* format,
                   ...) {
  va_list arguments;
  va_start(arguments, format);
  sdk::fail_v(error, status, reason, format, arguments);
  va_end(arguments);
  return status;
}

namespace {

constexpr uint32_t kOperandsMax = 64;
constexpr uint64_t kPageBytes = 4096;
constexpr uint64_t kHugeBytes = 2u << 20;

Prepare prepare_of(const KernelSet& k, uint32_t op) {
  switch (op) {
    case ANYHAL_OP_MATMUL_EPILOGUE:
      return k.matmul;
#define HAL_CPU_CASE(name, op_name) \
  case ANYHAL_OP_##op_name:         \
    return k.name;
      HAL_CPU_KERNELS(HAL_CPU_CASE)
#undef HAL_CPU_CASE
    default:
      return nullptr;
  }
}

Tensor tensor_of(const anyhal_tensor_desc& t) {
  Tensor tensor = {};
  tensor.dtype = t.dtype;
  tensor.flags = t.flags;
  tensor.alias_of = t.alias_of;
  if (sdk::absent(t)) return tensor;
  tensor.rank = t.rank;
  memcpy(tensor.dims, t.dims, t.rank * sizeof(int64_t));
  memcpy(tensor.strides, t.strides, t.rank * sizeof(int64_t));
  return tensor;
}

// Fills a plan from a description that a row has accepted; `tensors` must live as long as it.
// Without `onednn` this is cheap and allocates nothing, so that op_query asks the same code.
bool make_plan(const anyhal_self& self, const anyhal_op_desc& desc, OneDnnLibrary* onednn,
               Tensor* tensors, Plan* plan) {
  for (uint32_t i = 0; i < desc.operand_count; ++i) tensors[i] = tensor_of(sdk::operand(desc, i));
  plan->operands = tensors;
  plan->operand_count = desc.operand_count;
  plan->input_count = desc.input_count;
  plan->team = {self.services, self.services->thread_count(self.services->context)};
  plan->onednn = onednn;
  plan->library = "";
  plan->accumulate = desc.numerics[ANYHAL_NUMERICS_ACCUMULATE];
  plan->accumulated = ANYHAL_ACCUMULATE_STRICT;
  plan->ordered = desc.numerics[ANYHAL_NUMERICS_DETERMINISM] >= ANYHAL_DETERMINISM_BATCH_INVARIANT;
  plan->dots_bf16 = self.isa >= Isa::kAvx512Bf16;
  plan->dots_int8 = self.int8_dots;
  size_t bytes = desc.attributes_size;
  if (bytes > sizeof(plan->attributes)) bytes = sizeof(plan->attributes);
  if (desc.attributes != nullptr) memcpy(plan->attributes, desc.attributes, bytes);
  return prepare_of(*self.kernels, desc.op)(*plan);
}

sdk::Answer no_kernel() {
  return sdk::no(ANYHAL_REASON_DTYPE, "no kernel for this function and dtype; cast the operands");
}

// Whether the plan is what was asked for. Shorter factors are promised only where they are used, so
// that the caller, who asks again for strict numbers, knows what it gets.
sdk::Answer judge(bool made, const Plan& plan) {
  if (!made) return no_kernel();
  if (plan.accumulated == plan.accumulate) return sdk::yes();
  return sdk::no(ANYHAL_REASON_NUMERICS,
                 "strict products are as fast for these operands, or the processor has no others; "
                 "ask for strict numerics");
}

anyhal_status device_list(anyhal_self* self, anyhal_device_info* infos, uint32_t capacity,
                          uint32_t* out_total, anyhal_error*) {
  *out_total = 1;
  if (capacity == 0) return ANYHAL_STATUS_OK;
  uint32_t size = infos[0].size;
  anyhal_device_info info = {};
  info.flags = ANYHAL_DEVICE_UNIFIED;
  processor_name(info.name, sizeof(info.name));
  snprintf(info.arch, sizeof(info.arch), "%s", self->arch);
  info.kinds = &self->kind;
  info.kind_count = 1;
  info.preferred_alignment = 64;
  info.rank_max = kRankMax;
  info.recovery = ANYHAL_RECOVERY_NONE;
  info.tensor_bytes_max = self->kind.heap_bytes;
  if (size > sizeof(info)) size = sizeof(info);
  info.size = size;
  memcpy(infos, &info, size);
  return ANYHAL_STATUS_OK;
}

anyhal_status device_open(anyhal_self* self, uint64_t id, const anyhal_setting*, uint32_t,
                          anyhal_device** out_device, uint64_t* out_address_block,
                          anyhal_error* error) {
  if (id != 0)
    return fail(error, ANYHAL_STATUS_NOT_FOUND, 0,
                "there is no device %llu; the processor is device 0",
                static_cast<unsigned long long>(id));
  *out_device = new (std::nothrow) anyhal_device{self};
  if (*out_device == nullptr)
    return fail(error, ANYHAL_STATUS_OUT_OF_MEMORY, 0,
                "the host is out of memory; free arrays and try again");
  *out_address_block = sdk::kAddressBlock;
  return ANYHAL_STATUS_OK;
}

anyhal_status memory_alloc(anyhal_device*, const anyhal_memory_request* request,
                           anyhal_memory_block* out_block, anyhal_error* error) {
  if (request->kind != 0 || request->flags != 0)
    return fail(error, ANYHAL_STATUS_UNSUPPORTED, ANYHAL_REASON_MEMORY_KIND,
                "memory kind %u with flags %u is unknown; use kind 0", request->kind,
                request->flags);
  uint64_t alignment = request->alignment < 64 ? 64 : request->alignment;
  if (request->bytes >= kHugeBytes && alignment < kHugeBytes) alignment = kHugeBytes;
  void* p = nullptr;
  uint64_t bytes = (request->bytes + alignment - 1) & ~(alignment - 1);
  if (bytes < request->bytes || posix_memalign(&p, alignment, bytes == 0 ? alignment : bytes) != 0)
    return fail(error, ANYHAL_STATUS_OUT_OF_MEMORY, 0,
                "%llu bytes cannot be had from the system; free arrays and "
                "try again",
                static_cast<unsigned long long>(request->bytes));
  // Weights are walked from end to end: large pages spare the page walks.
  if (bytes >= kHugeBytes) madvise(p, bytes, MADV_HUGEPAGE);
  out_block->memory = reinterpret_cast<uint64_t>(p);
  out_block->bytes = bytes;
  out_block->device_address = out_block->host_address = out_block->memory;
  return ANYHAL_STATUS_OK;
}

anyhal_status op_query(anyhal_device* device, const anyhal_op_desc* desc, anyhal_verdict* verdict,
                       anyhal_error* error) {
  anyhal_status status = kOps.query(desc, verdict, error);
  if (status != ANYHAL_STATUS_OK || verdict->support != ANYHAL_SUPPORT_YES) return status;
  Plan plan = {};
  Tensor tensors[kOperandsMax];
  bool made = make_plan(*device->self, *desc, nullptr, tensors, &plan);
  if (sdk::Answer answer = judge(made, plan); !answer.yes()) {
    verdict->support = ANYHAL_SUPPORT_NO;
    verdict->flags = 0;
    verdict->reason = answer.reason;
    verdict->reason_operand = 0;
    fail(error, ANYHAL_STATUS_OK, verdict->reason, "%s", answer.why);
    return ANYHAL_STATUS_OK;
  }
  verdict->workspace_bytes = plan.workspace_bytes;
  if (desc->workspace_limit != 0 && plan.workspace_bytes > desc->workspace_limit) {
    verdict->support = ANYHAL_SUPPORT_NO;
    verdict->reason = ANYHAL_REASON_WORKSPACE;
  }
  return ANYHAL_STATUS_OK;
}

void fill_prepared(anyhal_plan* plan) {
  const Plan& p = plan->plan;
  plan->prepared.size = sizeof(plan->prepared);
  plan->prepared.flags = ANYHAL_PREPARED_CAPTURE_SAFE;
  plan->prepared.workspace_bytes = p.workspace_bytes;
  plan->prepared.workspace_alignment = 64;
  plan->prepared.hidden_bytes = p.hidden_bytes;
  plan->prepared.kernel = p.kernel;
  plan->prepared.library = p.library;
  if (p.pack == nullptr) return;
  plan->pack.operand = p.pack_operand;
  plan->pack.alignment = 64;
  plan->pack.key_size = static_cast<uint32_t>(strlen(p.pack_key));
  plan->pack.bytes = p.pack_bytes;
  plan->pack.key = p.pack_key;
  plan->prepared.pack_count = 1;
  plan->prepared.packs = &plan->pack;
}

anyhal_status op_prepare(anyhal_device* device, const anyhal_op_desc* desc, anyhal_plan** out_plan,
                         const anyhal_prepared** out_prepared, anyhal_error* error) {
  return sdk::guard(error, [&] {
    anyhal_verdict verdict = {};
    verdict.size = sizeof(verdict);
    anyhal_status status = kOps.query(desc, &verdict, error);
    if (status != ANYHAL_STATUS_OK) return status;
    if (verdict.support != ANYHAL_SUPPORT_YES) return ANYHAL_STATUS_UNSUPPORTED;
    auto plan = std::make_unique<anyhal_plan>();
    plan->tensors.resize(desc->operand_count);
    const anyhal_self& self = *device->self;
    bool made = make_plan(self, *desc, self.onednn.get(), plan->tensors.data(), &plan->plan);
    if (sdk::Answer answer = judge(made, plan->plan); !answer.yes())
      return fail(error, ANYHAL_STATUS_UNSUPPORTED, answer.reason, "%s", answer.why);
    if (desc->workspace_limit != 0 && plan->plan.workspace_bytes > desc->workspace_limit)
      return fail(error, ANYHAL_STATUS_UNSUPPORTED, ANYHAL_REASON_WORKSPACE,
                  "%llu bytes of workspace are more than the call allows; raise the limit",
                  static_cast<unsigned long long>(plan->plan.workspace_bytes));
    for (uint32_t i = 0; i < desc->operand_count; ++i)
      if ((plan->tensors[i].flags & ANYHAL_TENSOR_INLINE) != 0)
        plan->inline_mask |= uint64_t{1} << i;
    fill_prepared(plan.get());
    *out_prepared = &plan->prepared;
    *out_plan = plan.release();
    return ANYHAL_STATUS_OK;
  });
}

anyhal_status op_enqueue(anyhal_queue*, anyhal_plan* plan, const anyhal_call* call,
                         anyhal_error* error) {
  const Plan& p = plan->plan;
  uint32_t count = p.operand_count;
  if (call->operand_count != count)
    return fail(error, ANYHAL_STATUS_INVALID_ARGUMENT, 0,
                "the call has %u operands and the plan %u; prepare a plan for "
                "this call",
                call->operand_count, count);
  char* data[kOperandsMax];
  for (uint32_t i = 0; i < count; ++i) data[i] = sdk::host_address(call->operands[i]);
  if (plan->inline_mask != 0) {
    for (uint32_t i = 0; i < count; ++i)
      if ((plan->inline_mask >> i & 1) != 0)
        data[i] = reinterpret_cast<char*>(const_cast<anyhal_ref*>(&call->operands[i]));
  }
  return p.run(p, data, sdk::host_address(call->workspace), error);
}

anyhal_status release(anyhal_self*, uint32_t kind, uint64_t object, uint32_t flags,
                      anyhal_error* error) {
  switch (kind) {
    case ANYHAL_OBJECT_DEVICE:
      delete reinterpret_cast<anyhal_device*>(object);
      break;
    case ANYHAL_OBJECT_MEMORY:
      free(reinterpret_cast<void*>(object));
      break;
    case ANYHAL_OBJECT_PLAN: {
      anyhal_plan* plan = reinterpret_cast<anyhal_plan*>(object);
      // In a forked child the library's objects are not touched.
      if ((flags & ANYHAL_RELEASE_ABANDON) != 0) plan->plan.end_library_state = nullptr;
      delete plan;
      break;
    }
    case ANYHAL_OBJECT_MODULE:
      delete reinterpret_cast<anyhal_module*>(object);
      break;
    default:
      return fail(error, ANYHAL_STATUS_INVALID_ARGUMENT, 0,
                  "object kind %u is never made here; pass what this backend made", kind);
  }
  return ANYHAL_STATUS_OK;
}

// Writes an answer of device_query, or says how large it is.
anyhal_status answer(const void* from, uint64_t size, void* value, uint64_t* bytes,
                     anyhal_error* error) {
  uint64_t room = *bytes;
  *bytes = size;
  if (value == nullptr || room < size)
    return fail(error, ANYHAL_STATUS_INVALID_ARGUMENT, 0,
                "the answer takes %llu bytes; ask again with that many",
                static_cast<unsigned long long>(size));
  memcpy(value, from, size);
  return ANYHAL_STATUS_OK;
}

anyhal_status device_query(anyhal_device* device, uint32_t key, uint64_t, void* value,
                           uint64_t* bytes, anyhal_error* error) {
  switch (key) {
    case ANYHAL_QUERY_FREE_BYTES: {
      uint64_t free_bytes = static_cast<uint64_t>(sysconf(_SC_AVPHYS_PAGES)) *
                            static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
      return answer(&free_bytes, sizeof(free_bytes), value, bytes, error);
    }
    case ANYHAL_QUERY_HEALTH: {
      uint32_t health = ANYHAL_STATUS_OK;
      return answer(&health, sizeof(health), value, bytes, error);
    }
    case ANYHAL_QUERY_CAPABILITIES:
      return kOps.capabilities(value, bytes, error);
    case ANYHAL_QUERY_NOTES: {
      char notes[512];
      const char* library = device->self->onednn->note();
      snprintf(notes, sizeof(notes), "code for %s; %s", isa_name(device->self->isa), library);
      return answer(notes, strlen(notes) + 1, value, bytes, error);
    }
    default:
      return fail(error, ANYHAL_STATUS_UNSUPPORTED, 0, "key %u is unknown here; ask for another",
                  key);
  }
}

anyhal_status constant_pack(anyhal_queue*, anyhal_plan* plan, uint32_t operand, anyhal_ref source,
                            anyhal_ref destination, anyhal_error* error) {
  const Plan& p = plan->plan;
  if (p.pack == nullptr || operand != p.pack_operand)
    return fail(error, ANYHAL_STATUS_INVALID_ARGUMENT, 0,
                "the plan packs no operand %u; pack what op_prepare asked for", operand);
  p.pack(p, sdk::host_address(source), sdk::host_address(destination));
  return ANYHAL_STATUS_OK;
}

anyhal_status module_load(anyhal_device* device, const anyhal_payload* payload,
                          anyhal_module** out_module, anyhal_error* error) {
  return sdk::guard(error, [&] {
    *out_module = new anyhal_module{device->self->services, sdk::load_host_module(*payload)};
    return ANYHAL_STATUS_OK;
  });
}

// What a plan of a user's kernel keeps.
struct UserKernel {
  const anyhal_services* services;
  sdk::HostKernel kernel;

  static anyhal_status run(const Plan& plan, char* const* data, char*, anyhal_error* error) {
    const auto& user = *static_cast<const UserKernel*>(plan.library_state);
    return user.kernel.run(*user.services, data, error);
  }
  static void end(void* self) { delete static_cast<UserKernel*>(self); }
};

anyhal_status kernel_prepare(anyhal_module* module, const char* entry,
                             const anyhal_signature* signature, anyhal_plan** out_plan,
                             const anyhal_prepared** out_prepared, anyhal_error* error) {
  return sdk::guard(error, [&] {
    if (signature->operand_count > kOperandsMax)
      return fail(error, ANYHAL_STATUS_INVALID_ARGUMENT, 0, "a kernel has at most %u operands",
                  kOperandsMax);
    auto plan = std::make_unique<anyhal_plan>();
    auto* user = new UserKernel{module->services, {module->code, entry, *signature}};
    plan->plan.library_state = user;
    plan->plan.end_library_state = UserKernel::end;
    plan->plan.run = UserKernel::run;
    plan->plan.kernel = user->kernel.name();
    plan->plan.library = "";
    plan->plan.operand_count = signature->operand_count;
    for (uint32_t i = 0; i < signature->parameter_count; ++i)
      plan->inline_mask |= uint64_t{1} << (signature->operand_count - 1 - i);
    fill_prepared(plan.get());
    *out_prepared = &plan->prepared;
    *out_plan = plan.release();
    return ANYHAL_STATUS_OK;
  });
}

anyhal_status kernel_limits(anyhal_device* device, anyhal_kernel_limits* out, anyhal_error*) {
  const anyhal_services& services = *device->self->services;
  anyhal_kernel_limits limits = {};
  limits.units = services.thread_count(services.context);
  limits.group_items = 1;
  snprintf(limits.features, sizeof(limits.features), "%s", device->self->arch);
  sdk::write_record(out, limits);
  return ANYHAL_STATUS_OK;
}

const anyhal_kernel_limits_table kKernelLimits = {sizeof(kKernelLimits),
                                                  ANYHAL_KERNEL_LIMITS_VERSION, kernel_limits};

anyhal_status extension(anyhal_self*, const char* name, uint32_t since, const void** out_table,
                        anyhal_error* error) {
  if (strcmp(name, ANYHAL_EXTENSION_KERNEL_LIMITS) != 0 || since > kKernelLimits.version)
    return fail(error, ANYHAL_STATUS_NOT_FOUND, ANYHAL_REASON_OP,
                "it has none such; there is: " ANYHAL_EXTENSION_KERNEL_LIMITS " 1");
  *out_table = &kKernelLimits;
  return ANYHAL_STATUS_OK;
}

anyhal_status notify(anyhal_self*, uint32_t, uint64_t, uint64_t* out_bytes, anyhal_error*) {
  if (out_bytes != nullptr) *out_bytes = 0;  // no state of this backend needs an event
  return ANYHAL_STATUS_OK;
}

anyhal_table make_table() {
  anyhal_table t = {};
  t.size = sizeof(t);
  t.device_list = device_list;
  t.device_open = device_open;
  t.memory_alloc = memory_alloc;
  t.op_query = op_query;
  t.op_prepare = op_prepare;
  t.op_enqueue = op_enqueue;
  t.release = release;
  t.device_query = device_query;
  t.constant_pack = constant_pack;
  t.module_load = module_load;
  t.kernel_prepare = kernel_prepare;
  t.notify = notify;
  t.extension = extension;
  return t;
}

const anyhal_table kSlots = make_table();

const char* setting(const anyhal_hello& hello, const char* name) {
  return hello.services->setting(hello.services->context, name);
}

anyhal_status start(const anyhal_hello& hello, anyhal_reply* reply, anyhal_error* error) {
  auto self = std::make_unique<anyhal_self>();
  self->services = hello.services;
  const char* isa = setting(hello, "isa");
  if (!cap_isa(isa, detect_isa(), &self->isa))
    return fail(error, ANYHAL_STATUS_INVALID_ARGUMENT, 0,
                "the setting isa is \"%.40s\", which is no level; use baseline, avx2, avx512 or "
                "avx512_bf16",
                isa);
  self->kernels = &kernels_of(self->isa);
  self->int8_dots = has_int8_dots(self->isa);
#if defined(__x86_64__)
  snprintf(self->arch, sizeof(self->arch), "x86-64 %s", isa_name(self->isa));
#else
  snprintf(self->arch, sizeof(self->arch), "generic");
#endif
  self->onednn = std::make_unique<OneDnnLibrary>(setting(hello, "onednn_library"), hello.services);
  self->kind.size = sizeof(self->kind);
  self->kind.flags = ANYHAL_MEMORY_DEVICE_LOCAL | ANYHAL_MEMORY_HOST_VISIBLE |
                     ANYHAL_MEMORY_COHERENT | ANYHAL_MEMORY_STABLE_ADDRESS;
  self->kind.offset_alignment = 1;
  self->kind.base_alignment = 64;
  self->kind.granularity = kPageBytes;
  self->kind.heap_bytes =
      static_cast<uint64_t>(sysconf(_SC_PHYS_PAGES)) * static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
  reply->flags = ANYHAL_REPLY_SYNCHRONOUS;
  if (self->onednn->given()) reply->flags |= ANYHAL_REPLY_HIDDEN_MEMORY;
  reply->table = &kSlots;
  reply->build_id = "cpu 0.1";
  reply->self = self.release();
  return ANYHAL_STATUS_OK;
}

}  // namespace
}  // namespace hal::cpu

extern "C" ANYHAL_EXPORT anyhal_status anyhal_backend_main(const anyhal_hello* hello,
                                                           anyhal_reply* reply,
                                                           anyhal_error* error) {
  const anyhal_status agreed = hal::sdk::agree(*hello, *reply, error);
  if (agreed != ANYHAL_STATUS_OK) return agreed;
  return hal::sdk::guard(error, [&] { return hal::cpu::start(*hello, reply, error); });
}
