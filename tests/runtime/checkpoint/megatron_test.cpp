// Megatron's stages, and the numbers of its optimizer's parameters: what is refused.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <span>

#include "base/error.hpp"
#include "runtime/checkpoint/format/safetensors.hpp"
#include "runtime/checkpoint/import/import_states.hpp"
#include "runtime/checkpoint/import/zip_file.hpp"
#include "tests/runtime/checkpoint/test_folder.hpp"
#include "tests/runtime/checkpoint/torch_writer.hpp"

namespace sluice {
namespace {

namespace fs = std::filesystem;
using namespace std::string_literals;
using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::pickled_int;
using testing::pickled_text;

class Megatron : public testing::TestFolder {
 protected:
  Megatron() : TestFolder("megatron") {}

  // A fresh copy of one of tests/golden/torch.
  std::string copy(const std::string& name) const {
    fs::remove_all(root_ / name);
    fs::copy(SLUICE_SOURCE_DIR "/tests/golden/torch/" + name, root_ / name,
             fs::copy_options::recursive);
    const fs::path step = root_ / name / "iter_0000012";
    return (fs::exists(step) ? step : root_ / name).string();
  }
  static std::string file(const std::string& dir, const std::string& rank) {
    return dir + "/mp_rank_" + rank + "/model_optim_rng.pt";
  }
  static std::string refusal(const std::string& dir, bool weights_only = false) {
    try {
      const auto source = open_import(dir, {.weights_only = weights_only});
      ModelOptions model = source->model().value();
      model.vocab = 11;
      const ImportTables tables = import_tables(*source, model.type, model.hidden);
      const ImportedStates states(*source, make_model_spec(model), tables);
    } catch (const Error& error) {
      return error.what();
    }
    return "(accepted)";
  }
};

// Other bytes, as many, in place of the first `from` behind `after`; checksums are made right.
void edit(const std::string& path, const std::string& from, const std::string& to,
          const std::string& after = "") {
  std::ifstream in(path, std::ios::binary);
  std::string bytes{std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
  ASSERT_EQ(from.size(), to.size());
  const std::size_t behind = bytes.find(after);
  ASSERT_NE(behind, std::string::npos) << after;
  const std::size_t at = bytes.find(from, behind);
  ASSERT_NE(at, std::string::npos) << from;
  const auto little = [](std::uint32_t value) {
    return std::string(reinterpret_cast<const char*>(&value), sizeof value);
  };
  for (const ZipEntry& entry : parse_zip(std::as_bytes(std::span(bytes)), path)) {
    const auto begin = static_cast<std::size_t>(entry.offset);
    if (at < begin || at >= begin + static_cast<std::size_t>(entry.bytes)) continue;
    bytes.replace(at, from.size(), to);
    const auto changed =
        std::as_bytes(std::span(bytes)).subspan(begin, static_cast<std::size_t>(entry.bytes));
    const std::string now = little(crc32(changed));
    for (std::size_t crc = 0; (crc = bytes.find(little(entry.crc), crc)) != std::string::npos;) {
      bytes.replace(crc, now.size(), now);
    }
  }
  std::ofstream(path, std::ios::binary) << bytes;
}

TEST_F(Megatron, TheCopiesAreRead) {
  EXPECT_EQ(refusal(copy("gpt2_tp2")), "(accepted)");
  EXPECT_EQ(refusal(copy("gpt2_pipeline")), "(accepted)");
  EXPECT_EQ(refusal(copy("llama_uneven")), "(accepted)");
}

// 50257 tokens on two ranks: filled up to 50304, and the padding is all the second one's.
TEST(MegatronLayout, APaddedVocabulary) {
  ModelOptions model;
  model.vocab = 50257;
  model.layers = 1;
  const ImportLayout layout =
      plan_import(make_model_spec(model), ImportNames::kMegatron, 2, 50304 / 2);
  const ImportParam& table = layout.params[0];
  ASSERT_EQ(table.blocks.size(), 2U);
  EXPECT_EQ(table.blocks[0].rows, 25152);
  EXPECT_EQ(table.blocks[1].row, 25152);
  EXPECT_EQ(table.blocks[1].rows, 25105);
  EXPECT_EQ(table.blocks[1].part, 1);
  EXPECT_EQ(layout.tensors[1].shape, (std::vector<std::int64_t>{25152, model.hidden}));
}

TEST_F(Megatron, MissingFoldersAreNamed) {
  std::string dir = copy("llama_uneven");
  fs::remove_all(dir + "/mp_rank_00_002");
  EXPECT_THAT(refusal(dir), AllOf(HasSubstr("args.pipeline_model_parallel_size is 3"),
                                  HasSubstr("files of 2 pipeline stages exist")));
  fs::remove_all(dir + "/mp_rank_00_000");
  EXPECT_THAT(refusal(dir), HasSubstr("there is no mp_rank_00_000"));
  dir = copy("llama_uneven");
  fs::remove_all(dir + "/mp_rank_00_001");
  EXPECT_THAT(refusal(dir), HasSubstr("mp_rank_00_002: is of none of the 1 tensor-parallel ranks"));
  dir = copy("gpt2_pipeline");
  fs::remove_all(dir + "/mp_rank_01_001");
  EXPECT_THAT(refusal(dir), HasSubstr("there is no mp_rank_01_001"));
  dir = copy("gpt2_tp2");
  fs::remove_all(dir + "/mp_rank_01");
  EXPECT_THAT(refusal(dir), HasSubstr("args.tensor_model_parallel_size is 2"));
  dir = copy("gpt2_tp2");
  fs::remove(file(dir, "01"));
  EXPECT_THAT(refusal(dir), HasSubstr("mp_rank_01/model_optim_rng.pt"));
}

void swap_files(const std::string& a, const std::string& b) {
  fs::rename(a, a + ".away");
  fs::rename(b, a);
  fs::rename(a + ".away", b);
}

TEST_F(Megatron, FilesInAnothersPlaceAreNamed) {
  std::string dir = copy("llama_uneven");
  swap_files(file(dir, "00_001"), file(dir, "00_002"));
  EXPECT_THAT(refusal(dir), AllOf(HasSubstr("mp_rank_00_002/model_optim_rng.pt"),
                                  HasSubstr("files of two ranks are swapped")));
  // Where the files do not say who wrote them, what they hold does.
  for (const char* const rank : {"00_000", "00_001", "00_002"}) {
    edit(file(dir, rank), "X\4\0\0\0rank"s, "X\4\0\0\0none"s);
  }
  EXPECT_THAT(refusal(dir), AllOf(HasSubstr("mp_rank_00_001/model_optim_rng.pt"),
                                  HasSubstr("is of the last stage, and this is stage 1")));
  swap_files(file(dir, "00_001"), file(dir, "00_002"));
  swap_files(file(dir, "00_000"), file(dir, "00_001"));
  EXPECT_THAT(refusal(dir), AllOf(HasSubstr("mp_rank_00_000/model_optim_rng.pt"),
                                  HasSubstr("holds no embedding")));
  dir = copy("gpt2_pipeline");
  swap_files(file(dir, "00_001"), file(dir, "01_001"));
  EXPECT_THAT(refusal(dir), HasSubstr("files of two ranks are swapped"));
  dir = copy("gpt2_pipeline");
  edit(file(dir, "01_000"), "K\x0c", "K\x0d", "iteration");
  EXPECT_THAT(refusal(dir), HasSubstr("mp_rank_01_000/model_optim_rng.pt, byte"));
  EXPECT_THAT(refusal(dir), HasSubstr("is of iteration 13, and "));
}

TEST_F(Megatron, LayersHaveToAddUp) {
  const std::string dir = copy("llama_uneven");
  edit(file(dir, "00_002"), "K\x05", "K\x06", "num_layers");
  EXPECT_THAT(refusal(dir), HasSubstr("args.num_layers is 6, and its stages hold 1 + 3 + 1"));
  edit(file(dir, "00_002"), "K\x06", "K\x05", "num_layers");
  EXPECT_EQ(refusal(dir), "(accepted)");
  edit(file(dir, "00_001"), "decoder.layers.1.pre", "decoder.layers.7.pre");
  EXPECT_THAT(refusal(dir), HasSubstr("holds 4 layers, the last of them 7: numbers are left out"));
}

TEST_F(Megatron, AStateOfTheOptimizerThatIsNotThere) {
  // Group 1 has states 10 to 27: vectors.
  std::string dir = copy("gpt2_tp2");
  edit(file(dir, "01"), "K\x1b"s + "e", "N0e", "param_groups");  // one entry too few
  EXPECT_THAT(refusal(dir),
              AllOf(HasSubstr("mp_rank_01/model_optim_rng.pt, tensor optimizer.param_groups"),
                    HasSubstr("lists 17 parameters in group 1, and 18 of the model's"),
                    HasSubstr("--weights-only takes the weights alone")));
  EXPECT_EQ(refusal(dir, true), "(accepted)");
  dir = copy("gpt2_tp2");
  edit(file(dir, "00"), "K\x1b}", "K\x63}");
  EXPECT_THAT(refusal(dir), AllOf(HasSubstr("tensor model.language_model.encoder.final_norm.bias"),
                                  HasSubstr("has no state in the optimizer")));
  dir = copy("gpt2_tp2");
  edit(file(dir, "00"), "exp_avg_sq", "exp_avg_qs");
  EXPECT_THAT(refusal(dir), HasSubstr("has no exp_avg_sq (state 0) in the optimizer"));
}

TEST_F(Megatron, StatesOfOtherParameters) {
  std::string dir = copy("gpt2_tp2");
  edit(file(dir, "00"), "K\0K\1"s, "K\1K\0"s, "param_groups");  // token table, positions
  EXPECT_THAT(refusal(dir),
              AllOf(HasSubstr("tensor model.language_model.embedding.word_embeddings.weight"),
                    HasSubstr("has the shape [8, 8], and its exp_avg (state 1) has [6, 8]")));
  dir = copy("gpt2_tp2");
  edit(file(dir, "00"), "K\0K\1"s, "K\1K\1"s, "param_groups");
  EXPECT_NE(refusal(dir), "(accepted)");
  // Groups that differ in more than weight decay.
  dir = copy("gpt2_tp2");
  edit(file(dir, "00"), "G\0\0\0\0\0\0\0\0"s, "G\x3f\xf0\0\0\0\0\0\0"s, "K\x09"s + "e");
  EXPECT_THAT(refusal(dir), HasSubstr("told apart by more than weight decay"));
  // An fp32 weight that the model's is no rounding of: the first two of the table.
  dir = copy("llama_uneven");
  const SafetensorsFile expected(dir + "/expected.safetensors");
  const auto table = expected.bytes(expected.at("model.embed_tokens.weight"));
  const std::string two(reinterpret_cast<const char*>(table.data()), 2 * sizeof(float));
  const std::string swapped = two.substr(sizeof(float)) + two.substr(0, sizeof(float));
  edit(file(dir, "00_000"), two, swapped);
  EXPECT_THAT(refusal(dir), AllOf(HasSubstr("tensor model.embedding.word_embeddings.weight"),
                                  HasSubstr("is no rounding of the optimizer's fp32 weight")));
}

TEST_F(Megatron, TheDistributedOptimizersStatesAreRefused) {
  const std::string dir = copy("gpt2_pipeline");
  std::ofstream(dir + "/mp_rank_00_000/distrib_optim.pt") << "x";
  EXPECT_THAT(refusal(dir), AllOf(HasSubstr("distrib_optim.pt: is of the distributed optimizer"),
                                  HasSubstr("--weights-only")));
  EXPECT_EQ(refusal(dir, true), "(accepted)");
}

// Of torch.distributed.checkpoint.
TEST_F(Megatron, PiecesThatAreMissingOrElsewhereAreNamed) {
  std::string dir = copy("llama_dist");
  EXPECT_EQ(refusal(dir), "(accepted)");
  EXPECT_EQ(refusal(dir, true), "(accepted)");
  fs::remove(dir + "/__0_1.distcp");
  EXPECT_THAT(refusal(dir), HasSubstr("__0_1.distcp"));
  dir = copy("llama_dist");
  fs::resize_file(dir + "/__0_1.distcp", fs::file_size(dir + "/__0_1.distcp") / 2);
  EXPECT_THAT(refusal(dir), HasSubstr("__0_1.distcp, byte "));
  dir = copy("llama_dist");
  swap_files(dir + "/__0_0.distcp", dir + "/__0_1.distcp");
  EXPECT_NE(refusal(dir), "(accepted)");
  const auto metadata = [&](const std::string& from, const std::string& to) {
    dir = copy("llama_dist");
    std::ifstream in(dir + "/.metadata", std::ios::binary);
    std::string bytes{std::istreambuf_iterator<char>(in), {}};
    const std::size_t at = bytes.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    bytes.replace(at, from.size(), to);
    std::ofstream(dir + "/.metadata", std::ios::binary) << bytes;
    return refusal(dir);
  };
  EXPECT_THAT(metadata("__0_0.distcp", "../0.distcp1"),
              HasSubstr("which is no file of this folder"));
  EXPECT_THAT(metadata("optimizer.state.exp_avg_sq.decoder.layers.mlp.linear_fc2",
                       "optimizer.state.exp_avg_qs.decoder.layers.mlp.linear_fc2"),
              AllOf(HasSubstr("tensor decoder.layers.mlp.linear_fc2.weight"),
                    HasSubstr("--dist-ckpt-optim-fully-reshardable"),
                    HasSubstr("--weights-only takes the weights alone")));
  EXPECT_THAT(metadata("TensorStorageMetadata", "TensorStorageMetadato"), HasSubstr("holds no "));
  EXPECT_THAT(metadata("storage_data", "storage_dato"), HasSubstr("storage_data is not there"));
}

std::string refused_arguments(const std::string& more, bool llama) {
  const auto text = [](const char* key, const std::string& value) {
    return pickled_text(key) + value + "s";
  };
  const std::string yes = "\x88";
  std::string args = "\x80\x02}" + text("num_layers", pickled_int(1)) +
                     text("hidden_size", pickled_int(8)) +
                     text("num_attention_heads", pickled_int(2));
  if (llama) {
    args += text("position_embedding_type", pickled_text("rope")) +
            text("normalization", pickled_text("RMSNorm")) + text("swiglu", yes) +
            text("add_bias_linear", "\x89");
  }
  args += more + ".";
  const PickleTree tree = parse_pickle(std::as_bytes(std::span(args)), "args");
  try {
    (void)megatron_model(tree, tree.at(tree.root), "args");
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "(accepted)";
}

// Their tensors are called as those of any other model.
TEST(MegatronArguments, WhatIsNotComputedTheSameIsRefusedOfEveryFamily) {
  for (const bool llama : {false, true}) {
    EXPECT_EQ(refused_arguments("", llama), "(accepted)");
    EXPECT_EQ(refused_arguments(pickled_text("window_size") + "Ns", llama), "(accepted)");
    for (const auto& [name, value] :
         {std::pair{"apply_layernorm_1p", std::string("\x88")},
          {"apply_residual_connection_post_layernorm", std::string("\x88")},
          {"window_size", pickled_int(127)},
          {"rotary_seq_len_interpolation_factor", pickled_int(2)},
          {"softmax_type", pickled_text("off-by-one")},
          {"num_experts", pickled_int(4)}}) {
      EXPECT_THAT(refused_arguments(pickled_text(name) + value + "s", llama),
                  HasSubstr("args." + std::string(name)))
          << llama;
    }
  }
}

// Of 50 entries each that are the next dictionary: 50^7 paths.
TEST_F(Megatron, ADictionaryInManyPlacesIsNotWalkedForEver) {
  std::string inner = "}q\x01";
  for (int level = 1; level < 8; ++level) {
    std::string outer = "}q" + std::string(1, static_cast<char>(level + 1)) + "(";
    for (int i = 0; i < 50; ++i) {
      outer += pickled_text(std::to_string(i)) + "h" + static_cast<char>(level);
    }
    inner += "0" + outer + "u";
  }
  const std::string path = (root_ / "mp_rank_00").string();
  fs::create_directories(path);
  std::ofstream(path + "/model_optim_rng.pt", std::ios::binary)
      << testing::torch_file("}" + pickled_text("checkpoint_version") + pickled_int(3) + "s" +
                             pickled_text("model") + inner + "s");
  EXPECT_THAT(refusal(root_.string()), HasSubstr("holds one dictionary in many places"));
}

}  // namespace
}  // namespace sluice
