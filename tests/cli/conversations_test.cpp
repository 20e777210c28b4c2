// A model is fine-tuned on conversations, evaluated on others, and talked to.
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

#include "tests/cli/program.hpp"

namespace sluice::testing {
namespace {

namespace fs = std::filesystem;

constexpr char kTemplate[] =
    "{% for m in messages %}{% if m.role == 'user' %}Q: {{ m.content }}\n"
    "{% else %}{% generation %}{{ m.content }}{{ eos_token }}{% endgeneration %}{% endif %}"
    "{% endfor %}";

std::string talk(const std::string& question, const std::string& answer) {
  return nlohmann::json{{"messages",
                         {{{"role", "user"}, {"content", question}},
                          {{"role", "assistant"}, {"content", answer}}}}}
             .dump() +
         "\n";
}

class Talks : public ::testing::Test {
 protected:
  void SetUp() override {
    scratch_.write("chat.jinja", kTemplate);
    std::string talks;
    for (int i = 0; i < 60; ++i) talks += talk("colour of the sky", "It is red.");
    scratch_.write("talks.jsonl", talks);
    // Each fills more than half a row of 64 places, so each has a row of its own.
    scratch_.write("valid.jsonl",
                   talk("colour of the sky on a day in June", "It is red.") +
                       talk("colour of the sky at night", "It is black, as the name says."));
    scratch_.write("talks.yaml",
                   "model: {type: llama, layers: 2, hidden: 64, heads: 4, seq: 64}\n"
                   "data: {sft: [{path: talks.jsonl}], valid: [valid.jsonl],"
                   " chat_template: chat.jinja}\n"
                   "train: {steps: 80, global_batch: 2, eval_steps: 1, eval_every: 80}\n"
                   "optimizer: {lr: 1e-2}\n"
                   "schedule: {type: constant}\n"
                   "launch: {nproc: 1, threads: 1, timeout: 20s}\n"
                   "checkpoint: {dir: ckpt}\n"
                   "output: {dir: run}\n");
  }

  nlohmann::json eval_json(const std::string& arguments) {
    const Finished done =
        run_program(scratch_, "eval talks.yaml --checkpoint ckpt --json " + arguments);
    EXPECT_EQ(done.exit_code, 0) << done.output;
    const std::size_t begin = done.output.find("\n{");
    if (begin == std::string::npos) return {};
    return nlohmann::json::parse(done.output.substr(begin), nullptr, false);
  }

