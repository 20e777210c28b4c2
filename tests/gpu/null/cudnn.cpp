// The null cuDNN, as far as libtorch's attention calls it: descriptors keep what is set, one engine
// without workspace serves each graph, and an execution checks its memory and counts one launch.
#include <cudnn.h>

#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "tests/gpu/null/graphs.hpp"
#include "tests/gpu/null/memory.hpp"
#include "tests/gpu/null/queue.hpp"
#include "tests/gpu/null/record.hpp"

namespace null_gpu {
namespace {

struct Handle {
  cudaStream_t stream = nullptr;
};
Handle& of(cudnnHandle_t handle) { return *reinterpret_cast<Handle*>(handle); }

struct Descriptor;
using Shared = std::shared_ptr<Descriptor>;

struct Descriptor {
  explicit Descriptor(cudnnBackendDescriptorType_t kind) : type(kind) {}

  // The first of an attribute's values, or 0.
  template <class T>
  [[nodiscard]] T first(int attribute) const {
    const auto found = values.find(attribute);
    T value{};
    if (found != values.end() && found->second.size() >= sizeof value) {
      std::memcpy(&value, found->second.data(), sizeof value);
    }
    return value;
  }
  template <class T>
  [[nodiscard]] std::vector<T> list(int attribute) const {
    const auto found = values.find(attribute);
    if (found == values.end()) return {};
    std::vector<T> all(found->second.size() / sizeof(T));
    std::memcpy(static_cast<void*>(all.data()), found->second.data(), all.size() * sizeof(T));
    return all;
  }
  // Null if the attribute is not set.
  [[nodiscard]] Shared part(int attribute) const {
    const auto found = parts.find(attribute);
    return found == parts.end() || found->second.empty() ? nullptr : found->second.front();
  }

  cudnnBackendDescriptorType_t type;
  std::map<int, std::vector<char>> values;  // by attribute
  std::map<int, std::vector<Shared>> parts;
};

// A caller holds an address of a Shared: a query puts another descriptor behind it.
Shared& of(cudnnBackendDescriptor_t descriptor) { return *static_cast<Shared*>(descriptor); }

std::size_t bytes_of(cudnnBackendAttributeType_t type) {
  switch (type) {
    case CUDNN_TYPE_BOOLEAN:
    case CUDNN_TYPE_CHAR:
      return 1;
    case CUDNN_TYPE_HANDLE:
    case CUDNN_TYPE_INT64:
    case CUDNN_TYPE_DOUBLE:
    case CUDNN_TYPE_VOID_PTR:
      return 8;
    case CUDNN_TYPE_FRACTION:
      return 16;
    default:
      return 4;
  }
}

std::int64_t bytes_of(cudnnDataType_t type) {
  switch (type) {
    case CUDNN_DATA_HALF:
    case CUDNN_DATA_BFLOAT16:
      return 2;
    case CUDNN_DATA_DOUBLE:
    case CUDNN_DATA_INT64:
      return 8;
    case CUDNN_DATA_BOOLEAN:
      return 1;
    default:
      return 4;
  }
}

// Bytes from a tensor's address to its end.
std::int64_t bytes_of(const Descriptor& tensor) {
  const auto sizes = tensor.list<std::int64_t>(CUDNN_ATTR_TENSOR_DIMENSIONS);
  const auto strides = tensor.list<std::int64_t>(CUDNN_ATTR_TENSOR_STRIDES);
  std::int64_t last = 0;
  for (std::size_t i = 0; i < sizes.size() && i < strides.size(); ++i) {
    last += (sizes[i] - 1) * strides[i];
  }
  return (last + 1) * bytes_of(tensor.first<cudnnDataType_t>(CUDNN_ATTR_TENSOR_DATA_TYPE));
}

struct Graph {
  std::map<std::int64_t, Shared> tensors;  // by unique id; the virtual ones have no memory
  int products = 0;

