// What a mesh asks of a model and of the other sections: each refusal in its words.
#include "configs/parallel_rules.hpp"

#include <gtest/gtest.h>

#include "base/error.hpp"
#include "configs/validate.hpp"
#include "tests/configs/scratch.hpp"

namespace sluice::testing {
namespace {

class ParallelRules : public ::testing::Test {
 protected:
  // What validate() says of these keys on `world` ranks, without the place; "" where it is content.
  std::string complaint(const std::vector<std::string>& sets, int world) {
    scratch_.write("c.yaml", "data: {text: a.txt}\n");
    try {
      validate(load_config("c.yaml", sets), world);
    } catch (const ConfigError& error) {
      const std::string text = error.what();
      const std::size_t place = text.find(": ");
      return text.substr(place + 2);
    }
    return "";
  }

  Scratch scratch_;
};

TEST_F(ParallelRules, MeshesThatTrain) {
  EXPECT_EQ(complaint({"parallel.tensor=2"}, 2), "");
  EXPECT_EQ(complaint({"parallel.tensor=2", "parallel.sequence=true"}, 4), "");
  for (const char* const schedule : {"gpipe", "1f1b", "zero_bubble"}) {
    EXPECT_EQ(complaint({"parallel.pipeline=2", std::string("parallel.schedule=") + schedule}, 2),
              "");
  }
  EXPECT_EQ(complaint({"parallel.pipeline=2", "parallel.tensor=2", "parallel.virtual_stages=2",
                       "parallel.schedule=interleaved"},
                      8),
            "");
}

TEST_F(ParallelRules, DimensionsAreMultiplesOfTensor) {
  EXPECT_EQ(complaint({"parallel.tensor=8", "model.ffn=100"}, 8),
            "parallel.tensor: model.heads must be a multiple of tensor: 12 % 8 = 4\n"
            "--set parallel.tensor=8: parallel.tensor: model.ffn must be a multiple of tensor: 100 "
            "% 8 = 4\n"
            "--set parallel.tensor=8: parallel.tensor: one of model.kv_heads and tensor must be a "
            "multiple of the other: 12 % 8 = 4, 8 % 12 = 8");
  EXPECT_EQ(complaint({"parallel.tensor=2", "model.hidden=33", "model.head_dim=8", "model.heads=4",
                       "model.type=llama"},
                      2),
            "parallel.tensor: model.hidden must be a multiple of tensor: 33 % 2 = 1");
}

TEST_F(ParallelRules, KeyHeadsDivideOneWayOrTheOther) {
  const std::vector<std::string> llama{"model.type=llama", "model.heads=12", "model.ffn=48",
                                       "parallel.tensor=4"};
  for (const auto& [kv_heads, holds] :
       {std::pair{"1", true}, std::pair{"2", true}, std::pair{"4", true}, std::pair{"12", true},
        std::pair{"3", false}, std::pair{"6", false}}) {
    std::vector<std::string> sets = llama;
    sets.push_back(std::string("model.kv_heads=") + kv_heads);
    EXPECT_EQ(complaint(sets, 4).empty(), holds) << kv_heads;
  }
}

TEST_F(ParallelRules, EveryRankHasWords) {
  const std::vector<std::string> sets{"parallel.tensor=4", "model.vocab=24"};
  EXPECT_EQ(complaint(sets, 4),
            "parallel.tensor: the last rank must have words: (tensor - 1) x 8 rows < model.vocab "
            "does not hold: 3 x 8 >= 24");
  EXPECT_EQ(complaint({"parallel.tensor=4", "model.vocab=25"}, 4), "");
  EXPECT_EQ(complaint({"parallel.tensor=4", "model.vocab=50257"}, 4), "");
}

TEST_F(ParallelRules, SequenceIsAMultipleOfTensor) {
  EXPECT_EQ(complaint({"parallel.sequence=true", "parallel.tensor=2", "model.seq=33"}, 2),
            "parallel.sequence: model.seq must be a multiple of tensor: 33 % 2 = 1");
}

TEST_F(ParallelRules, SchedulesAndTheirPieces) {
  EXPECT_EQ(complaint({"parallel.pipeline=2", "parallel.virtual_stages=2"}, 2),
            "parallel.virtual_stages: 2 need parallel.schedule: interleaved, and it is 1f1b");
  EXPECT_EQ(complaint({"parallel.pipeline=2", "parallel.schedule=interleaved"}, 2),
            "parallel.schedule: interleaved needs virtual_stages >= 2: 1 < 2; set "
            "parallel.virtual_stages, or take 1f1b");
}

TEST_F(ParallelRules, EveryPieceHasAUnit) {
  EXPECT_EQ(complaint({"parallel.pipeline=4", "parallel.virtual_stages=2",
                       "parallel.schedule=interleaved", "model.layers=5"},
                      4),
            "parallel.pipeline: layers + 2 >= pipeline x virtual_stages (embedding, blocks and "
            "loss head; one unit or more in each piece) does not hold: 5 + 2 < 4 x 2");
}

TEST_F(ParallelRules, LayersOfStagesAreThoseOfTheModel) {
  EXPECT_EQ(complaint({"parallel.pipeline=2", "model.layers=5", "parallel.stage_layers=[2, 3]"}, 2),
            "");
  const std::vector<std::string> four{"parallel.pipeline=2", "parallel.virtual_stages=2",
                                      "parallel.schedule=interleaved", "model.layers=7"};
  const auto with = [&](const char* layers) {
    std::vector<std::string> sets = four;
    sets.push_back(std::string("parallel.stage_layers=") + layers);
    return complaint(sets, 2);
  };
  EXPECT_EQ(with("[1, 2, 3, 1]"), "");
  EXPECT_EQ(with("[1, 2, 3, 2]"),
            "parallel.stage_layers: the sum must be model.layers: 1 + 2 + 3 + 2 = 8 != 7");
  EXPECT_EQ(with("[4, 3]"),
            "parallel.stage_layers: needs a number for each of pipeline x virtual_stages pieces: "
            "2 != 2 x 2");
  EXPECT_EQ(with("[0, 3, 3, 1]"),
            "parallel.stage_layers: '0' is out of range, expected a whole number >= 1");
  EXPECT_EQ(with("7"),
            "parallel.stage_layers: found '7', expected a list, each a whole number >= 1");
}

TEST_F(ParallelRules, WhatDoesNotGoTogether) {
  EXPECT_EQ(complaint({"parallel.pipeline=2", "train.accumulation_order=layer"}, 2),
            "train.accumulation_order: layer needs parallel.pipeline: 1: a stage that ran all "
            "micro-batches of a unit in a row would leave the others waiting; leave it out");
  EXPECT_EQ(complaint({"parallel.tensor=2", "model.explicit_units=false"}, 2),
            "parallel.tensor: 2 ranks need model.explicit_units: true: the units of libtorch's "
            "autograd have all of a block");
  EXPECT_EQ(complaint({"parallel.pipeline=2", "parallel.schedule=zero_bubble",
                       "model.explicit_units=false"},
                      2),
            "parallel.schedule: zero_bubble needs model.explicit_units: true: libtorch's autograd "
            "makes the gradients of input and weights at once");
}

TEST_F(ParallelRules, GradientsThatAreAddedUpStayInMemory) {
  RunConfig run;
  run.model.vocab = 100;
  run.parallel.tensor = 2;
  run.offload.gradients = Tier::kNvme;
  EXPECT_TRUE(broken_parallel_rules(run).empty());
  run.parallel.sequence = true;
  EXPECT_EQ(broken_parallel_rules(run).size(), 1U);
  run.parallel.sequence = false;
  run.model.type = ModelType::kLlama;
  run.model.kv_heads = 1;
  run.model.ffn = 64;
  EXPECT_EQ(broken_parallel_rules(run).size(), 1U);
  run.parallel = {.pipeline = 2};
  ASSERT_EQ(broken_parallel_rules(run).size(), 1U);
  EXPECT_EQ(broken_parallel_rules(run)[0].what,
            "nvme: with parallel.pipeline the first and the last stage have a part each of the "
            "gradient of tied embeddings, and these are added up in memory; keep gradients on the "
            "host or the device");
  run.model.tie_embeddings = false;
  EXPECT_TRUE(broken_parallel_rules(run).empty());
}

TEST_F(ParallelRules, ProductsInFp32NeedExplicitBlocks) {
  const std::string autograd = "model.explicit_units=false";
  const std::string fp32 = "train.matmul=fp32";
  EXPECT_EQ(complaint({fp32, "train.dtype=bf16"}, 1), "");
  EXPECT_EQ(complaint({fp32, "train.dtype=bf16", autograd}, 1),
            "train.matmul: fp32 needs blocks with a written-out backward; leave out "
            "model.explicit_units: false, or this key");
  // Nothing is converted in a run of fp32, and auto takes what there is.
  EXPECT_EQ(complaint({fp32, autograd}, 1), "");
  EXPECT_EQ(complaint({"train.dtype=bf16", autograd}, 1), "");
}

TEST_F(ParallelRules, ProductsIn8BitsNeedBf16AndSizesOf16) {
  const auto of = [&](std::vector<std::string> sets, int world = 1) {
    sets.insert(sets.begin(), {"train.matmul=fp8", "train.dtype=bf16"});
    return complaint(sets, world);
  };
  const std::string needs = "train.matmul: fp8 needs ";
  const std::string sizes = needs + "linear layers whose sizes are multiples of 16: ";
  const std::string remedy = "; change that size, or set train.matmul: auto";
  EXPECT_EQ(of({}), "");
  EXPECT_EQ(of({"parallel.tensor=2", "model.ffn=32"}, 4), "");
  for (const char* const dtype : {"fp32", "fp16"}) {
    EXPECT_EQ(of({std::string("train.dtype=") + dtype}),
              needs + "train.dtype: bf16, and it is " + dtype + "; set it, or train.matmul: auto");
  }
  EXPECT_EQ(of({"model.explicit_units=false"}),
            needs +
                "blocks with a written-out backward; leave out model.explicit_units: false, or "
                "this key");
  const std::string llama = "model.type=llama";
  EXPECT_EQ(of({llama, "model.hidden=40", "model.heads=4", "model.head_dim=16"}),
            sizes + "model.hidden = 40" + remedy);
  EXPECT_EQ(of({"parallel.tensor=4", "model.ffn=96"}, 4),
            sizes + "model.ffn / tensor = 96 / 4 = 24" + remedy);
  EXPECT_EQ(of({llama, "model.hidden=64", "model.heads=8", "model.kv_heads=1"}),
            sizes + "model.kv_heads x head_dim = 8" + remedy);
  // Ranks that share a key head have all of it.
  EXPECT_EQ(
      of({llama, "model.hidden=128", "model.heads=8", "model.kv_heads=2", "parallel.tensor=4"}, 4),
      "");
}

}  // namespace
}  // namespace sluice::testing
