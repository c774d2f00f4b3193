// Bad behaviours of the fake backend, at the places where it asks for them.
// SPDX-License-Identifier: Apache-2.0
//
// What computes wrongly does so for the op `unary` or on some condition where it can, so that only
// the check that looks for it finds it.
#include "bad.hh"

#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cfenv>
#include <chrono>
#include <clocale>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <thread>

#include "device.hh"

namespace hal::fake {
namespace {

volatile uint8_t g_sink;
std::atomic<uint64_t> g_turn{0};

}  // namespace

void Instance::leak(size_t bytes) {
  auto* block = static_cast<uint8_t*>(std::malloc(bytes));
  if (block != nullptr) std::memset(block, 1, bytes);
  g_sink = block != nullptr ? block[0] : 0;
}

namespace {

// What everybody in the process shares. Another value each time, so that each change is seen.
void change_process(const Script& script) {
  const uint64_t turn = ++g_turn;
  if (script.is(Bad::host_computing)) {
    static constexpr int modes[] = {FE_UPWARD, FE_DOWNWARD, FE_TOWARDZERO};
    std::fesetround(modes[turn % 3]);
  }
  if (script.is(Bad::host_locale)) {
    static constexpr const char* names[] = {"C", "C.UTF-8", "POSIX"};
    std::setlocale(turn % 2 != 0 ? LC_ALL : LC_NUMERIC, names[turn % 3]);
    if (turn % 3 == 2) std::setlocale(LC_CTYPE, "C.UTF-8");
  }
  if (script.is(Bad::host_signals)) {
    const int number = SIGRTMIN + 1 + static_cast<int>(turn % 20);
    if (std::signal(number, [](int) {}) != SIG_DFL) std::signal(number, SIG_DFL);
  }
  if (script.is(Bad::host_environment)) setenv("FAKE_TURN", std::to_string(turn).c_str(), 1);
  if (script.is(Bad::host_directory)) {
    static constexpr const char* folders[] = {"/", "/usr", "/etc"};
    if (chdir(folders[turn % 3]) != 0) g_sink = 1;
  }
  if (script.is(Bad::host_umask)) umask(static_cast<mode_t>(turn % 3));
  if (script.is(Bad::host_limits)) {
    rlimit limit = {};
    getrlimit(RLIMIT_STACK, &limit);
    limit.rlim_cur = (4096 - turn % 1000) * 4096;
    setrlimit(RLIMIT_STACK, &limit);
  }
  if (script.is(Bad::host_thread_name)) prctl(PR_SET_NAME, ("fake" + std::to_string(turn)).c_str());
  if (script.is(Bad::host_affinity)) {
    cpu_set_t cores;
    CPU_ZERO(&cores);
    CPU_SET(turn / 2 % 2, &cores);
    sched_setaffinity(0, sizeof cores, &cores);
  }
  if (script.is(Bad::host_output)) {
    std::printf("fake was here\n");
    std::fflush(stdout);
  }
}

bool same_shapes(const Description& a, const Description& b) {
  if (a.op != b.op || a.tensors.size() != b.tensors.size()) return false;
  for (size_t i = 0; i < a.tensors.size(); ++i)
    if (a.tensors[i].dims != b.tensors[i].dims) return false;
  return true;
}

bool same_dtypes(const Description& a, const Description& b) {
  for (size_t i = 0; i < a.tensors.size(); ++i)
    if (a.tensors[i].dtype != b.tensors[i].dtype) return false;
  return true;
}

bool same_sizes(const Description& a, const Description& b) {
  if (a.op != b.op || a.tensors.size() != b.tensors.size()) return false;
  for (size_t i = 0; i < a.tensors.size(); ++i)
    if (a.tensors[i].units() != b.tensors[i].units() || a.tensors[i].bytes != b.tensors[i].bytes)
      return false;
  return true;
}

// Takes one property from an earlier description whose others are alike: a key that lacks it.
void take_from(const Script& script, const Description& old, Plan& plan) {
  Description& mine = plan.op;
  const bool attributes = old.attributes == mine.attributes;
  const bool shapes = same_shapes(old, mine);
  const bool dtypes = shapes && same_dtypes(old, mine);
  const size_t out = mine.tensors.size() - 1;
  if (script.is(Bad::key_dtype) && shapes && attributes && mine.op == ANYHAL_OP_BINARY)
    for (size_t i = 0; i <= out; ++i)
      if (unit_bytes(old.tensors[i].dtype) == unit_bytes(mine.tensors[i].dtype))
        mine.tensors[i].dtype = old.tensors[i].dtype;
  if (script.is(Bad::key_target) && shapes && mine.op == ANYHAL_OP_CAST &&
      old.tensors[0].dtype == mine.tensors[0].dtype &&
      unit_bytes(old.tensors[1].dtype) <= unit_bytes(mine.tensors[1].dtype))
    mine.tensors[1].dtype = old.tensors[1].dtype;
  if (script.is(Bad::key_shape) && attributes && mine.op == ANYHAL_OP_REDUCE &&
      same_dtypes(old, mine) && old.tensors.size() == 2 &&
      old.tensors[0].units() == mine.tensors[0].units() &&
      old.tensors[1].bytes <= mine.tensors[1].bytes)
    mine.tensors = old.tensors;
  if (script.is(Bad::key_strides) && dtypes && attributes && same_sizes(old, mine))
    for (size_t i = 0; i <= out; ++i) mine.tensors[i].strides = old.tensors[i].strides;
  if (script.is(Bad::key_function) && dtypes && mine.op == ANYHAL_OP_BINARY)
    mine.attributes = old.attributes;
  if (script.is(Bad::key_attribute) && old.tensors.size() == mine.tensors.size() &&
      mine.op == ANYHAL_OP_REDUCE && old.op == mine.op &&
      old.tensors[0].dims == mine.tensors[0].dims && mine.tensors[0].dims.size() == 2) {
    mine.attributes = old.attributes;
    mine.tensors = old.tensors;
  }
}

// Where the gap behind the first row of a tensor with gaps begins; 0 where there is none.
uint64_t gap_of(const Tensor& tensor) {
  const size_t rank = tensor.dims.size();
  if (rank < 2 || tensor.dims[0] < 2 || tensor.strides[rank - 1] != 1 ||
      tensor.strides[rank - 2] <= tensor.dims[rank - 1])
    return 0;
  return static_cast<uint64_t>(tensor.dims[rank - 1]) * unit_bytes(tensor.dtype);
}

bool is_f32(const Description& op) {
  return op.tensors.size() > 1 && op.tensors.back().dtype == ANYHAL_DTYPE_F32 &&
         op.tensors[0].dtype == ANYHAL_DTYPE_F32 && op.tensors.back().bytes >= 4;
}

// The least bit of the first element, where that is no whole number: exact checks see nothing.
void flip(uint8_t* at) {
  const auto value = read<float>(at);
  if (value == std::floor(value)) return;
  write(at, static_cast<uint32_t>(read<uint32_t>(at) ^ 1u));
}

// The second operand of a binary op, when it is one number: as it was at the first run.
void keep_scalar(Plan& plan, std::vector<Operand>& operands) {
  if (plan.op.op != ANYHAL_OP_BINARY) return;
  const Tensor& tensor = plan.op.tensors[1];
  const uint8_t* now = bytes_of(operands[1]);
  if (now == nullptr) now = reinterpret_cast<const uint8_t*>(operands[1].inline_value);
  if (tensor.bytes != unit_bytes(tensor.dtype) || tensor.bytes == plan.op.tensors[2].bytes) return;
  if (plan.scalar.data == nullptr) {
    plan.scalar.data = plan.scalar_bytes;
    std::memcpy(plan.scalar_bytes, now, tensor.bytes);
  }
  plan.descriptor_flags[1] &= ~static_cast<uint32_t>(ANYHAL_TENSOR_INLINE);
  operands[1] = {&plan.scalar, 0, {}};
}

struct Parts {
  uint32_t last = 0;
};

void change_inputs_and_around(const Script& script, const Plan& plan,
                              const std::vector<Operand>& operands) {
  uint8_t* in = bytes_of(operands[0]);
  uint8_t* out = bytes_of(operands.back());
  const Tensor& x = plan.op.tensors[0];
  const Tensor& y = plan.op.tensors.back();
  if (in == nullptr || out == nullptr) return;
  if (script.is(Bad::writes_input)) write(in, read<float>(in) + 1);
  if (script.is(Bad::reads_around) && gap_of(x) != 0)
    write(out, read<float>(out) + 0 * read<float>(in + gap_of(x)));
  if (script.is(Bad::writes_around) && gap_of(y) != 0) write(out + gap_of(y), 1.0f);
  if (script.is(Bad::reads_on)) g_sink = in[x.bytes];
}

}  // namespace

void bad_before_run(Device& device, Plan& plan, std::vector<Operand>& operands,
                    const Operand& workspace) {
  Instance& instance = *device.instance;
  const Script& script = instance.script;
  if (plan.type != Plan::kOp) return;
  if (plan.op.op == ANYHAL_OP_UNARY) change_process(script);
  if (script.is(Bad::hot_services)) {
    const anyhal_services& core = *instance.services;
    core.host_free(core.context, core.host_alloc(core.context, 64, 64));
  }
  if (script.is(Bad::leaks_runs)) instance.leak(16384);
  if (script.is(Bad::leaks_files) && plan.runs % 16 == 0) g_sink = open("/dev/null", O_RDONLY) < 0;
  if (script.is(Bad::bakes_refs)) {
    if (plan.first.empty()) plan.first = operands;
    for (size_t i = 0; i < plan.op.input_count; ++i)
      if (operands[i].block != nullptr && plan.first[i].block->alive) operands[i] = plan.first[i];
  }
  if (script.is(Bad::key_scalar)) keep_scalar(plan, operands);
  if (script.is(Bad::key_offset))
    for (Operand& operand : operands)
      if (operand.block != nullptr) operand.offset -= operand.offset % 64;
  if (plan.clears && operands.back().block != nullptr)
    std::memset(bytes_of(operands.back()), 0, plan.op.tensors.back().bytes);
  const bool looks = script.is(Bad::reads_workspace) || script.is(Bad::trusts_workspace);
  if (looks && workspace.block != nullptr) plan.pack_key.assign(1, bytes_of(workspace)[0]);
}

bool bad_skips(Plan& plan, const std::vector<Operand>& operands) {
  if (!is_bad(*plan.device->instance, Bad::cached_result)) return false;
  bool same = plan.before.size() == operands.size();
  for (size_t i = 0; same && i < operands.size(); ++i)
    same = plan.before[i].block == operands[i].block &&
           plan.before[i].offset == operands[i].offset && operands[i].block != nullptr;
  plan.before = operands;
  return same;
}

void bad_after_run(Device& device, Plan& plan, const std::vector<Operand>& operands) {
  Instance& instance = *device.instance;
  const Script& script = instance.script;
  if (plan.type != Plan::kOp || !is_f32(plan.op) || operands.back().block == nullptr) return;
  uint8_t* out = bytes_of(operands.back());
  const int64_t rows = plan.op.tensors[0].dims.empty() ? 1 : plan.op.tensors[0].dims[0];
  if (plan.op.op == ANYHAL_OP_UNARY) change_inputs_and_around(script, plan, operands);
  if (script.is(Bad::second_differs) && plan.runs > 1) write(out, read<float>(out) + 1);
  if (script.is(Bad::drifts) && plan.runs > 100) write(out, read<float>(out) + 1);
  if (script.is(Bad::needs_memory) && device.live_bytes[0] > (64u << 20)) flip(out);
  if (script.is(Bad::random_bits) && plan.runs % 3 == 2) flip(out);
  if (script.is(Bad::batch_lie) && rows % 2 != 0) flip(out);
  if (script.is(Bad::reads_workspace) && !plan.pack_key.empty() && plan.pack_key[0] != 0xff)
    write(out, read<float>(out) + 1);
  if (script.is(Bad::trusts_workspace) && !plan.pack_key.empty() && plan.pack_key[0] != 0)
    write(out, read<float>(out) + 1);
  if (script.is(Bad::part_order) && plan.op.op != ANYHAL_OP_UNARY) {
    Parts parts;
    const anyhal_services& core = *instance.services;
    const auto part = [](void* argument, uint32_t number) {
      static_cast<Parts*>(argument)->last = number;
    };
    core.parallel_for(core.context, 2, part, &parts);
    if (parts.last == 0) flip(out);
  }
}

void bad_plan(Instance& instance, Plan& plan) {
  const Script& script = instance.script;
  if (script.bad.none()) return;
  if (script.is(Bad::leaks_plans)) instance.leak(16384);
  const Description original = plan.op;
  const bool in_place = plan.alias_of.back() >= 0;
  for (const Description& old : instance.seen) {
    take_from(script, old, plan);
    if (script.is(Bad::key_in_place) && in_place && plan.op.op == ANYHAL_OP_BINARY &&
        same_shapes(old, plan.op))
      plan.clears = true;
  }
  const uint64_t first = static_cast<uint64_t>(Bad::key_dtype);
  const uint64_t last = static_cast<uint64_t>(Bad::key_target);
  for (uint64_t key = first; key <= last; ++key)
    if (script.bad[key]) return instance.seen.push_back(original);
}

void bad_prepare(Instance& instance, std::unique_lock<std::mutex>& lock) {
  const Script& script = instance.script;
  if (script.bad.none()) return;
  const anyhal_services& core = *instance.services;
  if (script.is(Bad::unchecked_service)) {
    void* memory = core.host_alloc(core.context, 64, 64);
    if (memory == nullptr)
      throw Fault{ANYHAL_STATUS_INTERNAL, ANYHAL_REASON_NONE, "it did not expect that"};
    core.host_free(core.context, memory);
  }
  if (script.is(Bad::unchecked_malloc)) {
    auto* memory = static_cast<volatile uint8_t*>(std::malloc(64));
    memory[0] = 1;
    std::free(const_cast<uint8_t*>(memory));
  }
  if (!script.is(Bad::one_prepare)) return;
  if (instance.preparing)
    throw Fault{ANYHAL_STATUS_INTERNAL, ANYHAL_REASON_NONE, "another thread prepares"};
  instance.preparing = true;
  lock.unlock();
  std::this_thread::sleep_for(std::chrono::microseconds(300));
  lock.lock();
  instance.preparing = false;
}

// The queue that a call goes to: the first one that this thread used, on that device.
Queue& bad_queue(Queue& queue) {
  if (!is_bad(*queue.device->instance, Bad::thread_queue)) return queue;
  thread_local std::map<const Device*, Queue*> first;
  Queue*& mine = first[queue.device];
  if (mine == nullptr || !mine->alive) mine = &queue;
  return *mine;
}

// Whether the block was given bytes of its own here: another one's.
bool bad_block(Device& device, uint32_t purpose, Block& block) {
  const Instance& instance = *device.instance;
  static std::map<uint64_t, std::vector<uint8_t>> shared;  // by size
  const bool purposes =
      is_bad(instance, Bad::shared_blocks) && (purpose == 1 || purpose == 2) && !block.cell;
  const bool instances = is_bad(instance, Bad::instances_share) && instance.number > 1 &&
                         block.bytes == 4096 && block.kind_index == 0;
  uint32_t open = 0;
  for (const auto& one : instance.devices) open += one->alive;
  const bool devices = is_bad(instance, Bad::devices_share) && open > 1 && block.kind_index == 0 &&
                       (block.bytes == 16384 || block.bytes == 262144);
  if (!purposes && !instances && !devices) return false;
  auto& bytes = shared[block.bytes];
  bytes.resize(block.bytes + 256);
  block.data = bytes.data() + (256 - reinterpret_cast<uint64_t>(bytes.data()) % 256) % 256;
  block.foreign = true;
  block.cell = false;
  return true;
}

void bad_entry(Instance& instance) {
  static uint32_t instances = 0;
  instance.number = ++instances;
  if (is_bad(instance, Bad::host_loading)) {
    setenv("FAKE_WAS_LOADED", "1", 1);
    std::signal(SIGUSR2, [](int) {});
  }
  if (instance.number != 1) return;
  if (is_bad(instance, Bad::exit_crashes)) std::atexit([] { std::abort(); });
}

void bad_fork(const Instance& instance) {
  if (is_bad(instance, Bad::fork_crashes)) std::abort();
  if (is_bad(instance, Bad::fork_hangs)) pause();
}

}  // namespace hal::fake
