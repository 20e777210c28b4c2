// Hugging Face folders of transformers' own making, in and out, every family: tensors bit for bit,
// any range, and what is refused.
#include "runtime/checkpoint/hf/hf_weights.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "base/error.hpp"
#include "base/failpoint.hpp"
#include "runtime/checkpoint/hf/hf_config.hpp"
#include "runtime/checkpoint/hf/hf_import.hpp"
#include "runtime/checkpoint/io/file_system.hpp"
#include "tests/runtime/checkpoint/test_folder.hpp"

namespace sluice {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

std::string golden_of(const std::string& family) {
  return SLUICE_SOURCE_DIR "/tests/golden/hf/" + family;
}
ModelOptions options_of(const std::string& dir) { return read_hf_config(dir + "/config.json"); }

class HfFolder : public testing::TestFolder {
 protected:
  HfFolder() : TestFolder("hf") {}
  // A copy of a golden folder, to be broken.
  [[nodiscard]] std::string copy(const std::string& family) const {
    fs::copy(golden_of(family), root_ / family);
    return path(family);
  }
};

std::map<std::string, std::vector<std::byte>> tensors_of(const std::string& dir, ModelType type) {
  std::map<std::string, std::vector<std::byte>> tensors;
  for (const std::string& path : find_hf_files(dir).paths) {
    const SafetensorsFile file(path);
    for (const TensorEntry& entry : file.tensors()) {
      const std::string name = hf_canonical_name(type, entry.name);
      if (hf_is_buffer(type, name)) continue;
      const auto bytes = file.bytes(entry);
      tensors[name].assign(bytes.begin(), bytes.end());
    }
  }
  return tensors;
}

ParamReader reader_of(const HfWeights& weights) {
  return [&weights](const ParamSpec& param, std::int64_t begin, std::span<float> values) {
    weights.read(param.tensor.name, begin, values);
  };
}

class HfFamily : public HfFolder, public ::testing::WithParamInterface<const char*> {};

TEST_P(HfFamily, ThroughACheckpointOfOursAndBackBitForBit) {
  const std::string dir = golden_of(GetParam());
  const ModelOptions options = options_of(dir);
  const ModelSpec spec = make_model_spec(options);
  const HfWeights weights(dir, options, spec);
  weights.check_tied();
  EXPECT_TRUE(weights.notes().empty());
  FileSystem& files = local_file_system();
  RunState run;
  run.seed = 3;
  const std::string saved = import_hf(files, path("ours"), spec, weights, run);
  Checkpoint checkpoint = open_checkpoint(files, saved);
  EXPECT_FALSE(checkpoint.has(spec.groups[0].params[0].tensor.name, StateKind::kMoment1));
  for (const std::int64_t shard_bytes : {std::int64_t{1} << 30, std::int64_t{3000}}) {
    const std::string out = path("out-" + std::to_string(shard_bytes));
    const HfExportResult result = export_hf(files, out, spec, checkpoint_reader(checkpoint),
                                            {.dtype = weights.dtype(), .shard_bytes = shard_bytes});
    EXPECT_EQ(result.files.size() > 2, shard_bytes == 3000);
    auto expected = tensors_of(dir, options.type);
    if (options.tie_embeddings) expected.erase(kHfHead);
    EXPECT_EQ(tensors_of(out, options.type), expected);
    // What was written is read as the same model.
    const ModelOptions again = options_of(out);
    EXPECT_EQ(write_hf_config(again, "float32"), write_hf_config(options, "float32"));
    const HfWeights reread(out, again, make_model_spec(again));
    EXPECT_EQ(reread.dtype(), weights.dtype());
  }
}

// Any range of any parameter is the range of the whole, as a rank with an odd share reads it.
TEST_P(HfFamily, EveryRangeIsThatOfTheWhole) {
  const std::string dir = golden_of(GetParam());
  const ModelOptions options = options_of(dir);
  const ModelSpec spec = make_model_spec(options);
  const HfWeights weights(dir, options, spec);
  for (const HfPlacement& placement : weights.placements()) {
    std::int64_t elems = 1;
    for (const std::int64_t dim : placement.shape) elems *= dim;
    std::vector<float> whole(static_cast<std::size_t>(elems));
    EXPECT_EQ(weights.read(placement.param, 0, whole), elems);
    for (const std::int64_t ranks : {3, 7}) {
      for (std::int64_t r = 0; r < ranks; ++r) {
        const std::int64_t begin = elems * r / ranks;
        std::vector<float> part(static_cast<std::size_t>(elems * (r + 1) / ranks - begin));
        weights.read(placement.param, begin, part);
        EXPECT_EQ(0, std::memcmp(part.data(), whole.data() + begin, part.size() * sizeof(float)))
            << placement.param << " " << begin;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, HfFamily, ::testing::Values("gpt2", "llama", "mistral", "qwen2"),
                         [](const auto& info) { return std::string(info.param); });

TEST_F(HfFolder, Conv1dIsTransposed) {
  const std::string dir = golden_of("gpt2");
  const ModelOptions options = options_of(dir);
  const HfWeights weights(dir, options, make_model_spec(options));
  const SafetensorsFile file(dir + "/model.safetensors");
  const TensorEntry& entry = file.at("h.1.attn.c_attn.weight");
  ASSERT_EQ(entry.shape, (std::vector<std::int64_t>{16, 48}));
  std::vector<float> ours(48 * 16);
  weights.read("h.1.attn.c_attn.weight", 0, ours);
  for (std::size_t i = 0; i < 16; ++i) {
    for (std::size_t o = 0; o < 48; ++o) {
      float stored = 0;
      std::memcpy(&stored, file.bytes(entry).data() + (i * 48 + o) * 4, 4);
      ASSERT_EQ(ours[o * 16 + i], stored);
    }
  }
}

TEST_F(HfFolder, VocabularyAndPositionsOfAnotherSize) {
  const std::string dir = golden_of("gpt2");
  const ModelOptions file = options_of(dir);
  ModelOptions options = file;
  options.vocab = 40;
  options.seq = 8;
  const HfWeights weights(dir, file, make_model_spec(options));
  ASSERT_EQ(weights.notes().size(), 2U);
  EXPECT_EQ(weights.notes()[0],
            "transformer.wte.weight: 3 rows beyond the file's 37 are drawn as fresh weights are");
  EXPECT_EQ(weights.notes()[1],
            "transformer.wpe.weight: 16 rows beyond the model's 8 are not taken");
  std::vector<float> rows(40 * 16, 7.5F);
  EXPECT_EQ(weights.read("wte.weight", 0, rows), 37 * 16);
  EXPECT_NE(rows[37 * 16 - 1], 7.5F);
  EXPECT_EQ(rows[37 * 16], 7.5F);
  EXPECT_EQ(weights.read("wte.weight", 38 * 16, std::span(rows).first(3)), 0);
  // A padded table: config.json knows fewer ids than there are rows.
  ModelOptions padded = file;
  padded.vocab = 30;
  const HfWeights cut(dir, padded, make_model_spec(padded));
  EXPECT_EQ(cut.notes()[0], "transformer.wte.weight: 7 rows beyond the model's 30 are not taken");
  // A model of more ids than that takes none of the padding.
  for (const std::int64_t vocab : {33, 37, 40}) {
    options.vocab = vocab;
    const HfWeights more(dir, padded, make_model_spec(options));
    EXPECT_EQ(more.notes()[0], "transformer.wte.weight: " + std::to_string(vocab - 30) +
                                   " rows beyond the file's 30 are drawn as fresh weights are");
    std::vector<float> table(static_cast<std::size_t>(vocab) * 16, 7.5F);
    EXPECT_EQ(more.read("wte.weight", 0, table), 30 * 16);
    EXPECT_EQ(table[30 * 16], 7.5F);
    EXPECT_EQ(more.read("wte.weight", 30 * 16, std::span(table).first(16)), 0);
  }
}

std::string refusal(const std::string& dir, const ModelOptions& options) {
  try {
    const HfWeights weights(dir, options, make_model_spec(options));
    weights.check_tied();
  } catch (const IoError& error) {
    return error.what();
  }
  return "";
}

TEST_F(HfFolder, TensorsThatDoNotFitAreNamed) {
  const std::string dir = golden_of("llama");
  ModelOptions options = options_of(dir);
  options.layers = 3;
  EXPECT_EQ(refusal(dir, options), dir +
                                       ", tensor model.layers.2.input_layernorm.weight: is in no "
                                       "file (nor are 8 others)");
  options = options_of(dir);
  options.layers = 1;
  EXPECT_THAT(refusal(dir, options), HasSubstr("tensor model.layers.1."));
  EXPECT_THAT(refusal(dir, options), HasSubstr("is no tensor of a llama of 1 layers"));
  options = options_of(dir);
  options.ffn = 25;
  EXPECT_THAT(refusal(dir, options),
              HasSubstr("tensor model.layers.0.mlp.gate_proj.weight, byte "));
  EXPECT_THAT(refusal(dir, options),
              HasSubstr("has the shape [24, 16], and config.json makes it [25, 16]"));
  options = options_of(dir);
  options.vocab = 38;
  EXPECT_THAT(refusal(dir, options), HasSubstr("has the shape [37, 16]"));
}

TEST_F(HfFolder, TiedHeads) {
  const std::string untied = golden_of("llama");
  ModelOptions options = options_of(untied);
  options.tie_embeddings = true;
  EXPECT_THAT(refusal(untied, options), HasSubstr("tensor lm_head.weight, byte "));
  EXPECT_THAT(refusal(untied, options), HasSubstr("differs from model.embed_tokens.weight"));
  const std::string tied = golden_of("gpt2");
  options = options_of(tied);
  options.tie_embeddings = false;
  EXPECT_EQ(refusal(tied, options),
            tied +
                ", tensor lm_head.weight: is in no file; a model whose head is its embedding "
                "has tie_word_embeddings: true");
}

TEST_F(HfFolder, BrokenShards) {
  const std::string dir = copy("llama");
  const ModelOptions options = options_of(dir);
  EXPECT_EQ(refusal(dir, options), "");
  const std::string index = dir + "/model.safetensors.index.json";
  std::ifstream in(index);
  const std::string text((std::istreambuf_iterator<char>(in)), {});
  const auto rewrite = [&](const std::string& from, const std::string& to) {
    std::string changed = text;
    const std::size_t at = changed.find(from);
    ASSERT_NE(at, std::string::npos);
    changed.replace(at, from.size(), to);
    std::ofstream(index) << changed;
  };
  rewrite("\"model-00001-of", "\"../model-00001-of");
  EXPECT_THAT(refusal(dir, options), HasSubstr("is no name of a .safetensors file"));
  rewrite("model.norm.weight", "model.norm.other");
  EXPECT_THAT(refusal(dir, options), HasSubstr("tensor model.norm.weight, byte "));
  EXPECT_THAT(refusal(dir, options), HasSubstr("is not where " + index + " says"));
  rewrite("\"model.norm.weight\"",
          "\"more\": \"model-00001-of-00003.safetensors\", \"model.norm.weight\"");
  EXPECT_THAT(refusal(dir, options), HasSubstr(index + ", tensor more: is not in "));
  std::ofstream(index) << text;
  fs::resize_file(dir + "/model-00002-of-00003.safetensors", 4000);
  EXPECT_THAT(refusal(dir, options), HasSubstr("model-00002-of-00003.safetensors"));
  fs::remove(dir + "/model-00002-of-00003.safetensors");
  EXPECT_THAT(refusal(dir, options), HasSubstr("model-00002-of-00003.safetensors is missing"));
  fs::remove(index);
  EXPECT_EQ(refusal(dir, options),
            dir + ": there is neither model.safetensors nor model.safetensors.index.json");
}

TEST_F(HfFolder, AnExportNeedsAFolderOfItsOwn) {
  const std::string dir = golden_of("gpt2");
  const ModelOptions options = options_of(dir);
  const ModelSpec spec = make_model_spec(options);
  const HfWeights weights(dir, options, spec);
  std::ofstream(path("file")) << "x";
  EXPECT_THROW((void)export_hf(local_file_system(), root_.string(), spec, reader_of(weights), {}),
               ConfigError);
}

// Whatever call fails, no file is left that looks like a model's or stands in the next one's way.
TEST_F(HfFolder, AnExportThatFailsLeavesNothing) {
  const std::string dir = golden_of("llama");
  const ModelOptions options = options_of(dir);
  const ModelSpec spec = make_model_spec(options);
  const HfWeights weights(dir, options, spec);
  fs::create_directories(path("from"));
  std::ofstream(path("from/tokenizer.json")) << "new";
  const HfExportOptions asked{.shard_bytes = 20'000, .companions = {path("from")}};
  FileSystem& files = local_file_system();
  for (const std::string call : {"create", "write", "fsync", "rename", "fsync_dir"}) {
    int failed = 0;
    for (;; ++failed) {
      const std::string out = path("out");
      fs::remove_all(out);
      fs::create_directories(out);  // calls on it before the export are none of its own
      arm_failpoints("checkpoint." + call + "@" + std::to_string(failed + 1) + ":error");
      try {
        const HfExportResult result = export_hf(files, out, spec, reader_of(weights), asked);
        arm_failpoints("");
        EXPECT_EQ(result.files.back(), "config.json");
        EXPECT_EQ(result.companions, 1U);
        break;
      } catch (const IoError&) {
        arm_failpoints("");
        EXPECT_TRUE(fs::is_empty(out)) << call << " number " << failed + 1;
      }
    }
    EXPECT_GE(failed, 2) << call;
  }
}

// The largest that is rounded to a number, and the next one.
TEST_F(HfFolder, AWeightThatATypeMakesInfiniteIsRefused) {
  const std::string dir = golden_of("llama");
  const ModelOptions options = options_of(dir);
  const ModelSpec spec = make_model_spec(options);
  for (const auto& [dtype, most] :
       {std::pair{DType::kFloat16, 65520.0F}, {DType::kBFloat16, 0x1.FFp127F}}) {
    for (const bool fits : {true, false}) {
      const float largest = fits ? std::nextafter(most, 0.0F) : most;
      const ParamReader read = [&](const ParamSpec& param, std::int64_t, std::span<float> values) {
        std::fill(values.begin(), values.end(), 1.0F);
        if (param.tensor.name == "model.norm.weight") values.back() = -largest;
      };
      const std::string out = path("out");
      fs::remove_all(out);
      const auto write = [&] {
        (void)export_hf(local_file_system(), out, spec, read, {.dtype = dtype});
      };
      if (!fits) {
        EXPECT_THROW(write(), ConfigError);
        EXPECT_TRUE(fs::is_empty(out));
        continue;
      }
      write();
      for (const auto& [name, bytes] : tensors_of(out, options.type)) {
        for (std::size_t i = 0; i < bytes.size(); i += 2) {
          const int high = std::to_integer<int>(bytes[i + 1]) & 0x7F;
          const int low = std::to_integer<int>(bytes[i]);
          const bool infinite =
              dtype == DType::kFloat16 ? high == 0x7C && low == 0 : high == 0x7F && low == 0x80;
          ASSERT_FALSE(infinite) << name;
        }
      }
    }
  }
}

TEST_F(HfFolder, CompanionsAreCopiedOnce) {
  fs::create_directories(path("from"));
  fs::create_directories(path("to"));
  std::ofstream(path("from/tokenizer.json")) << "new";
  std::ofstream(path("from/merges.txt")) << "of another tokenizer than that in to";
  std::ofstream(path("from/generation_config.json")) << "{}";
  std::ofstream(path("to/tokenizer.json")) << "old";
  EXPECT_EQ(copy_hf_companions(local_file_system(), path("from"), path("to")),
            std::vector<std::string>{"generation_config.json"});
  EXPECT_EQ(fs::file_size(path("to/tokenizer.json")), 3U);
}

}  // namespace
}  // namespace sluice