  // Forward has two products or is one operation; backward has five.
  [[nodiscard]] std::string kernel() const {
    return products > 2 ? "cudnn_attention_backward" : "cudnn_attention_forward";
  }
};

Graph graph_of(const Descriptor& plan) {
  Graph graph;
  const Shared config = plan.part(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG);
  const Shared engine = config ? config->part(CUDNN_ATTR_ENGINECFG_ENGINE) : nullptr;
  const Shared operations = engine ? engine->part(CUDNN_ATTR_ENGINE_OPERATION_GRAPH) : nullptr;
  if (!operations) return graph;
  for (const Shared& operation : operations->parts[CUDNN_ATTR_OPERATIONGRAPH_OPS]) {
    graph.products += operation->type == CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR ? 1 : 0;
    for (const auto& [attribute, parts] : operation->parts) {
      for (const Shared& part : parts) {
        if (part->type != CUDNN_BACKEND_TENSOR_DESCRIPTOR) continue;
        if (part->first<bool>(CUDNN_ATTR_TENSOR_IS_VIRTUAL)) continue;
        graph.tensors[part->first<std::int64_t>(CUDNN_ATTR_TENSOR_UNIQUE_ID)] = part;
      }
    }
  }
  return graph;
}

// What is wrong with the memory that an execution is given; empty: nothing.
std::string complaint(const Graph& graph, const Descriptor& pack) {
  const auto ids = pack.list<std::int64_t>(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS);
  const auto addresses = pack.list<void*>(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS);
  std::map<std::int64_t, void*> given;
  for (std::size_t i = 0; i < ids.size() && i < addresses.size(); ++i) given[ids[i]] = addresses[i];
  for (const auto& [id, tensor] : graph.tensors) {
    if (tensor->first<bool>(CUDNN_ATTR_TENSOR_IS_BY_VALUE)) continue;
    const std::string name = graph.kernel() + ": tensor " + std::to_string(id);
    const auto found = given.find(id);
    if (found == given.end()) return name + " has no memory";
    if (place_of(found->second) != Place::kDevice) return name + " is not on the device";
    if (!is_device_range(found->second, static_cast<std::size_t>(bytes_of(*tensor)))) {
      return name + " leaves its allocation";
    }
  }
  return {};
}

// The only engine of a heuristic's graph.
Shared config_of(const Descriptor& heuristic) {
  auto config = std::make_shared<Descriptor>(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
  auto engine = std::make_shared<Descriptor>(CUDNN_BACKEND_ENGINE_DESCRIPTOR);
  engine->parts[CUDNN_ATTR_ENGINE_OPERATION_GRAPH] = {
      heuristic.part(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH)};
  config->parts[CUDNN_ATTR_ENGINECFG_ENGINE] = {engine};
  return config;
}

}  // namespace
}  // namespace null_gpu

using namespace null_gpu;  // NOLINT: this file is bodies of C functions

extern "C" {

std::size_t cudnnGetVersion() { return 91900; }
cudnnStatus_t cudnnGetProperty(libraryPropertyType part, int* value) {
  *value = part == MAJOR_VERSION ? 9 : part == MINOR_VERSION ? 19 : 0;
  return CUDNN_STATUS_SUCCESS;
}
std::size_t cudnnGetCudartVersion() { return 13000; }
const char* cudnnGetErrorString(cudnnStatus_t) { return "an error of the null cuDNN"; }
void cudnnGetLastErrorString(char* text, std::size_t bytes) {
  if (bytes > 0) text[0] = '\0';
}

cudnnStatus_t cudnnCreate(cudnnHandle_t* handle) {
  *handle = reinterpret_cast<cudnnHandle_t>(new Handle);
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnSetStream(cudnnHandle_t handle, cudaStream_t stream) {
  of(handle).stream = stream;
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnGetStream(cudnnHandle_t handle, cudaStream_t* stream) {
  *stream = of(handle).stream;
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnBackendCreateDescriptor(cudnnBackendDescriptorType_t type,
                                           cudnnBackendDescriptor_t* descriptor) {
  *descriptor = new Shared(std::make_shared<Descriptor>(type));
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnBackendDestroyDescriptor(cudnnBackendDescriptor_t descriptor) {
  delete &of(descriptor);
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnBackendFinalize(cudnnBackendDescriptor_t) { return CUDNN_STATUS_SUCCESS; }

cudnnStatus_t cudnnBackendSetAttribute(cudnnBackendDescriptor_t descriptor,
                                       cudnnBackendAttributeName_t name,
                                       cudnnBackendAttributeType_t type, std::int64_t count,
                                       const void* values) {
  Descriptor& to = *of(descriptor);
  if (type == CUDNN_TYPE_BACKEND_DESCRIPTOR) {
    const auto* from = static_cast<const cudnnBackendDescriptor_t*>(values);
    std::vector<Shared>& parts = to.parts[name];
    parts.clear();
    for (std::int64_t i = 0; i < count; ++i) parts.push_back(of(from[i]));
  } else {
    const auto* from = static_cast<const char*>(values);
    to.values[name].assign(from, from + static_cast<std::size_t>(count) * bytes_of(type));
  }
  return CUDNN_STATUS_SUCCESS;
}

// What cudnn-frontend asks of a heuristic, an engine and a plan: one engine, no notes, no knobs, no
// workspace of its own.
cudnnStatus_t cudnnBackendGetAttribute(cudnnBackendDescriptor_t descriptor,
                                       cudnnBackendAttributeName_t name,
                                       cudnnBackendAttributeType_t type, std::int64_t room,
                                       std::int64_t* count, void* values) {
  std::int64_t found = 1;
  switch (name) {
    case CUDNN_ATTR_ENGINEHEUR_RESULTS:
      if (room > 0) {
        of(*static_cast<cudnnBackendDescriptor_t*>(values)) = config_of(*of(descriptor));
      }
      break;
    case CUDNN_ATTR_ENGINECFG_ENGINE:
      if (room > 0) {
        of(*static_cast<cudnnBackendDescriptor_t*>(values)) = of(descriptor)->part(name);
      }
      break;
    case CUDNN_ATTR_ENGINECFG_KNOB_CHOICES:
    case CUDNN_ATTR_ENGINE_NUMERICAL_NOTE:
    case CUDNN_ATTR_ENGINE_BEHAVIOR_NOTE:
      found = 0;
      break;
    case CUDNN_ATTR_ENGINECFG_WORKSPACE_SIZE:
    case CUDNN_ATTR_ENGINECFG_SHARED_MEMORY_USED:
    case CUDNN_ATTR_ENGINE_GLOBAL_INDEX:
    case CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE:
      if (room > 0) std::memset(values, 0, bytes_of(type));
      break;
    default:
      fault("cuDNN is asked for attribute " + std::to_string(name));
      return CUDNN_STATUS_NOT_SUPPORTED;
  }
  if (count != nullptr) *count = found;
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnBackendExecute(cudnnHandle_t handle, cudnnBackendDescriptor_t plan,
                                  cudnnBackendDescriptor_t pack) {
  const Graph graph = graph_of(*of(plan));
  const std::string wrong = complaint(graph, *of(pack));
  if (!wrong.empty()) {
    fault(wrong);
    return CUDNN_STATUS_BAD_PARAM;
  }
  const cudaStream_t stream = of(handle).stream;
  if (!recorded_kernel(stream, graph.kernel())) count_launch(graph.kernel(), stream);
  if (computes()) fault("kernel " + graph.kernel() + " is not computed");
  return CUDNN_STATUS_SUCCESS;
}

}  // extern "C"
