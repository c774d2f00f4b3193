// Where a call would run and why; what ran.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstring>
#include <map>

#include "core/api/call.hpp"
#include "core/api/names.hpp"
#include "core/api/order.hpp"

namespace hal {
namespace {

struct Outcome {
  ApiDevice* device;
  Refusal refusal;
  uint64_t cost_ns = 0;
};

// What one device answers. InvalidArgument passes: the call itself is wrong.
Outcome ask(ApiDevice& api, const OpRow& row, const Given& g) {
  Outcome out{&api, {}, 0};
  try {
    Device& device = api.opened();
    std::vector<uint64_t> spans;
    const OpDesc desc = describe_call(device, row, g, nullptr, spans);
    out.refusal = quarantine(api, row, desc);
    if (out.refusal.reason) return out;
    const Verdict verdict = query_op(device, desc);
    out.refusal = judge(row, desc, verdict);
    out.cost_ns = verdict.cost_ns;
  } catch (const Error& e) {
    if (e.status == ANYHAL_STATUS_INVALID_ARGUMENT) throw;
    out.refusal = {e.reason ? e.reason : int32_t(HAL_REASON_STATE), e.text};
  }
  return out;
}

// The device that the operands' buffers are on, or null when none has one.
const Device* home_of(const Given& g) {
  const Device* home = nullptr;
  for (uint32_t i = 0; i < g.operand_count; ++i) {
    if (!g.operands[i] || !g.operands[i]->buffer) continue;
    const std::string argument = "operands[" + std::to_string(i) + "]->buffer";
    const Device* at = slot_of(g.operands[i]->buffer, Kind::kBuffer, argument.c_str()).device;
    if (home && home != at)
      invalid("explaining a call: operand " + std::to_string(i) + " is on " + at->name +
              ", others are on " + home->name);
    home = at;
  }
  return home;
}

std::string line_of(const Outcome& o, bool chosen) {
  std::string line = o.device->name + " (" + o.device->backend->row.state + "): ";
  if (o.refusal.reason)
    return line + hal_reason_name(o.refusal.reason) + ": " + o.refusal.text + "\n";
  line += chosen ? "chosen" : "accepts, but another comes first";
  if (o.cost_ns) line += ", about " + std::to_string(o.cost_ns) + " ns";
  return line + "\n";
}

// All candidates, best first; `chosen` is the first that accepts.
std::vector<Outcome> weigh(const OpRow& row, const Given& g, const Outcome*& chosen) {
  const Device* home = home_of(g);
  std::vector<Outcome> asked;
  for (ApiDevice* d : ranked_devices()) {
    if (home && d->native() != home) continue;
    const std::string why = home ? "" : not_eligible(*d);
    if (why.empty())
      asked.push_back(ask(*d, row, g));
    else
      asked.push_back({d, {HAL_REASON_STATE, why}, 0});
  }
  for (const Outcome& o : asked)
    if (!o.refusal.reason && !chosen) chosen = &o;
  return asked;
}

}  // namespace
}  // namespace hal

using namespace hal;

extern "C" {

hal_status hal_explain(uint32_t op, const hal_tensor* const* operands, uint32_t input_count,
                       uint32_t operand_count, const void* attributes, uint32_t attributes_bytes,
                       hal_decision* out_decision, char* text, uint64_t text_bytes,
                       uint64_t* out_text_bytes, hal_error* error) {
  return at_edge(error, [&] {
    need(out_decision, "out_decision");
    if (text_bytes) need(text, "text");
    if (out_decision->size < sizeof(hal_decision))
      invalid("explaining a call: out_decision->size is not set; set it to sizeof(hal_decision)");
    const Given g{op, operands, input_count, operand_count, attributes, attributes_bytes};
    const OpRow& row = check_given(g, "");
    const Outcome* chosen = nullptr;
    const std::vector<Outcome> asked = weigh(row, g, chosen);
    const std::string call = signature_text(row, g);
    std::string said = chosen ? call + " runs on " + chosen->device->name + "\n"
                              : "nothing may run " + call + " by the built-in policy\n";
    for (const Outcome& o : asked) said += line_of(o, &o == chosen);
    for (const std::string& refused : refusals()) said += "refused: " + refused + "\n";
    hal_decision out = {};
    out.size = sizeof(out);
    if (chosen) {
      out.device = chosen->device->handle, out.cost_ns = chosen->cost_ns;
    } else {
      out.reason = asked.empty() ? int32_t(HAL_REASON_STATE) : asked[0].refusal.reason;
    }
    *out_decision = out;
    if (out_text_bytes) *out_text_bytes = said.size() + 1;
    if (text_bytes) {
      const size_t n = std::min<size_t>(text_bytes - 1, said.size());
      std::memcpy(text, said.data(), n);
      text[n] = 0;
    }
  });
}

hal_status hal_receipts_enable(int32_t on, hal_error* error) {
  return at_edge(error, [&] { set_receipts(on != 0); });
}

hal_status hal_receipts_read(hal_receipt* receipts, uint32_t capacity, uint32_t receipt_bytes,
                             uint32_t* out_count, hal_error* error) {
  return at_edge(error, [&] {
    need(out_count, "out_count");
    if (capacity) need(receipts, "receipts");
    if (receipt_bytes != sizeof(hal_receipt))
      invalid("reading receipts: a record of " + std::to_string(receipt_bytes) +
              " bytes; pass sizeof(hal_receipt) of this library's header");
    const std::vector<Receipt> all = read_receipts();
    if (!capacity) {
      *out_count = uint32_t(all.size());
      return;
    }
    std::map<uint64_t, Plan*> plans;
    for (Plan* p : retained_plans()) plans[p->id] = p;
    const size_t n = std::min<size_t>(capacity, all.size());
    for (size_t i = 0; i < n; ++i) {
      const Receipt& from = all[all.size() - n + i];
      hal_receipt to = {};
      to.sequence = from.sequence, to.time_ns = from.time_ns;
      to.op = from.op, to.status = from.status;
      if (const auto found = plans.find(from.plan_id); found != plans.end()) {
        const Plan& p = *found->second;
        copy_text(to.device, p.device->name), copy_text(to.state, p.state);
        copy_text(to.kernel, p.kernel), copy_text(to.library, p.library);
        copy_text(to.call, p.signature);
      }
      receipts[i] = to;
    }
    for (const auto& [id, p] : plans) release(p);
    *out_count = uint32_t(n);
  });
}

}  // extern "C"
