// A sequence decoded in parts, by engines on any layout, gives the logits of the whole; losses of
// micro-batches do not depend on who runs them.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "base/error.hpp"
#include "kernels/cpu/softmax_cross_entropy.hpp"
#include "runtime/model/counting_allocator.hpp"
#include "runtime/model/tensor_view.hpp"
#include "runtime/program/write/step_writer.hpp"
#include "runtime/run/generator.hpp"
#include "tests/runtime/engine/world.hpp"

namespace sluice::testing {
namespace {

struct Family {
  const char* name;
  ModelOptions model;
};

ModelOptions family(ModelType type, std::int64_t kv_heads, std::int64_t window = 0) {
  ModelOptions model = tiny_options().model;
  model.type = type;
  model.heads = 4;
  model.kv_heads = kv_heads;
  model.ffn = 88;
  model.init_std = 0.3;  // so that logits differ
  model.tie_embeddings = type == ModelType::kQwen2 || type == ModelType::kGpt2;
  model.sliding_window = window;
  return model;
}

const std::vector<Family>& families() {
  static const std::vector<Family> all = {
      {"gpt2", family(ModelType::kGpt2, 4)},
      {"llama", family(ModelType::kLlama, 2)},
      {"mistral", family(ModelType::kMistral, 2, 5)},
      {"qwen2", family(ModelType::kQwen2, 1)},
  };
  return all;
}

std::vector<std::int64_t> tokens_of(std::int64_t count) {
  std::vector<std::int64_t> tokens;
  for (std::int64_t i = 0; i < count; ++i) tokens.push_back((i * i * 7 + i + 3) % 61);
  return tokens;
}

std::vector<float> values(const at::Tensor& logits) {
  const at::Tensor host = logits.contiguous();
  return {host_data<float>(host), host_data<float>(host) + host.numel()};
}

EngineOptions options_of(const ModelOptions& model, DType dtype) {
  EngineOptions options = tiny_options();
  options.model = model;
  options.train.dtype = dtype;
  options.generate_positions = model.seq;
  return options;
}

using Logits = std::vector<std::vector<float>>;  // by position, from that of the prompt's end

// Every prefix whole, without a cache.
Logits whole_logits(EngineOptions options, std::int64_t prompt) {
  options.generate_positions = 0;
  options.train.micro_batch = 1;
  Logits all;
  run_world(options, Wire::kLocal, [&](int, Engine& engine) {
    for (std::int64_t length = prompt; length <= options.model.seq; ++length) {
      SampleRows rows;
      rows.tokens = tokens_of(length);
      all.push_back(values(engine.next_token_logits(rows, 1)));
    }
  });
  return all;
}

Logits decoded_logits(const EngineOptions& options, std::int64_t prompt) {
  std::vector<Logits> all(static_cast<std::size_t>(options.dp));
  run_world(options, Wire::kLocal, [&](int rank, Engine& engine) {
    const std::vector<std::int64_t> tokens = tokens_of(options.model.seq);
    const std::span<const std::int64_t> given(tokens);
    Logits& mine = all[static_cast<std::size_t>(rank)];
    mine.push_back(values(engine.decode(0, given.first(static_cast<std::size_t>(prompt)))));
    for (std::int64_t p = prompt; p < options.model.seq; ++p) {
      mine.push_back(values(engine.decode(p, given.subspan(static_cast<std::size_t>(p), 1))));
    }
  });
  for (const Logits& other : all) EXPECT_EQ(other, all[0]);
  return all[0];
}

double largest_error(const Logits& ours, const Logits& want) {
  double error = 0;
  double scale = 0;
  EXPECT_EQ(ours.size(), want.size());
  for (std::size_t i = 0; i < want.size(); ++i) {
    for (std::size_t v = 0; v < want[i].size(); ++v) {
      error = std::max(error, std::abs(double{ours[i][v]} - double{want[i][v]}));
      scale = std::max(scale, std::abs(double{want[i][v]}));
    }
  }
  return error / scale;
}

TEST(Decode, GivesTheLogitsOfTheWholeSequence) {
  for (const Family& f : families()) {
    for (const bool explicit_units : {true, false}) {
      ModelOptions model = f.model;
      model.explicit_units = explicit_units;
      const EngineOptions options = options_of(model, DType::kFloat32);
      for (const std::int64_t prompt : {1, 7, 16}) {  // 7, 16: longer than the window of 5
        const Logits want = whole_logits(options, prompt);
        EXPECT_LT(largest_error(decoded_logits(options, prompt), want), 1e-5)
            << f.name << ", explicit " << explicit_units << ", prompt of " << prompt;
      }
    }
  }
}

TEST(Decode, In16BitsStaysWithinTheirRounding) {
  for (const Family& f : families()) {
    const EngineOptions options = options_of(f.model, DType::kBFloat16);
    EXPECT_LT(largest_error(decoded_logits(options, 5), whole_logits(options, 5)), 3e-2) << f.name;
  }
}

TEST(Decode, ParametersComeFromAnywhere) {
  for (const Family& f : families()) {
    for (const DType dtype : {DType::kFloat32, DType::kBFloat16}) {
      EngineOptions options = options_of(f.model, dtype);
      const Logits want = decoded_logits(options, 6);
      options.purpose = EnginePurpose::kGenerate;
      EXPECT_EQ(decoded_logits(options, 6), want) << f.name << ", frozen";
      for (const int dp : {1, 2, 3}) {
        options.dp = dp;
        for (const int stage : {1, 3}) {
          options.zero.stage = stage;
          for (const Tier tier : {Tier::kDevice, Tier::kHost, Tier::kNvme}) {
            if (stage != 3 && tier != Tier::kDevice) continue;
            options.offload.parameters = tier;
            if (tier == Tier::kNvme) options.offload.nvme_path = {::testing::TempDir()};
            // The widths of shards differ, the parameters do not.
            EXPECT_EQ(decoded_logits(options, 6), want)
                << f.name << ", dp " << dp << ", stage " << stage << ", " << name_of(tier);
          }
          options.offload.parameters = Tier::kDevice;
        }
      }
    }
  }
}

TEST(Decode, PositionsComeInTurn) {
  EngineOptions options = options_of(families()[1].model, DType::kFloat32);
  options.generate_positions = 9;
  run_world(options, Wire::kLocal, [](int, Engine& engine) {
    const std::vector<std::int64_t> tokens = tokens_of(16);
    const std::span<const std::int64_t> given(tokens);
    EXPECT_THROW((void)engine.decode(0, {}), Error);
    EXPECT_THROW((void)engine.decode(0, given.first(10)), Error);
    EXPECT_THROW((void)engine.decode(4, given.first(1)), Error);
    const std::vector<float> first = values(engine.decode(0, given.first(8)));
    EXPECT_THROW((void)engine.decode(8, given.first(2)), Error);
    (void)engine.decode(8, given.first(1));
    EXPECT_THROW((void)engine.decode(9, given.first(1)), Error);
    EXPECT_EQ(values(engine.decode(0, given.first(8))), first);  // begins anew
    (void)engine.train_step({.step = 1, .lr = 1e-3});            // takes the arena
    EXPECT_THROW((void)engine.decode(8, given.first(1)), Error);
  });
}

TEST(Decode, AnEngineThatOnlyGeneratesDoesNotTrain) {
  EngineOptions options = options_of(families()[0].model, DType::kFloat32);
  options.purpose = EnginePurpose::kGenerate;
  run_world(options, Wire::kLocal, [](int, Engine& engine) {
    EXPECT_THROW((void)engine.train_step({.step = 1, .lr = 1e-3}), Error);
  });
}

TEST(Decode, MemoryIsWhatThePlanSays) {
  install_counting_allocators();
  for (const Family& f : families()) {
    for (const int stage : {0, 3}) {
      EngineOptions options = options_of(f.model, DType::kFloat32);
      options.model.hidden = 64;
      options.model.seq = 160;
      options.generate_positions = 150;
      options.purpose = EnginePurpose::kGenerate;
      options.zero.stage = stage;
      const std::int64_t before = allocation_count(CountedDevice::kHost).live;
      run_world(options, Wire::kLocal, [&](int, Engine& engine) {
        const std::vector<std::int64_t> tokens = tokens_of(149);
        reset_allocation_peak(CountedDevice::kHost);
        (void)engine.decode(0, tokens);
        (void)engine.decode(149, std::span(tokens).first(1));
        const auto measured =
            static_cast<double>(allocation_count(CountedDevice::kHost).peak - before);
        const MemoryReport planned = add_up(write_decode_step(*engine.plan().decoding));
        EXPECT_NEAR(measured / static_cast<double>(planned.peak()), 1.0, 0.01) << f.name;
        const std::int64_t held = f.model.sliding_window > 0 ? 5 : 150;
        EXPECT_EQ(planned.by_tag[static_cast<std::size_t>(Tag::kKvCache)],
                  2 * 2 * held * f.model.kv_heads * 16 * 4)
            << f.name;
        EXPECT_EQ(planned.by_tag[static_cast<std::size_t>(Tag::kMoments)], 0);
        EXPECT_EQ(planned.by_tag[static_cast<std::size_t>(Tag::kGradients)], 0);
      });
    }
  }
}

// Ids are their own text.
class Ids final : public Tokenizer {
 public:
  Ids(std::int64_t vocab, std::int32_t end) : vocab_(vocab), end_(end) {}
  [[nodiscard]] std::int64_t vocab_size() const override { return vocab_; }
  [[nodiscard]] std::int32_t end_of_text() const override { return end_; }
  [[nodiscard]] std::vector<std::int32_t> encode(std::string_view text) const override {
    return {text.begin(), text.end()};
  }
  [[nodiscard]] std::string decode(std::span<const std::int32_t> ids) const override {
    return {ids.begin(), ids.end()};
  }
  [[nodiscard]] const std::string& name() const override { return name_; }
  [[nodiscard]] const std::string& fingerprint() const override { return name_; }

