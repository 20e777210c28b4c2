// DeepSpeed's checkpoints as it saves them: every element of every rank's shards, and what is
// refused.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <set>
#include <span>

#include "base/error.hpp"
#include "base/format.hpp"
#include "runtime/checkpoint/format/safetensors.hpp"
#include "runtime/checkpoint/import/import_source.hpp"
#include "tests/runtime/checkpoint/deepspeed_writer.hpp"
#include "tests/runtime/checkpoint/test_folder.hpp"
#include "tests/runtime/checkpoint/torch_writer.hpp"

namespace sluice {
namespace {

namespace fs = std::filesystem;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using testing::pickled_dictionary;
using testing::pickled_entry;
using testing::pickled_int;
using testing::pickled_list;
using testing::pickled_text;
using testing::written_element;
using testing::WrittenParam;
using testing::WrittenZero;

constexpr std::array kKinds{std::pair{StateKind::kMaster, "fp32"},
                            std::pair{StateKind::kMoment1, "exp_avg"},
                            std::pair{StateKind::kMoment2, "exp_avg_sq"}};

// All elements, row by row, from column 1 on before column 0.
std::vector<float> elements(const OpenTensor& tensor) {
  tensor.check_dtype();
  tensor.check_storage();
  const std::vector<std::int64_t>& shape = tensor.shape();
  const std::int64_t cols = shape.empty() ? 1 : shape.back();
  const std::int64_t rows = shape.size() == 2 ? shape[0] : 1;
  std::vector<float> values(static_cast<std::size_t>(rows * cols));
  const std::span<float> all(values);
  for (std::int64_t row = 0; row < rows; ++row) {
    const auto at = static_cast<std::size_t>(row * cols);
    if (cols > 1) tensor.read_row(row, 1, all.subspan(at + 1, static_cast<std::size_t>(cols - 1)));
    tensor.read_row(row, 0, all.subspan(at, 1));
  }
  tensor.let_go();
  return values;
}

// Sizes that divide by nothing, one of a single element, and a group smaller than the ranks.
WrittenZero odd_sizes() {
  WrittenZero zero;
  zero.groups = {{{"a.weight", {7, 5}}, {"b.weight", {3, 11}}, {"c.weight", {13}}, {"d", {1}}},
                 {{"e.bias", {1}}},
                 {{"f.bias", {9}}, {"g.bias", {17}}}};
  return zero;
}

class DeepSpeed : public testing::TestFolder {
 protected:
  DeepSpeed() : TestFolder("deepspeed") { fs::create_directories(root_ / "global_step7"); }

