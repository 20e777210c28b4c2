#include "runtime/model/empty_tensor.hpp"

#include <ATen/ops/empty.h>

namespace sluice {

at::Tensor empty_tensor(at::IntArrayRef sizes, c10::ScalarType type, at::Device device) {
  return at::empty(sizes, at::TensorOptions().dtype(type).device(device));
}

}  // namespace sluice