 private:
  std::int64_t vocab_;
  std::int32_t end_;
  std::string name_ = "ids";
};

TEST(Generate, EndsWhereItIsToldTo) {
  const EngineOptions options = options_of(families()[0].model, DType::kFloat32);
  run_world(options, Wire::kLocal, [](int, Engine& engine) {
    const auto comm = std::move(make_local_communicators(1).front());
    const std::vector<std::int32_t> prompt{3, 14, 15, 9};
    GenerateOptions how{.sampling = {.temperature = 1.2, .seed = 4}, .max_tokens = 12};
    const auto go_on = [](std::int32_t) { return true; };
    const Generated all = generate(engine, *comm, Ids(61, 60), prompt, how, go_on);
    ASSERT_EQ(all.stop, StopReason::kMaxTokens);
    ASSERT_EQ(all.tokens.size(), 12U);

    const std::int32_t end = all.tokens[7];
    const auto first = std::find(all.tokens.begin(), all.tokens.end(), end) - all.tokens.begin();
    const Generated ended = generate(engine, *comm, Ids(61, end), prompt, how, go_on);
    EXPECT_EQ(ended.stop, StopReason::kEndOfText);
    EXPECT_EQ(ended.tokens,
              std::vector<std::int32_t>(all.tokens.begin(), all.tokens.begin() + first));
    how.end_tokens = {59, end};
    const Generated model_end = generate(engine, *comm, Ids(61, 60), prompt, how, go_on);
    EXPECT_EQ(model_end.stop, StopReason::kEndOfText);
    EXPECT_EQ(model_end.tokens, ended.tokens);
    how.stop_at_end_of_text = false;
    EXPECT_EQ(generate(engine, *comm, Ids(61, end), prompt, how, go_on).tokens, all.tokens);

    std::vector<std::int32_t> seen;
    const Generated stopped =
        generate(engine, *comm, Ids(61, 60), prompt, how, [&](std::int32_t t) {
          seen.push_back(t);
          return seen.size() < 3;
        });
    EXPECT_EQ(stopped.stop, StopReason::kRequest);
    EXPECT_EQ(stopped.tokens,
              std::vector<std::int32_t>(all.tokens.begin(), all.tokens.begin() + 3));
    EXPECT_EQ(seen, stopped.tokens);

    for (const std::int32_t token :
         generate(engine, *comm, Ids(5, 60), prompt, how, go_on).tokens) {
      EXPECT_LT(token, 5);  // the rest of the vocabulary is padding
    }
    how.max_tokens = 14;  // the last one is not run, only chosen
    EXPECT_THROW((void)generate(engine, *comm, Ids(61, 60), prompt, how, go_on), Error);
  });
}

TEST(Losses, AreTheSameWhoeverRunsThem) {
  EngineOptions options = tiny_options();
  options.model = families()[2].model;
  const RowSource formula = formula_rows(options.model.seq, options.model.vocab);
  const RowSource rows = [&](std::int64_t i, std::int64_t first, std::int64_t count,
                             SampleRows& out) {
    formula(i, first, count, out);
    for (std::size_t t = 0; t < out.targets.size(); t += static_cast<std::size_t>(2 + i)) {
      out.targets[t] = kIgnoreTarget;
    }
  };
  std::vector<double> want;
  for (const EnginePurpose purpose : {EnginePurpose::kTrain, EnginePurpose::kEvaluate}) {
    options.purpose = purpose;
    for (const int dp : {1, 2, 3}) {
      options.dp = dp;
      for (const int stage : {0, 2, 3}) {
        options.zero.stage = stage;
        run_world(options, Wire::kLocal, [&](int rank, Engine& engine) {
          const std::vector<double> sums = engine.losses(rows, 4);
          if (rank > 0) return;
          if (want.empty()) want = sums;
          EXPECT_EQ(sums, want) << "dp " << dp << ", stage " << stage;
        });
      }
    }
  }
  ASSERT_EQ(want.size(), 4U);
  EXPECT_GT(want[0], 0);
  EXPECT_NE(want[0], want[1]);
}

TEST(Losses, AddUpToTheEvaluation) {
  EngineOptions options = tiny_options();
  run_world(options, Wire::kLocal, [&](int, Engine& engine) {
    const std::vector<double> sums =
        engine.losses(formula_rows(options.model.seq, options.model.vocab), 3);
    const double mean = (sums[0] + sums[1] + sums[2]) / (3 * 2 * 16);
    EXPECT_NEAR(mean, engine.evaluate(3), 1e-12);
  });
}

TEST(Evaluation, IsLeftBetweenBatches) {
  EngineOptions options = tiny_options();
  options.dp = 2;
  run_world(options, Wire::kLocal, [&](int, Engine& engine) {
    int asked = 0;
    EXPECT_FALSE(engine.evaluate(1000000, [&] { return ++asked == 2; }));
    EXPECT_EQ(asked, 2);
    asked = 0;
    EXPECT_EQ(engine.evaluate(3, [&] { return ++asked > 3; }), engine.evaluate(3));
  });
}

}  // namespace
}  // namespace sluice::testing
