#include <algorithm>
#include <string>

#include "configs/parallel_rules.hpp"

namespace sluice {
namespace {

constexpr std::string_view kKey = "train.matmul";
// cuBLASLt reads 8-bit operands in pieces of 16 bytes.
constexpr std::int64_t kFp8Multiple = 16;

void check_explicit(const RunConfig& run, const std::string& type,
                    std::vector<BrokenRule>& broken) {
  if (run.model.explicit_units) return;
  broken.push_back({kKey, type + " needs blocks with a written-out backward; leave out "
                                 "model.explicit_units: false, or this key"});
}

// `size`: a side of a linear layer, of which a rank has one of `parts`.
void check_size(const std::string& name, std::int64_t size, std::int64_t parts,
                std::vector<BrokenRule>& broken) {
  if (size % parts != 0) return;  // a rule of parallel.tensor
  const std::int64_t own = size / parts;
  if (own % kFp8Multiple == 0) return;
  const std::string of_rank =
      parts == 1 ? name
                 : name + " / tensor = " + std::to_string(size) + " / " + std::to_string(parts);
  broken.push_back({kKey,
                    "fp8 needs linear layers whose sizes are multiples of " +
                        std::to_string(kFp8Multiple) + ": " + of_rank + " = " +
                        std::to_string(own) + "; change that size, or set train.matmul: auto",
                    true});
}

void check_fp8(const RunConfig& run, std::vector<BrokenRule>& broken) {
  if (run.train.dtype != DType::kBFloat16) {
    broken.push_back({kKey, "fp8 needs train.dtype: bf16, and it is " +
                                std::string(name_of(run.train.dtype)) +
                                "; set it, or train.matmul: auto"});
  }
  check_explicit(run, "fp8", broken);
  if (run.model.heads <= 0) return;  // refused by itself
  const ModelOptions model = with_defaults(run.model);
  const std::int64_t tensor = run.parallel.tensor;
  check_size("model.hidden", model.hidden, 1, broken);
  check_size("model.heads x head_dim", model.heads * model.head_dim, tensor, broken);
  if (model.kv_heads != model.heads) {
    check_size("model.kv_heads x head_dim", model.kv_heads * model.head_dim,
               std::min(tensor, model.kv_heads), broken);
  }
  check_size("model.ffn", model.ffn, tensor, broken);
}

}  // namespace

std::vector<BrokenRule> broken_matmul_rules(const RunConfig& run) {
  std::vector<BrokenRule> broken;
  if (run.train.matmul == MatmulChoice::kFp8) check_fp8(run, broken);
  if (run.train.matmul == MatmulChoice::kFp32 && run.train.dtype != DType::kFloat32) {
    check_explicit(run, "fp32", broken);
  }
  return broken;
}

}  // namespace sluice
