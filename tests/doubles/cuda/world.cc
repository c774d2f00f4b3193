// The double's script, its accounts, and what holds for every call.
// SPDX-License-Identifier: Apache-2.0
//
// CUDA_DOUBLE is the script, parts separated by ';':
//   devices=sm_90,sm_80   memory=8GiB   version=12040   peers=0   growth=0   seed=7
//   nowait=1                    waits on events pass at once, to see that tests would notice
//   fail=cuMemAlloc_v2@3:2      the 3rd call answers 2, out of memory; "@3+" means from there on
//   fault=anyhal_copy@1:700     the 1st run of that kernel fails when it is reached; -1: never ends
//   log=FILE   report=FILE      written at exit
#include <sys/types.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <sstream>

#include "double.h"

namespace cuda_double {

thread_local CUctx_st* current = nullptr;

namespace {

uint64_t bytes_of(const std::string& text) {
  char* unit = nullptr;
  const uint64_t number = std::strtoull(text.c_str(), &unit, 10);
  return number << (*unit == 'G' ? 30 : *unit == 'M' ? 20 : *unit == 'K' ? 10 : 0);
}

std::vector<std::string> split(const std::string& text, char at) {
  std::vector<std::string> parts;
  std::stringstream stream(text);
  for (std::string part; std::getline(stream, part, at);) {
    const size_t first = part.find_first_not_of(' ');
    if (first != std::string::npos) parts.push_back(part.substr(first));
  }
  return parts;
}

// name@3+:2
Failure failure_of(const std::string& text) {
  const size_t at = text.find('@'), colon = text.find(':');
  if (at == std::string::npos || colon == std::string::npos) std::abort();
  const std::string call = text.substr(at + 1, colon - at - 1);
  return {text.substr(0, at), std::strtoull(call.c_str(), nullptr, 10), call.back() == '+',
          std::atoi(text.c_str() + colon + 1)};
}

void read_script(World& w) {
  const char* script = std::getenv("CUDA_DOUBLE");
  std::vector<std::string> chips = {"sm_90"};
  uint64_t memory = 16ull << 30;
  for (const std::string& part : split(script != nullptr ? script : "", ';')) {
    const size_t is = part.find('=');
    const std::string key = part.substr(0, is);
    const std::string value = is == std::string::npos ? "" : part.substr(is + 1);
    if (key == "devices") chips = split(value, ',');
    if (key == "memory") memory = bytes_of(value);
    if (key == "version") w.version = std::atoi(value.c_str());
    if (key == "peers") w.peers = value != "0";
    if (key == "growth") w.growth = value != "0";
    if (key == "nowait") w.waits = value == "0";
    if (key == "seed") w.seed = std::strtoull(value.c_str(), nullptr, 10);
    if (key == "fail" || key == "fault") w.failures.push_back(failure_of(value));
    if (key == "log") w.log_path = value;
    if (key == "report") w.report_path = value;
  }
  for (const std::string& chip : chips) {
    if (chip.size() < 5) continue;  // devices=none
    auto device = std::make_unique<Device>();
    device->number = static_cast<int>(w.devices.size());
    const int arch = std::atoi(chip.c_str() + 3);
    device->major = arch / 10, device->minor = arch % 10;
    device->bytes = memory;
    device->context.device = device->number;
    device->context.peers = 1u << device->number;
    w.devices.push_back(std::move(device));
  }
}

void at_exit() {
  World& w = world();
  if (w.pid != getpid()) return;
  const std::string text = report();
  std::unique_lock lock(w.mutex);
  if (!w.report_path.empty()) std::ofstream(w.report_path) << text;
  if (!w.log_path.empty()) {
    std::ofstream out(w.log_path);
    for (const std::string& line : w.log) out << line << "\n";
  }
}

}  // namespace

World& world() {
  static World* w = [] {
    auto* made = new World;  // outlives every thread
    made->pid = getpid();
    read_script(*made);
    reserve_space();
    std::atexit(at_exit);
    return made;
  }();
  return *w;
}

CUresult violation(const std::string& text, CUresult answer) {
  world().violations.push_back(text);
  return answer;
}

CUresult enter(const char* name, bool needs_context) {
  World& w = world();
  const uint64_t call = ++w.calls[name];
  if (!w.log_path.empty())
    w.log.push_back(std::string(name) + " " + std::to_string(call) + " thread " +
                    std::to_string(std::hash<std::thread::id>()(std::this_thread::get_id()) % 997));
  if (w.pid != getpid())
    return violation(std::string(name) + " in a forked child", CUDA_ERROR_NOT_INITIALIZED);
  for (const Failure& failure : w.failures) {
    if (failure.name != name) continue;
    if (call != failure.call && !(failure.onward && call > failure.call)) continue;
    const auto code = static_cast<CUresult>(failure.code);
    const bool poisons = code == CUDA_ERROR_ILLEGAL_ADDRESS || code == CUDA_ERROR_LAUNCH_FAILED;
    if (poisons && current != nullptr) current->sticky = code;
    return code;
  }
  const std::string which = name;
  const bool first =
      which == "cuInit" || which == "cuDriverGetVersion" || which == "cuGetErrorName";
  if (!w.started && !first) return CUDA_ERROR_NOT_INITIALIZED;
  if (!needs_context) return CUDA_SUCCESS;
  if (current == nullptr)
    return violation(which + " without a context", CUDA_ERROR_INVALID_CONTEXT);
  if (current->retained == 0)
    return violation(which + " on a context that was given back", CUDA_ERROR_CONTEXT_IS_DESTROYED);
  return current->sticky;
}

CUresult unsafe(const char* name) {
  World& w = world();
  if (w.captures == 0) return CUDA_SUCCESS;
  for (CUstream_st* stream : w.streams) {
    if (!stream->capture || stream->capture->mode == CU_STREAM_CAPTURE_MODE_RELAXED) continue;
    if (stream->capture->mode == CU_STREAM_CAPTURE_MODE_THREAD_LOCAL &&
        stream->capture->thread != std::this_thread::get_id())
      continue;
    stream->capture->invalid = true;
    return violation(std::string(name) + " while a stream is captured",
                     CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  }
  return CUDA_SUCCESS;
}

int failing_run(const std::string& kernel) {
  World& w = world();
  const uint64_t run = ++w.runs[kernel];
  for (const Failure& failure : w.failures)
    if (failure.name == kernel && (run == failure.call || (failure.onward && run > failure.call)))
      return failure.code;
  return 0;
}

void fail_run(int failure) {
  while (failure < 0) std::this_thread::sleep_for(std::chrono::hours(1));
  if (failure != 0) throw WorkFailed{static_cast<CUresult>(failure)};
}

// One line each: "name number" for what is still there, then "calls NAME N", then violations.
std::string report() {
  World& w = world();
  std::unique_lock lock(w.mutex);
  std::ostringstream out;
  uint64_t contexts = 0, used = 0;
  for (const auto& device : w.devices) {
    contexts += static_cast<uint64_t>(device->context.retained);
    used += device->used;
  }
  out << "memory " << w.blocks.size() << "\nbytes " << used << "\nreserved " << w.reserved.size()
      << "\nphysical " << w.physical.size() << "\nhost " << w.host.size() << "\nregistered "
      << w.registered.size() << "\nstreams " << w.streams.size() << "\nevents " << w.events.size()
      << "\nmodules " << w.modules.size() << "\ngraphs " << w.graphs.size() << "\nexecs "
      << w.execs.size() << "\ncontexts " << contexts << "\n";
  for (const auto& [name, count] : w.calls) out << "calls " << name << " " << count << "\n";
  for (const auto& [name, count] : w.runs) out << "runs " << name << " " << count << "\n";
  for (const std::string& text : w.violations) out << "violation " << text << "\n";
  return out.str();
}

}  // namespace cuda_double

// For tests in the same process. The text is good until the next call.
DOUBLE_EXPORT const char* cuda_double_report() {
  static std::string text;
  text = cuda_double::report();
  return text.c_str();
}
// Replaces the scripted failures from now on, and forgets the counts they go by.
DOUBLE_EXPORT void cuda_double_fail(const char* text) {
  auto& w = cuda_double::world();
  std::unique_lock lock(w.mutex);
  w.failures.clear();
  w.calls.clear();
  w.runs.clear();
  for (const std::string& part : cuda_double::split(text, ';'))
    w.failures.push_back(cuda_double::failure_of(part));
}
