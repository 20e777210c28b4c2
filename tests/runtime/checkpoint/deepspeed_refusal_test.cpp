// DeepSpeed's checkpoints that are refused: the file, the reason, the remedy.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "tests/runtime/checkpoint/deepspeed_folder.hpp"
#include "tests/runtime/checkpoint/torch_writer.hpp"

namespace sluice::testing {
namespace {

namespace fs = std::filesystem;
using ::testing::EndsWith;
using ::testing::HasSubstr;

class DeepSpeedRefusal : public DeepSpeedFolder {};

TEST_F(DeepSpeedRefusal, OtherParallelismIsRefused) {
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

TEST_F(DeepSpeedRefusal, FilesOfARankThatAreMissing) {
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

TEST_F(DeepSpeedRefusal, WithoutZeroThereAreNoShards) {
  std::ofstream(step() + "/mp_rank_00_model_states.pt", std::ios::binary)
      << torch_file(pickled_dictionary(pickled_entry("optimizer", "}")));
  EXPECT_EQ(refusal(), step() +
                           "/mp_rank_00_model_states.pt: was saved without ZeRO, whose optimizer "
                           "states are in another form; write the weights in DeepSpeed with "
                           "save_16bit_model, and import that as a Hugging Face folder");
}

TEST_F(DeepSpeedRefusal, TwoSavesInOneFolder) {
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

TEST_F(DeepSpeedRefusal, FilesOfAnotherRankOrStep) {
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

TEST_F(DeepSpeedRefusal, ElasticStatesAreRefused) {
  WrittenZero zero = odd_sizes();
  zero.more_states = pickled_entry("base_optimizer_state", pickled_list({"}", "}", "}"}));
  write(zero);
  EXPECT_THAT(refusal(),
              EndsWith("is of an elastic checkpoint, which is not read; load it in DeepSpeed with "
                       "zero_optimization.elastic_checkpoint: false, and save again"));
}

TEST_F(DeepSpeedRefusal, MomentsOfAnotherSizeOrOptimizer) {
  const std::vector<float> part(16);  // storage 0: the weights of a rank
  const auto state = [&](std::int64_t elems, const std::string& second) {
    const std::string moment = pickled_tensor({{elems}, {}, part}, "0");
    return pickled_dictionary(pickled_entry(
        "state", pickled_dictionary(pickled_int(0) +
                                    pickled_dictionary(pickled_entry("exp_avg", moment) +
                                                       pickled_entry(second, moment)) +
                                    "s")));
  };
  WrittenZero zero;
  zero.groups = {{{"a.weight", {8, 4}}}};
  zero.more_states = pickled_entry("base_optimizer_state", state(15, "exp_avg_sq"));
  write(zero);
  EXPECT_THAT(refusal(), HasSubstr(file(0) + ", tensor exp_avg, byte "));
  EXPECT_THAT(refusal(), EndsWith("holds 15 elements, and the weights' part of group 0 is of 16; "
                                  "--weights-only takes the weights alone"));
  EXPECT_EQ(refusal(true), "(accepted)");
  zero.more_states = pickled_entry("base_optimizer_state", state(16, "momentum"));
  write(zero);
  EXPECT_THAT(refusal(), EndsWith("holds no exp_avg_sq of group 0; --weights-only takes the "
                                  "weights alone"));
  fs::remove_all(step());
  fs::create_directories(step());
  zero.stage = 3;
  zero.more_states = pickled_entry("optimizer_state_dict", state(15, "exp_avg_sq"));
  write(zero);
  EXPECT_THAT(refusal(), EndsWith("holds 15 elements in group 0, and rank 0's weights 16"));
}

TEST_F(DeepSpeedRefusal, SizesThatDoNotFitTheShapes) {
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
      write_zero(path("other"), other);
      for (const std::string& model : models) {
        fs::copy(path("other") + "/" + fs::path(model).filename().string(), model,
                 fs::copy_options::overwrite_existing);
      }
      EXPECT_THAT(refusal(), HasSubstr("a file of another save")) << stage << " " << rows;
    }
  }
}

TEST_F(DeepSpeedRefusal, DamagedAndShortFiles) {
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

}  // namespace
}  // namespace sluice::testing
