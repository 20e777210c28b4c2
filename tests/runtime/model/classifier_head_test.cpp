// The loss head in 16 bits, its products native or in fp32, against the fp32 head on the same
// numbers.
#include <ATen/ops/empty.h>
#include <gtest/gtest.h>

#include "runtime/model/tensor_view.hpp"
#include "runtime/model/units.hpp"
#include "tests/runtime/model/golden.hpp"

namespace sluice::testing {
namespace {

struct HeadResult {
  double loss = 0;
  std::vector<at::Tensor> tensors;  // gradients of the parameters and of the input, logits
};

// 400 rows are a chunk and a piece of one; 1101 words are two tiles.
constexpr std::int64_t kRows = 400;

HeadResult run_head(ModelOptions options, DType dtype, MatmulType matmul) {
  options.matmul = matmul;
  const Model model = make_model(options);
  std::vector<at::Tensor> params;
  for (const ParamRef& ref : model.spec.units.back().params) {
    const ParamSpec& param = model.spec.groups[static_cast<std::size_t>(ref.group)]
                                 .params[static_cast<std::size_t>(ref.index)];
    const at::Tensor value = rule_tensor(params.size(), param.tensor.shape, 0.3);
    // What 16 bits hold, in either type.
    params.push_back(value.to(c10::ScalarType::BFloat16).to(scalar_type(dtype)));
  }
  const at::Tensor x = rule_tensor(9, {2, kRows / 2, options.hidden}, 1.0)
                           .to(c10::ScalarType::BFloat16)
                           .to(scalar_type(dtype));
  at::Tensor targets = at::empty({2, kRows / 2}, c10::ScalarType::Long);
  for (std::int64_t i = 0; i < kRows; ++i) {
    targets.data_ptr<std::int64_t>()[i] = i * 37 % options.vocab;
  }
  const at::Tensor scratch =
      at::empty({model.head->scratch_bytes(kRows, dtype)}, c10::ScalarType::Byte);
  CollectingSink sink(params);
  HeadResult result;
  at::Tensor grad_input;
  result.loss = model.head->loss(params, x, targets, 1.0, scratch, &sink, &grad_input);
  for (std::size_t i = 0; i < params.size(); ++i) result.tensors.push_back(sink.grad(i));
  result.tensors.push_back(grad_input);
  result.tensors.push_back(model.head->logits(params, x, 5));
  return result;
}

double relative(const at::Tensor& ours, const at::Tensor& want) {
  return norm_of(ours.to(c10::ScalarType::Float).sub(want)) / norm_of(want);
}

TEST(ClassifierHead, In16BitsMultipliedInFp32IsNoLessExact) {
  for (const ModelType type : {ModelType::kGpt2, ModelType::kLlama}) {
    ModelOptions options{.layers = 1, .hidden = 40, .heads = 2, .vocab = 1101, .seq = kRows / 2};
    options.type = type;
    const HeadResult exact = run_head(options, DType::kFloat32, MatmulType::kNative);
    const HeadResult native = run_head(options, DType::kBFloat16, MatmulType::kNative);
    const HeadResult ours = run_head(options, DType::kBFloat16, MatmulType::kFp32);
    EXPECT_NEAR(ours.loss / exact.loss, 1.0, 1e-3);
    for (std::size_t i = 0; i < exact.tensors.size(); ++i) {
      const double error = relative(ours.tensors[i], exact.tensors[i]);
      // What both round, the norm's output and gradient, is most of the error; libtorch adds the
      // norm's parameters' gradients up in 16 bits, in an order that depends on threads.
      EXPECT_LE(error, 1.15 * relative(native.tensors[i], exact.tensors[i])) << i;
      EXPECT_LT(error, 3e-2) << i;
    }
  }
}

}  // namespace
}  // namespace sluice::testing
