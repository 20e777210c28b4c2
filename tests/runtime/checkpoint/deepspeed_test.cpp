// DeepSpeed's checkpoints as it saves them: every element of every rank's shards.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <fstream>
#include <set>

#include "base/format.hpp"
#include "runtime/checkpoint/format/safetensors.hpp"
#include "tests/runtime/checkpoint/deepspeed_folder.hpp"
#include "tests/runtime/checkpoint/torch_writer.hpp"

namespace sluice::testing {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

class DeepSpeed : public DeepSpeedFolder {
 protected:
  void expect_whole(const WrittenZero& zero, const std::string& what) const {
    const auto source = open_import(step());
    ASSERT_NE(source, nullptr) << what;
    std::size_t params = 0;
    for (const auto& group : zero.groups) {
      for (const WrittenParam& param : group) {
        ++params;
        for (const auto& [kind, state] : kKinds) {
          ASSERT_TRUE(source->has(0, param.name, kind)) << what << param.name;
          const OpenTensor tensor = source->open(0, param.name, kind);
          EXPECT_EQ(tensor.shape(), param.shape) << what << param.name;
          std::vector<float> expected;
          for (std::int64_t i = 0; i < param.elems(); ++i) {
            expected.push_back(written_element(param.name, state, i));
          }
          EXPECT_EQ(elements(tensor), expected) << what << param.name << " " << state;
        }
      }
    }
    EXPECT_EQ(source->tensors(0).size(), params) << what;
  }
};

TEST_F(DeepSpeed, EveryElementOfEveryStageAndWorldSize) {
  for (const int world : {1, 2, 3, 5}) {
    for (const int stage : {1, 2, 3}) {
      for (const bool padded : {false, true}) {
        for (const std::int64_t align : {1, 8}) {
          if (stage == 3 && (padded || align > 1)) continue;
          WrittenZero zero = odd_sizes();
          zero.stage = stage;
          zero.world = world;
          zero.padded = padded;
          zero.align = align;
          if (padded) zero.prefix = "bf16_";
          fs::remove_all(step());
          fs::create_directories(step());
          write(zero);
          expect_whole(zero, format_text("stage {}, {} ranks, align {}: ", stage, world, align));
        }
      }
    }
  }
}

TEST_F(DeepSpeed, LatestNamesTheCheckpoint) {
  write(odd_sizes());
  EXPECT_EQ(open_import(path("")), nullptr);
  std::ofstream(path("latest")) << "global_step7";
  const auto source = open_import(path(""), {.format = ImportFormat::kDeepSpeed});
  ASSERT_NE(source, nullptr);
  EXPECT_EQ(source->path(), step());
  EXPECT_STREQ(source->program(), "DeepSpeed");
  EXPECT_EQ(open_import(path(""), {.format = ImportFormat::kMegatron}), nullptr);
  const ImportProgress at = source->progress();
  EXPECT_EQ(at.step, 7);
  EXPECT_EQ(at.updates, 6);
  EXPECT_EQ(at.samples, 28);
  EXPECT_EQ(at.learning_rate, 0.25);
  EXPECT_EQ(at.loss_scale, 0);
}

TEST_F(DeepSpeed, LossScaleWithTheGoodStepsSinceItsLastChange) {
  WrittenZero zero = odd_sizes();
  const auto scaled = [&](int iterations) {
    zero.more_states =
        pickled_entry("dynamic_loss_scale", "\x88") +
        pickled_entry("loss_scaler",
                      pickled_object("deepspeed.runtime.fp16.loss_scaler", "DynamicLossScaler",
                                     pickled_entry("cur_scale", pickled_float(4096)) +
                                         pickled_entry("cur_iter", pickled_int(iterations)) +
                                         pickled_entry("last_overflow_iter", pickled_int(2)) +
                                         pickled_entry("scale_window", pickled_int(4)) +
                                         pickled_entry("cur_hysteresis", pickled_int(2))));
    write(zero);
    return open_import(step())->progress();
  };
  EXPECT_EQ(scaled(6).loss_scale, 4096);
  EXPECT_EQ(scaled(6).loss_scale_lives, 2);
  // Iterations 3, 4, ... are good; the scale doubles at the fifth, the ninth and so on.
  EXPECT_EQ(scaled(3).loss_scale_good_steps, 0);
  EXPECT_EQ(scaled(7).loss_scale_good_steps, 3);
  EXPECT_EQ(scaled(8).loss_scale_good_steps, 0);
  EXPECT_EQ(scaled(11).loss_scale_good_steps, 3);
}

TEST_F(DeepSpeed, FrozenAndSharedParameters) {
  for (const int stage : {1, 3}) {
    WrittenZero zero = odd_sizes();
    zero.stage = stage;
    zero.frozen = {{"cold.weight", {3, 3}}, {"cold.bias", {1}}};
    zero.shared = {{"head.weight", "b.weight"}, {"lost", "nowhere"}};
    fs::remove_all(step());
    fs::create_directories(step());
    write(zero);
    const auto source = open_import(step());
    const std::vector<std::string> names = source->tensors(0);
    EXPECT_EQ(std::set(names.begin(), names.end()),
              (std::set<std::string>{"a.weight", "b.weight", "c.weight", "d", "e.bias", "f.bias",
                                     "g.bias", "cold.weight", "cold.bias", "head.weight"}));
    for (const WrittenParam& param : zero.frozen) {
      std::vector<float> expected;
      for (std::int64_t i = 0; i < param.elems(); ++i) {
        expected.push_back(written_element(param.name, "fp32", i));
      }
      EXPECT_EQ(elements(source->open(0, param.name, StateKind::kMaster)), expected) << stage;
      EXPECT_FALSE(source->has(0, param.name, StateKind::kMoment1));
    }
    for (const auto& [kind, state] : kKinds) {
      EXPECT_EQ(elements(source->open(0, "head.weight", kind)),
                elements(source->open(0, "b.weight", kind)));
    }
  }
}

// FusedAdam's count. In ZeRO-3 every part of the model adds to it.
TEST_F(DeepSpeed, CountOfTheOptimizersGroups) {
  WrittenZero zero = odd_sizes();
  zero.step_in_group = true;
  zero.updates = 5;
  write(zero);
  EXPECT_EQ(open_import(step())->progress().updates, 5);
  fs::remove_all(step());
  fs::create_directories(step());
  zero.stage = 3;
  write(zero);
  EXPECT_EQ(open_import(step())->progress().updates, 6);
}

TEST_F(DeepSpeed, FormsOfTheFirstVersions) {
  WrittenZero zero;
  zero.groups = {{{"a.weight", {3, 5}}}};
  zero.more_model = pickled_entry(
      "param_shapes",
      pickled_dictionary(pickled_entry(
          "a.weight", "ctorch\nSize\n(" + pickled_int(3) + pickled_int(5) + "t\x85R")));
  write(zero);
  for (const int rank : {0, 1}) {
    fs::rename(file(rank),
               step() + "/zero_pp_rank_" + std::to_string(rank) + "_mp_rank_00optim_states.pt");
  }
  expect_whole(zero, "one dictionary");
}

TEST_F(DeepSpeed, WeightsAloneNeedNoMoments) {
  WrittenZero zero = odd_sizes();
  zero.moments = false;
  write(zero);
  const auto source = open_import(step(), {.weights_only = true});
  EXPECT_TRUE(source->has(0, "b.weight", StateKind::kMaster));
  EXPECT_FALSE(source->has(0, "b.weight", StateKind::kMoment2));
  EXPECT_EQ(source->progress().updates, 6);  // by the run's counters
  EXPECT_THAT(refusal(), HasSubstr("holds no exp_avg of group 0; --weights-only takes the weights "
                                   "alone"));
  zero.step = 1;  // and skipped: no update yet
  write(zero);
  EXPECT_EQ(refusal(), "(accepted)");
  EXPECT_FALSE(open_import(step())->has(0, "b.weight", StateKind::kMoment1));
}

TEST_F(DeepSpeed, OrderOfRoundRobinIsThatOfParamShapes) {
  WrittenZero zero = odd_sizes();
  zero.more_states = pickled_entry("param_slice_mappings", pickled_list({"}", "}", "}"}));
  write(zero);
  EXPECT_THAT(refusal(), HasSubstr("tensor a.weight"));
  zero.config = pickled_dictionary(pickled_entry(
      "zero_optimization", pickled_dictionary(pickled_entry("round_robin_gradients", "\x88"))));
  write(zero);
  EXPECT_EQ(refusal(), "(accepted)");
}

// Checkpoints of two ranks that DeepSpeed 0.19.8 wrote, with what its own functions give.
TEST(DeepSpeedsOwn, EveryElement) {
  for (const std::string name : {"deepspeed_zero2", "deepspeed_zero3"}) {
    const std::string dir = SLUICE_SOURCE_DIR "/tests/golden/torch/" + name;
    const auto source = open_import(dir);
    ASSERT_NE(source, nullptr);
    EXPECT_EQ(source->progress().step, 3);
    EXPECT_EQ(source->progress().updates, 3);
    EXPECT_EQ(source->progress().samples, 12);
    EXPECT_EQ(source->progress().learning_rate, 0.01);
    const SafetensorsFile theirs(dir + "/expected.safetensors");
    std::size_t compared = 0;
    for (const auto& [kind, state] : kKinds) {
      for (const std::string& tensor : source->tensors(0)) {
        const bool tied = tensor == "lm_head.weight" && name == "deepspeed_zero2";
        const std::string held = tied ? "model.embed_tokens.weight" : tensor;
        const auto bytes = theirs.bytes(theirs.at(std::string(name_of(kind)) + "/" + held));
        std::vector<float> expected(bytes.size() / sizeof(float));
        std::memcpy(expected.data(), bytes.data(), bytes.size());
        EXPECT_EQ(elements(source->open(0, tensor, kind)), expected) << name << tensor << state;
        compared += tied ? 0 : 1;
      }
    }
    EXPECT_EQ(compared, theirs.tensors().size());
  }
}

}  // namespace
}  // namespace sluice::testing
