// Rows of {op, dtypes, condition, kernel}: the same rows answer op_query and capabilities and
// choose the kernel of a plan, so the three cannot disagree. SPDX-License-Identifier: Apache-2.0
#ifndef ANYHAL_SDK_TABLE_HPP_
#define ANYHAL_SDK_TABLE_HPP_

#include <memory>
#include <vector>

#include "anyhal/backend.h"
#include "anyhal/ops.h"
#include "anyhal/sdk/dtypes.hpp"
#include "anyhal/sdk/guard.hpp"
#include "anyhal/sdk/view.hpp"

namespace hal::sdk {

// What a row says about a description; `why` lives for ever and reads on after the operands.
struct Answer {
  int32_t reason = ANYHAL_REASON_NONE;  // none = yes
  const char* why = "";
  int32_t operand = -1;
  anyhal_status status = ANYHAL_STATUS_UNSUPPORTED;  // INVALID_ARGUMENT for the caller's mistakes
  bool yes() const {
    return reason == ANYHAL_REASON_NONE && status != ANYHAL_STATUS_INVALID_ARGUMENT;
  }
};

inline Answer yes() { return {}; }
inline Answer no(int32_t reason, const char* why, int32_t operand = -1) {
  return {reason, why, operand, ANYHAL_STATUS_UNSUPPORTED};
}
inline Answer invalid(const char* why, int32_t operand = -1) {
  return {ANYHAL_REASON_NONE, why, operand, ANYHAL_STATUS_INVALID_ARGUMENT};
}

// ---------------------------------------------------------------------------------- attributes

// The attribute record as this build knows it: what a shorter record lacks is zero.
template <class T>
T attributes(const anyhal_op_desc& desc) {
  T known = {};
  uint32_t bytes = desc.attributes_size < sizeof(T) ? desc.attributes_size : sizeof(T);
  if (desc.attributes != nullptr) std::memcpy(&known, desc.attributes, bytes);
  return known;
}

template <class T, class = void>
struct has_reserved : std::false_type {};
template <class T>
struct has_reserved<T, std::void_t<decltype(T::reserved)>> : std::true_type {};

// Refuses what this build cannot know: flags, reserved words, and non-zero bytes past its record.
template <class T>
Answer known_attributes(const anyhal_op_desc& desc) {
  T known = attributes<T>(desc);
  if (desc.attributes == nullptr || desc.attributes_size < 2 * sizeof(uint32_t))
    return invalid("the attribute record is missing");
  if (known.flags != 0) return no(ANYHAL_REASON_ATTRIBUTE, "an attribute flag is unknown here");
  if constexpr (has_reserved<T>::value) {
    if (known.reserved != 0)
      return no(ANYHAL_REASON_ATTRIBUTE, "a reserved attribute word is not zero");
  }
  const unsigned char* bytes = static_cast<const unsigned char*>(desc.attributes);
  for (uint32_t i = sizeof(T); i < desc.attributes_size; ++i) {
    if (bytes[i] != 0)
      return no(ANYHAL_REASON_ATTRIBUTE, "an attribute is newer than this backend");
  }
  return yes();
}

// The same for a record that came later than its op: without it, all is as it was.
template <class T>
Answer later_attributes(const anyhal_op_desc& desc) {
  return desc.attributes == nullptr ? yes() : known_attributes<T>(desc);
}

inline Answer no_attributes(const anyhal_op_desc& desc) {
  const unsigned char* bytes = static_cast<const unsigned char*>(desc.attributes);
  for (uint32_t i = 2 * sizeof(uint32_t); bytes != nullptr && i < desc.attributes_size; ++i) {
    if (bytes[i] != 0)
      return no(ANYHAL_REASON_ATTRIBUTE, "an attribute is newer than this backend");
  }
  return yes();
}

// Whether two positions are one address; of nothing there are no two.
inline bool repeats(const anyhal_tensor_desc& t) {
  bool found = false, empty = false;
  for (uint32_t d = 0; d < t.rank; ++d) {
    empty |= t.dims[d] == 0;
    found |= t.strides[d] == 0 && t.dims[d] > 1 && steps(t, d) > 1;
  }
  return found && !empty;
}

// ---------------------------------------------------------------------------------- rows, plans

class Plan;

// One call of a plan: where its operands are.
class Call {
 public:
  Call(const Plan& plan, const anyhal_call& call) : plan_(plan), call_(call) {}
  inline const anyhal_op_desc& desc() const;
  inline const anyhal_services* services() const;
  // Address of operand i; an INLINE operand's value is in its ref.
  inline char* data(uint32_t i) const;
  template <class T>
  View<T> view(uint32_t i) const {
    return View<T>(operand(desc(), i), data(i));
  }
  char* workspace() const { return host_address(call_.workspace); }

