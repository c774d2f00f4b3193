// The core's own steps, with a look at the process after each.
// SPDX-License-Identifier: Apache-2.0
#include "core/probe/subject.hpp"

#include <dlfcn.h>
#include <pthread.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <clocale>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "core/instance.hpp"
#include "core/probe/watch.hpp"
#include "core/text.hpp"

namespace hal::probe {
namespace {

Record* g_record = nullptr;

void count_fork() { g_record->forks.fetch_add(1); }

constexpr const char* kComputes = "rounding, or what becomes of denormal numbers";

// A fork by the library goes on here, in our code, with half of a process.
void end_copies(Stage stage) {
  if (getpid() == g_record->pid.load()) return;
  uint32_t none = kStart;
  g_record->copied.compare_exchange_strong(none, stage);
  g_record->copies.fetch_add(1);
  _exit(0);
}

// What was printed is read before the next stage begins, so that it is known who did it.
void wait_until_read() {
  std::fflush(nullptr);
  for (const int output : {STDOUT_FILENO, STDERR_FILENO})
    for (int unread = 1; unread > 0; usleep(100))
      if (ioctl(output, FIONREAD, &unread) != 0 || unread == 0) break;
}

// A locale that any other choice differs from, so that setting the usual one is seen as well.
void choose_locale() { std::setlocale(LC_NUMERIC, "C.UTF-8"); }

void keep_refusal(Record& record, const char* stage, int32_t status, const char* text) {
  copy_text(record.core_stage, stage);
  copy_text(record.core_text, text);
  record.core_status = status;
}

void walk(const Request& request, const Sealed& library, const Watch& before, Record& record) {
  const auto passed = [&](Stage stage) {
    end_copies(stage);
    Watch::look().compare(before, stage, record);
    wait_until_read();
  };
  record.stage.store(kOpen);
  open_neighbours(library, request.path);
  // The constructors run here; the core then finds the library open, by the same name.
  dlopen(library.path().c_str(), RTLD_NOW | RTLD_LOCAL);
  passed(kOpen);
  record.stage.store(kInit);
  Instance* instance = load_instance(request.path, request.name, request.settings, library.path());
  const auto computes = [&](Stage stage) {  // the core has put it back
    if (instance->changed_floating) note(record, kFloatingPoint, stage, kComputes);
  };
  computes(kInit);
  passed(kInit);
  record.stage.store(kDevices);
  record.devices.store(int32_t(instance->list_devices().size()));
  computes(kDevices);
  passed(kDevices);
}

}  // namespace

void run_subject(const Request& request, const Sealed& library, Record& record) {
  g_record = &record;
  record.pid.store(getpid());
  choose_locale();
  listen();
  pthread_atfork(nullptr, count_fork, nullptr);
  set_log_level(4);  // the core's own words are nothing that the library printed
  const Watch before = Watch::look();
  try {
    walk(request, library, before, record);
  } catch (const Error& e) {
    end_copies(Stage(record.stage.load()));
    keep_refusal(record, e.stage.empty() ? "devices" : e.stage.c_str(), e.status, e.what());
    Watch::look().compare(before, Stage(record.stage.load()), record);
  } catch (const NotOpened& e) {
    keep_refusal(record, "dependencies", ANYHAL_STATUS_NOT_FOUND, e.text.c_str());
  } catch (const std::exception& e) {
    end_copies(Stage(record.stage.load()));
    keep_refusal(record, "devices", ANYHAL_STATUS_INTERNAL, e.what());
  }
  wait_until_read();
  record.stage.store(kExit);
  std::exit(0);
}

}  // namespace hal::probe