  const Scratch scratch_;
};

TEST_F(Talks, AreLearnedEvaluatedAndAnswered) {
  const Finished train = run_program(scratch_, "train talks.yaml");
  ASSERT_EQ(train.exit_code, 0) << train.output;
  EXPECT_NE(train.output.find("60 conversations, 1.92k tokens, packed into 30 rows of 64; 100.0 % "
                              "of the places are used"),
            std::string::npos)
      << train.output;
  EXPECT_NE(train.output.find(" generate --checkpoint ckpt --chat\n"), std::string::npos)
      << train.output;
  EXPECT_NE(train.output.find("data: 80 steps of 2 samples make 5.33 epochs"), std::string::npos)
      << train.output;
  const Finished answer = run_program(
      scratch_, "generate --checkpoint ckpt --chat --temperature 0 --prompt 'colour of the sky'");
  EXPECT_EQ(answer.exit_code, 0) << answer.output;
  EXPECT_NE(answer.output.find("It is red.\n"), std::string::npos) << answer.output;
  const Finished echo = run_program(
      scratch_, "generate --checkpoint ckpt --chat --echo --prompt 'colour of the sky'");
  EXPECT_EQ(echo.exit_code, 2) << echo.output;
  EXPECT_NE(echo.output.find("--echo excludes --chat"), std::string::npos) << echo.output;
  // Lines of a file from Windows: the first one is empty.
  scratch_.write("ask.txt", "\r\ncolour of the sky\r\n");
  const Finished asked = run_program(
      scratch_, "generate --checkpoint ckpt --chat --temperature 0 --json < ask.txt 2>/dev/null");
  const nlohmann::json answered = nlohmann::json::parse(asked.output, nullptr, false);
  ASSERT_TRUE(answered.is_object()) << asked.output;
  EXPECT_EQ(answered["prompt"], "colour of the sky");
  // Of 64 places: the second question has no room, the third one only without the first.
  scratch_.write("ask.txt", "colour of the sky\n" + std::string(62, 'a') +
                                "\ncolour of the sky at night\ncolour of the sky\n");
  const Finished long_one = run_program(
      scratch_, "generate --checkpoint ckpt --chat --temperature 0 --max-tokens 12 < ask.txt");
  EXPECT_EQ(long_one.exit_code, 0) << long_one.output;
  const std::size_t left_out = long_one.output.find(
      "this question is left out: the prompt has 66 tokens, and model.seq is 64");
  const std::size_t forgotten = long_one.output.find("its oldest 2 messages are forgotten");
  EXPECT_LT(left_out, forgotten) << long_one.output;
  EXPECT_NE(forgotten, std::string::npos) << long_one.output;
  // A person thinks for longer than a rank may make no progress (10 s, half of launch.timeout).
  const std::string fifo = scratch_.path("fifo");
  const std::string think = "mkfifo " + fifo +
                            "; timeout 60 sh -c 'for pause in 0 14; do sleep $pause; echo colour "
                            "of the sky; done > " +
                            fifo + "'";
  ASSERT_EQ(std::system((think + " &").c_str()), 0);
  const Finished slow =
      run_program(scratch_, "generate --checkpoint ckpt --chat --temperature 0 < fifo");
  EXPECT_EQ(slow.exit_code, 0) << slow.output;
  // The checkpoint holds the template: elsewhere data.chat_template names no file.
  fs::create_directory(scratch_.path("moved"));
  fs::copy(scratch_.path("ckpt"), scratch_.path("moved/ckpt"), fs::copy_options::recursive);
  fs::rename(scratch_.path("chat.jinja"), scratch_.path("moved/chat.old"));
  const Finished moved = run_program(scratch_,
                                     "generate --checkpoint moved/ckpt --chat --temperature 0 "
                                     "--prompt 'colour of the sky'");
  EXPECT_EQ(moved.exit_code, 0) << moved.output;
  EXPECT_NE(moved.output.find("It is red.\n"), std::string::npos) << moved.output;
  EXPECT_EQ(run_program(scratch_, "checkpoint verify moved/ckpt").exit_code, 0);

  const Finished exported = run_program(scratch_, "checkpoint export moved/ckpt -o hf");
  EXPECT_EQ(exported.exit_code, 0) << exported.output;
  // transformers would spell special tokens out in every turn but the first.
  EXPECT_EQ(scratch_.read("hf/tokenizer_config.json").find("split_special_tokens"),
            std::string::npos);
  EXPECT_EQ(scratch_.read("hf/chat_template.jinja"), kTemplate);
  fs::rename(scratch_.path("moved/chat.old"), scratch_.path("chat.jinja"));

  const nlohmann::json alone = eval_json("");
  ASSERT_EQ(alone["files"].size(), 1U) << alone;
  EXPECT_EQ(alone["files"][0]["name"], "valid.jsonl");
  EXPECT_EQ(alone["tokens"], 11 + 31);  // the bytes of both answers and an end of text each
  const double during = scratch_.metrics("run").back()["eval_loss"].get<double>();
  EXPECT_NEAR(alone["loss"].get<double>() / during, 1.0, 1e-6);
  EXPECT_EQ(eval_json("--nproc 2 --set zero.stage=3")["files"], alone["files"]);
  const nlohmann::json both = eval_json("--set train.micro_batch=2");
  EXPECT_NEAR(both["loss"].get<double>() / alone["loss"].get<double>(), 1.0, 1e-12);
  const Finished strides = run_program(scratch_, "eval talks.yaml --checkpoint ckpt --stride 8");
  EXPECT_EQ(strides.exit_code, 2);
  EXPECT_NE(strides.output.find("--stride: rows of conversations have no windows; leave it out"),
            std::string::npos)
      << strides.output;
  scratch_.write("plain.txt", std::string(200, 'a'));
  const Finished plain =
      run_program(scratch_, "eval talks.yaml --checkpoint ckpt --text plain.txt");
  EXPECT_EQ(plain.exit_code, 0) << plain.output;
  EXPECT_NE(plain.output.find("the run was trained on conversations: --text counts all tokens"),
            std::string::npos)
      << plain.output;
}

TEST_F(Talks, AnExportNamesTheEndOfATurn) {
  fs::create_directory(scratch_.path("tokens"));
  fs::copy(SLUICE_SOURCE_DIR "/tests/golden/tokenizers/qwen3.json",
           scratch_.path("tokens/tokenizer.json"));
  scratch_.write("tokens/tokenizer_config.json", R"({"eos_token": "<|end|>"})");  // id 0
  scratch_.write("chat.jinja", "{% for m in messages %}{{ m.content }}<tool>\n{% endfor %}");
  const Finished train =
      run_program(scratch_, "train talks.yaml --set data.tokenizer=tokens --set train.steps=1");
  ASSERT_EQ(train.exit_code, 0) << train.output;
  const auto generation = [&](const std::string& arguments) {
    const Finished exported = run_program(scratch_, "checkpoint export ckpt " + arguments);
    EXPECT_EQ(exported.exit_code, 0) << exported.output;
    return nlohmann::json::parse(scratch_.read("hf/generation_config.json"), nullptr, false);
  };
  const nlohmann::json ends{0, 440};  // <|end|>, <tool>
  EXPECT_EQ(generation("-o hf")["eos_token_id"], ends);
  // The other keys of a file that comes with the tokenizer stay.
  fs::remove_all(scratch_.path("hf"));
  scratch_.write("tokens/generation_config.json", R"({"eos_token_id": 0, "temperature": 0.5})");
  EXPECT_EQ(generation("-o hf --tokenizer tokens"),
            (nlohmann::json{{"eos_token_id", ends}, {"temperature", 0.5}}));
  EXPECT_EQ(scratch_.read("hf/chat_template.jinja"), scratch_.read("chat.jinja"));
}

TEST_F(Talks, ThatAreLeftOutAreShown) {
  scratch_.write("talks.jsonl", talk("colour of the sky", "It is red.") + "{\"messages\": [\n" +
                                    talk("colour of grass", "") +
                                    R"({"messages": [{"role": "robot", "content": "beep"}]})" +
                                    "\n");
  const Finished shown = run_program(scratch_, "data inspect talks.yaml --samples 1");
  EXPECT_EQ(shown.exit_code, 0) << shown.output;
  for (const char* part :
       {"talks.jsonl: 1 conversation", "left out 1 ", "talks.jsonl, line 2", "talks.jsonl, line 3",
        "talks.jsonl, line 4", "talks.jsonl, line 1: ", "Q: colour of the sky", "It is red."}) {
    EXPECT_NE(shown.output.find(part), std::string::npos) << part << "\n" << shown.output;
  }
}

}  // namespace
}  // namespace sluice::testing
