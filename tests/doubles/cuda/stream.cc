// Streams as worker threads, events, copies and fills, with delays drawn from the seed.
// SPDX-License-Identifier: Apache-2.0
#include <chrono>

#include "double.h"

namespace cuda_double {
namespace {

// Hostile timing: most work starts at once, some late, some after everything else had its turn.
void dawdle(CUstream_st* stream) {
  const uint64_t draw = stream->random();
  if (world().seed == 0 || draw % 4 != 0) return;
  const uint64_t us = draw % 64 == 0 ? 1500 : draw / 64 % 120;
  std::this_thread::sleep_for(std::chrono::microseconds(us));
}

void run(CUstream_st* stream, Work& work) {
  CUresult code = CUDA_SUCCESS;
  if (stream->context->sticky == CUDA_SUCCESS) {
    dawdle(stream);
    visible = stream->context->peers;
    try {
      work.run();
    } catch (const IllegalAddress&) {
      code = CUDA_ERROR_ILLEGAL_ADDRESS;
    } catch (const WorkFailed& failed) {
      code = failed.code;
    }
  }
  if (code == CUDA_SUCCESS) return;
  std::unique_lock lock(world().mutex);
  stream->context->sticky = code;
  world().changed.notify_all();
}

void work_on(CUstream_st* stream) {
  World& w = world();
  std::unique_lock lock(w.mutex);
  while (true) {
    w.changed.wait(lock, [&] { return stream->ending || !stream->waiting.empty(); });
    if (stream->waiting.empty()) return;
    Work work = std::move(stream->waiting.front());
    stream->waiting.pop_front();
    stream->running = true;
    lock.unlock();
    run(stream, work);
    work = {};
    lock.lock();
    stream->running = false;
    w.changed.notify_all();
  }
}

// The bytes of a range as host and kernels see them; throws IllegalAddress.
char* bytes_at(uint64_t address, uint64_t bytes) {
  check_range(address, bytes);
  return reach(reinterpret_cast<char*>(address));
}

bool is_device(uint64_t address) { return address - false_base < kSpace; }

CUresult copy(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream, uint32_t peers) {
  for (uint64_t end : {to, from})
    if (!is_device(end) && !known_host(end, bytes))
      return violation("a copy with pageable host memory: the driver would wait inside the call");
  return put(stream, {"copy", [=] {
                        visible |= peers;
                        char* target = bytes_at(to, bytes);
                        std::memmove(target, bytes_at(from, bytes), bytes);
                      }});
}

template <class T>
CUresult fill(CUdeviceptr pointer, T value, size_t count, CUstream stream) {
  if (pointer % sizeof(T) != 0) return CUDA_ERROR_INVALID_VALUE;
  return put(stream, {"fill", [=] {
                        auto* at = reinterpret_cast<T*>(bytes_at(pointer, count * sizeof(T)));
                        for (size_t i = 0; i < count; ++i) at[i] = value;
                      }});
}

}  // namespace

// The driver's default streams have numbers for names, and are there when first used.
CUstream_st* named(CUstream_st* stream) {
  const auto number = reinterpret_cast<uint64_t>(stream);
  if (number != 1 && number != 2) return stream;
  CUstream_st*& made = world().defaults[{current, number}];
  if (made == nullptr) {
    made = new CUstream_st;
    made->context = current;
    made->number = world().next_stream++;
    made->random.seed(world().seed * 1000003 + made->number);
    made->worker = std::thread(work_on, made);
    made->worker.detach();
  }
  return made;
}

bool is_live(CUstream_st* stream) { return stream != nullptr && world().streams.contains(stream); }

CUresult put(CUstream_st* stream, Work work) {
  const bool is_default = named(stream) != stream;
  stream = named(stream);
  if (!is_default && !is_live(stream))
    return violation("work on a stream that is not there", CUDA_ERROR_INVALID_HANDLE);
  if (stream->context != current)
    return violation("work on a stream of another context", CUDA_ERROR_INVALID_CONTEXT);
  if (!stream->capture) {
    stream->waiting.push_back(std::move(work));
    world().changed.notify_all();
    return CUDA_SUCCESS;
  }
  if (stream->capture->invalid) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  stream->capture->work.push_back(std::move(work));
  return CUDA_SUCCESS;
}

}  // namespace cuda_double

using namespace cuda_double;

// Bits of peers: kernels see their own device and those opened to them, a peer copy sees both ends.
DOUBLE_EXPORT CUresult cuMemcpyAsync(CUdeviceptr to, CUdeviceptr from, size_t bytes,
                                     CUstream stream) {
  DOUBLE_ENTER(cuMemcpyAsync, true);
  return copy(to, from, bytes, stream, 0);
}

DOUBLE_EXPORT CUresult cuMemcpyPeerAsync(CUdeviceptr to, CUcontext to_context, CUdeviceptr from,
                                         CUcontext from_context, size_t bytes, CUstream stream) {
  DOUBLE_ENTER(cuMemcpyPeerAsync, true);
  return copy(to, from, bytes, stream, 1u << to_context->device | 1u << from_context->device);
}

