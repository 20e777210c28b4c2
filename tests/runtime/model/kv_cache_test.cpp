// A sequence run in parts gives what it gives whole.
#include "runtime/model/math/kv_cache.hpp"

#include <ATen/ops/cat.h>
#include <gtest/gtest.h>

#include "base/error.hpp"
#include "runtime/model/empty_tensor.hpp"
#include "runtime/model/unit_profile.hpp"
#include "tests/runtime/model/block_run.hpp"

namespace sluice::testing {
namespace {

struct CachedModel {
  const char* name;
  ModelOptions options;
};

constexpr std::int64_t kSeq = 23;

ModelOptions cached_options(ModelType type, std::int64_t kv_heads, std::int64_t window,
                            bool explicit_units) {
  ModelOptions options{.type = type, .layers = 1, .hidden = 48, .heads = 6};
  options.kv_heads = kv_heads;
  options.vocab = 31;
  options.seq = kSeq;
  options.ffn = 40;
  options.sliding_window = window;
  options.explicit_units = explicit_units;
  return options;
}

class CachedBlock : public ::testing::TestWithParam<CachedModel> {};

// y of positions [0, prompt) in one call, then of one after the other.
at::Tensor run_in_parts(Unit& unit, const BlockData& data, std::int64_t prompt) {
  const std::int64_t seq = data.x.size(1);
  const at::Tensor cache =
      empty_tensor({data.x.size(0), unit.cache_elems(seq).value()}, data.x.scalar_type());
  cache.fill_(1e30);
  UnitCall call{.cache = &cache};
  std::vector<at::Tensor> parts;
  for (std::int64_t first = 0; first < seq;) {
    const std::int64_t count = first == 0 ? prompt : 1;
    call.first_position = first;
    parts.push_back(unit.forward(call, data.params, data.x.narrow(1, first, count), nullptr));
    first += count;
  }
  return at::cat(parts, 1);
}

TEST_P(CachedBlock, PartsGiveWhatTheWholeGives) {
  const Model model = make_model(GetParam().options);
  Unit& unit = *model.units[1];
  for (const c10::ScalarType type : {at::kFloat, at::kBFloat16}) {
    const BlockData data(model.spec.options, 2, type);
    const at::Tensor whole = unit.forward({}, data.params, data.x, nullptr);
    for (const std::int64_t prompt : {1, 4, 5, 6, 17, 23}) {
      const double error = relative_error(run_in_parts(unit, data, prompt), whole);
      EXPECT_LT(error, type == at::kFloat ? 1e-6 : 8e-3) << "prompt of " << prompt;
    }
  }
}

TEST_P(CachedBlock, HoldsNoMoreThanTheWindow) {
  const ModelOptions& options = GetParam().options;
  const Model model = make_model(options);
  const std::int64_t held = options.sliding_window > 0 ? options.sliding_window : kSeq;
  EXPECT_EQ(model.units[1]->cache_elems(kSeq), 2 * held * options.kv_heads * 8);
  EXPECT_EQ(model.units[0]->cache_elems(kSeq), 0);
  EXPECT_EQ(model.units[1]->cache_elems(3),
            2 * std::min<std::int64_t>(3, held) * options.kv_heads * 8);
}

TEST_P(CachedBlock, TwoPositionsAtOnceAreRefusedLater) {
  const Model model = make_model(GetParam().options);
  const BlockData data(model.spec.options, 1, at::kFloat);
  const at::Tensor cache = empty_tensor({1, model.units[1]->cache_elems(kSeq).value()}, at::kFloat);
  const UnitCall call{.cache = &cache, .first_position = 3};
  EXPECT_THROW((void)model.units[1]->forward(call, data.params, data.x.narrow(1, 0, 2), nullptr),
               Error);
}

TEST_P(CachedBlock, MemoryIsThatOfTheDryRun) {
  const Model model = make_model(GetParam().options);
  const std::int64_t bytes = cache_bytes(model, 1, kSeq, DType::kBFloat16);
  EXPECT_EQ(bytes, 2 * model.units[1]->cache_elems(kSeq).value());
  const UnitMemory memory = profile_cached_unit(model, 1, kSeq, DType::kFloat32);
  EXPECT_EQ(memory.output, kSeq * 48 * 4);
  EXPECT_GT(memory.forward_only_peak, memory.output);
  const UnitMemory head = profile_cached_unit(model, 2, kSeq, DType::kFloat32);
  EXPECT_GE(head.forward_only_peak, 31 * 4);
}

INSTANTIATE_TEST_SUITE_P(
    Families, CachedBlock,
    ::testing::Values(
        CachedModel{"gpt2", cached_options(ModelType::kGpt2, 6, 0, true)},
        CachedModel{"gpt2_autograd", cached_options(ModelType::kGpt2, 6, 0, false)},
        CachedModel{"llama", cached_options(ModelType::kLlama, 6, 0, true)},
        CachedModel{"llama_autograd", cached_options(ModelType::kLlama, 6, 0, false)},
        CachedModel{"llama_grouped", cached_options(ModelType::kLlama, 2, 0, true)},
        CachedModel{"mistral", cached_options(ModelType::kMistral, 3, 5, true)},
        CachedModel{"mistral_autograd", cached_options(ModelType::kMistral, 3, 5, false)},
        CachedModel{"mistral_one_key_head", cached_options(ModelType::kMistral, 1, 4, true)},
        CachedModel{"qwen2", cached_options(ModelType::kQwen2, 2, 0, true)},
        CachedModel{"qwen2_autograd", cached_options(ModelType::kQwen2, 2, 0, false)}),
    [](const ::testing::TestParamInfo<CachedModel>& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace sluice::testing
