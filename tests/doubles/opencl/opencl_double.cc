// An OpenCL loader for tests: the real one lies behind it and does the work; this one counts, logs,
// fails on demand and keeps accounts.
// SPDX-License-Identifier: Apache-2.0
//
//     g++ -std=c++20 -O1 -shared -fPIC -Ibackends/opencl tests/doubles/opencl/opencl_double.cc
//         backends/opencl/opencl_api.cc -o libOpenCL_double.so -Wl,--no-as-needed -l:libOpenCL.so.1
//
// OPENCL_DOUBLE is the script, parts separated by ';'; opencl_double_script() replaces it.
//   fail=clCreateBuffer@3:-4        the 3rd call answers -4 and does nothing; "@3+": and all later
//   fail=*@17:-5                    the 17th call of all
//   fault=clEnqueueNDRangeKernel@2:-5   is accepted, does not run, and its event ends with -5; what
//                                   follows goes on, as with the drivers that this was seen on
//   gone=clFlush@1:-36              from there on everything on that call's device answers -36
//   silent=1                        and what was queued there never ends, instead of failing
//   delay=20                        commands are told to be complete 20 ms late
//   version=OpenCL 1.1 old          what devices say of their version
//   driver=7.2                      what devices say of their driver
//   log=FILE   report=FILE          written at exit
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <map>
#include <mutex>
#include <sstream>
#include <thread>
#include <type_traits>
#include <vector>

#include "opencl_api.h"

#define DOUBLE_EXPORT extern "C" __attribute__((visibility("default")))

