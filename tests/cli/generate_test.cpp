// A model that has learned a phrase generates it, on any layout.
#include <gtest/gtest.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>

#include "tests/cli/trained_model.hpp"

namespace sluice::testing {
namespace {

TEST_F(Trained, GoesOnWithWhatItLearned) {
  const Finished done =
      run(std::string("generate ") + kUse + "--prompt 'the quick brown ' --max-tokens 24 --echo");
  ASSERT_EQ(done.exit_code, 0) << done.output;
  EXPECT_NE(done.output.find("the quick brown fox jumps over the lazy \n"), std::string::npos)
      << done.output;
  EXPECT_NE(done.output.find("24 tokens (max_tokens); the prompt's 16 in "), std::string::npos)
      << done.output;
}

// `head` ends after its first bytes, long before the last token.
TEST_F(Trained, StopsQuietlyWithoutAReader) {
  const std::string what = std::string("generate ") + kUse +
                           "--prompt 'the quick ' --set model.seq=100000 --max-tokens 90000 "
                           "--ignore-end-of-text > {}/fifo 2> {}/errors.txt";
  const std::string reader = "cd " + scratch_->path() + " && rm -f fifo && mkfifo fifo && ";
  for (const char* ranks : {"", " --nproc 2"}) {
    for (auto* const action : {SIG_DFL, SIG_IGN}) {
      ASSERT_EQ(std::system((reader + "(timeout 100 head -c 10 fifo > seen.txt &)").c_str()), 0);
      ::signal(SIGPIPE, action);
      const Finished done = run(what + ranks);
      ::signal(SIGPIPE, SIG_DFL);
      const std::string errors = scratch_->read("errors.txt");
      EXPECT_EQ(done.exit_code, 141) << ranks << errors;
      EXPECT_EQ(scratch_->read("seen.txt").size(), 10U) << ranks << errors;
      EXPECT_EQ(errors.find("cannot write"), std::string::npos) << errors;
    }
  }
}

TEST_F(Trained, ToTalkNeedsATemplate) {
  expect_error("generate --checkpoint ckpt --chat --prompt a", 2,
               "neither the model nor its tokenizer has one; give --template PATH");
}

TEST_F(Trained, SaysTheSameOnEveryLayout) {
  const std::string what =
      "generate --checkpoint ckpt --prompt 'the qu' --max-tokens 20 --temperature 1.5 --seed 9 ";
  const nlohmann::json alone = json_of(what);
  ASSERT_TRUE(alone.contains("tokens"));
  EXPECT_EQ(alone["tokens"].size(), 20U);
  EXPECT_EQ(alone["prompt_tokens"], 6);
  EXPECT_EQ(alone["stop"], "max_tokens");
  EXPECT_EQ(alone["step"], 40);
  for (const char* layout :
       {"--set offload.parameters=host",
        "--set offload.parameters=nvme --set offload.nvme_path=[{}]", "--nproc 2",
        "--nproc 2 --set zero.stage=3", "--nproc 2 --set offload.parameters=host",
        "--nproc 2 --set parallel.pipeline=2"}) {
    EXPECT_EQ(json_of(what + layout)["tokens"], alone["tokens"]) << layout;
  }
  EXPECT_EQ(json_of(what + "--set train.seed=99")["text"], alone["text"]);
}

// A crash may come between a checkpoint and the pointer to it.
TEST_F(Trained, AFolderOfCheckpointsNeedsNoPointer) {
  const std::string what = " --prompt 'the qu' --max-tokens 4 --temperature 0";
  std::filesystem::copy(scratch_->path("ckpt"), scratch_->path("bare"),
                        std::filesystem::copy_options::recursive);
  ASSERT_TRUE(std::filesystem::remove(scratch_->path("bare/latest")));
  EXPECT_EQ(json_of("generate --checkpoint bare" + what)["tokens"],
            json_of("generate --checkpoint ckpt" + what)["tokens"]);
}

TEST_F(Trained, SaysTheSameAsAHuggingFaceFolder) {
  const Finished exported = run("checkpoint export ckpt -o hf");
  ASSERT_EQ(exported.exit_code, 0) << exported.output;
  const std::string rest = "--prompt 'jumps o' --max-tokens 20 --seed 3";
  const nlohmann::json ours = json_of("generate --checkpoint ckpt " + rest);
  const std::string theirs = "generate --checkpoint hf --set data.tokenizer=bytes ";
  const nlohmann::json folder = json_of(theirs + rest);
  EXPECT_EQ(folder["tokens"], ours["tokens"]);
  EXPECT_EQ(json_of("generate --checkpoint hf " + rest)["tokens"], ours["tokens"]);
  EXPECT_EQ(folder["checkpoint"], "hf");
  EXPECT_FALSE(folder.contains("step"));
  EXPECT_EQ(json_of(theirs + rest + " --nproc 2 --set zero.stage=3")["tokens"], ours["tokens"]);
  const std::string eval =
      "eval tiny.yaml --text less.txt --set data.tokenizer=bytes --checkpoint ";
  const nlohmann::json measured = json_of(eval + "ckpt");
  ASSERT_TRUE(measured.contains("loss"));
  EXPECT_EQ(json_of(eval + "hf")["loss"], measured["loss"]);
  // --checkpoint comes before model.from, and says so.
  const std::string note = "the weights are those of --checkpoint hf, not of the configuration's ";
  EXPECT_NE(run(eval + "hf --set model.from=other").output.find(note + "model.from other"),
            std::string::npos);
  EXPECT_EQ(run(eval + "hf --set model.from=./hf").output.find(note), std::string::npos);
}

TEST_F(Trained, TakesThePromptFromStandardInputAndFiles) {
  const nlohmann::json given = json_of(std::string("generate ") + kUse + "--prompt 'over the'");
  scratch_->write("prompt.txt", "over the\n");
  const nlohmann::json file = json_of(std::string("generate ") + kUse + "--prompt-file prompt.txt");
  const nlohmann::json input = json_of(std::string("generate ") + kUse + "< {}/prompt.txt");
  EXPECT_EQ(file["tokens"], given["tokens"]);
  EXPECT_EQ(input["tokens"], given["tokens"]);
  const nlohmann::json ranks =
      json_of(std::string("generate ") + kUse + "--prompt-file prompt.txt --nproc 2");
  EXPECT_EQ(ranks["tokens"], given["tokens"]);
  EXPECT_EQ(given["tokens"].size(), 64U - 8U);  // what there is room for
}

// As `bytes`, but that id 256 is put before a text.
std::string tokenizer_json() {
  std::string vocab;
  int others = 256;
  for (int byte = 0; byte < 256; ++byte) {
    const bool plain =
        (byte > 32 && byte < 127) || (byte > 160 && byte < 173) || (byte > 173 && byte < 256);
    char row[32];
    std::snprintf(row, sizeof row, "%s\"\\u%04x\": %d", byte > 0 ? ", " : "",
                  static_cast<unsigned>(plain ? byte : others++), byte);
    vocab += row;
  }
  return R"({"added_tokens": [{"id": 256, "content": "<b>"}], "pre_tokenizer":
             {"type": "ByteLevel", "add_prefix_space": false}, "post_processor":
             {"type": "TemplateProcessing",
              "single": [{"SpecialToken": {"id": "<b>"}}, {"Sequence": {"id": "A"}}],
              "special_tokens": {"<b>": {"id": "<b>", "ids": [256]}}},
             "model": {"type": "BPE", "merges": [], "vocab": {)" +
         vocab + "}}}";
}

TEST_F(Trained, TakesWhatTheModelsFilesSayOfBeginningAndEnd) {
  ASSERT_EQ(run("checkpoint export ckpt -o full").exit_code, 0);
  scratch_->write("full/tokenizer.json", tokenizer_json());
  const std::string rest = " --prompt 'the qu' --temperature 0 --max-tokens 9";
  const nlohmann::json plain =
      json_of("generate --checkpoint full --set data.tokenizer=bytes" + rest);
  EXPECT_EQ(plain["prompt_tokens"], 6);
  const nlohmann::json with = json_of("generate --checkpoint full" + rest);
  EXPECT_EQ(with["prompt_tokens"], 7);
  EXPECT_EQ(json_of("generate --checkpoint full --no-bos" + rest)["tokens"], plain["tokens"]);
  const Finished twice = run("generate --checkpoint full --prompt '<b>a' --max-tokens 1");
  EXPECT_NE(twice.output.find("the prompt begins with <b>, and"), std::string::npos)
      << twice.output;

  scratch_->write("full/generation_config.json", R"({"eos_token_id": [250, 32]})");
  ASSERT_EQ(run("checkpoint import full -o taken").exit_code, 0);
  for (const std::string folder : {"full", "taken"}) {
    const std::string use = "generate --no-bos --checkpoint " + folder + rest;
    const nlohmann::json ended = json_of(use);
    EXPECT_EQ(ended["text"], "ick") << folder;
    EXPECT_EQ(ended["stop"], "end_of_text") << folder;
    EXPECT_EQ(json_of(use + " --ignore-end-of-text")["tokens"], plain["tokens"]) << folder;
  }

  // Elsewhere, and without what lay beside the steps: the tokenizer is in the checkpoint.
  std::filesystem::rename(scratch_->path("taken"), scratch_->path("moved"));
  std::filesystem::remove_all(scratch_->path("moved/huggingface"));
  EXPECT_EQ(json_of("generate --no-bos --checkpoint moved" + rest)["text"], "ick");
}

// A tokenizer of equal size in the place of the one that the model was trained with.
TEST_F(Trained, TheTokenizerIsTheCheckpoints) {
  const auto train_tokenizer = [](const std::string& text, const std::string& out) {
    scratch_->write(out + ".txt", text);
    const Finished done = run("tokenizer train " + out + ".txt --vocab-size 270 -o " + out);
    ASSERT_EQ(done.exit_code, 0) << done.output;
  };
  std::string other;
  for (int i = 0; i < 50; ++i) other += "zwoelf boxkaempfer jagen viktor quer ";
  train_tokenizer(scratch_->read("more.txt"), "first");
  train_tokenizer(other, "second");
  scratch_->write("bpe.yaml",
                  "data: {text: [text.txt], tokenizer: used}\n"
                  "train: {steps: 2, micro_batch: 2, eval_steps: 1}\n"
                  "launch: {threads: 1, nproc: 1}\n"
                  "schedule: {type: constant}\n"
                  "model: {type: llama, layers: 1, hidden: 32, heads: 2, seq: 32}\n"
                  "checkpoint: {dir: bpe}\n"
                  "output: {dir: bpe-run}\n");
  const auto use = [](const std::string& which) {
    std::filesystem::remove_all(scratch_->path("used"));
    std::filesystem::copy(scratch_->path(which), scratch_->path("used"));
  };
  use("first");
  const Finished trained = run("train bpe.yaml");
  ASSERT_EQ(trained.exit_code, 0) << trained.output;
  const std::string what = " --prompt 'the quick' --max-tokens 8 --seed 4";
  const std::string generate = "generate --checkpoint bpe" + what;
  const std::string eval = "eval bpe.yaml --checkpoint bpe --text less.txt";
  const nlohmann::json before = json_of(generate);
  const nlohmann::json loss = json_of(eval)["loss"];
  EXPECT_LT(before["prompt_tokens"], 9);  // not byte by byte
  EXPECT_EQ(run("checkpoint verify bpe").exit_code, 0);

  use("second");
  EXPECT_EQ(json_of(generate)["text"], before["text"]);
  expect_error(generate + " --set data.tokenizer=used", 2,
               "is not the one that checkpoint bpe/step-00000002 was trained with (gpt2:");
  expect_error(eval, 2, "bpe.yaml:1:");
  expect_error("train bpe.yaml --resume auto --set train.steps=3", 2,
               "bpe/step-00000002 was trained with gpt2:");
  std::filesystem::remove_all(scratch_->path("used"));
  EXPECT_EQ(json_of(eval)["loss"], loss);

  // The exported folder alone is whole.
  ASSERT_EQ(run("checkpoint export bpe -o bpe-hf").exit_code, 0);
  const auto exported = [](const std::string& name) {
    return nlohmann::json::parse(scratch_->read("bpe-hf/" + name));
  };
  EXPECT_EQ(exported("config.json")["eos_token_id"], 269);
  EXPECT_TRUE(exported("config.json")["bos_token_id"].is_null());
  EXPECT_EQ(exported("generation_config.json")["eos_token_id"], 269);
  EXPECT_EQ(exported("tokenizer_config.json")["eos_token"], "<|endoftext|>");
  EXPECT_EQ(json_of("generate --checkpoint bpe-hf" + what)["tokens"], before["tokens"]);

  std::filesystem::copy(scratch_->path("second/merges.txt"),
                        scratch_->path("bpe/step-00000002/merges.txt"),
                        std::filesystem::copy_options::overwrite_existing);
  expect_error(generate, 4, "bpe/step-00000002/merges.txt");
  EXPECT_EQ(run("checkpoint verify bpe").exit_code, 4);
}

TEST_F(Trained, ARotaryFolderIsAsLongAsItWasTrainedFor) {
  ASSERT_EQ(run("checkpoint export ckpt -o long").exit_code, 0);
  nlohmann::json config = nlohmann::json::parse(scratch_->read("long/config.json"));
  const std::string use =
      "generate --checkpoint long --set data.tokenizer=bytes --prompt ab --max-tokens 9000 ";
  for (const auto& [trained, seq] : {std::pair{3000, 3000}, std::pair{10000, 8192}}) {
    config["max_position_embeddings"] = trained;
    scratch_->write("long/config.json", config.dump());
    expect_error(use, 2, "and model.seq is " + std::to_string(seq) + ";");
  }
  expect_error(use + "--set model.seq=8999", 2, "and model.seq is 8999;");
}

TEST_F(Trained, RanksOfSomebodyElseDoNotReadAPromptEach) {
  const Finished done = run_program(*scratch_, std::string("generate ") + kUse,
                                    {{"RANK", "1"},
                                     {"WORLD_SIZE", "2"},
                                     {"LOCAL_RANK", "1"},
                                     {"LOCAL_WORLD_SIZE", "2"},
                                     {"MASTER_ADDR", "127.0.0.1"},
                                     {"MASTER_PORT", "1"}});
  EXPECT_EQ(done.exit_code, 2) << done.output;
  EXPECT_NE(done.output.find("each of the 2 ranks has a standard input of its own"),
            std::string::npos)
      << done.output;
}

TEST_F(Trained, RefusesWhatItCannotDo) {
  const std::string use = std::string("generate ") + kUse;
  expect_error(use + "--prompt ''", 2,
               "the prompt is empty; give --prompt TEXT, --prompt-file FILE, or text on standard "
               "input");
  expect_error(use + "--prompt '" + std::string(64, 'x') + "'", 2,
               "the prompt has 64 tokens, and model.seq is 64: there is no room for another one; "
               "shorten the prompt");
  expect_error(use + "--prompt abc --max-tokens 62", 2,
               "--max-tokens 62: the prompt has 3 tokens, and model.seq is 64; ask for at most 61");
  expect_error(use + "--prompt abc --max-tokens 9223372036854775807", 2,
               "--max-tokens 9223372036854775807: the prompt has 3 tokens, and model.seq is 64");
  expect_error(use + "--prompt-file none.txt", 4,
               "cannot read the prompt: there is no file none.txt");
  expect_error(
      "generate --checkpoint none --prompt a", 4,
      "cannot read none: there is no such folder; --checkpoint takes a run's folder, a folder "
      "of checkpoints, one of them, or a Hugging Face folder");
  expect_error("generate --checkpoint meta-llama/Llama-3.2-1B --prompt a", 4,
               "cannot read meta-llama/Llama-3.2-1B: there is no folder meta-llama/Llama-3.2-1B, "
               "and Sluice downloads nothing: `hf download meta-llama/Llama-3.2-1B --local-dir "
               "DIR`, then name DIR");
  std::filesystem::create_directory(scratch_->path("lora"));
  scratch_->write("lora/adapter_config.json", "{}");
  expect_error("generate --checkpoint lora --prompt a", 4,
               "lora is an adapter (adapter_config.json), not a model: merge it into its model");
  expect_error("generate --checkpoint run --prompt a", 4,
               "run holds no weights: neither manifest.json or latest of a complete checkpoint nor "
               "config.json of a Hugging Face folder");
  expect_error("generate --prompt a", 2, "there are no weights to use; give --checkpoint DIR");
  expect_error(use + "--prompt a --top-p 2", 2,
               "--top-p 2.000000: expected a probability above 0 and up to 1");
  expect_error(use + "--prompt a --set memory.device=20KiB", 3, "device");
  expect_error(use + "--prompt-file run", 4, "cannot read the prompt: run: Is a directory");
}

TEST(Encode, AnInputThatCannotBeReadIsNamed) {
  const Scratch scratch;
  for (const auto& [input, why] :
       {std::pair("none", "No such file"), std::pair(".", "Is a directory; name a file")}) {
    const Finished done = run_program(scratch, std::string("tokenizer encode ") + input);
    EXPECT_EQ(done.exit_code, 4) << done.output;
    const std::string said = std::string("cannot read ") + input + ": " + why;
    EXPECT_NE(done.output.find(said), std::string::npos) << done.output;
  }
}

// SLUICE_TTY: what the launcher says to its ranks where its own output is a terminal.
TEST(Decode, IdsAreCheckedAndATerminalGetsNoControls) {
  const Scratch scratch;
  for (const std::string id : {"1000", "-5", "257", "99999999999999999999"}) {
    scratch.write("ids.txt", "65 " + id + "\n");
    const Finished done = run_program(scratch, "tokenizer decode ids.txt");
    EXPECT_EQ(done.exit_code, 4) << done.output;
    EXPECT_NE(done.output.find("number 2 of the ids is " + id +
                               ", and tokenizer bytes has the ids 0 to 256"),
              std::string::npos)
        << done.output;
  }
  scratch.write("ids.txt", "65 27 91 50 74 256\n");
  EXPECT_EQ(run_program(scratch, "tokenizer decode ids.txt").output, "A\x1b[2J<|endoftext|>");
  EXPECT_EQ(run_program(scratch, "tokenizer decode ids.txt", {{"SLUICE_TTY", "1"}}).output,
            "A\\x1b[2J<|endoftext|>");
}

TEST_F(Trained, NumbersAreNotBentToFit) {
  const std::string use = std::string("generate ") + kUse + "--prompt a ";
  for (const std::string option : {"--max-tokens", "--nproc"}) {
    for (const std::string number : {"0", "-1", "1.5", "two"}) {
      expect_error(use + option + " " + number, 2,
                   option + ": found '" + number + "', expected a whole number from 1 on");
    }
  }
  expect_error(use + "--seed -1", 2, "--seed: found '-1', expected a whole number from 0 on");
  expect_error(use + "--seed 18446744073709551616", 2, "from 0 to 18446744073709551615");
  expect_error(use + "--top-k 99999999999999999999", 2, "from 0 to 9223372036854775807");
  expect_error("eval tiny.yaml --checkpoint ckpt --stride 0", 2,
               "--stride: found '0', expected a whole number from 1 on");
  EXPECT_EQ(run(use + "--max-tokens 1 --seed 18446744073709551615").exit_code, 0);
}

TEST_F(Trained, OutputThatDoesNotArriveIsAnError) {
  for (const std::string& command :
       {std::string("generate ") + kUse + "--prompt a --max-tokens 4",
        std::string("eval tiny.yaml --checkpoint ckpt --json"),
        std::string("eval tiny.yaml --checkpoint ckpt --nproc 2"),
        std::string("checkpoint ls ckpt"), std::string("checkpoint verify ckpt"),
        std::string("checkpoint export ckpt -o exported")}) {
    const Finished done = run(command + " 2>&1 >/dev/full; echo rc=$?; exit 0");
    EXPECT_NE(done.output.find("rc=4"), std::string::npos) << command << done.output;
    EXPECT_NE(done.output.find("cannot write all of the output"), std::string::npos) << done.output;
  }
}

}  // namespace
}  // namespace sluice::testing