DOUBLE_EXPORT CUresult cuMemsetD8Async(CUdeviceptr pointer, unsigned char value, size_t count,
                                       CUstream stream) {
  DOUBLE_ENTER(cuMemsetD8Async, true);
  return fill(pointer, value, count, stream);
}
DOUBLE_EXPORT CUresult cuMemsetD16Async(CUdeviceptr pointer, unsigned short value, size_t count,
                                        CUstream stream) {
  DOUBLE_ENTER(cuMemsetD16Async, true);
  return fill(pointer, value, count, stream);
}
DOUBLE_EXPORT CUresult cuMemsetD32Async(CUdeviceptr pointer, unsigned value, size_t count,
                                        CUstream stream) {
  DOUBLE_ENTER(cuMemsetD32Async, true);
  return fill(pointer, value, count, stream);
}

DOUBLE_EXPORT CUresult cuStreamCreateWithPriority(CUstream* out, unsigned flags, int) {
  DOUBLE_ENTER(cuStreamCreateWithPriority, true);
  if (flags != CU_STREAM_NON_BLOCKING)
    return violation("a stream that waits for the default stream (STR-01)");
  World& w = world();
  auto* stream = new CUstream_st;
  stream->context = current;
  stream->number = w.next_stream++;
  stream->random.seed(w.seed * 1000003 + stream->number);
  w.streams.insert(stream);
  stream->worker = std::thread(work_on, stream);
  *out = stream;
  return CUDA_SUCCESS;
}

// As the driver: the stream goes when its work is done, and the call does not wait for that.
DOUBLE_EXPORT CUresult cuStreamDestroy_v2(CUstream stream) {
  DOUBLE_ENTER(cuStreamDestroy_v2, true);
  if (!is_live(stream)) return violation("cuStreamDestroy_v2 of no stream, or twice");
  if (stream->capture) return violation("cuStreamDestroy_v2 of a stream that is captured");
  world().streams.erase(stream);
  stream->ending = true;
  stream->worker.detach();  // it still reads the object, which therefore stays
  world().changed.notify_all();
  return CUDA_SUCCESS;
}

DOUBLE_EXPORT CUresult cuStreamWaitEvent(CUstream stream, CUevent event, unsigned) {
  DOUBLE_ENTER(cuStreamWaitEvent, true);
  World& w = world();
  if (!w.events.contains(event)) return violation("cuStreamWaitEvent on no event");
  if (event->recorded == 0)
    return violation("cuStreamWaitEvent on an event that was never recorded: it would pass at once",
                     CUDA_ERROR_INVALID_HANDLE);
  if (is_live(stream) && stream->capture) {
    stream->capture->invalid = true;
    return violation("a capture that depends on work outside of it",
                     CUDA_ERROR_STREAM_CAPTURE_ISOLATION);
  }
  if (!w.waits) return CUDA_SUCCESS;
  const uint64_t value = event->recorded;
  return put(stream, {"wait", [event, value] {
                        World& all = world();
                        std::unique_lock inner(all.mutex);
                        all.changed.wait(inner, [&] {
                          return !all.events.contains(event) || event->reached >= value ||
                                 event->context->sticky != CUDA_SUCCESS;
                        });
                      }});
}

DOUBLE_EXPORT CUresult cuEventCreate(CUevent* out, unsigned) {
  DOUBLE_ENTER(cuEventCreate, true);
  auto* event = new CUevent_st;
  event->context = current;
  world().events.insert(event);
  *out = event;
  return CUDA_SUCCESS;
}

DOUBLE_EXPORT CUresult cuEventDestroy_v2(CUevent event) {
  DOUBLE_ENTER(cuEventDestroy_v2, true);
  if (world().events.erase(event) == 0) return violation("cuEventDestroy_v2 of no event, or twice");
  world().changed.notify_all();
  return CUDA_SUCCESS;  // the object stays: work on its way may still name it
}

DOUBLE_EXPORT CUresult cuEventRecord(CUevent event, CUstream stream) {
  DOUBLE_ENTER(cuEventRecord, true);
  if (!world().events.contains(event)) return violation("cuEventRecord of no event");
  if (event->context != current)
    return violation("cuEventRecord of an event of another context", CUDA_ERROR_INVALID_HANDLE);
  if (is_live(stream) && stream->capture) event->captured = true;
  const uint64_t value = event->recorded + 1;
  const CUresult code = put(stream, {"record", [event, value] {
                                       std::unique_lock inner(world().mutex);
                                       event->reached = std::max(event->reached, value);
                                       world().changed.notify_all();
                                     }});
  if (code == CUDA_SUCCESS) event->recorded = value;
  return code;
}

DOUBLE_EXPORT CUresult cuEventQuery(CUevent event) {
  DOUBLE_ENTER(cuEventQuery, true);
  if (CUresult no = unsafe("cuEventQuery"); no != CUDA_SUCCESS) return no;
  if (!world().events.contains(event)) return violation("cuEventQuery of no event");
  if (event->captured)
    return violation("cuEventQuery of a captured event", CUDA_ERROR_CAPTURED_EVENT);
  if (event->recorded == 0)
    return violation("cuEventQuery of an event that was never recorded", CUDA_ERROR_INVALID_HANDLE);
  return event->reached >= event->recorded ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}