 private:
  const Plan& plan_;
  const anyhal_call& call_;
};

using Condition = Answer (*)(const anyhal_op_desc& desc);
using Kernel = void (*)(const Call& call);
using Workspace = uint64_t (*)(const anyhal_op_desc& desc);

// What a row offers beyond strict numbers that are the same from run to run.
struct Promise {
  uint32_t accumulate = 0;   // bit c: anyhal_accumulate c
  uint32_t determinism = 0;  // bit d: anyhal_determinism d
};
constexpr Promise kExact = {
    0, 1u << ANYHAL_DETERMINISM_BATCH_INVARIANT | 1u << ANYHAL_DETERMINISM_CROSS_DEVICE};
constexpr Promise kBatchInvariant = {0, 1u << ANYHAL_DETERMINISM_BATCH_INVARIANT};

struct Row {
  uint32_t op;
  const char* name;
  uint32_t main;                  // the operand whose dtype `dtypes` lists
  Dtypes dtypes;                  // what is not listed is unsupported
  Condition record;               // known_attributes<anyhal_attrs_...> or no_attributes
  Condition also;                 // whatever else must hold; nullptr = nothing
  Kernel kernel;                  // throws Failure for what only the values tell, before it writes
  Workspace workspace = nullptr;  // bytes that a call needs; nullptr = none
  Promise promise = {};
  // Which calls of a row that does not promise it have the same bits on every device; see
  // exact.hpp.
  bool (*exact)(const anyhal_op_desc& desc) = nullptr;
};

// A copied description and the row that runs it. Immutable; shared by all queues and threads.
class Plan {
 public:
  Plan(const anyhal_op_desc& desc, const Row& row, const anyhal_services* services)
      : services_(services), row_(row), desc_(desc) {
    tensors_.reserve(desc.operand_count);
    for (uint32_t i = 0; i < desc.operand_count; ++i) {
      tensors_.push_back(operand(desc, i));
      tensors_[i].size = sizeof(anyhal_tensor_desc);
      extents_.insert(extents_.end(), tensors_[i].dims, tensors_[i].dims + tensors_[i].rank);
      extents_.insert(extents_.end(), tensors_[i].strides, tensors_[i].strides + tensors_[i].rank);
    }
    const int64_t* next = extents_.data();
    for (anyhal_tensor_desc& t : tensors_) {
      t.dims = next;
      t.strides = next + t.rank;
      next += 2 * t.rank;
      t.dims_max = nullptr;
    }
    const char* bytes = static_cast<const char*>(desc.attributes);
    if (bytes != nullptr) attributes_.assign(bytes, bytes + desc.attributes_size);
    desc_.operands = tensors_.data();
    desc_.attributes = attributes_.empty() ? nullptr : attributes_.data();
    desc_.cancel = nullptr;
    prepared_.size = sizeof(prepared_);
    prepared_.flags = ANYHAL_PREPARED_CAPTURE_SAFE;
    prepared_.workspace_bytes = row.workspace != nullptr ? row.workspace(desc_) : 0;
    prepared_.workspace_alignment = 64;
    prepared_.kernel = row.name;
    prepared_.library = "";
  }
  Plan(const Plan&) = delete;
  Plan& operator=(const Plan&) = delete;

  const anyhal_op_desc& desc() const { return desc_; }
  const Row& row() const { return row_; }
  const anyhal_services* services() const { return services_; }
  const anyhal_prepared& prepared() const { return prepared_; }

