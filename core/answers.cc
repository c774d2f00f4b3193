// Impossible answers, by kind.
// SPDX-License-Identifier: Apache-2.0
#include "core/answers.hpp"

#include <algorithm>

#include "core/text.hpp"

namespace hal {
namespace {

constexpr uint32_t kKindsMax = 64;
constexpr uint32_t kAlignmentMax = 1u << 30;
constexpr uint32_t kKeyBytesMax = 1u << 16;
constexpr uint32_t kDeviceFlags = ANYHAL_DEVICE_UNIFIED | ANYHAL_DEVICE_INTEGRATED |
                                  ANYHAL_DEVICE_DISPLAY_ONLY | ANYHAL_DEVICE_SIMULATED;
constexpr uint32_t kKindFlags = 2u * ANYHAL_MEMORY_LAZY - 1u;
constexpr uint32_t kVerdictFlags = 2u * ANYHAL_VERDICT_BAKES_CONSTANTS - 1u;

[[noreturn]] void impossible(const std::string& what, const std::string& why) {
  throw Error(ANYHAL_STATUS_INTERNAL, what + ": " + why + "; report this to its vendor");
}

// 0 is "no wish".
bool is_alignment(uint64_t n) { return (n & (n - 1)) == 0 && n <= kAlignmentMax; }

std::string said(uint64_t n) { return std::to_string(n); }

std::string listing(const Instance& in, const anyhal_device_info& info) {
  return "backend '" + in.name + "' lists device '" + info.name + "', and it is not used";
}

}  // namespace

void check_device(const Instance& in, anyhal_device_info& info) {
  clean_text(info.name), clean_text(info.arch), clean_text(info.driver);
  const std::string what = listing(in, info);
  const uint32_t longest = std::max<uint32_t>(in.sizes.device_info, sizeof(info));
  if (info.size < offsetof(anyhal_device_info, queue_count_max) || info.size > longest)
    impossible(what, "its record says a size of " + said(info.size) + " bytes, the core's has " +
                         said(sizeof(info)));
  info.size = std::min<uint32_t>(info.size, sizeof(info));
  if ((info.flags & ~kDeviceFlags) || info.reserved)
    impossible(what, "it sets flags or reserved words that this core does not know");
  if (info.kind_count == 0 || info.kinds == nullptr)
    throw Error(ANYHAL_STATUS_INTERNAL, "backend '" + in.name + "' lists device '" + info.name +
                                            "' without a memory kind; it is not used");
  if (info.kind_count > kKindsMax)
    impossible(what, "it has " + said(info.kind_count) + " memory kinds");
}

void check_kind(const Instance& in, const anyhal_device_info& info, anyhal_memory_kind& kind) {
  const std::string what = listing(in, info);
  if (kind.size != in.sizes.memory_kind)
    impossible(what, "a memory kind says a size of " + said(kind.size) + " bytes, the record has " +
                         said(in.sizes.memory_kind));
  kind.size = std::min<uint32_t>(kind.size, sizeof(kind));
  if ((kind.flags & ~kKindFlags) || kind.reserved)
    impossible(what, "a memory kind sets flags or reserved words that this core does not know");
  if (!is_alignment(kind.offset_alignment) || !is_alignment(kind.base_alignment))
    impossible(what, "a memory kind is aligned to " + said(kind.offset_alignment) + " and " +
                         said(kind.base_alignment) +
                         " bytes, which are no powers of two below 2^30");
  for (const uint64_t bytes : {kind.granularity, kind.block_bytes_max, kind.heap_bytes})
    if (bytes > kBytesMax)
      impossible(what, "a memory kind has " + said(bytes) + " bytes, which no device has");
}

void check_verdict(const anyhal_verdict& v, uint32_t operand_count, const std::string& what) {
  if (v.support > ANYHAL_SUPPORT_PREPARE_KNOWS)
    impossible(what, "the backend answered support " + said(v.support) + ", which does not exist");
  if (v.flags & ~kVerdictFlags)
    impossible(what, "the backend's answer sets flags that this core does not know");
  if (v.reason_operand >= int64_t(operand_count))
    impossible(what, "the backend's answer is about operand " + std::to_string(v.reason_operand) +
                         " of " + said(operand_count));
  if (v.want_count > ANYHAL_WANTS_MAX)
    impossible(what, "the backend wants " + said(v.want_count) + " layouts, where " +
                         said(ANYHAL_WANTS_MAX) + " fit");
}

void check_prepared(const Device& device, const anyhal_plan* plan, const anyhal_prepared* prepared,
                    uint32_t operand_count, const std::string& what) {
  if (!plan) impossible(what, "the backend said that it is done, and gave no plan");
  if (!prepared || prepared->size < offsetof(anyhal_prepared, hidden_bytes))
    impossible(what, "the backend gave no full `prepared` record");
  const uint64_t most = std::max<uint64_t>(256, device.kinds[device.compute_kind].base_alignment);
  if (!is_alignment(prepared->workspace_alignment) || prepared->workspace_alignment > most)
    impossible(what, "its workspace is to be aligned to " + said(prepared->workspace_alignment) +
                         " bytes, and at most " + said(most) + " are possible");
  if (prepared->workspace_bytes > kBytesMax)
    impossible(what, "it wants a workspace of " + said(prepared->workspace_bytes) +
                         " bytes, which no device has");
  if (prepared->pack_count > operand_count || (prepared->pack_count && !prepared->packs))
    impossible(what, "it packs " + said(prepared->pack_count) + " of " + said(operand_count) +
                         " operands");
  for (uint32_t i = 0; i < prepared->pack_count; ++i) {
    const anyhal_pack& pack = prepared->packs[i];
    if (pack.operand >= operand_count || pack.kind >= device.kinds.size() ||
        !is_alignment(pack.alignment) || pack.bytes > kBytesMax || pack.key_size > kKeyBytesMax ||
        (pack.key_size && !pack.key))
      impossible(what, "what it says of packed operand " + said(pack.operand) + " cannot be");
  }
}

namespace {
std::string shown(const char* text) {
  char kept[256] = {};
  if (text) copy_text(kept, std::string(text, strnlen(text, sizeof(kept))).c_str());
  clean_text(kept);
  return kept;
}
}  // namespace

std::string kernel_of(const anyhal_prepared& p) {
  return p.size >= offsetof(anyhal_prepared, library) ? shown(p.kernel) : "";
}

std::string library_of(const anyhal_prepared& p) {
  return ANYHAL_HAS(&p, anyhal_prepared, library) ? shown(p.library) : "";
}

void check_block(const Device& device, const anyhal_memory_request& request,
                 const anyhal_memory_block& block, const std::string& what) {
  if (block.memory == 0) impossible(what, "the backend gave block 0");
  if (block.bytes < request.bytes)
    impossible(what, "the backend gave a block of " + said(block.bytes) + " bytes");
  const uint32_t flags = device.kinds[request.kind].flags;
  constexpr uint32_t kAddressed = ANYHAL_MEMORY_HOST_VISIBLE | ANYHAL_MEMORY_STABLE_ADDRESS;
  const bool addressed = (flags & kAddressed) == kAddressed && !(flags & ANYHAL_MEMORY_CELL);
  if (addressed && block.host_address == 0)
    impossible(what, "the backend gave a block without the host address that its kind promises");
  // Tensors are laid out for what was asked; what only passes through, for what its kind has.
  const uint64_t least = request.kind == device.compute_kind
                             ? request.alignment
                             : std::max<uint64_t>(1, device.kinds[request.kind].base_alignment);
  if (block.host_address % least)
    impossible(what,
               "the backend gave a block at an address that is no multiple of " + said(least));
  if (block.host_address > UINT64_MAX - block.bytes)
    impossible(what, "the backend gave a block that leaves the address space");
}

}  // namespace hal
