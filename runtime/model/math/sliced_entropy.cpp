#include "runtime/model/math/sliced_entropy.hpp"

#include "kernels/cpu/slice_entropy.hpp"
#include "runtime/model/empty_tensor.hpp"
#include "runtime/model/tensor_view.hpp"

namespace sluice {
namespace {

constexpr std::int64_t kPartFloats = sizeof(RowPart) / sizeof(float);

std::span<const RowPart> parts_in(const at::Tensor& floats) {
  return {reinterpret_cast<const RowPart*>(host_data<float>(floats)),
          static_cast<std::size_t>(floats.numel() / kPartFloats)};
}

}  // namespace

double sliced_cross_entropy(TensorGroup& group, const SlicedEntropy& e) {
  const std::int64_t rows = e.logits.size(0);
  // Exchanges the doubles as floats with the same bytes.
  const at::Tensor own =
      empty_tensor({rows, kPartFloats}, c10::ScalarType::Float, e.logits.device());
  EntropySlice slice{
      .rows = rows, .words = e.words.count, .first = e.words.first, .vocab = e.vocab};
  if (!own.is_meta()) {
    slice.logits = host_data<float>(e.logits);
    slice.targets = host_data<std::int64_t>(e.targets);
    slice_softmax(slice, reinterpret_cast<RowPart*>(host_data<float>(own)), e.gradient);
  }
  const at::Tensor all = group.each(own);
  if (own.is_meta()) return 0;
  if (e.gradient) {
    slice_gradient(slice, parts_in(all),
                   {.rank = group.rank(),
                    .scale = static_cast<float>(e.grad_scale),
                    .dtype = e.gradient_dtype});
  }
  return slice_loss(slice, parts_in(all));
}

void gpu_sliced_cross_entropy(TensorGroup& group, device::Entropy entropy) {
  entropy.slice.parts = group.each(device::entropy_parts(entropy));
  device::cross_entropy(entropy);
}

}  // namespace sluice