 private:
  const anyhal_services* services_;
  const Row& row_;
  anyhal_op_desc desc_;
  anyhal_prepared prepared_ = {};
  std::vector<anyhal_tensor_desc> tensors_;
  std::vector<int64_t> extents_;
  std::vector<char> attributes_;
};

inline const anyhal_op_desc& Call::desc() const { return plan_.desc(); }
inline const anyhal_services* Call::services() const { return plan_.services(); }
inline char* Call::data(uint32_t i) const {
  const anyhal_ref& ref = call_.operands[i];
  if ((operand(desc(), i).flags & ANYHAL_TENSOR_INLINE) == 0) return host_address(ref);
  return reinterpret_cast<char*>(const_cast<anyhal_ref*>(&ref));
}

// ------------------------------------------------------------------------------------ the table

class OpTable {
 public:
  template <uint32_t N>
  constexpr explicit OpTable(const Row (&rows)[N], Promise all = {})
      : rows_(rows), count_(N), all_(all) {}

  // The row that runs a description; otherwise nullptr and the nearest row's refusal.
  const Row* find(const anyhal_op_desc& desc, Answer& answer) const {
    answer = check_record(desc);
    if (!answer.yes()) return nullptr;
    answer = no(ANYHAL_REASON_OP, "this op is not among those this device has");
    for (uint32_t i = 0; i < count_; ++i) {
      const Row& row = rows_[i];
      if (row.op != desc.op) continue;
      answer = check_row(row, desc);
      if (answer.yes()) return &row;
    }
    return nullptr;
  }

  // op_query. A "no" is a verdict; only a malformed description is an error.
  anyhal_status query(const anyhal_op_desc* desc, anyhal_verdict* verdict,
                      anyhal_error* error) const {
    Answer answer;
    const Row* row = find(*desc, answer);
    if (answer.status == ANYHAL_STATUS_INVALID_ARGUMENT && row == nullptr)
      return refuse(*desc, answer, error);
    const uint64_t workspace =
        row != nullptr && row->workspace != nullptr ? row->workspace(*desc) : 0;
    if (desc->workspace_limit != 0 && workspace > desc->workspace_limit) {
      row = nullptr;
      answer = too_much_workspace();
    }
    verdict->support = row != nullptr ? ANYHAL_SUPPORT_YES : ANYHAL_SUPPORT_NO;
    verdict->reason = answer.reason;
    verdict->reason_operand = answer.operand;
    verdict->want_count = 0;
    if (row == nullptr) {
      refuse(*desc, answer, error);  // the text; the status of a "no" is still OK
      return ANYHAL_STATUS_OK;
    }
    verdict->flags = ANYHAL_VERDICT_CAPTURE_SAFE | ANYHAL_VERDICT_DETERMINISTIC;
    verdict->workspace_bytes = workspace;
    return ANYHAL_STATUS_OK;
  }

  // op_prepare. The plan is ended with `delete`.
  anyhal_status prepare(const anyhal_op_desc* desc, const anyhal_services* services,
                        Plan** out_plan, const anyhal_prepared** out_prepared,
                        anyhal_error* error) const {
    return guard(error, [&] {
      Answer answer;
      const Row* row = find(*desc, answer);
      if (row == nullptr) return refuse(*desc, answer, error);
      auto plan = std::make_unique<Plan>(*desc, *row, services);
      if (desc->workspace_limit != 0 && plan->prepared().workspace_bytes > desc->workspace_limit) {
        return refuse(*desc, too_much_workspace(), error);
      }
      *out_prepared = &plan->prepared();
      *out_plan = plan.release();
      return ANYHAL_STATUS_OK;
    });
  }

  // op_enqueue of a synchronous backend.
  static anyhal_status enqueue(const Plan& plan, const anyhal_call* call, anyhal_error* error) {
    if (call->operand_count != plan.desc().operand_count) {
      return fail(error, ANYHAL_STATUS_INVALID_ARGUMENT, 0,
                  "the call has %u operands and the plan %u; prepare a plan for this call",
                  call->operand_count, plan.desc().operand_count);
    }
    return guard(error, [&] {
      plan.row().kernel(Call(plan, *call));
      return ANYHAL_STATUS_OK;
    });
  }

