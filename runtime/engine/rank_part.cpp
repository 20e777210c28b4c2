#include "runtime/engine/rank_part.hpp"

#include <algorithm>

#include "base/index.hpp"
#include "parallel/pipeline/balance.hpp"

namespace sluice {
namespace {

std::vector<int> balanced(const ModelSpec& whole, int chunks) {
  std::vector<double> costs;
  for (const UnitSpec& unit : whole.units) {
    costs.push_back(whole.forward_flops_per_sample(unit));
  }
  return balance_stages(costs, chunks);
}

}  // namespace

std::vector<UnitRange> cut_units(const ModelSpec& whole, int chunks,
                                 const std::vector<int>& stage_layers) {
  const auto layers = static_cast<int>(whole.options.layers);
  std::vector<UnitRange> ranges;
  for (const int end : stage_layers.empty() ? balanced(whole, chunks)
                                            : given_stages(stage_layers, chunks, layers)) {
    ranges.push_back({ranges.empty() ? 0 : ranges.back().end, end});
  }
  return ranges;
}

ModelPart part_of_rank(const ModelOptions& model, const ParallelOptions& parallel,
                       const MeshCoordinates& at) {
  ModelPart part;
  part.tensor = parallel.tensor;
  part.tensor_rank = at.tp;
  part.sequence = parallel.sequence && parallel.tensor > 1;
  part.stages = parallel.pipeline;
  part.stage = at.pp;
  if (parallel.pipeline == 1) return part;
  const std::vector<UnitRange> chunks = cut_units(
      make_model_spec(model), parallel.pipeline * parallel.virtual_stages, parallel.stage_layers);
  const auto chunks_of = [&](int stage) {
    std::vector<UnitRange> own;
    for (int v = 0; v < parallel.virtual_stages; ++v) {
      own.push_back(nth(chunks, v * parallel.pipeline + stage));
    }
    return own;
  };
  for (int stage = 0; stage < parallel.pipeline; ++stage) {
    part.stage = stage;
    part.chunks = chunks_of(stage);
    const auto groups = static_cast<int>(make_model_spec(model, part).groups.size());
    part.most_groups = std::max(part.most_groups, groups);
  }
  part.stage = at.pp;
  part.chunks = chunks_of(at.pp);
  return part;
}

}  // namespace sluice
