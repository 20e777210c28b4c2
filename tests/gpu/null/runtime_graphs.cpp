// The CUDA runtime's graphs. A graph counts its kernels, and does again what else it holds.
#include <cuda_runtime_api.h>

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <utility>
#include <vector>

#include "tests/gpu/null/graphs.hpp"
#include "tests/gpu/null/record.hpp"
#include "tests/gpu/null/runtime.hpp"

namespace null_gpu {
namespace {

struct Graph {
  std::map<std::string, std::int64_t> kernels;
  std::vector<std::function<void(const void*)>> others;
};
using GraphRef = std::shared_ptr<Graph>;

struct Graphs {
  std::mutex mutex;
  std::map<const void*, GraphRef> capturing;  // by stream
  std::map<const void*, GraphRef> graphs;     // by cudaGraph_t and cudaGraphExec_t
  std::set<const void*> events;               // recorded last in a graph
  std::uintptr_t next = 0;
};

// Never destroyed: libraries call the runtime while the process ends.
Graphs& all() {
  static auto* const graphs = new Graphs;
  return *graphs;
}

template <typename Handle>
Handle kept(const GraphRef& graph) {
  Graphs& graphs = all();
  graphs.next += 16;
  auto* const handle = reinterpret_cast<Handle>(graphs.next);
  graphs.graphs[handle] = graph;
  return handle;
}

GraphRef found(const void* handle) {
  const std::lock_guard lock(all().mutex);
  const auto graph = all().graphs.find(handle);
  return graph == all().graphs.end() ? nullptr : graph->second;
}

cudaError_t dropped(const void* handle, const char* what) {
  const std::lock_guard lock(all().mutex);
  return all().graphs.erase(handle) > 0 ? cudaSuccess : refused(std::string(what) + ": no graph");
}

}  // namespace

bool is_capturing(const void* stream) {
  const std::lock_guard lock(all().mutex);
  return all().capturing.count(stream) > 0;
}

bool any_capturing() {
  const std::lock_guard lock(all().mutex);
  return !all().capturing.empty();
}

bool recorded(const void* stream, std::function<void(const void* launching)> redo) {
  const std::lock_guard lock(all().mutex);
  const auto graph = all().capturing.find(stream);
  if (graph == all().capturing.end()) return false;
  graph->second->others.push_back(std::move(redo));
  return true;
}

bool recorded_kernel(const void* stream, const std::string& kernel) {
  const std::lock_guard lock(all().mutex);
  const auto graph = all().capturing.find(stream);
  if (graph == all().capturing.end()) return false;
  ++graph->second->kernels[kernel];
  return true;
}

void note_event(const void* event, const void* stream) {
  const bool in_graph = is_capturing(stream);
  const std::lock_guard lock(all().mutex);
  if (in_graph) {
    all().events.insert(event);
  } else {
    all().events.erase(event);
  }
}

bool belongs_to_graph(const void* event) {
  const std::lock_guard lock(all().mutex);
  return all().events.count(event) > 0;
}

}  // namespace null_gpu

using namespace null_gpu;  // NOLINT: this file is bodies of C functions

extern "C" {

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode) {
  if (stream == nullptr) return refused("cudaStreamBeginCapture of the default stream");
  if (is_capturing(stream)) return refused("cudaStreamBeginCapture: the stream captures already");
  const std::lock_guard lock(all().mutex);
  all().capturing[stream] = std::make_shared<Graph>();
  return cudaSuccess;
}
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  *graph = nullptr;
  if (!is_capturing(stream)) return refused("cudaStreamEndCapture: the stream does not capture");
  const std::lock_guard lock(all().mutex);
  *graph = kept<cudaGraph_t>(all().capturing[stream]);
  all().capturing.erase(stream);
  return cudaSuccess;
}
cudaError_t cudaStreamIsCapturing(cudaStream_t stream, cudaStreamCaptureStatus* status) {
  *status = is_capturing(stream) ? cudaStreamCaptureStatusActive : cudaStreamCaptureStatusNone;
  return cudaSuccess;
}
cudaError_t cudaStreamGetCaptureInfo(cudaStream_t stream, cudaStreamCaptureStatus* status,
                                     unsigned long long* id, cudaGraph_t*, const cudaGraphNode_t**,
                                     const cudaGraphEdgeData**, std::size_t*) {
  if (id != nullptr) *id = is_capturing(stream) ? reinterpret_cast<std::uintptr_t>(stream) : 0;
  return cudaStreamIsCapturing(stream, status);
}

cudaError_t cudaGraphInstantiateWithFlags(cudaGraphExec_t* executable, cudaGraph_t graph,
                                          unsigned long long) {
  const GraphRef body = found(graph);
  if (!body) return refused("cudaGraphInstantiate: no graph");
  const std::lock_guard lock(all().mutex);
  *executable = kept<cudaGraphExec_t>(body);
  return cudaSuccess;
}
cudaError_t cudaGraphLaunch(cudaGraphExec_t executable, cudaStream_t stream) {
  const GraphRef graph = found(executable);
  if (!graph) return refused("cudaGraphLaunch: no graph");
  if (is_capturing(stream)) return refused("cudaGraphLaunch into a stream that captures");
  count_graph(graph->kernels, stream);
  for (const auto& redo : graph->others) redo(stream);
  return cudaSuccess;
}
cudaError_t cudaGraphDestroy(cudaGraph_t graph) { return dropped(graph, "cudaGraphDestroy"); }
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t executable) {
  return dropped(executable, "cudaGraphExecDestroy");
}

}  // extern "C"
