#include "runtime/checkpoint/hf/hf_import.hpp"

#include <algorithm>
#include <vector>

#include "base/error.hpp"
#include "kernels/cpu/philox.hpp"

namespace sluice {
namespace {

constexpr std::int64_t kImportElems = std::int64_t{1} << 20;

// Copies one parameter to the writer, piece by piece.
void write_param(RankWriter& writer, std::size_t range, const ParamSpec& param, std::int64_t elems,
                 const HfWeights& weights, std::uint64_t seed) {
  std::vector<float> piece;
  // A piece has whole rows if a row fits, so that rows of a transposed matrix are gathered
  // together.
  const std::int64_t row = param.tensor.shape.back();
  const std::int64_t step = std::max<std::int64_t>(1, kImportElems / row) * row;
  for (std::int64_t begin = 0; begin < elems; begin += step) {
    piece.resize(static_cast<std::size_t>(std::min(step, elems - begin)));
    const std::int64_t had = weights.read(param.tensor.name, begin, piece);
    // Only rows of the vocabulary may be missing. They get initial weights.
    fill_normal(std::span(piece).subspan(static_cast<std::size_t>(had)), seed,
                hash_name(param.tensor.name), begin + had, 0.0F,
                static_cast<float>(param.init_std));
    writer.write(range, std::as_bytes(std::span(piece)));
  }
}

}  // namespace

std::string import_hf(FileSystem& files, const std::string& dir, const ModelSpec& spec,
                      const HfWeights& weights, RunState run) {
  std::vector<StateRange> ranges;
  std::vector<const ParamSpec*> params;
  for (const ParamGroup& group : spec.groups) {
    for (const ParamSpec& param : group.params) {
      ranges.push_back(whole_range(param.tensor.name, StateKind::kMaster, TensorDType::kF32,
                                   param.tensor.shape));
      params.push_back(&param);
    }
  }
  run.step = 0;
  run.updates = 0;
  const SaveTarget target = begin_save(files, dir, 0);
  try {
    RankWriter writer(files, target, 0, ranges);
    for (std::size_t i = 0; i < ranges.size(); ++i) {
      write_param(writer, i, *params[i], ranges[i].elems(), weights, run.seed);
    }
    const std::string record = writer.seal();
    commit(files, target, {&record, 1}, run);
  } catch (...) {
    abandon_save(files, target);
    throw;
  }
  return target.path();
}

ParamReader checkpoint_reader(Checkpoint& checkpoint) {
  return [&checkpoint](const ParamSpec& param, std::int64_t begin, std::span<float> values) {
    StateRange wanted =
        whole_range(param.tensor.name, StateKind::kMaster, TensorDType::kF32, param.tensor.shape);
    wanted.begin = begin;
    wanted.end = begin + static_cast<std::int64_t>(values.size());
    checkpoint.read_range(wanted, std::as_writable_bytes(values));
  };
}

}  // namespace sluice