namespace opencl_double {
namespace {

using namespace hal::opencl;
using Clock = std::chrono::steady_clock;

struct Rule {
  std::string verb, name;
  uint64_t call;
  bool onward;
  cl_int code;
};

struct Object {
  const char* kind;
  int count;
  cl_device_id device;
};

struct Command {
  cl_int code;  // what its event ends with; 0: what really became of it
  Clock::time_point due;
};

struct World {
  std::mutex mutex;  // never held while the real loader is called: it may call back
  Api real;
  std::vector<Rule> rules;
  std::chrono::milliseconds delay{0};
  bool silent = false;
  std::string version, driver, log_path, report_path;
  std::map<std::string, uint64_t> calls;
  uint64_t call_count = 0;
  std::map<void*, Object> live;
  std::map<void*, Command> commands;  // by event
  std::map<void*, cl_int> gone;       // by device
  std::vector<std::string> log, violations;
};

// ---- The script and the report.

void read_script(World& w, const char* script) {
  w.rules.clear(), w.calls.clear(), w.gone.clear(), w.violations.clear();
  w.call_count = 0, w.delay = {}, w.silent = false;
  w.version.clear(), w.driver.clear();
  std::stringstream stream(script);
  for (std::string part; std::getline(stream, part, ';');) {
    part.erase(0, part.find_first_not_of(' '));
    const size_t is = part.find('='), at = part.find('@'), colon = part.rfind(':');
    if (is == std::string::npos) continue;
    const std::string key = part.substr(0, is), value = part.substr(is + 1);
    if (key == "delay") w.delay = std::chrono::milliseconds(std::atoi(value.c_str()));
    if (key == "silent") w.silent = value == "1";
    if (key == "version") w.version = value;
    if (key == "driver") w.driver = value;
    if (key == "log") w.log_path = value;
    if (key == "report") w.report_path = value;
    if (key != "fail" && key != "fault" && key != "gone") continue;
    if (at == std::string::npos || colon == std::string::npos) std::abort();
    w.rules.push_back({key, part.substr(is + 1, at - is - 1),
                       std::strtoull(part.c_str() + at + 1, nullptr, 10), part[colon - 1] == '+',
                       std::atoi(part.c_str() + colon + 1)});
  }
}

// One line each: "kind number" for what is still there, "calls NAME N", then broken rules.
std::string report(World& w) {
  std::lock_guard lock(w.mutex);
  std::map<std::string, int> left;
  for (const auto& [handle, object] : w.live) ++left[object.kind];
  std::ostringstream out;
  for (const auto& [kind, count] : left) out << kind << " " << count << "\n";
  for (const auto& [name, count] : w.calls) out << "calls " << name << " " << count << "\n";
  for (const std::string& text : w.violations) out << "violation " << text << "\n";
  return out.str();
}

World& world() {
  static World* w = [] {
    auto* made = new World;  // outlives every thread
    const char* script = std::getenv("OPENCL_DOUBLE");
    read_script(*made, script != nullptr ? script : "");
    bool broken = false;
    if (!load_api("libOpenCL.so.1", made->real, broken).empty()) std::abort();
    std::atexit([] {
      World& all = world();
      const std::string text = report(all);
      if (!all.report_path.empty()) std::ofstream(all.report_path) << text;
      std::lock_guard lock(all.mutex);
      if (all.log_path.empty()) return;
      std::ofstream out(all.log_path);
      for (const std::string& line : all.log) out << line << "\n";
    });
    return made;
  }();
  return *w;
}

// ---- What the types of arguments say. All of these with the lock held.

const char* kind_of(cl_context) { return "contexts"; }
const char* kind_of(cl_command_queue) { return "queues"; }
const char* kind_of(cl_mem) { return "buffers"; }
const char* kind_of(cl_program) { return "programs"; }
const char* kind_of(cl_kernel) { return "kernels"; }
const char* kind_of(cl_event) { return "events"; }
template <class T>
concept Handle = requires(T value) { kind_of(value); } && std::is_pointer_v<T>;

struct Seen {  // of one call
  cl_device_id device = nullptr;
  void* dead = nullptr;  // a handle that names nothing
  cl_event* event = nullptr;
  cl_int* code = nullptr;
};

template <class T>
void look_at(World& w, Seen& seen, T value) {
  if constexpr (Handle<T>) {
    const auto found = w.live.find(value);
    if (found == w.live.end())
      seen.dead = value;
    else if (seen.device == nullptr)
      seen.device = found->second.device;
  } else if constexpr (std::is_same_v<T, cl_device_id>) {
    if (seen.device == nullptr) seen.device = value;
  } else if constexpr (std::is_same_v<T, const cl_device_id*>) {
    if (seen.device == nullptr && value != nullptr) seen.device = *value;
  } else if constexpr (std::is_same_v<T, cl_event*>) {
    seen.event = value;
  } else if constexpr (std::is_same_v<T, cl_int*>) {
    seen.code = value;
  } else if constexpr (std::is_same_v<T, const cl_event*>) {
    if (value == nullptr || seen.device != nullptr) return;
    const auto found = w.live.find(*value);
    if (found != w.live.end()) seen.device = found->second.device;
  }
}

bool starts_with(const char* name, const char* word) {
  return std::strncmp(name, word, std::strlen(word)) == 0;
}

bool gives_back(const char* name) {
  return starts_with(name, "clRelease") || starts_with(name, "clRetain");
}

// What is to become of this call: an early answer, or a failure of the accepted command.
struct Verdict {
  cl_int answer = kSuccess, fault = kSuccess;
};

Verdict judge(World& w, const char* name, const Seen& seen) {
  const uint64_t call = ++w.calls[name], of_all = ++w.call_count;
  if (!w.log_path.empty()) w.log.push_back(std::string(name) + " " + std::to_string(call));
  Verdict verdict;
  if (seen.dead != nullptr) {
    w.violations.push_back(std::string(name) + " of what is not there, or no more");
    verdict.answer = -34;
  }
  for (const Rule& rule : w.rules) {
    const uint64_t now = rule.name == "*" ? of_all : call;
    if (rule.name != "*" && rule.name != name) continue;
    if (now != rule.call && !(rule.onward && now > rule.call)) continue;
    if (rule.verb == "gone") w.gone[seen.device] = rule.code;
    (rule.verb == "fault" ? verdict.fault : verdict.answer) = rule.code;
  }
  const auto gone = w.gone.find(seen.device);
  if (gone != w.gone.end() && !gives_back(name)) verdict.answer = gone->second;
  return verdict;
}

template <class R, class... A>
void keep_account(World& w, const char* name, const Seen& seen, R result, A... arguments) {
  if constexpr (Handle<R>) {
    if (result != nullptr) w.live[result] = {kind_of(result), 1, seen.device};
  }
  if (seen.event != nullptr && *seen.event != nullptr) {
    w.live[*seen.event] = {"events", 1, seen.device};
    w.commands[*seen.event] = {kSuccess, Clock::now() + w.delay};
  }
  if constexpr (sizeof...(A) == 1 && (Handle<A> && ...)) {
    if (starts_with(name, "clRetain")) ((++w.live[arguments].count), ...);
    if (!starts_with(name, "clRelease")) return;
    (...,
     (--w.live[arguments].count == 0 ? (w.live.erase(arguments), w.commands.erase(arguments)) : 0));
  }
}

// ---- Entry points that know more than their types.

template <class R, class... A>
R really(const char*, R (*real)(A...), A... arguments) {
  return real(arguments...);
}

Command command_of(World& w, cl_event event) {
  std::lock_guard lock(w.mutex);
  const auto found = w.commands.find(event);
  return found == w.commands.end() ? Command{kSuccess, {}} : found->second;
}

cl_int really(const char* name, decltype(Api::GetEventInfo) real, cl_event event, cl_uint what,
              size_t bytes, void* value, size_t* total) {
  const cl_int answer = real(event, what, bytes, value, total);
  if (std::strcmp(name, "clGetEventInfo") != 0 || answer != kSuccess || value == nullptr)
    return answer;
  if (what != kEventCommandExecutionStatus) return answer;
  const Command command = command_of(world(), event);
  cl_int status;
  std::memcpy(&status, value, sizeof(status));
  if (status <= kComplete && Clock::now() < command.due)
    status = 1;  // CL_RUNNING
  else if (status == kComplete)
    status = command.code;
  std::memcpy(value, &status, sizeof(status));
  return answer;
}

cl_int really(const char*, decltype(Api::WaitForEvents) real, cl_uint count,
              const cl_event* events) {
  cl_int answer = real(count, events);
  for (cl_uint i = 0; i < count; ++i) {
    const Command command = command_of(world(), events[i]);
    std::this_thread::sleep_until(command.due);
    if (command.code != kSuccess) answer = kExecStatusErrorForEventsInWaitList;
  }
  return answer;
}

cl_int really(const char* name, decltype(Api::Finish) real, cl_command_queue queue) {
  if (std::strcmp(name, "clFinish") == 0) std::this_thread::sleep_for(world().delay);
  return real(queue);
}

struct Told {
  EventNotify fn;
  void* argument;
};

cl_int really(const char*, decltype(Api::SetEventCallback) real, cl_event event, cl_int type,
              EventNotify fn, void* argument) {
  return real(
      event, type,
      [](cl_event of, cl_int status, void* given) {
        const auto* told = static_cast<Told*>(given);
        const Command command = command_of(world(), of);
        std::this_thread::sleep_until(command.due);
        told->fn(of, command.code != kSuccess ? command.code : status, told->argument);
        delete told;
      },
      new Told{fn, argument});
}

// Of one type with clGetProgramInfo and others, so the name decides.
cl_int really(const char* name, decltype(Api::GetDeviceInfo) real, cl_device_id device,
              cl_uint what, size_t bytes, void* value, size_t* total) {
  const World& w = world();
  const std::string& text = what == kDeviceVersion ? w.version : w.driver;
  const bool asked = what == kDeviceVersion || what == kDriverVersion;
  if (!asked || text.empty() || std::strcmp(name, "clGetDeviceInfo") != 0)
    return real(device, what, bytes, value, total);
  if (total != nullptr) *total = text.size() + 1;
  if (value != nullptr && bytes > text.size()) std::memcpy(value, text.c_str(), text.size() + 1);
  return kSuccess;
}

// ---- Every entry point.

template <class R>
R refusal(const Seen& seen, cl_int code) {
  if constexpr (std::is_same_v<R, cl_int>) return code;
  if (seen.code != nullptr) *seen.code = code;
  return R{};
}

// A command that is accepted and fails: a marker stands for it, so that order is kept.
template <class R, class First, class... A>
R marker_for(World& w, const Seen& seen, cl_int code, First queue, A...) {
  if constexpr (std::is_same_v<First, cl_command_queue> && std::is_same_v<R, cl_int>) {
    if (seen.event == nullptr) return code;
    const cl_int answer = w.real.EnqueueMarkerWithWaitList(queue, 0, nullptr, seen.event);
    std::lock_guard lock(w.mutex);
    if (answer != kSuccess) return answer;
    keep_account(w, "", seen, answer);
    w.commands[*seen.event].code = code;
    return answer;
  }
  (void)w, (void)queue;
  return refusal<R>(seen, code);
}

template <auto kMember, class R, class... A>
R enter(const char* name, A... arguments) {
  World& w = world();
  Seen seen;
  Verdict verdict;
  bool hangs = false;
  {
    std::lock_guard lock(w.mutex);
    (look_at(w, seen, arguments), ...);
    verdict = judge(w, name, seen);
    hangs = w.silent && w.gone.contains(seen.device) && std::strcmp(name, "clGetEventInfo") == 0;
  }
  if (hangs) {
    if constexpr (std::is_same_v<decltype(Api::GetEventInfo), R (*)(A...)>)
      return [](cl_event, cl_uint, size_t, void* value, size_t*) {
        const cl_int running = 1;
        std::memcpy(value, &running, sizeof(running));
        return kSuccess;
      }(arguments...);
  }
  if (verdict.answer != kSuccess) return refusal<R>(seen, verdict.answer);
  if (verdict.fault != kSuccess) return marker_for<R>(w, seen, verdict.fault, arguments...);
  // Released for good in the accounts first: the driver may hand the address out again at once.
  const bool back = gives_back(name);
  if (back) {
    std::lock_guard lock(w.mutex);
    keep_account(w, name, seen, R{}, arguments...);
  }
  R result = really(name, w.real.*kMember, arguments...);
  if (back) return result;
  std::lock_guard lock(w.mutex);
  keep_account(w, name, seen, result, arguments...);
  return result;
}

// A function of the type of the Api's member, under a name.
template <auto kMember, class Function>
struct Entry;
template <auto kMember, class R, class... A>
struct Entry<kMember, R (*Api::*)(A...)> {
  static inline const char* name = nullptr;
  static R call(A... arguments) { return enter<kMember, R, A...>(name, arguments...); }
};

}  // namespace
}  // namespace opencl_double

