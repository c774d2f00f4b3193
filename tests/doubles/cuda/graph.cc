// Stream capture and graphs of the double.
// SPDX-License-Identifier: Apache-2.0
#include "double.h"

using namespace cuda_double;

namespace {

void end_capture(CUstream stream) {
  stream->capture.reset();
  --world().captures;
}

// What an update may not change: how many pieces of work there are, and of which kind.
bool same_shape(const std::vector<Work>& a, const std::vector<Work>& b) {
  if (a.size() != b.size()) return false;
  for (size_t i = 0; i < a.size(); ++i)
    if (a[i].kind != b[i].kind) return false;
  return true;
}

}  // namespace

DOUBLE_EXPORT CUresult cuStreamBeginCapture_v2(CUstream stream, CUstreamCaptureMode mode) {
  DOUBLE_ENTER(cuStreamBeginCapture_v2, true);
  if (!is_live(stream)) return violation("cuStreamBeginCapture_v2 of no stream");
  if (stream->capture) {
    stream->capture->invalid = true;
    return violation("cuStreamBeginCapture_v2 of a captured stream");
  }
  stream->capture = std::make_unique<Capture>();
  stream->capture->mode = mode;
  stream->capture->thread = std::this_thread::get_id();
  ++world().captures;
  return CUDA_SUCCESS;
}

DOUBLE_EXPORT CUresult cuStreamEndCapture(CUstream stream, CUgraph* out) {
  std::unique_lock lock(world().mutex);
  *out = nullptr;
  if (CUresult early = enter("cuStreamEndCapture", true); early != CUDA_SUCCESS) {
    if (is_live(stream) && stream->capture) end_capture(stream);  // it ends, however it ends
    return early;
  }
  if (!is_live(stream) || !stream->capture)
    return violation("cuStreamEndCapture without a begin", CUDA_ERROR_STREAM_CAPTURE_UNMATCHED);
  Capture& capture = *stream->capture;
  if (capture.mode != CU_STREAM_CAPTURE_MODE_RELAXED &&
      capture.thread != std::this_thread::get_id())
    return violation("cuStreamEndCapture on another thread than its begin",
                     CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD);
  const bool invalid = capture.invalid;
  auto* graph = new CUgraph_st{std::move(capture.work)};
  end_capture(stream);
  if (invalid) {
    delete graph;
    return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  }
  world().graphs.insert(graph);
  *out = graph;
  return CUDA_SUCCESS;
}

DOUBLE_EXPORT CUresult cuGraphInstantiateWithFlags(CUgraphExec* out, CUgraph graph,
                                                   unsigned long long) {
  DOUBLE_ENTER(cuGraphInstantiateWithFlags, true);
  if (!world().graphs.contains(graph)) return violation("cuGraphInstantiateWithFlags of no graph");
  auto* exec = new CUgraphExec_st{current, std::make_shared<std::vector<Work>>(graph->work)};
  world().execs.insert(exec);
  *out = exec;
  return CUDA_SUCCESS;
}

// Launches on their way keep the work that they were made with.
DOUBLE_EXPORT CUresult cuGraphExecUpdate_v2(CUgraphExec exec, CUgraph graph,
                                            CUgraphExecUpdateResultInfo* result) {
  DOUBLE_ENTER(cuGraphExecUpdate_v2, true);
  if (!world().execs.contains(exec) || !world().graphs.contains(graph))
    return violation("cuGraphExecUpdate_v2 of what is not there");
  const bool same = same_shape(*exec->work, graph->work);
  *result = {same ? 0 : 2, nullptr, nullptr};  // 2: the topology changed
  if (!same) return CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE;
  exec->work = std::make_shared<std::vector<Work>>(graph->work);
  return CUDA_SUCCESS;
}

DOUBLE_EXPORT CUresult cuGraphLaunch(CUgraphExec exec, CUstream stream) {
  DOUBLE_ENTER(cuGraphLaunch, true);
  if (!world().execs.contains(exec)) return violation("cuGraphLaunch of no graph");
  if (is_live(stream) && stream->capture)
    return violation("the double puts no graph into a graph", CUDA_ERROR_NOT_SUPPORTED);
  return put(stream, {"graph", [work = exec->work] {
                        for (const Work& one : *work) one.run();
                      }});
}

DOUBLE_EXPORT CUresult cuGraphExecDestroy(CUgraphExec exec) {
  DOUBLE_ENTER(cuGraphExecDestroy, true);
  if (world().execs.erase(exec) == 0) return violation("cuGraphExecDestroy of none, or twice");
  delete exec;
  return CUDA_SUCCESS;
}

DOUBLE_EXPORT CUresult cuGraphDestroy(CUgraph graph) {
  DOUBLE_ENTER(cuGraphDestroy, true);
  if (world().graphs.erase(graph) == 0) return violation("cuGraphDestroy of none, or twice");
  delete graph;
  return CUDA_SUCCESS;
}

// How other libraries of the double (cuBLASLt) put work of theirs on a stream.
DOUBLE_EXPORT int cuda_double_put(CUstream stream, const char* kind, void (*run)(void*),
                                  void* argument, void (*drop)(void*)) {
  std::unique_lock lock(world().mutex);
  const int failure = failing_run(kind);
  std::shared_ptr<void> held(argument, drop);
  return put(stream, {kind, [run, held, failure] {
                        fail_run(failure);
                        run(held.get());
                      }});
}

// The bytes behind an address, for work that runs now; null where nothing may be touched.
DOUBLE_EXPORT void* cuda_double_bytes(const void* address, uint64_t bytes) {
  check_range(reinterpret_cast<uint64_t>(address), bytes);
  return reach(const_cast<char*>(static_cast<const char*>(address)));
}
