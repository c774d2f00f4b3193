// What the files of the driver double share: devices, contexts, streams, events, graphs, accounts.
// SPDX-License-Identifier: Apache-2.0
//
// A stand-in for NVIDIA's libcuda.so.1 in tests. It shows order, lifetimes and rules; it says
// nothing about speed, and its device names contain "simulated".
#ifndef TESTS_DOUBLES_CUDA_DOUBLE_H_
#define TESTS_DOUBLES_CUDA_DOUBLE_H_

#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "cuda_api.h"
#include "cuda_double.h"

#define DOUBLE_EXPORT extern "C" __attribute__((visibility("default")))

// The driver's handles are pointers to these; the names are those of cuda_api.h.
namespace hal::cuda {

struct CUctx_st {
  int device = 0;
  int retained = 0;
  CUresult sticky = CUDA_SUCCESS;  // the first failure of its work: every later call answers it
  uint32_t peers = 0;              // devices whose memory its kernels may touch
};

// One piece of work, and what a graph compares when it is updated.
struct Work {
  std::string kind;  // "copy", "fill", "library", or a kernel's name
  std::function<void()> run;
};

struct Capture {
  std::vector<Work> work;
  CUstreamCaptureMode mode;
  std::thread::id thread;
  bool invalid = false;
};

struct CUstream_st {
  CUctx_st* context;
  uint64_t number;
  std::deque<Work> waiting;
  bool running = false, ending = false;
  std::unique_ptr<Capture> capture;
  std::mt19937_64 random;
  std::thread worker;
};

struct CUevent_st {
  CUctx_st* context;
  uint64_t recorded = 0, reached = 0;  // how often
  bool captured = false;               // its last record went into a capture
};

struct CUmod_st {
  CUctx_st* context;
  std::set<std::string> entries;
  std::map<std::string, CUfunction> functions;
};
struct CUfunc_st {
  CUmod_st* module;
  const cuda_double::Kernel* kernel;
};
struct CUgraph_st {
  std::vector<Work> work;
};
struct CUgraphExec_st {
  CUctx_st* context;
  std::shared_ptr<std::vector<Work>> work;
};

}  // namespace hal::cuda

namespace cuda_double {

using namespace hal::cuda;

struct Device {
  int number;
  int major, minor;
  uint64_t bytes, used = 0;
  CUctx_st context;
};

struct Failure {  // scripted: the n-th call of a function, or the n-th run of a kernel
  std::string name;
  uint64_t call;
  bool onward;
  int code;
};

struct Block {
  uint64_t bytes;
  int device;
  bool owns_bytes;  // of the device; a mapped range does not
};

struct World {
  std::mutex mutex;  // guards all but the bytes
  std::condition_variable changed;
  bool started = false;
  int pid = 0;
  std::vector<std::unique_ptr<Device>> devices;
  std::vector<Failure> failures;
  uint64_t seed = 0;
  int version = 12040;
  bool peers = true, growth = true, waits = true;
  std::string log_path, report_path;
  std::map<std::string, uint64_t> calls, runs;
  std::vector<std::string> log;
  std::vector<std::string> violations;
  std::set<CUstream_st*> streams;
  std::map<std::pair<CUctx_st*, uint64_t>, CUstream_st*> defaults;  // CU_STREAM_LEGACY, PER_THREAD
  std::set<CUevent_st*> events;
  std::set<CUmod_st*> modules;
  std::set<CUgraph_st*> graphs;
  std::set<CUgraphExec_st*> execs;
  std::map<uint64_t, Block> blocks;              // by false address
  std::map<uint64_t, uint64_t> reserved, holes;  // address ranges
  std::map<uint64_t, Block> physical;            // by handle
  std::map<uint64_t, uint64_t> mapped;           // false address -> handle
  std::map<uint64_t, uint64_t> host, registered;
  uint64_t next_address = 0, next_handle = 1, next_stream = 1;
  int captures = 0;
};

World& world();
extern thread_local CUctx_st* current;

// Every entry point begins with this, under the lock: counts, logs, scripted failures, the rules
// that hold everywhere. What it returns other than success is the call's answer.
CUresult enter(const char* name, bool needs_context);
CUresult violation(const std::string& text, CUresult answer = CUDA_ERROR_INVALID_VALUE);
// A call that a capture in this or another thread forbids; ends that capture.
CUresult unsafe(const char* name);

// Puts work on a stream, or into its capture. The lock is held.
CUresult put(CUstream_st* stream, Work work);
bool is_live(CUstream_st* stream);
// Scripted: whether this run of a kernel fails, and how. The lock is held.
int failing_run(const std::string& kernel);
struct WorkFailed {
  CUresult code;
};
// Ends a run as the script wants: with a code, or never.
void fail_run(int failure);

// memory.cc
void reserve_space();
uint64_t take_range(uint64_t bytes);
void set_owner(uint64_t address, uint64_t bytes, int device);
void check_range(uint64_t address, uint64_t bytes);  // throws IllegalAddress
bool known_host(uint64_t address, uint64_t bytes);

const Kernel* kernel_named(const std::string& name);
std::string report();

#define DOUBLE_ENTER(name, needs_context)            \
  std::unique_lock lock(cuda_double::world().mutex); \
  if (CUresult early = cuda_double::enter(#name, needs_context); early != CUDA_SUCCESS) return early

}  // namespace cuda_double

#endif  // TESTS_DOUBLES_CUDA_DOUBLE_H_
