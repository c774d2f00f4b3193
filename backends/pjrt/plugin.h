// One PJRT plugin file: opened, understood, and called.
// SPDX-License-Identifier: Apache-2.0
#ifndef ANYHAL_BACKENDS_PJRT_PLUGIN_H_
#define ANYHAL_BACKENDS_PJRT_PLUGIN_H_

#include <atomic>
#include <memory>
#include <mutex>
#include <string>

#include "anyhal/sdk/guard.hpp"
#include "api.h"

namespace hal::pjrt {

// Set in a child that was forked after a plugin had started: every call of one hangs or crashes.
extern std::atomic<bool> g_forked;
// Notes the fork, where there is anything to note.
void forked();

// What a test or a person may count, by the number of device_query(COUNTER).
enum Counter : uint64_t {
  kLiveBuffers,
  kLivePrograms,
  kRuns,
  kCompiled,
  kLoaded,
  kBlockProducts,  // custom calls
  kCounters
};
extern std::atomic<uint64_t> g_counts[kCounters];
inline void count(Counter what, uint64_t change = 1) {
  g_counts[what].fetch_add(change, std::memory_order_relaxed);
}

// What a plugin said about a failure.
struct Failed {
  int code;  // api::Code; 0: nothing failed
  std::string text;
};

// One client with the plugin's first device. Never destroyed: a library that was closed crashes
// the process at exit, and a client must outlive its buffers.
class Plugin {
 public:
  // Opens the file and reads its table. Throws sdk::Failure that names the file.
  explicit Plugin(std::string path);

  // Makes the client, which starts the plugin's threads. Throws sdk::Failure.
  void start();
  bool started() const { return client_ != nullptr; }

  const std::string& path() const { return path_; }
  const std::string& file() const { return file_; }  // its name without folders
  const std::string& platform() const { return platform_; }
  const std::string& kind() const { return kind_; }
  const std::string& version() const { return version_; }
  int major() const { return table_->version.major; }
  int minor() const { return table_->version.minor; }
  // Results lie in memory that this process reads by address.
  bool host_memory() const { return platform_ == "cpu" && has(api::kBufferOpaquePointer); }
  // Of the file's bytes, 32 hexadecimal digits, or "" where they cannot be read; read once.
  const std::string& hash();

  // What GetPjrtApi answered: one per image of the file in this process.
  const api::Table* table() const { return table_; }
  api::Client* client() const { return client_; }
  api::Device* device() const { return device_; }

  bool has(api::Slot slot) const;
  // Calls a slot; nullptr is success. The slot must be there.
  template <class Record>
  api::Error* call(api::Slot slot, api::Args<Record>& args) const {
    return table_->slots[slot](&args);
  }
  // The same; a failure becomes an sdk::Failure that begins with `what`.
  template <class Record>
  void must(const char* what, api::Slot slot, api::Args<Record>& args) const {
    if (api::Error* error = call(slot, args)) raise(what, error);
  }
  // Reads and frees an error.
  Failed take(api::Error* error) const;
  [[noreturn]] void raise(const char* what, api::Error* error) const;
  // The contract's word for a failure. A device that does not even take a byte any more is lost,
  // and stays so.
  anyhal_status judge(const Failed& why) const;
  bool lost() const { return lost_.load(std::memory_order_acquire); }
  // Throws DEVICE_LOST with what was said first.
  void require_here() const;

  // What asks for a device buffer of dense bytes; they must stay as they are during the call.
  api::Args<api::ClientBufferFromHostBuffer> from_host(const void* data, const int64_t* dims) const;
  // A new device buffer with these bytes, which may change after return.
  api::Buffer* buffer_of(const void* data, uint64_t bytes) const;
  void destroy(api::Buffer* buffer) const;
  void destroy(api::Event* event) const;
  bool ready(api::Event* event) const;
  // Waits, ends the event, and says what failed.
  Failed end(api::Event* event) const;
  // Waits until the buffer's bytes are there, and says what failed instead.
  Failed await(api::Buffer* buffer) const;
  // The address of a ready buffer, where host_memory().
  const void* pointer(api::Buffer* buffer) const;
  // Held from reading the buffers of cells until others stand in their place: another queue would
  // let go of a buffer that the plugin is just being given.
  std::mutex& cells() const { return cells_; }

 private:
  void require_slots() const;
  void probe_reinterpretation() const;
  bool answers() const;
  void call_silent(api::Slot slot, void* record) const;
  void end_error(api::Error* error) const;

  std::string path_, file_, platform_, kind_, version_, hash_;
  const api::Table* table_ = nullptr;
  api::Client* client_ = nullptr;
  api::Device* device_ = nullptr;
  mutable std::atomic<bool> lost_{false};
  mutable std::mutex losing_, cells_;
  mutable std::string lost_text_;
};

}  // namespace hal::pjrt

#endif  // ANYHAL_BACKENDS_PJRT_PLUGIN_H_
