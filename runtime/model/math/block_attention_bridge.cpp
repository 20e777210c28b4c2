#include <torch/csrc/autograd/custom_function.h>

#include <optional>

#include "runtime/model/math/block_attention.hpp"

namespace sluice {
namespace {

namespace ag = torch::autograd;

struct BlockFunction : public ag::Function<BlockFunction> {
  static at::Tensor forward(ag::AutogradContext* context, const at::Tensor& q, const at::Tensor& k,
                            const at::Tensor& v, const std::optional<at::Tensor>& given_band,
                            const std::vector<std::int64_t>& runs) {
    const at::Tensor band = given_band.value_or(at::Tensor());
    auto [out, lse] = block_attention_forward({q, k, v, band, from_list(runs)});
    context->save_for_backward({q, k, v, band, out, lse});
    context->saved_data["runs"] = runs;
    return out;
  }

  static ag::variable_list backward(ag::AutogradContext* context, const ag::variable_list& grads) {
    const ag::variable_list saved = context->get_saved_variables();
    const std::vector<std::int64_t> runs = context->saved_data["runs"].toIntVector();
    const auto [dq, dk, dv] = block_attention_backward(
        {saved[0], saved[1], saved[2], saved[3], from_list(runs)}, saved[4], saved[5], grads[0]);
    return {dq, dk, dv, at::Tensor(), at::Tensor()};
  }

  static std::vector<std::int64_t> to_list(const std::vector<DocumentRun>& runs) {
    std::vector<std::int64_t> list;
    for (const DocumentRun& r : runs)
      list.insert(list.end(), {r.first_row, r.rows, r.first, r.count});
    return list;
  }

 private:
  static std::vector<DocumentRun> from_list(const std::vector<std::int64_t>& list) {
    std::vector<DocumentRun> runs;
    for (auto at = list.begin(); at != list.end(); at += 4) {
      runs.push_back({at[0], at[1], at[2], at[3]});
    }
    return runs;
  }
};

}  // namespace

at::Tensor block_attention(const BlockAttention& in) {
  std::optional<at::Tensor> band;
  if (in.band.defined()) band = in.band;
  return BlockFunction::apply(in.q, in.k, in.v, band, BlockFunction::to_list(in.runs));
}

}  // namespace sluice
