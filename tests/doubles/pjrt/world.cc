// The double's script and its accounts.
// SPDX-License-Identifier: Apache-2.0
//
// PJRT_DOUBLE_PLUGIN is the real plugin's path. PJRT_DOUBLE is the script, parts separated by ';':
//   fail=Client_Compile@3:13     the 3rd call of that function answers code 13; "@3+" from there on
//   fault=run@2:13               the 2nd execution is accepted and ends with code 13
//   gone=Buffer_ToHostBuffer@1:14  from that call on every function but those of errors fails
//   delay=20ms                   completion is seen that much later
//   version=1.0  slots=60        what the table says of itself; more slots than real are null
//   null=Buffer_ReadyEvent       such functions are not there
//   records=64  records=exact    records must be that much longer than known, or exactly so long
//   report=FILE                  written at exit
#include <dlfcn.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <sstream>

#include "double.h"

namespace pjrt_double {

namespace {

std::vector<std::string> split(const std::string& text, char at) {
  std::vector<std::string> parts;
  std::stringstream stream(text);
  for (std::string part; std::getline(stream, part, at);) {
    const size_t first = part.find_first_not_of(' ');
    if (first != std::string::npos) parts.push_back(part.substr(first));
  }
  return parts;
}

[[noreturn]] void refuse(const std::string& why) {
  std::fprintf(stderr, "pjrt_double: %s\n", why.c_str());
  std::abort();
}

Failure failure_of(const std::string& text) {
  const size_t at = text.find('@'), colon = text.find(':');
  if (at == std::string::npos || colon == std::string::npos) refuse("cannot read '" + text + "'");
  const std::string call = text.substr(at + 1, colon - at - 1);
  return {text.substr(0, at), std::strtoull(call.c_str(), nullptr, 10), call.back() == '+',
          std::atoi(text.c_str() + colon + 1)};
}

bool meets(const Failure& failure, uint64_t call) {
  return call == failure.call || (failure.onward && call > failure.call);
}

void at_exit() {
  World& w = world();
  if (w.pid != getpid() || w.report_path.empty()) return;
  const std::string text = report();
  std::ofstream(w.report_path) << text;
}

}  // namespace

// The parts of the script that may change while the process runs.
void read_script(World& w, const char* script) {
  w.failures.clear(), w.faults.clear(), w.gone.clear();
  w.gone_code = 0, w.delay = {}, w.record_slack = 0, w.records_exact = false;
  for (const std::string& part : split(script != nullptr ? script : "", ';')) {
    const size_t is = part.find('=');
    const std::string key = part.substr(0, is);
    const std::string value = is == std::string::npos ? "" : part.substr(is + 1);
    if (key == "fail") w.failures.push_back(failure_of(value));
    if (key == "fault") w.faults.push_back(failure_of(value));
    if (key == "gone") w.gone.push_back(failure_of(value));
    if (key == "delay") w.delay = std::chrono::milliseconds(std::atoi(value.c_str()));
    if (key == "records")
      w.records_exact = value == "exact", w.record_slack = std::atoi(value.c_str());
    if (key == "report") w.report_path = value;
  }
}

World& world() {
  static World* w = [] {
    auto* made = new World;  // outlives every thread
    made->pid = getpid();
    read_script(*made, std::getenv("PJRT_DOUBLE"));
    const char* path = std::getenv("PJRT_DOUBLE_PLUGIN");
    void* library = path != nullptr ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : nullptr;
    if (library == nullptr) refuse("PJRT_DOUBLE_PLUGIN names no library that opens");
    made->real = reinterpret_cast<api::GetPjrtApi>(dlsym(library, "GetPjrtApi"))();
    std::atexit(at_exit);
    return made;
  }();
  return *w;
}

api::Error* violation(const std::string& text) {
  world().violations.push_back(text);
  std::fprintf(stderr, "pjrt_double: violation: %s\n", text.c_str());
  return made_error(api::kInvalidArgument, "a rule of use was broken: " + text);
}

api::Error* scripted(size_t slot) {
  World& w = world();
  const std::string name = name_of(slot);
  const uint64_t call = ++w.calls[name];
  if (w.pid != getpid()) refuse(name + " was called in a forked child");
  if (slot == api::kErrorDestroy || slot == api::kErrorMessage) return nullptr;
  for (const Failure& failure : w.gone)
    if (failure.name == name && meets(failure, call) && w.gone_code == 0)
      w.gone_code = failure.code;
  if (w.gone_code != 0 && slot != api::kErrorGetCode)
    return made_error(w.gone_code, "the device has gone, seen by " + name);
  for (const Failure& failure : w.failures)
    if (failure.name == name && meets(failure, call))
      return made_error(failure.code, name + ", call " + std::to_string(call) + ", fails as asked");
  return nullptr;
}

int scripted_fault() {
  World& w = world();
  ++w.executions;
  for (const Failure& failure : w.faults)
    if (meets(failure, w.executions)) return failure.code;
  return 0;
}

// As tests/doubles/accounts.py reads it.
std::string report() {
  World& w = world();
  std::unique_lock lock(w.mutex);
  std::ostringstream out;
  out << "clients " << w.clients.size() << "\nbuffers " << w.buffers.size() << "\nevents "
      << w.events.size() << "\nerrors " << w.errors.size() << "\nexecutables "
      << w.executables.size() << "\nloaded " << w.loaded.size() << "\nserialized "
      << w.serialized.size() << "\nruns execute " << w.executions << "\n";
  for (const auto& [name, count] : w.calls) out << "calls " << name << " " << count << "\n";
  for (const std::string& text : w.violations) out << "violation " << text << "\n";
  return out.str();
}

}  // namespace pjrt_double

DOUBLE_EXPORT const void* GetPjrtApi() { return pjrt_double::table(); }

// For tests in the same process: another script from now on, its counts from 0.
DOUBLE_EXPORT void pjrt_double_script(const char* script) {
  auto& w = pjrt_double::world();
  std::unique_lock lock(w.mutex);
  pjrt_double::read_script(w, script);
  w.calls.clear();
  w.executions = 0;
}

// The accounts so far. The text is good until the next call.
DOUBLE_EXPORT const char* pjrt_double_report() {
  static std::string text;
  text = pjrt_double::report();
  return text.c_str();
}
