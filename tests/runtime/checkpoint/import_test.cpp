// Checkpoints of DeepSpeed's and Megatron's own making (tests/golden/make_torch_folders.py) as
// ours: every element's bits, and what is refused.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "base/error.hpp"
#include "runtime/checkpoint/format/safetensors.hpp"
#include "runtime/checkpoint/import/import_states.hpp"
#include "runtime/checkpoint/io/checkpoint_load.hpp"
#include "tests/runtime/checkpoint/test_folder.hpp"
#include "tests/runtime/checkpoint/torch_writer.hpp"

namespace sluice {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;

std::string golden(const std::string& name) {
  return SLUICE_SOURCE_DIR "/tests/golden/torch/" + name;
}

ModelOptions deepspeed_model() {
  ModelOptions o;
  o.layers = 1;
  o.hidden = 8;
  o.heads = 2;
  o.vocab = 13;
  o.seq = 8;
  return o;
}

class Import : public testing::TestFolder {
 protected:
  Import() : TestFolder("import") {}
  [[nodiscard]] std::string copy(const std::string& name) const {
    fs::copy(golden(name), root_ / name, fs::copy_options::recursive);
    return path(name);
  }
  // The checkpoint, committed and open.
  Checkpoint imported(const std::string& dir, const ModelOptions& model) {
    const auto source = open_import(dir);
    check(source != nullptr, "a folder that is known");
    const ImportTables tables = import_tables(*source, model.type, model.hidden);
    ImportedStates states(*source, make_model_spec(model), tables);
    notes_ = states.notes();
    moments_ = states.moments();
    RunState run;
    run.step = source->progress().step;
    run.seed = 3;
    return open_checkpoint(local_file_system(),
                           states.commit(local_file_system(), path("ours"), run));
  }
  std::string refusal(const std::string& dir, const ModelOptions& model) {
    try {
      (void)imported(dir, model);
    } catch (const Error& error) {
      return error.what();
    }
    return "(accepted)";
  }

  // tests/golden/torch/NAME: all states of its expected.safetensors, moments included.
  std::unique_ptr<ImportSource> expect_whole(const std::string& name, std::int64_t vocab);

