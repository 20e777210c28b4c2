#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/from_blob.h>
#include <c10/cuda/CUDAStream.h>
#include <torch/library.h>

#include <algorithm>
#include <exception>
#include <memory>
#include <string>
#include <utility>

#include "tests/gpu/emulated/ops.hpp"
#include "tests/gpu/null/launches.hpp"
#include "tests/gpu/null/queue.hpp"
#include "tests/gpu/null/record.hpp"

namespace sluice::emulated {
namespace {

using at::Tensor;
using c10::IValue;
using torch::jit::Stack;

// The tensor's elements for a task. A host may change a tensor of its own after the call, so the
// task has a copy; numbers that became tensors stay as they are.
Tensor for_task(const Tensor& x) {
  if (!x.defined() || x.unsafeGetTensorImpl()->is_wrapped_number()) return x;
  if (!x.is_cuda()) return x.clone();
  return at::from_blob(x.data_ptr(), x.sizes(), x.strides(),
                       x.options().device(c10::DeviceType::CPU));
}

IValue for_task(const IValue& x) {
  if (x.isTensor()) return for_task(x.toTensor());
  if (x.isGenerator()) return {};  // the CPU's own
  if (x.isDevice()) return c10::Device(c10::DeviceType::CPU);
  if (!x.isTensorList()) return x;
  c10::List<Tensor> all;
  for (const Tensor& each : x.toTensorVector()) all.push_back(for_task(each));
  return all;
}

template <typename Values>
Stack for_task_all(const Values& values) {
  Stack all;
  for (const IValue& value : values) all.push_back(for_task(value));
  return all;
}

// A GPU's norms keep statistics in fp32, which CPUs take with fp32 alone.
bool has_fp32_statistics(const std::string& name) {
  return name.starts_with("aten::native_layer_norm");
}

IValue widened(const IValue& x) {
  if (!x.isTensor() || !x.toTensor().defined()) return x;
  return x.toTensor().to(c10::ScalarType::Float);
}

// The CPU's operator. One that writes its arguments has written the results by that.
Work on_cpu(const c10::OperatorHandle& op) {
  return [op, wide = has_fp32_statistics(op.schema().name())](const Stack& arguments,
                                                              const std::vector<Tensor>& results) {
    Stack stack = arguments;
    if (wide) std::transform(stack.begin(), stack.end(), stack.begin(), widened);
    op.callBoxed(stack);
    if (op.schema().is_mutable()) return;
    for (std::size_t i = 0; i < results.size(); ++i) {
      if (results[i].defined()) results[i].copy_(stack[i].toTensor());
    }
  };
}

// An operator's kernel for CUDA.
class Kernel : public c10::OperatorKernel {
 public:
  Kernel(const c10::OperatorHandle& op, Work work)
      : own_(op.getComputedKernelForDispatchKey(c10::DispatchKey::CUDA)), work_(std::move(work)) {}

  void operator()(const c10::OperatorHandle& op, c10::DispatchKeySet keys, Stack* stack) const {
    const std::size_t count = op.schema().arguments().size();
    const Stack given(stack->end() - static_cast<std::ptrdiff_t>(count), stack->end());
    if (null_gpu::ReplacedLaunches::active() || is_copy_to_or_from_host(op, given)) {
      return own_.callBoxed(op, keys, stack);
    }
    {
      const null_gpu::ReplacedLaunches launches;
      own_.callBoxed(op, keys, stack);
      if (launches.count() == 0) return;  // nothing to compute, or a copy of the driver's
    }
    std::vector<Tensor> results;
    const std::size_t made = op.schema().returns().size();
    for (std::size_t i = stack->size() - made; i < stack->size(); ++i) {
      if ((*stack)[i].isTensor()) results.push_back(for_task((*stack)[i].toTensor()));
    }
    enqueue(op.schema().name(), for_task_all(given), std::move(results));
  }

 private:
  // It consists of copies of the driver and of copies on the device, each a call of its own.
  static bool is_copy_to_or_from_host(const c10::OperatorHandle& op, const Stack& given) {
    if (op.schema().name() != "aten::copy_") return false;
    return !given[0].toTensor().is_cuda() || !given[1].toTensor().is_cuda();
  }

  void enqueue(const std::string& name, Stack arguments, std::vector<Tensor> results) const {
    null_gpu::enqueue(
        c10::cuda::getCurrentCUDAStream().stream(),
        [name, arguments = std::move(arguments), results = std::move(results), work = work_] {
          const at::AutoDispatchBelowADInplaceOrView plain;
          try {
            work(arguments, results);
          } catch (const std::exception& error) {
            null_gpu::fault(name + ": " + error.what());
          }
          return true;
        });
  }

  const c10::SafeKernelFunction own_;
  const Work work_;
};

std::vector<Operator> plain_operators() {
  std::vector<Operator> all;
  const auto add = [&](const char* name, std::initializer_list<const char*> overloads) {
    for (const char* overload : overloads) all.push_back({name, overload, {}});
  };
  add("copy_", {""});
  add("fill_", {"Scalar", "Tensor"});
  add("normal_", {""});
  add("arange", {"start_out"});
  add("cat", {"", "out"});
  add("where", {"self", "self_out"});
  add("_softmax", {"", "out"});
  add("sum", {"dim_IntList", "IntList_out"});
  add("mean", {"dim"});
  add("all", {""});
  add("index_select", {""});
  add("pow", {"Tensor_Scalar"});
  add("addmm", {"", "out"});  // launches kernels only where it copies a bias first
  for (const char* name : {"add", "div", "mul", "sub"}) add(name, {"Tensor", "out"});
  for (const char* name : {"add_", "mul_"}) add(name, {"Tensor"});
  for (const char* name : {"eq", "ge", "ne"}) add(name, {"Tensor", "Scalar"});
  for (const char* name : {"abs", "gelu", "gelu_backward", "native_layer_norm",
                           "native_layer_norm_backward", "neg", "rsqrt", "silu", "silu_backward"}) {
    add(name, {""});
  }
  return all;
}

class Silent : public c10::WarningHandler {
  void process(const c10::Warning&) override {}
};

void register_operators() {
  static torch::Library library(torch::Library::IMPL, "aten", c10::DispatchKey::CUDA, __FILE__,
                                __LINE__);
  Silent silent;  // libtorch warns of a kernel that replaces another
  const c10::WarningUtils::WarningHandlerGuard guard(&silent);
  std::vector<Operator> all = plain_operators();
  for (Operator& each : attention_operators()) all.push_back(std::move(each));
  for (Operator& each : all) {
    const std::string name = std::string("aten::") + each.name;
    const c10::OperatorHandle op =
        c10::Dispatcher::singleton().findSchemaOrThrow(name.c_str(), each.overload);
    Work work = each.work ? std::move(each.work) : on_cpu(op);
    const std::string full = *each.overload == '\0' ? name : name + "." + each.overload;
    library.impl(full.c_str(), torch::CppFunction::makeFromBoxedFunctor(
                                   std::make_unique<Kernel>(op, std::move(work))));
  }
}

const bool registered = [] {
  if (null_gpu::computes()) register_operators();
  return true;
}();

}  // namespace
}  // namespace sluice::emulated