  [[nodiscard]] std::string step() const { return path("global_step7"); }
  void write(const WrittenZero& zero) const { testing::write_zero(step(), zero); }
  [[nodiscard]] std::string file(int rank, const std::string& what = "optim") const {
    return step() + "/zero_pp_rank_" + std::to_string(rank) + "_mp_rank_00_" + what + "_states.pt";
  }
  void expect_whole(const WrittenZero& zero, const std::string& what) const {
    const auto source = open_import(path("global_step7"));
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
  [[nodiscard]] std::string refusal(bool weights_only = false) const {
    try {
      const auto source = open_import(step(), {.weights_only = weights_only});
      for (const std::string& name : source->tensors(0)) {
        (void)elements(source->open(0, name, StateKind::kMaster));
      }
    } catch (const CheckpointError& error) {
      return error.what();
    }
    return "(accepted)";
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
        pickled_entry("loss_scaler", testing::pickled_object(
                                         "deepspeed.runtime.fp16.loss_scaler", "DynamicLossScaler",
                                         pickled_entry("cur_scale", testing::pickled_float(4096)) +
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

TEST_F(DeepSpeed, OtherParallelismIsRefused) {
  write(odd_sizes());
  const auto beside = [&](const std::string& name, const std::string& what) {
    std::ofstream(step() + "/" + name) << "x";
    EXPECT_EQ(refusal(), step() + "/" + name + ": " + what);
    fs::remove(step() + "/" + name);
  };
  beside("mp_rank_01_model_states.pt",
         "is of model-parallel rank 1: ZeRO's shards of tensor parallelism are not read; convert "
         "the checkpoint with DeepSpeed's ds_to_universal, and import the result");
  beside("bf16_zero_pp_rank_0_mp_rank_01_optim_states.pt",
         "is of model-parallel rank 1: ZeRO's shards of tensor parallelism are not read; convert "
         "the checkpoint with DeepSpeed's ds_to_universal, and import the result");
  beside("layer_03-model_00-model_states.pt",
         "is a layer of a pipeline: DeepSpeed's pipelines are not read; convert the checkpoint "
         "with deepspeed_to_megatron.py of Megatron-DeepSpeed, and import the result's weights");
  beside("layer_0_expert_1_mp_rank_00_model_states.pt",
         "is of a mixture of experts; Sluice has no experts");
  beside("expp_rank_0_mp_rank_00_optim_states.pt",
         "is of a mixture of experts; Sluice has no experts");
  beside("offloaded_tensors",
         "holds optimizer states that were on NVMe, as swap files, which are not read; train from "
         "weights: write them in DeepSpeed with save_16bit_model, and import that as a Hugging "
         "Face folder");
  EXPECT_EQ(refusal(), "(accepted)");
}

TEST_F(DeepSpeed, FilesOfARankThatAreMissing) {
  WrittenZero zero = odd_sizes();
  zero.stage = 3;
  zero.world = 3;
  write(zero);
  const std::string remedy = ": copy the files of every rank, from every host, into one folder";
  for (const std::string what : {"optim", "model"}) {
    for (const int rank : {0, 1, 2}) {
      fs::rename(file(rank, what), path("away"));
      const std::string of = what == "optim" && rank == 0 ? "several" : "3";
      EXPECT_EQ(refusal(),
                file(rank, what) + ": is missing from a checkpoint of " + of + " ranks" + remedy);
      fs::rename(path("away"), file(rank, what));
    }
  }
  for (const int rank : {0, 1, 2}) fs::remove(file(rank));
  EXPECT_EQ(refusal(), file(0, "model") +
                           ": has no *_optim_states.pt beside it, which hold the fp32 weights and "
                           "moments" +
                           remedy);
}

TEST_F(DeepSpeed, WithoutZeroThereAreNoShards) {
  std::ofstream(step() + "/mp_rank_00_model_states.pt", std::ios::binary)
      << testing::torch_file(pickled_dictionary(pickled_entry("optimizer", "}")));
  EXPECT_EQ(refusal(), step() +
                           "/mp_rank_00_model_states.pt: was saved without ZeRO, whose optimizer "
                           "states are in another form; write the weights in DeepSpeed with "
                           "save_16bit_model, and import that as a Hugging Face folder");
}

TEST_F(DeepSpeed, TwoSavesInOneFolder) {
  WrittenZero zero = odd_sizes();
  zero.world = 3;
  write(zero);
  zero.world = 2;
  write(zero);
  EXPECT_EQ(refusal(), file(2) +
                           ": is of rank 2 of a checkpoint of 2 ranks: two saves are mixed; remove "
                           "the files of the older one");
  zero.said_world = 3;
  write(zero);
  zero.said_world = 0;
  fs::rename(file(1), path("of-three"));
  fs::remove(file(2));
  write(zero);
  fs::rename(path("of-three"), file(1));
  EXPECT_EQ(refusal(), file(1) + ": is of 3 ranks, and " + file(0) +
                           " is of 2: two saves are mixed; remove the files of the older one");
  write(zero);
  zero.prefix = "bf16_";
  write(zero);
  EXPECT_EQ(refusal(), file(0) +
                           ": is of rank 0, and so is bf16_zero_pp_rank_0_mp_rank_00_optim_"
                           "states.pt: two saves are mixed; remove the files of the older "
                           "one");
}

TEST_F(DeepSpeed, FilesOfAnotherRankOrStep) {
  WrittenZero zero = odd_sizes();
  write(zero);
  fs::rename(file(0), path("first"));
  fs::rename(file(1), file(0));
  fs::rename(path("first"), file(1));
  EXPECT_THAT(refusal(), HasSubstr(file(0)));  // rank 1's is shorter or elsewhere in the group
  write(zero);
  fs::rename(file(1), path("older"));
  zero.updates = 9;
  write(zero);
  fs::rename(path("older"), file(1));
  EXPECT_THAT(refusal(),
              HasSubstr("is of 6 updates, and " + file(0) + " of 9: two saves are mixed"));
  // Equal parts of equal sizes: the mapping alone tells the ranks apart.
  fs::remove_all(step());
  fs::create_directories(step());
  zero.groups = {{{"a.weight", {8, 4}}, {"b.weight", {8, 4}}}};
  write(zero);
  fs::rename(file(0), path("first"));
  fs::rename(file(1), file(0));
  fs::rename(path("first"), file(1));
  EXPECT_THAT(refusal(),
              EndsWith("is not where param_slice_mappings puts it in the part of rank 0: the file "
                       "of another rank or save"));
  // Of ZeRO-3 the counters tell.
  fs::remove_all(step());
  fs::create_directories(step());
  zero.stage = 3;
  write(zero);
  fs::rename(file(1, "model"), path("older"));
  zero.step = 9;
  write(zero);
  fs::rename(path("older"), file(1, "model"));
  EXPECT_THAT(refusal(), HasSubstr(file(1, "model") + ", tensor global_steps, byte "));
  EXPECT_THAT(refusal(), HasSubstr("is of step 7, and " + file(0, "model") +
                                   " of step 9: two saves are mixed"));
}

TEST_F(DeepSpeed, ElasticStatesAreRefused) {
  WrittenZero zero = odd_sizes();
  zero.more_states = pickled_entry("base_optimizer_state", pickled_list({"}", "}", "}"}));
  write(zero);
  EXPECT_THAT(refusal(),
              EndsWith("is of an elastic checkpoint, which is not read; load it in DeepSpeed with "
                       "zero_optimization.elastic_checkpoint: false, and save again"));
}

TEST_F(DeepSpeed, SizesThatDoNotFitTheShapes) {
  for (const int stage : {2, 3}) {
    WrittenZero zero = odd_sizes();
    zero.stage = stage;
    fs::remove_all(step());
    fs::create_directories(step());
    write(zero);
    std::vector<std::string> models;
    for (const int rank : {0, 1}) {
      models.push_back(stage == 3 ? file(rank, "model") : step() + "/mp_rank_00_model_states.pt");
    }
    for (const std::int64_t rows : {5, 8, 12}) {
      WrittenZero other = zero;
      other.groups[0][0].shape = {rows, 5};
      fs::create_directories(path("other"));
      testing::write_zero(path("other"), other);
      for (const std::string& model : models) {
        fs::copy(path("other") + "/" + fs::path(model).filename().string(), model,
                 fs::copy_options::overwrite_existing);
      }
      EXPECT_THAT(refusal(), HasSubstr("a file of another save")) << stage << " " << rows;
    }
  }
}

TEST_F(DeepSpeed, DamagedAndShortFiles) {
  for (const int stage : {1, 3}) {
    WrittenZero zero = odd_sizes();
    zero.stage = stage;
    fs::remove_all(step());
    fs::create_directories(step());
    write(zero);
    std::string bytes;
    {
      std::ifstream in(file(1), std::ios::binary);
      bytes.assign(std::istreambuf_iterator<char>(in), {});
    }
    for (std::size_t keep = 0; keep < bytes.size(); keep += 97) {
      std::ofstream(file(1), std::ios::binary) << bytes.substr(0, keep);
      EXPECT_THAT(refusal(), HasSubstr(file(1))) << keep;
    }
    // An element of a storage: its checksum finds it.
    const float found = written_element("c.weight", "fp32", 12);
    std::string damaged = bytes;
    const std::size_t at =
        damaged.find(std::string(reinterpret_cast<const char*>(&found), sizeof found));
    ASSERT_NE(at, std::string::npos);
    damaged[at] = static_cast<char>(damaged[at] ^ 1);
    std::ofstream(file(1), std::ios::binary) << damaged;
    EXPECT_THAT(refusal(), HasSubstr("checksum is wrong"));
    EXPECT_THAT(refusal(), HasSubstr(file(1)));
  }
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
}  // namespace sluice
