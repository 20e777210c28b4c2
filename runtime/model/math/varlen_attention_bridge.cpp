#include <torch/csrc/autograd/custom_function.h>

#include "runtime/model/documents.hpp"
#include "runtime/model/math/varlen_attention.hpp"

namespace sluice {
namespace {

namespace ag = torch::autograd;

struct VarlenFunction : public ag::Function<VarlenFunction> {
  static at::Tensor forward(ag::AutogradContext* context, const at::Tensor& q, const at::Tensor& k,
                            const at::Tensor& v, const Documents* documents, std::int64_t seq,
                            std::int64_t window) {
    const VarlenKept kept = varlen_forward({q, k, v, seq, window, documents});
    context->save_for_backward({q, k, v, kept.out, kept.lse});
    context->saved_data["seq"] = seq;
    context->saved_data["window"] = window;
    // The micro-batch's documents outlive the graph of its units.
    context->saved_data["documents"] = reinterpret_cast<std::int64_t>(documents);
    return kept.out;
  }

  static ag::variable_list backward(ag::AutogradContext* context, const ag::variable_list& grads) {
    const ag::variable_list saved = context->get_saved_variables();
    const auto* documents =
        reinterpret_cast<const Documents*>(context->saved_data["documents"].toInt());
    const VarlenAttention in{saved[0],
                             saved[1],
                             saved[2],
                             context->saved_data["seq"].toInt(),
                             context->saved_data["window"].toInt(),
                             documents};
    const std::vector<at::Tensor> made =
        varlen_backward(in, {saved[3], saved[4]}, grads[0].contiguous());
    return {made[0], made[1], made[2], at::Tensor(), at::Tensor(), at::Tensor()};
  }
};

}  // namespace

at::Tensor varlen_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                            const UnitCall& call, std::int64_t window) {
  const std::int64_t B = q.size(0), S = q.size(2);
  const auto tokens = [&](const at::Tensor& x) {
    return x.transpose(1, 2).reshape({B * S, x.size(1), x.size(3)});
  };
  check_documents(call, B, S);
  const at::Tensor out =
      VarlenFunction::apply(tokens(q), tokens(k), tokens(v), call.documents, S, window);
  return out.view({B, S, q.size(1), q.size(3)}).transpose(1, 2);
}

}  // namespace sluice
