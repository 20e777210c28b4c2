// A trained model is evaluated file by file, and a checkpoint decides its model.
#include <gtest/gtest.h>

#include <cmath>

#include "tests/cli/trained_model.hpp"

namespace sluice::testing {
namespace {

TEST_F(Trained, EvaluatesFileByFileAndTheSameOnEveryLayout) {
  const std::string what = "eval tiny.yaml --checkpoint ckpt --text more.txt --text less.txt ";
  const nlohmann::json alone = json_of(what);
  ASSERT_EQ(alone["files"].size(), 2U) << alone;
  EXPECT_EQ(alone["files"][0]["name"], "less.txt");
  EXPECT_EQ(alone["files"][0]["tokens"], 301);  // 301 bytes and an end of text, but the first
  EXPECT_EQ(alone["files"][1]["tokens"], 700);
  double sum = 0;
  for (const nlohmann::json& file : alone["files"]) {
    EXPECT_LT(file["loss"].get<double>(), 1.0);
    EXPECT_DOUBLE_EQ(file["perplexity"].get<double>(), std::exp(file["loss"].get<double>()));
    sum += file["loss"].get<double>() * file["tokens"].get<double>();
  }
  EXPECT_NEAR(alone["loss"].get<double>(), sum / alone["tokens"].get<double>(), 1e-12);
  for (const char* layout :
       {"--nproc 2", "--nproc 3 --set zero.stage=3", "--set offload.parameters=host"}) {
    EXPECT_EQ(json_of(what + layout)["files"], alone["files"]) << layout;
  }
  const nlohmann::json sliding = json_of(what + "--stride 16");
  EXPECT_EQ(sliding["tokens"], alone["tokens"]);
  EXPECT_LT(sliding["loss"].get<double>(), alone["loss"].get<double>());
  // No rows beyond the longest file's 11 windows: they would not fit.
  EXPECT_EQ(json_of(what + "--set train.micro_batch=100000 --set memory.device=256MiB")["files"],
            json_of(what + "--set train.micro_batch=11")["files"]);
  const nlohmann::json share = json_of("eval tiny.yaml --checkpoint ckpt");
  EXPECT_EQ(share["files"][0]["name"], "validation share");
  expect_error(what + "--stride 65", 2, "--stride 65: windows begin every 1 to model.seq = 64");
  expect_error("eval tiny.yaml --checkpoint ckpt --text none.txt", 4, "none.txt");
  const Finished table = run(what);
  EXPECT_NE(table.output.find("perplexity"), std::string::npos);
  EXPECT_NE(table.output.find("\nall "), std::string::npos) << table.output;
}

// The keys of a training's gradients say nothing of a model that is read.
TEST_F(Trained, GradientsInBf16AreNoRuleOfAnEvaluation) {
  const std::string what =
      "eval tiny.yaml --checkpoint ckpt --set offload.gradients_dtype=bf16 "
      "--set zero.stage=2 --set offload.optimizer=host --set offload.gradients=host ";
  for (const char* with : {"--set train.dtype=fp32", "--set train.dtype=bf16 --nproc 2"}) {
    EXPECT_LT(json_of(what + with)["loss"].get<double>(), 1.0) << with;
  }
}

// One evaluation of the run reads each validation row once: the two losses are of equal targets.
TEST_F(Trained, EvaluatesTheDocumentsThatTheRunValidated) {
  std::string lines;  // 257 tokens, each document's bytes and an end of text: four rows of 64
  for (std::size_t i = 0; i < 8; ++i) {
    const std::string text = std::string(kPhrase).substr(0, i < 7 ? 24 + 2 * i : 39);
    lines += R"({"text": ")" + text + "\"}\n";
  }
  scratch_->write("documents.jsonl", lines);
  const std::string with = " --set data.valid=documents.jsonl --set data.document_mask=";
  const auto losses = [&](const std::string& mask) {
    const std::string folder = "masked_" + mask;
    const Finished trained =
        run("train tiny.yaml --set train.steps=4 --set train.eval_steps=1" + with + mask +
            " --set checkpoint.dir=" + folder + "/ckpt --set output.dir=" + folder);
    EXPECT_EQ(trained.exit_code, 0) << trained.output;
    const nlohmann::json evaluated =
        json_of("eval tiny.yaml --checkpoint " + folder + "/ckpt" + with + mask);
    EXPECT_EQ(evaluated["tokens"], mask == "true" ? 249 : 256) << evaluated;
    EXPECT_NEAR(evaluated["loss"].get<double>(),
                scratch_->metrics(folder).back()["eval_loss"].get<double>(), 1e-6);
    return evaluated["loss"].get<double>();
  };
  EXPECT_NE(losses("true"), losses("false"));
}

TEST_F(Trained, ALossThatIsNotFiniteIsAnError) {
  ASSERT_EQ(run("checkpoint export ckpt -o damaged").exit_code, 0);
  std::string weights = scratch_->read("damaged/model.safetensors");
  weights.replace(weights.size() - 4, 4, 4, '\xFF');  // fp32: a NaN in the last tensor
  scratch_->write("damaged/model.safetensors", weights);
  const std::string what = "eval tiny.yaml --checkpoint damaged --text more.txt --text less.txt";
  for (const char* more : {"", " --json", " --nproc 2 --json"}) {
    const Finished done = run(what + more);
    EXPECT_EQ(done.exit_code, 5) << done.output;
    EXPECT_NE(done.output.find("less.txt: the model's loss is not finite; its weights are damaged, "
                               "or too large for train.dtype"),
              std::string::npos)
        << done.output;
    EXPECT_EQ(done.output.find("perplexity"), std::string::npos) << done.output;
  }
  scratch_->write("go-on.yaml",
                  "model: {from: damaged}\ndata: {text: [text.txt], tokenizer: bytes}\n"
                  "train: {steps: 2, micro_batch: 4}\nlaunch: {threads: 1}\n"
                  "output: {dir: go-on}\n");
  for (const char* nproc : {"1", "2 --set zero.stage=3"}) {
    const Finished done = run(std::string("train go-on.yaml --nproc ") + nproc);
    EXPECT_EQ(done.exit_code, 5) << done.output;
    EXPECT_NE(
        done.output.find("Weight model.norm.weight is not finite, and no step has updated it: "
                         "the weights that the run began with are damaged"),
        std::string::npos)
        << done.output;
  }
}

// The tensors of another theta, or of other heads, have the same shapes.
TEST_F(Trained, ACheckpointKnowsItsModel) {
  const std::string use = std::string("generate ") + kUse + "--prompt a --max-tokens 1 ";
  const std::string there = " in checkpoint ckpt/step-00000040";
  expect_error(use + "--set model.rope_theta=77", 2,
               "model.rope_theta is 77 (--set model.rope_theta=77) and 10000" + there);
  expect_error(use + "--set model.heads=8 --set model.kv_heads=4", 2,
               "model.kv_heads is 4 (--set model.kv_heads=4) and 2" + there);
  expect_error(use + "--set model.layers=1", 2,
               "model.layers is 1 (--set model.layers=1) and 2" + there);
  expect_error("generate tiny.yaml --checkpoint ckpt --prompt a --set model.rope_scaling=llama3", 2,
               "model.rope_scaling is llama3 (--set model.rope_scaling=llama3) and none" + there);
  const std::string eval = " --checkpoint ckpt --text less.txt";
  const std::string shape = "type: llama, layers: 2, hidden: 64, heads: 4, kv_heads: 2, seq: 64";
  const std::string rest =
      "data: {text: [text.txt]}\ntrain: {micro_batch: 4}\nlaunch: {threads: 1}\n";
  scratch_->write("other.yaml", "model: {" + shape + ", norm_eps: 1e-3}\n" + rest);
  expect_error("eval other.yaml" + eval, 2, "model.norm_eps is 0.001 (other.yaml:1:");
  // What a configuration does not write is the checkpoint's.
  scratch_->write("none.yaml", rest);
  EXPECT_EQ(json_of("eval none.yaml" + eval)["loss"], json_of("eval tiny.yaml" + eval)["loss"]);
  EXPECT_EQ(run("eval tiny.yaml --set model.dropout=0.1 --set model.seq=32" + eval).exit_code, 0);
  // A folder in model.from says the model, too.
  ASSERT_EQ(run("checkpoint export ckpt -o start").exit_code, 0);
  scratch_->write("from.yaml", "model: {from: start}\n" + rest);
  EXPECT_EQ(json_of("eval from.yaml" + eval + " --set data.tokenizer=bytes")["loss"],
            json_of("eval tiny.yaml" + eval)["loss"]);
  nlohmann::json config = nlohmann::json::parse(scratch_->read("start/config.json"));
  config["rope_theta"] = 500;
  scratch_->write("start/config.json", config.dump());
  expect_error("eval from.yaml" + eval, 2,
               "model.rope_theta is 500 (start/config.json) and 10000" + there);
}

}  // namespace
}  // namespace sluice::testing
