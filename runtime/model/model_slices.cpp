#include "runtime/model/model_slices.hpp"

#include <algorithm>
#include <string>

#include "base/error.hpp"
#include "parallel/parallel_options.hpp"

namespace sluice {
namespace {

[[noreturn]] void refuse(const std::string& what, std::int64_t size, int tensor) {
  throw ConfigError("parallel.tensor: " + what +
                    " has to divide by tensor: " + std::to_string(size) + " = " +
                    std::to_string(size / tensor) + " x " + std::to_string(tensor) + " + " +
                    std::to_string(size % tensor) + "; choose a tensor that divides it");
}

Slice even(const std::string& what, std::int64_t size, const ModelPart& part) {
  if (size % part.tensor != 0) refuse(what, size, part.tensor);
  const std::int64_t count = size / part.tensor;
  return {part.tensor_rank * count, count};
}

void cut_kv_heads(ModelSlices& slices, const ModelOptions& o, const ModelPart& part) {
  if (o.kv_heads >= part.tensor) {
    slices.kv_heads = even("model.kv_heads", o.kv_heads, part);
    return;
  }
  if (part.tensor % o.kv_heads != 0) {
    throw ConfigError(
        "parallel.tensor: with fewer model.kv_heads than ranks, tensor has to be a "
        "multiple of them: tensor " +
        std::to_string(part.tensor) + ", kv_heads " + std::to_string(o.kv_heads));
  }
  slices.kv_replicas = part.tensor / static_cast<int>(o.kv_heads);
  slices.kv_heads = {part.tensor_rank / slices.kv_replicas, 1};
}

void cut_vocab(ModelSlices& slices, const ModelOptions& o, const ModelPart& part) {
  const std::int64_t width = vocab_rows(o.vocab, part.tensor);
  if (width * (part.tensor - 1) >= o.vocab) {
    throw ConfigError(
        "parallel.tensor: the last rank would have no words: " + std::to_string(part.tensor - 1) +
        " ranks x " + std::to_string(width) + " rows >= model.vocab " + std::to_string(o.vocab) +
        "; choose a smaller tensor");
  }
  const std::int64_t first = part.tensor_rank * width;
  slices.vocab = {first, std::min(width, o.vocab - first)};
  slices.vocab_width = width;
}

}  // namespace

ModelSlices model_slices(const ModelOptions& o, const ModelPart& part) {
  check(part.tensor >= 1 && part.tensor_rank >= 0 && part.tensor_rank < part.tensor,
        "a rank is one of its tensor-parallel ranks");
  if (part.tensor == 1) {
    return {{0, o.heads}, {0, o.kv_heads}, 1, {0, o.ffn}, {0, o.vocab}, o.vocab};
  }
  ModelSlices slices;
  slices.heads = even("model.heads", o.heads, part);
  cut_kv_heads(slices, o, part);
  slices.ffn = even("model.ffn", o.ffn, part);
  (void)even("model.hidden", o.hidden, part);
  if (part.sequence) (void)even("model.seq", o.seq, part);
  cut_vocab(slices, o, part);
  return slices;
}

std::vector<int> units_of(const ModelOptions& options, const ModelPart& part) {
  const int all = unit_count(options);
  std::vector<int> units;
  if (part.chunks.empty()) {
    check(part.stages == 1, "a pipeline's stage says which units it runs");
    for (int unit = 0; unit < all; ++unit) units.push_back(unit);
    return units;
  }
  for (const UnitRange& chunk : part.chunks) {
    check(chunk.begin >= 0 && chunk.begin < chunk.end && chunk.end <= all &&
              (units.empty() || chunk.begin > units.back()),
          "the chunks of a stage are ranges of units in order of forward");
    for (int unit = chunk.begin; unit < chunk.end; ++unit) units.push_back(unit);
  }
  check(
      part.begins_model() == (units.front() == 0) && part.ends_model() == (units.back() == all - 1),
      "the first stage has the embedding and the last one the loss head");
  return units;
}

}  // namespace sluice
