// Reads the script that tells the fake backend what to be: "key=value; key=value; flag".
// SPDX-License-Identifier: Apache-2.0
#include "script.hh"

#include <algorithm>
#include <functional>
#include <string_view>

namespace hal::fake {
namespace {

constexpr const char* kSlots[] = {
    "main",          "device_list",    "device_open",  "memory_alloc",  "op_query",
    "op_prepare",    "op_enqueue",     "release",      "queue_create",  "queue_signal",
    "queue_wait",    "host_wait",      "queue_copy",   "device_query",  "memory_map",
    "memory_import", "constant_pack",  "queue_fill",   "queue_notify",  "graph_prepare",
    "module_load",   "kernel_prepare", "queue_native", "native_handle", "notify",
    "extension"};
static_assert(std::size(kSlots) == kSlotCount + 1);

// The twin of enum anyhal_op; tests/fake compares it with the registry.
constexpr const char* kOps[] = {"?",
                                "copy",
                                "fill",
                                "cast",
                                "unary",
                                "binary",
                                "where",
                                "reduce",
                                "matmul",
                                "gather",
                                "scatter_add",
                                "matmul_epilogue",
                                "quant_matmul",
                                "attention",
                                "rms_norm",
                                "softmax",
                                "rope",
                                "embedding",
                                "cache_append",
                                "argmax",
                                "concat",
                                "log_softmax",
                                "logsumexp",
                                "layer_norm",
                                "group_norm",
                                "batch_norm",
                                "cumsum",
                                "argmin",
                                "topk",
                                "sort",
                                "clip"};
static_assert(std::size(kOps) == kOpCount + 1);

constexpr const char* kBad[] = {
#define ANYHAL_FAKE_NAME(name) #name,
    ANYHAL_FAKE_BAD(ANYHAL_FAKE_NAME)
#undef ANYHAL_FAKE_NAME
};

// Ops whose ids do not follow those above.
struct NamedOp {
  uint32_t op;
  const char* name;
};
constexpr NamedOp kOtherOps[] = {
    {ANYHAL_OP_TAKE_ALONG_AXIS, "take_along_axis"},
    {ANYHAL_OP_SCATTER, "scatter"},
    {ANYHAL_OP_SLICE_UPDATE, "slice_update"},
    {ANYHAL_OP_PAD, "pad"},
    {ANYHAL_OP_ONE_HOT, "one_hot"},
    {ANYHAL_OP_STACK, "stack"},
    {ANYHAL_OP_CONV, "conv"},
    {ANYHAL_OP_CONV_TRANSPOSE, "conv_transpose"},
    {ANYHAL_OP_MAX_POOL, "max_pool"},
    {ANYHAL_OP_AVG_POOL, "avg_pool"},
    {ANYHAL_OP_RESIZE, "resize"},
    {ANYHAL_OP_QUANTIZE, "quantize"},
    {ANYHAL_OP_DEQUANTIZE, "dequantize"},
    {ANYHAL_OP_SCALED_MATMUL, "scaled_matmul"},
    {ANYHAL_OP_PAGED_ATTENTION, "paged_attention"},
    {ANYHAL_OP_PAGED_CACHE_APPEND, "paged_cache_append"},
    {ANYHAL_OP_GROUPED_MATMUL, "grouped_matmul"},
    {ANYHAL_OP_RANDOM_UNIFORM, "random_uniform"},
    {ANYHAL_OP_RANDOM_NORMAL, "random_normal"},
    {ANYHAL_OP_RANDOM_INTEGERS, "random_integers"},
    {ANYHAL_OP_DROPOUT, "dropout"},
    {ANYHAL_OP_CROSS_ENTROPY, "cross_entropy"},
    {ANYHAL_OP_CROSS_ENTROPY_BACKWARD, "cross_entropy_backward"},
    {ANYHAL_OP_SOFTMAX_BACKWARD, "softmax_backward"},
    {ANYHAL_OP_LOG_SOFTMAX_BACKWARD, "log_softmax_backward"},
    {ANYHAL_OP_RMS_NORM_BACKWARD, "rms_norm_backward"},
    {ANYHAL_OP_LAYER_NORM_BACKWARD, "layer_norm_backward"},
    {ANYHAL_OP_ATTENTION_BACKWARD, "attention_backward"},
    {ANYHAL_OP_GROUP_NORM_BACKWARD, "group_norm_backward"},
    {ANYHAL_OP_EMBEDDING_BACKWARD, "embedding_backward"},
    {ANYHAL_OP_CONV_BACKWARD, "conv_backward"},
    {ANYHAL_OP_ADAMW_STEP, "adamw_step"},
    {ANYHAL_OP_SGD_STEP, "sgd_step"},
    {ANYHAL_OP_BATCH_NORM_BACKWARD, "batch_norm_backward"},
};

// The ops that kernels/ has; the rest would be a claim without a kernel.
constexpr uint32_t kKernels[] = {ANYHAL_OP_COPY,        ANYHAL_OP_FILL,    ANYHAL_OP_CAST,
                                 ANYHAL_OP_UNARY,       ANYHAL_OP_BINARY,  ANYHAL_OP_WHERE,
                                 ANYHAL_OP_REDUCE,      ANYHAL_OP_MATMUL,  ANYHAL_OP_GATHER,
                                 ANYHAL_OP_SCATTER_ADD, ANYHAL_OP_SOFTMAX, ANYHAL_OP_CACHE_APPEND,
                                 ANYHAL_OP_ARGMAX,      ANYHAL_OP_CONCAT};

const std::map<std::string_view, uint32_t> kDtypes = {{"f32", ANYHAL_DTYPE_F32},
                                                      {"f16", ANYHAL_DTYPE_F16},
                                                      {"bf16", ANYHAL_DTYPE_BF16},
                                                      {"f64", ANYHAL_DTYPE_F64},
                                                      {"i64", ANYHAL_DTYPE_I64},
                                                      {"i32", ANYHAL_DTYPE_I32},
                                                      {"i16", ANYHAL_DTYPE_I16},
                                                      {"i8", ANYHAL_DTYPE_I8},
                                                      {"u64", ANYHAL_DTYPE_U64},
                                                      {"u32", ANYHAL_DTYPE_U32},
                                                      {"u16", ANYHAL_DTYPE_U16},
                                                      {"u8", ANYHAL_DTYPE_U8},
                                                      {"bool", ANYHAL_DTYPE_BOOL},
                                                      {"q4_1", ANYHAL_DTYPE_Q4_1},
                                                      {"q8_0", ANYHAL_DTYPE_Q8_0},
                                                      {"q4_0", ANYHAL_DTYPE_Q4_0},
                                                      {"q4_k", ANYHAL_DTYPE_Q4_K},
                                                      {"q6_k", ANYHAL_DTYPE_Q6_K},
                                                      {"i4", ANYHAL_DTYPE_I4},
                                                      {"u4", ANYHAL_DTYPE_U4},
                                                      {"f8_e4m3fn", ANYHAL_DTYPE_F8_E4M3FN},
                                                      {"f8_e5m2", ANYHAL_DTYPE_F8_E5M2},
                                                      {"f8_e4m3fnuz", ANYHAL_DTYPE_F8_E4M3FNUZ},
                                                      {"f8_e5m2fnuz", ANYHAL_DTYPE_F8_E5M2FNUZ}};

const std::map<std::string_view, anyhal_reason> kReasons = {
    {"op", ANYHAL_REASON_OP},
    {"dtype", ANYHAL_REASON_DTYPE},
    {"layout", ANYHAL_REASON_LAYOUT},
    {"rank", ANYHAL_REASON_RANK},
    {"shape_limit", ANYHAL_REASON_SHAPE_LIMIT},
    {"alignment", ANYHAL_REASON_ALIGNMENT},
    {"attribute", ANYHAL_REASON_ATTRIBUTE},
    {"architecture", ANYHAL_REASON_ARCHITECTURE},
    {"driver", ANYHAL_REASON_DRIVER},
    {"missing_library", ANYHAL_REASON_MISSING_LIBRARY},
    {"missing_artefact", ANYHAL_REASON_MISSING_ARTEFACT},
    {"workspace", ANYHAL_REASON_WORKSPACE},
    {"numerics", ANYHAL_REASON_NUMERICS},
    {"memory_kind", ANYHAL_REASON_MEMORY_KIND},
    {"capture", ANYHAL_REASON_CAPTURE},
    {"policy", ANYHAL_REASON_POLICY}};

const std::map<std::string_view, anyhal_status> kStatuses = {
    {"invalid_argument", ANYHAL_STATUS_INVALID_ARGUMENT},
    {"unsupported", ANYHAL_STATUS_UNSUPPORTED},
    {"out_of_memory", ANYHAL_STATUS_OUT_OF_MEMORY},
    {"device_lost", ANYHAL_STATUS_DEVICE_LOST},
    {"timeout", ANYHAL_STATUS_TIMEOUT},
    {"not_found", ANYHAL_STATUS_NOT_FOUND},
    {"abi_mismatch", ANYHAL_STATUS_ABI_MISMATCH},
    {"cancelled", ANYHAL_STATUS_CANCELLED},
    {"execution_failed", ANYHAL_STATUS_EXECUTION_FAILED},
    {"internal", ANYHAL_STATUS_INTERNAL}};

[[noreturn]] void reject(const std::string& part, const std::string& why) {
  throw Fault{ANYHAL_STATUS_INVALID_ARGUMENT, ANYHAL_REASON_NONE,
              "script part '" + part + "': " + why + "; see backends/fake/README.md"};
}

std::string trimmed(std::string_view text) {
  const auto first = text.find_first_not_of(" \t\n");
  if (first == std::string_view::npos) return "";
  return std::string(text.substr(first, text.find_last_not_of(" \t\n") - first + 1));
}

std::vector<std::string> split(std::string_view text, char separator) {
  std::vector<std::string> parts;
  while (true) {
    const auto at = text.find(separator);
    if (auto part = trimmed(text.substr(0, at)); !part.empty()) parts.push_back(part);
    if (at == std::string_view::npos) return parts;
    text.remove_prefix(at + 1);
  }
}

template <class Map>
auto look_up(const Map& map, const std::string& name, const std::string& part, const char* what) {
  const auto found = map.find(name);
  if (found == map.end()) reject(part, "no " + std::string(what) + " is called '" + name + "'");
  return found->second;
}

uint32_t index_of(const char* const* begin, const char* const* end, const std::string& name,
                  const std::string& part, const char* what) {
  const auto* found = std::find(begin, end, name);
  if (found == end) reject(part, "no " + std::string(what) + " is called '" + name + "'");
  return static_cast<uint32_t>(found - begin);
}

uint32_t slot_of(const std::string& name, const std::string& part) {
  return index_of(std::begin(kSlots), std::end(kSlots), name, part, "slot");
}

uint32_t op_of(const std::string& name, const std::string& part) {
  for (const NamedOp& other : kOtherOps)
    if (name == other.name) return other.op;
  return index_of(std::begin(kOps) + 1, std::end(kOps), name, part, "op") + 1;
}

// A number with a unit, as in "64MiB" or "2ms".
uint64_t number(const std::string& text, const std::string& part) {
  static const std::map<std::string_view, uint64_t> units = {
      {"", 1},           {"ns", 1},         {"us", 1000},      {"ms", 1000000},
      {"s", 1000000000}, {"KiB", 1u << 10}, {"MiB", 1u << 20}, {"GiB", 1u << 30}};
  size_t digits = 0;
  while (digits < text.size() && text[digits] >= '0' && text[digits] <= '9') ++digits;
  if (digits == 0 || digits > 18) reject(part, "'" + text + "' is not a number");
  return std::stoull(text.substr(0, digits)) *
         look_up(units, trimmed(text.substr(digits)), part, "unit");
}

int64_t duration(const std::string& text, const std::string& part) {
  return text == "forever" ? kForever : static_cast<int64_t>(number(text, part));
}

// "all", "a,b" or "-a,-b" (all but these).
std::set<uint32_t> subset(const std::string& text, const std::set<uint32_t>& all,
                          const std::function<uint32_t(const std::string&)>& read) {
  std::set<uint32_t> result = text.rfind('-', 0) == 0 ? all : std::set<uint32_t>{};
  for (const auto& word : split(text, ',')) {
    if (word == "all") {
      result = all;
    } else if (word[0] == '-') {
      result.erase(read(word.substr(1)));
    } else {
      result.insert(read(word));
    }
  }
  return result;
}

std::set<uint32_t> every_op() {
  std::set<uint32_t> all;
  for (uint32_t op = 1; op <= kOpCount; ++op) all.insert(op);
  return all;
}

std::set<uint32_t> every_dtype() {
  std::set<uint32_t> all;
  for (const auto& [name, dtype] : kDtypes) all.insert(dtype);
  return all;
}

std::set<uint32_t> op_set(const std::string& text, const std::string& part) {
  return subset(text, every_op(), [&](const std::string& name) { return op_of(name, part); });
}

// "matmul:dtype,*:numerics"
void read_refusals(const std::string& value, const std::string& part,
                   std::map<uint32_t, anyhal_reason>& out) {
  for (const auto& item : split(value, ',')) {
    const auto words = split(item, ':');
    if (words.size() != 2) reject(part, "wants op:reason");
    const auto reason = look_up(kReasons, words[1], part, "reason");
    for (uint32_t op : words[0] == "*" ? every_op() : std::set{op_of(words[0], part)})
      out[op] = reason;
  }
}

// "memory_alloc@3:out_of_memory", "op_enqueue@7+:internal", "op_query@2/1:device_lost", "main"
Failure read_failure(const std::string& value, const std::string& part) {
  Failure failure;
  const auto words = split(value, ':');
  if (words.empty() || words.size() > 2) reject(part, "wants slot@call:status");
  if (words.size() == 2) failure.status = look_up(kStatuses, words[1], part, "status");
  std::string where = words[0];
  if (const auto slash = where.find('/'); slash != std::string::npos) {
    failure.device = static_cast<int32_t>(number(where.substr(slash + 1), part));
    where.resize(slash);
  }
  if (const auto at = where.find('@'); at != std::string::npos) {
    std::string call = where.substr(at + 1);
    failure.onward = !call.empty() && call.back() == '+';
    if (failure.onward) call.pop_back();
    failure.call = number(call, part);
    where.resize(at);
  }
  failure.slot = slot_of(where, part);
  return failure;
}

// 32 hexadecimal digits, or fewer, padded on the right; dashes are ignored.
void read_uuid(const std::string& value, const std::string& part, uint8_t* out) {
  std::string digits;
  for (char c : value)
    if (c != '-') digits.push_back(c);
  if (digits.size() > 32 || digits.find_first_not_of("0123456789abcdef") != std::string::npos)
    reject(part, "wants up to 32 lower-case hexadecimal digits");
  digits.resize(32, '0');
  for (size_t i = 0; i < 16; ++i)
    out[i] = static_cast<uint8_t>(std::stoul(digits.substr(2 * i, 2), nullptr, 16));
}

using DeviceSetter =
    std::function<void(DeviceScript&, const std::string& value, const std::string& part)>;

template <class Int>
DeviceSetter number_into(Int DeviceScript::* field) {
  return [field](DeviceScript& device, const std::string& value, const std::string& part) {
    device.*field = static_cast<Int>(number(value, part));
  };
}

DeviceSetter text_into(std::string DeviceScript::* field) {
  return [field](DeviceScript& device, const std::string& value, const std::string&) {
    device.*field = value;
  };
}

DeviceSetter flag_into(uint32_t flag) {
  return [flag](DeviceScript& device, const std::string&, const std::string&) {
    device.flags |= flag;
  };
}

const std::map<std::string_view, DeviceSetter>& device_keys() {
  static const std::map<std::string_view, DeviceSetter> keys = {
      {"name", text_into(&DeviceScript::name)},
      {"arch", text_into(&DeviceScript::arch)},
      {"driver", text_into(&DeviceScript::driver)},
      {"heap", number_into(&DeviceScript::heap)},
      {"block_max", number_into(&DeviceScript::block_max)},
      {"blocks_max", number_into(&DeviceScript::blocks_max)},
      {"tensor_max", number_into(&DeviceScript::tensor_max)},
      {"offset_alignment", number_into(&DeviceScript::offset_alignment)},
      {"queue_count", number_into(&DeviceScript::queue_count)},
      {"queue_depth", number_into(&DeviceScript::queue_depth)},
      {"rank_max", number_into(&DeviceScript::rank_max)},
      {"own_threads", number_into(&DeviceScript::own_threads)},
      {"unified", flag_into(ANYHAL_DEVICE_UNIFIED)},
      {"integrated", flag_into(ANYHAL_DEVICE_INTEGRATED)},
      {"display_only", flag_into(ANYHAL_DEVICE_DISPLAY_ONLY)},
      {"simulated", flag_into(ANYHAL_DEVICE_SIMULATED)},
      {"dead", [](DeviceScript& d, const std::string&, const std::string&) { d.dead = true; }},
      {"uuid", [](DeviceScript& d, const std::string& value,
                  const std::string& part) { read_uuid(value, part, d.uuid); }},
      {"pci",
       [](DeviceScript& d, const std::string& value, const std::string& part) {
         d.pci_function = static_cast<uint32_t>(number(value, part)) << 8;
       }},
      {"recovery", [](DeviceScript& d, const std::string& value, const std::string& part) {
         static const std::map<std::string_view, uint32_t> words = {
             {"none", ANYHAL_RECOVERY_NONE},
             {"process", ANYHAL_RECOVERY_PROCESS},
             {"reopen", ANYHAL_RECOVERY_REOPEN}};
         d.recovery = look_up(words, value, part, "recovery");
       }}};
  return keys;
}

using Setter = std::function<void(Script&, const std::string& value, const std::string& part)>;

Setter ops_into(std::set<uint32_t> Script::* field) {
  return [field](Script& script, const std::string& value, const std::string& part) {
    script.*field = value == "*" ? every_op() : op_set(value, part);
  };
}

Setter calls_into(std::set<uint64_t> Script::* field) {
  return [field](Script& script, const std::string& value, const std::string& part) {
    for (const auto& call : split(value, ',')) (script.*field).insert(number(call, part));
  };
}

Setter choice(bool Script::* field, const char* no, const char* yes) {
  return [=](Script& script, const std::string& value, const std::string& part) {
    if (value != no && value != yes) reject(part, std::string("wants ") + no + " or " + yes);
    script.*field = value == yes;
  };
}

const std::map<std::string_view, Setter>& keys() {
  static const std::map<std::string_view, Setter> all = {
      {"memory", choice(&Script::cell, "linear", "cell")},
      {"mode", choice(&Script::async, "sync", "async")},
      {"compute", choice(&Script::compute, "off", "on")},
      {"rebind", choice(&Script::rebind, "off", "on")},
      {"addresses", choice(&Script::addresses, "off", "on")},
      {"graph", choice(&Script::compiles, "record", "compile")},
      {"stream_waits", choice(&Script::stream_waits, "off", "on")},
      {"wrong", ops_into(&Script::wrong)},
      {"hang", ops_into(&Script::hang)},
      {"dense", ops_into(&Script::dense)},
      {"capture_unsafe", ops_into(&Script::unsafe)},
      {"pack", ops_into(&Script::pack)},
      {"lie", ops_into(&Script::lie)},
      {"hide", ops_into(&Script::hidden)},
      {"boast", ops_into(&Script::boast)},
      {"moody", ops_into(&Script::moody)},
      {"other_reason", ops_into(&Script::other_reason)},
      {"mistake", ops_into(&Script::mistake)},
      {"scribble", ops_into(&Script::scribble)},
      {"ignore_strides", ops_into(&Script::ignore_strides)},
      {"any_numerics", ops_into(&Script::any_numerics)},
      {"rows", choice(&Script::fickle, "stable", "fickle")},
      {"forget",
       [](Script& s, const std::string& v, const std::string& p) { s.forget = number(v, p); }},
      {"late_oom", calls_into(&Script::late_oom)},
      {"late_failure", calls_into(&Script::late_failure)},
      {"bad",
       [](Script& s, const std::string& v, const std::string& p) {
         for (const auto& name : split(v, ','))
           s.bad.set(index_of(std::begin(kBad), std::end(kBad), name, p, "bad behaviour"));
       }},
      {"note", [](Script& s, const std::string& v, const std::string&) { s.note = v; }},
      {"delay",
       [](Script& s, const std::string& v, const std::string& p) { s.delay_ns = duration(v, p); }},
      {"prepare_time", [](Script& s, const std::string& v,
                          const std::string& p) { s.prepare_ns = duration(v, p); }},
      {"workspace",
       [](Script& s, const std::string& v, const std::string& p) { s.workspace = number(v, p); }},
      {"refuse", [](Script& s, const std::string& v,
                    const std::string& p) { read_refusals(v, p, s.refuse); }},
      {"refuse_in_place", [](Script& s, const std::string& v,
                             const std::string& p) { read_refusals(v, p, s.refuse_in_place); }},
      {"refuse_prepare", [](Script& s, const std::string& v,
                            const std::string& p) { read_refusals(v, p, s.refuse_prepare); }},
      {"fail",
       [](Script& s, const std::string& v, const std::string& p) {
         for (const auto& item : split(v, ',')) s.failures.push_back(read_failure(item, p));
       }},
      {"absent",
       [](Script& s, const std::string& v, const std::string& p) {
         for (const auto& name : split(v, ',')) s.absent.insert(slot_of(name, p));
       }},
      {"ops",
       [](Script& s, const std::string& v, const std::string& p) {
         s.ops = subset(v, s.ops, [&](const std::string& name) { return op_of(name, p); });
       }},
      {"dtypes",
       [](Script& s, const std::string& v, const std::string& p) {
         s.dtypes = subset(v, every_dtype(), [&](const std::string& name) {
           return look_up(kDtypes, name, p, "dtype");
         });
       }},
      {"edge",
       [](Script& s, const std::string& v, const std::string& p) {
         static const std::map<std::string_view, uint32_t> edges = {
             {"none", 0}, {"import", 1}, {"native", 2}};
         s.edge = look_up(edges, v, p, "edge");
       }},
      {"foreign",
       [](Script& s, const std::string& v, const std::string& p) {
         static const std::map<std::string_view, int32_t> types = {
             {"cuda", 2}, {"rocm", 10}, {"oneapi", 14}};  // as DLPack numbers them
         s.foreign = look_up(types, v, p, "kind of device");
       }},
      {"partial", [](Script& s, const std::string& v, const std::string& p) {
         static const std::map<std::string_view, uint32_t> words = {
             {"none", 0},
             {"read", ANYHAL_MEMORY_PARTIAL_READ},
             {"write", ANYHAL_MEMORY_PARTIAL_WRITE}};
         s.partial = 0;
         for (const auto& word : split(v, ',')) s.partial |= look_up(words, word, p, "access");
       }}};
  return all;
}

// One "key", "key=value" or "device.key=value".
void apply(Script& script, const std::string& part) {
  const auto equals = part.find('=');
  std::string key = trimmed(part.substr(0, equals));
  const std::string value = equals == std::string::npos ? "" : trimmed(part.substr(equals + 1));
  size_t first = 0, end = script.devices.size();
  if (const auto dot = key.find('.'); dot != std::string::npos) {
    first = number(key.substr(0, dot), part);
    if (first >= end) reject(part, "there is no such device; say devices= first");
    end = first + 1;
    key.erase(0, dot + 1);
  } else if (const auto found = keys().find(key); found != keys().end()) {
    return found->second(script, value, part);
  } else if (key == "devices") {
    return script.devices.resize(number(value, part),
                                 script.devices.empty() ? DeviceScript{} : script.devices[0]);
  }
  const auto setter = look_up(device_keys(), key, part, "key");
  for (size_t i = first; i < end; ++i) setter(script.devices[i], value, part);
}

}  // namespace

Script parse_script(const std::string& text) {
  Script script;
  script.devices.resize(1);
  script.ops.insert(std::begin(kKernels), std::end(kKernels));
  script.dtypes = every_dtype();
  for (const auto& part : split(text, ';')) {
    if (part == "1" || part == "on") continue;  // ANYHAL_FAKE=1: just be there
    apply(script, part);
  }
  if (script.foreign != 0 && (!script.async || script.cell))
    reject("foreign", "memory is shared only with mode=async and memory=linear");
  if (!script.async && !(script.late_oom.empty() && script.late_failure.empty()))
    reject("late_*", "work fails late only with mode=async");
  for (uint32_t op : script.ops)
    if (std::find(std::begin(kKernels), std::end(kKernels), op) == std::end(kKernels))
      reject("ops", "there is no kernel for " + std::string(op_name(op)));
  return script;
}

const char* op_name(uint32_t op) {
  for (const NamedOp& other : kOtherOps)
    if (op == other.op) return other.name;
  return op <= kOpCount ? kOps[op] : kOps[0];
}

const char* slot_name(uint32_t slot) { return slot <= kSlotCount ? kSlots[slot] : "?"; }

const char* dtype_name(uint32_t dtype) {
  for (const auto& [name, value] : kDtypes)
    if (value == dtype) return name.data();
  return "?";
}

}  // namespace hal::fake