// The symbol is found by a resolver, which knows the signature from the Api.
#define ENTRY(Name)                                        \
  extern "C" void (*resolve_cl##Name())() {                \
    using namespace opencl_double;                         \
    using Found = Entry<&Api::Name, decltype(&Api::Name)>; \
    Found::name = "cl" #Name;                              \
    return reinterpret_cast<void (*)()>(&Found::call);     \
  }                                                        \
  DOUBLE_EXPORT void cl##Name() __attribute__((ifunc("resolve_cl" #Name)));

ENTRY(GetPlatformIDs)
ENTRY(GetPlatformInfo)
ENTRY(GetDeviceIDs)
ENTRY(GetDeviceInfo)
ENTRY(CreateContext)
ENTRY(ReleaseContext)
ENTRY(CreateCommandQueue)
ENTRY(ReleaseCommandQueue)
ENTRY(CreateBuffer)
ENTRY(ReleaseMemObject)
ENTRY(CreateProgramWithSource)
ENTRY(CreateProgramWithBinary)
ENTRY(BuildProgram)
ENTRY(GetProgramInfo)
ENTRY(GetProgramBuildInfo)
ENTRY(ReleaseProgram)
ENTRY(CreateKernel)
ENTRY(ReleaseKernel)
ENTRY(SetKernelArg)
ENTRY(EnqueueNDRangeKernel)
ENTRY(EnqueueReadBuffer)
ENTRY(EnqueueWriteBuffer)
ENTRY(EnqueueCopyBuffer)
ENTRY(EnqueueFillBuffer)
ENTRY(EnqueueMapBuffer)
ENTRY(EnqueueUnmapMemObject)
ENTRY(EnqueueMarkerWithWaitList)
ENTRY(EnqueueBarrierWithWaitList)
ENTRY(Flush)
ENTRY(Finish)
ENTRY(WaitForEvents)
ENTRY(GetEventInfo)
ENTRY(SetEventCallback)
ENTRY(RetainEvent)
ENTRY(ReleaseEvent)

// For tests in the same process. The text is good until the next call.
DOUBLE_EXPORT const char* opencl_double_report() {
  static std::string text;
  text = opencl_double::report(opencl_double::world());
  return text.c_str();
}
// Replaces the script from now on, and forgets counts, broken rules and that a device is gone.
DOUBLE_EXPORT void opencl_double_script(const char* text) {
  auto& w = opencl_double::world();
  std::lock_guard lock(w.mutex);
  opencl_double::read_script(w, text);
}