  // device_query(CAPABILITIES): one record for each row.
  anyhal_status capabilities(void* value, uint64_t* bytes, anyhal_error* error) const {
    uint64_t room = *bytes;
    *bytes = count_ * sizeof(anyhal_capability);
    if (value == nullptr || room < *bytes) {
      return fail(error, ANYHAL_STATUS_INVALID_ARGUMENT, 0,
                  "%llu bytes do not hold the %llu of the capabilities; ask again with those",
                  static_cast<unsigned long long>(room), static_cast<unsigned long long>(*bytes));
    }
    anyhal_capability* out = static_cast<anyhal_capability*>(value);
    for (uint32_t i = 0; i < count_; ++i) {
      out[i] = {};
      out[i].op = rows_[i].op;
      out[i].flags = ANYHAL_CAPABILITY_STRIDED | ANYHAL_CAPABILITY_CAPTURE_SAFE;
      out[i].dtypes[0] = rows_[i].dtypes.words[0];
      out[i].dtypes[1] = rows_[i].dtypes.words[1];
      out[i].rank_max = kRankMax;
      for (uint32_t c = 1; c < 32; ++c)
        if (promise_of(rows_[i]).accumulate >> c & 1) out[i].accumulate = c;
      for (uint32_t d = 1; d < 32; ++d)
        if (promise_of(rows_[i]).determinism >> d & 1) out[i].determinism = d;
    }
    return ANYHAL_STATUS_OK;
  }

  // What holds for every op of every table: nothing unknown is asked for.
  static Answer check_record(const anyhal_op_desc& desc) {
    if (desc.size < sizeof(anyhal_op_desc) || desc.operand_count == 0 || desc.operands == nullptr ||
        desc.input_count >= desc.operand_count || desc.operands->size < sizeof(anyhal_tensor_desc))
      return invalid("the description is shorter than this contract's");
    if (desc.flags != 0 || desc.reserved32 != 0 || desc.reserved[0] != 0 || desc.reserved[1] != 0)
      return no(ANYHAL_REASON_ATTRIBUTE, "a flag or reserved word of the op is unknown here");
    constexpr uint32_t kFlags = ANYHAL_TENSOR_CONSTANT | ANYHAL_TENSOR_INLINE |
                                ANYHAL_TENSOR_ABSENT | ANYHAL_TENSOR_BINDING;
    for (uint32_t i = 0; i < desc.operand_count; ++i) {
      const anyhal_tensor_desc& t = operand(desc, i);
      int32_t number = static_cast<int32_t>(i);
      if ((t.flags & ~kFlags) != 0 || t.reserved[0] != 0 || t.reserved[1] != 0)
        return no(ANYHAL_REASON_ATTRIBUTE, "a flag or reserved word of an operand is unknown here",
                  number);
      if (absent(t)) continue;
      if (t.memory_kind != 0)
        return no(ANYHAL_REASON_MEMORY_KIND, "this device has memory kind 0 only", number);
      if (t.rank > kRankMax) return no(ANYHAL_REASON_RANK, "more than 16 dims", number);
      if ((t.flags & ANYHAL_TENSOR_INLINE) != 0 && (t.rank != 0 || i >= desc.input_count))
        return invalid("only a 0-d input can be inline", number);
      Answer shape = check_shape(t, number);
      if (!shape.yes()) return shape;
      // Writes at one address from two positions would depend on their order.
      if (i >= desc.input_count && repeats(t))
        return invalid("the output repeats elements (stride 0)", number);
    }
    return yes();
  }

 private:
  static Answer check_shape(const anyhal_tensor_desc& t, int32_t number) {
    for (uint32_t d = 0; d < t.rank; ++d) {
      if (t.dims[d] < 0 || t.strides[d] < 0)
        return invalid("dims and strides must not be negative", number);
    }
    DtypeFacts facts = dtype_facts(t.dtype);
    if (facts.block_elements == 0) return no(ANYHAL_REASON_DTYPE, "an unknown dtype", number);
    if (facts.block_elements == 1) return yes();
    if (t.rank == 0 || t.dims[t.rank - 1] % facts.block_elements != 0 ||
        (t.dims[t.rank - 1] > facts.block_elements && t.strides[t.rank - 1] != 1))
      return no(ANYHAL_REASON_LAYOUT, "rows of a block format must be whole and dense", number);
    return yes();
  }