  std::vector<std::string> notes_;
  bool moments_ = false;
};

std::vector<float> stored(Checkpoint& checkpoint, const std::string& param, StateKind kind) {
  for (const StateRange& range : checkpoint.parameters()) {
    if (range.param != param) continue;
    const StateRange whole = whole_range(param, kind, TensorDType::kF32, range.shape);
    std::vector<float> values(static_cast<std::size_t>(whole.elems()));
    checkpoint.read_range(whole, std::as_writable_bytes(std::span(values)));
    return values;
  }
  ADD_FAILURE() << "no parameter " << param;
  return {};
}

std::vector<float> expected(const SafetensorsFile& file, const std::string& name) {
  const auto bytes = file.bytes(file.at(name));
  std::vector<float> values(bytes.size() / sizeof(float));
  std::memcpy(values.data(), bytes.data(), bytes.size());
  return values;
}

bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

// Of our names, which Conv1D's weights are the transposes of.
std::vector<float> turned(const std::vector<float>& values, std::size_t rows) {
  const std::size_t cols = values.size() / rows;
  std::vector<float> out(values.size());
  for (std::size_t r = 0; r < rows; ++r) {
    for (std::size_t c = 0; c < cols; ++c) out[c * rows + r] = values[r * cols + c];
  }
  return out;
}

TEST_F(Import, DeepSpeedsWeightsAndMoments) {
  Checkpoint ours = imported(golden("deepspeed"), deepspeed_model());
  EXPECT_TRUE(moments_);
  EXPECT_TRUE(notes_.empty());
  const SafetensorsFile theirs(golden("deepspeed") + "/expected.safetensors");
  EXPECT_EQ(ours.parameters().size() * 3, theirs.tensors().size());
  for (const StateRange& param : ours.parameters()) {
    const bool conv = param.param.starts_with("h.") && param.shape.size() == 2;
    for (const auto& [kind, name] : {std::pair{StateKind::kMaster, "/fp32"},
                                     {StateKind::kMoment1, "/exp_avg"},
                                     {StateKind::kMoment2, "/exp_avg_sq"}}) {
      std::vector<float> values = expected(theirs, "transformer." + param.param + name);
      if (conv) values = turned(values, static_cast<std::size_t>(param.shape[1]));
      EXPECT_TRUE(same_bits(stored(ours, param.param, kind), values)) << param.param << name;
    }
  }
  const auto source = open_import(golden("deepspeed"));
  EXPECT_EQ(source->progress().step, 3);
  EXPECT_EQ(source->progress().updates, 3);
  EXPECT_EQ(source->progress().samples, 6);
}

constexpr std::array kKinds{StateKind::kMaster, StateKind::kMoment1, StateKind::kMoment2};

void expect_weights(Checkpoint& ours, const std::string& file) {
  const SafetensorsFile theirs(file);
  EXPECT_EQ(ours.parameters().size(), theirs.tensors().size());
  for (const StateRange& param : ours.parameters()) {
    EXPECT_TRUE(
        same_bits(stored(ours, param.param, StateKind::kMaster), expected(theirs, param.param)))
        << param.param;
  }
}

// Each is [weight, exp_avg, exp_avg_sq], stacked.
void expect_states(Checkpoint& ours, const std::string& file) {
  const SafetensorsFile theirs(file);
  EXPECT_EQ(ours.parameters().size(), theirs.tensors().size());
  for (const StateRange& param : ours.parameters()) {
    const std::vector<float> all = expected(theirs, param.param);
    std::vector<float> found;
    for (const StateKind kind : kKinds) {
      const std::vector<float> one = stored(ours, param.param, kind);
      found.insert(found.end(), one.begin(), one.end());
    }
    EXPECT_TRUE(same_bits(found, all)) << param.param;
  }
}

std::unique_ptr<ImportSource> Import::expect_whole(const std::string& name, std::int64_t vocab) {
  auto source = open_import(golden(name));
  ModelOptions model = source->model().value();
  model.vocab = vocab;
  Checkpoint ours = imported(golden(name), model);
  EXPECT_TRUE(moments_);
  expect_states(ours, golden(name) + "/expected.safetensors");
  return source;
}

TEST_F(Import, MegatronsOnTwoTensorParallelRanks) {
  ModelOptions model = open_import(golden("gpt2_tp2"))->model().value();
  EXPECT_EQ(model.vocab, 0);  // only the padded one is known
  model.vocab = 11;
  Checkpoint ours = imported(golden("gpt2_tp2"), model);
  expect_states(ours, golden("gpt2_tp2") + "/expected.safetensors");
  EXPECT_TRUE(moments_);
  ASSERT_EQ(notes_.size(), 1U);
  EXPECT_THAT(notes_[0], HasSubstr("5 rows of the vocabulary beyond the model's 11 are padding"));
  EXPECT_EQ(ours.manifest().step, 12);
  EXPECT_EQ(open_import(golden("gpt2_tp2"))->progress().updates, 12);
}

// Two stages of two virtual ones: a layer's number is that of its chunk's place. bf16 weights whose
// fp32 ones the optimizer has, and a copy of the table on the last stage.
TEST_F(Import, MegatronsPipelineWithVirtualStages) {
  const auto source = expect_whole("gpt2_pipeline", 21);
  EXPECT_EQ(source->progress().step, 12);
  EXPECT_EQ(source->progress().updates, 11);
  EXPECT_EQ(source->progress().samples, 96);
  EXPECT_EQ(source->progress().learning_rate, 2.5e-4);
}

TEST_F(Import, MegatronCoresPipelineOfUnevenStages) {
  const auto source = expect_whole("llama_uneven", 11);
  EXPECT_TRUE(source->model()->tie_embeddings);
  EXPECT_EQ(source->progress().updates, 11);
  EXPECT_EQ(source->progress().loss_scale, 1024);
  EXPECT_EQ(source->progress().loss_scale_good_steps, 5);
  EXPECT_EQ(source->progress().loss_scale_lives, 2);
}

TEST_F(Import, MegatronsTorchDist) {
  const auto source = expect_whole("llama_dist", 11);
  EXPECT_EQ(source->progress().step, 12);
  EXPECT_EQ(source->progress().updates, 11);
  EXPECT_EQ(source->progress().samples, 96);
}

TEST_F(Import, WeightsAloneAreThoseOfTheModel) {
  const auto source = open_import(golden("gpt2_pipeline"), {.weights_only = true});
  ModelOptions model = source->model().value();
  model.vocab = 21;
  ImportedStates states(*source, make_model_spec(model), import_tables(*source, model.type, 6));
  EXPECT_FALSE(states.moments());
  const SafetensorsFile theirs(golden("gpt2_pipeline") + "/expected.safetensors");
  const float exact = expected(theirs, "wte.weight")[1];
  std::vector<float> row(6);
  states.read(0, StateKind::kMaster, 0, row, 1);
  EXPECT_NE(row[1], exact);
  EXPECT_NEAR(row[1], exact, 0.01);
}

TEST_F(Import, MegatronCoresLlama) {
  ModelOptions model = open_import(golden("llama"))->model().value();
  EXPECT_EQ(model.type, ModelType::kLlama);
  EXPECT_EQ(model.kv_heads, 2);
  EXPECT_EQ(model.rope_theta, 5000);
  EXPECT_EQ(model.norm_eps, 1e-6);
  EXPECT_FALSE(model.tie_embeddings);
  model.vocab = 13;
  model.seq = 16;
  Checkpoint ours = imported(golden("llama"), model);
  expect_weights(ours, golden("llama") + "/expected.safetensors");
}

TEST_F(Import, ALargerVocabularyIsDrawnAndPositionsAreCut) {
  ModelOptions model = deepspeed_model();
  model.vocab = 15;
  model.seq = 5;
  Checkpoint ours = imported(golden("deepspeed"), model);
  ASSERT_EQ(notes_.size(), 1U);
  EXPECT_THAT(notes_[0], HasSubstr("2 rows of the vocabulary are not in the checkpoint"));
  const SafetensorsFile theirs(golden("deepspeed") + "/expected.safetensors");
  std::vector<float> table = stored(ours, "wte.weight", StateKind::kMaster);
  EXPECT_NE(table[13 * 8], 0.0F);
  table.resize(13 * 8);
  EXPECT_TRUE(same_bits(table, expected(theirs, "transformer.wte.weight/fp32")));
  const std::vector<float> moment = stored(ours, "wte.weight", StateKind::kMoment2);
  EXPECT_EQ(moment[13 * 8], 0.0F);
  std::vector<float> positions = expected(theirs, "transformer.wpe.weight/fp32");
  positions.resize(5 * 8);
  EXPECT_TRUE(same_bits(stored(ours, "wpe.weight", StateKind::kMaster), positions));
}

// Stage 3 writes a tensor flat, and no dictionary around it.
TEST_F(Import, FlatTensorsOfStageThree) {
  const std::string dir = copy("deepspeed");
  const SafetensorsFile theirs(golden("deepspeed") + "/expected.safetensors");
  for (const TensorEntry& entry : theirs.tensors()) {
    const std::vector<float> values = expected(theirs, entry.name);
    std::ofstream(dir + "/zero/" + entry.name + ".pt", std::ios::binary)
        << testing::torch_state({{static_cast<std::int64_t>(values.size())}, {}, values}, false);
  }
  Checkpoint flat = imported(dir, deepspeed_model());
  for (const std::string name : {"h.0.attn.c_attn.weight", "h.0.mlp.c_proj.weight"}) {
    EXPECT_TRUE(same_bits(
        stored(flat, name, StateKind::kMoment2),
        turned(expected(theirs, "transformer." + name + "/exp_avg_sq"),
               static_cast<std::size_t>(theirs.at("transformer." + name + "/fp32").shape[0]))))
        << name;
  }
}

TEST_F(Import, WhatDoesNotFitIsNamed) {
  const std::string dir = copy("deepspeed");
  ModelOptions model = deepspeed_model();
  model.layers = 2;
  EXPECT_THAT(refusal(dir, model), HasSubstr("lacks transformer.h.1.ln_1.weight, "));
  EXPECT_THAT(refusal(dir, model), HasSubstr("and 6 more"));
  model = deepspeed_model();
  model.ffn = 16;
  EXPECT_THAT(refusal(dir, model), HasSubstr("mlp.c_fc.weight/fp32.pt, tensor "
                                             "transformer.h.0.mlp.c_fc.weight, byte "));
  EXPECT_THAT(refusal(dir, model),
              HasSubstr("has the shape [8, 32], and the model makes it [8, 16]"));
  fs::copy(dir + "/zero/transformer.ln_f.bias", dir + "/zero/transformer.extra",
           fs::copy_options::recursive);
  EXPECT_THAT(refusal(dir, deepspeed_model()),
              HasSubstr("holds transformer.extra, which the model does not have"));
  fs::remove_all(dir + "/zero/transformer.extra");
  // A head that was trained apart is no copy of the table.
  fs::copy(dir + "/zero/transformer.wte.weight", dir + "/zero/lm_head.weight",
           fs::copy_options::recursive | fs::copy_options::overwrite_existing);
  for (const char* const moment : {"exp_avg.pt", "exp_avg_sq.pt"}) {
    fs::copy(dir + "/zero/transformer.wte.weight/exp_avg.pt",
             dir + "/zero/lm_head.weight/" + moment, fs::copy_options::overwrite_existing);
  }
  EXPECT_THAT(refusal(dir, deepspeed_model()),
              HasSubstr("holds lm_head.weight (no copy of the table)"));
}

// Of one parameter alone it is no choice of who saved, but a copy that was cut short.
TEST_F(Import, AMomentThatIsMissingIsNamedAndNotAllAreLeftOutForIt) {
  const std::string dir = copy("deepspeed");
  fs::remove(dir + "/zero/transformer.ln_f.bias/exp_avg.pt");
  EXPECT_THAT(refusal(dir, deepspeed_model()),
              AllOf(HasSubstr("transformer.ln_f.bias (moment1)"), HasSubstr("--weights-only")));
  for (const auto& parameter : fs::directory_iterator(dir + "/zero")) {
    if (!parameter.is_directory()) continue;
    fs::remove(parameter.path() / "exp_avg.pt");
    fs::remove(parameter.path() / "exp_avg_sq.pt");
  }
  const Checkpoint ours = imported(dir, deepspeed_model());
  EXPECT_FALSE(moments_);
  EXPECT_FALSE(ours.has("wte.weight", StateKind::kMoment1));
}

TEST_F(Import, FoldersThatAreNone) {
  EXPECT_EQ(open_import(path("")), nullptr);
  fs::create_directories(path("zero"));
  EXPECT_THROW((void)open_import(path("")), CheckpointError);
  const ModelOptions model;
  const std::string file = path("legacy");
  fs::create_directories(file + "/mp_rank_00");
  std::ofstream(file + "/mp_rank_00/model_optim_rng.pt", std::ios::binary)
      << testing::torch_file("}" + testing::pickled_text("model") + "}s");
  EXPECT_THAT(refusal(file, model), HasSubstr("checkpoint_version is not there; 2.0 and later"));
}

}  // namespace
}  // namespace sluice