  Promise promise_of(const Row& row) const {
    return {row.promise.accumulate | all_.accumulate, row.promise.determinism | all_.determinism};
  }

  static Answer check_numerics(Promise promise, const Row& row, const anyhal_op_desc& desc) {
    if (desc.numerics[ANYHAL_NUMERICS_DETERMINISM] != 0 && row.exact != nullptr && row.exact(desc))
      promise.determinism |= kExact.determinism;
    for (uint32_t i = 0; i < 6; ++i) {
      const uint32_t asked = desc.numerics[i];
      if (asked == 0) continue;
      if (i == ANYHAL_NUMERICS_ACCUMULATE && asked < 32 && promise.accumulate >> asked & 1)
        continue;
      if (i == ANYHAL_NUMERICS_DETERMINISM && asked == ANYHAL_DETERMINISM_NONE) continue;
      if (i == ANYHAL_NUMERICS_DETERMINISM && asked < 32 && promise.determinism >> asked & 1)
        continue;
      return no(ANYHAL_REASON_NUMERICS,
                i == ANYHAL_NUMERICS_ACCUMULATE    ? "only strict products run here"
                : i == ANYHAL_NUMERICS_DETERMINISM ? what_is_kept(promise.determinism)
                                                   : "this numeric mode does not run here");
    }
    return yes();
  }

  static const char* what_is_kept(uint32_t determinism) {
    return (determinism >> ANYHAL_DETERMINISM_BATCH_INVARIANT & 1) != 0
               ? "a row's result here does not depend on its batch, but other devices may round "
                 "otherwise"
               : "results are only the same from run to run";
  }

  Answer check_row(const Row& row, const anyhal_op_desc& desc) const {
    if (row.main >= desc.operand_count) return invalid("operands are missing");
    Answer numbers = check_numerics(promise_of(row), row, desc);
    if (!numbers.yes()) return numbers;
    if (!row.dtypes.has(operand(desc, row.main).dtype))
      return no(ANYHAL_REASON_DTYPE, "this dtype is not among those of the op",
                static_cast<int32_t>(row.main));
    Answer answer = row.record(desc);
    if (!answer.yes() || row.also == nullptr) return answer;
    return row.also(desc);
  }

  static Answer too_much_workspace() {
    return no(ANYHAL_REASON_WORKSPACE, "this needs more workspace than the call allows");
  }

  // What the core's "matmul on mychip:0: " reads on with: operands, why, what to do.
  anyhal_status refuse(const anyhal_op_desc& desc, const Answer& answer,
                       anyhal_error* error) const {
    char text[160] = "";
    size_t used = 0;
    bool readable = desc.operands != nullptr && desc.operands->size >= sizeof(anyhal_tensor_desc);
    for (uint32_t i = 0; readable && i < desc.operand_count && used + 2 < sizeof(text); ++i) {
      if (used > 0) text[used++] = ' ';
      describe(operand(desc, i), text + used, sizeof(text) - used);
      used += std::strlen(text + used);
    }
    char which[32] = "";
    if (answer.operand >= 0)
      std::snprintf(which, sizeof(which), " (operand %d)", static_cast<int>(answer.operand));
    bool mistake = answer.status == ANYHAL_STATUS_INVALID_ARGUMENT;
    return fail(error, answer.status, answer.reason, "%.100s%s%s%s; %s", text, used > 0 ? ": " : "",
                answer.why, which, mistake ? "correct the operands" : what_helps(answer.reason));
  }

  static const char* what_helps(int32_t reason) {
    switch (reason) {
      case ANYHAL_REASON_OP:
        return "let it decompose or use another device";
      case ANYHAL_REASON_DTYPE:
        return "cast the operands or use another device";
      case ANYHAL_REASON_LAYOUT:
      case ANYHAL_REASON_ALIGNMENT:
        return "pass dense operands or use another device";
      case ANYHAL_REASON_NUMERICS:
        return "ask for less or use another device";
      default:
        return "use another device";
    }
  }

  const Row* rows_;
  uint32_t count_;
  Promise all_;  // of every row
};

}  // namespace hal::sdk

#endif  // ANYHAL_SDK_TABLE_HPP_
