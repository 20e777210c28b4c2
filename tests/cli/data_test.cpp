// `sluice data` on files, and runs on data that a configuration blends.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>

#include "tests/cli/resume_runs.hpp"

namespace sluice::testing {
namespace {

class DataTools : public ::testing::Test {
 protected:
  Finished data(const std::string& arguments) {
    return run_program(scratch_, "data " + arguments, {}, 60);
  }
  void expect_said(const std::string& arguments, const std::string& said, int exit_code = 0) {
    const Finished done = data(arguments);
    EXPECT_EQ(done.exit_code, exit_code) << arguments << "\n" << done.output;
    EXPECT_NE(done.output.find(said), std::string::npos) << arguments << "\n" << done.output;
  }
  // The documents of a pair as lines of JSON.
  std::vector<std::string> documents_of(const std::string& prefix) {
    std::vector<std::string> lines = data("cat " + prefix).lines();
    std::erase_if(lines, [](const std::string& line) { return !line.starts_with("{"); });
    return lines;
  }
  // Documents `from` to `to` as JSON lines, as `data cat` writes them.
  std::vector<std::string> write_lines(const std::string& name, int from, int to) {
    std::vector<std::string> lines;
    std::string text;
    for (int i = from; i < to; ++i) {
      lines.push_back("{\"text\": \"document " + std::to_string(i) + " \\\"\u00e9\\\"\\n\"}");
      text += lines.back() + "\n";
    }
    scratch_.write(name, text);
    return lines;
  }

  Scratch scratch_;
};

TEST_F(DataTools, GoFromTextToPairsAndBack) {
  const std::vector<std::string> first = write_lines("a.jsonl", 0, 20);
  const std::vector<std::string> second = write_lines("b.jsonl", 20, 27);
  expect_said("prepare a.jsonl -o a --append-eod",
              "a_text_document.bin: 350 tokens in 20 documents");
  expect_said("prepare b.jsonl -o b --append-eod --threads 2", "in 7 documents");
  expect_said("prepare b.jsonl -o b",
              "b_text_document.bin exists; remove it, or give another prefix", 2);
  EXPECT_EQ(documents_of("a_text_document"), first);
  // The prefix of -o is not that of the pair.
  write_tiny(scratch_);
  const std::string train = "train tiny.yaml --set data.text=[] --set data.train=[";
  const Finished short_name = run_program(scratch_, train + "a]");
  EXPECT_EQ(short_name.exit_code, 4);
  EXPECT_NE(
      short_name.output.find("data.train: there is no a.bin; a_text_document exists: name that"),
      std::string::npos)
      << short_name.output;
  const Finished none = run_program(scratch_, train + "none]");
  EXPECT_NE(none.output.find("data.train: there is no none.bin; expected a text, or the prefix of "
                             "a pair .bin and .idx"),
            std::string::npos)
      << none.output;
  expect_said("cat a_text_document --first 3 --count 1 --raw", "document 3 \"\u00e9\"\n");
  expect_said("cat a_text_document --first 20",
              "has the documents 0 to 19; --first 20 is behind them", 2);

  expect_said("merge a_text_document b_text_document.bin -o all",
              "all.bin: 27 documents of 2 inputs");
  std::vector<std::string> both = first;
  both.insert(both.end(), second.begin(), second.end());
  EXPECT_EQ(documents_of("all"), both);

  expect_said("shuffle all -o mixed --seed 7 --memory 256", "mixed.bin: 27 documents");
  std::vector<std::string> mixed = documents_of("mixed");
  EXPECT_NE(mixed, both);
  std::sort(mixed.begin(), mixed.end());
  std::sort(both.begin(), both.end());
  EXPECT_EQ(mixed, both);

  expect_said("split all -o parts --shares 2,1", "parts_train: 18 documents");
  std::vector<std::string> parts = documents_of("parts_train");
  const std::vector<std::string> valid = documents_of("parts_valid");
  EXPECT_EQ(valid.size(), 9U);
  parts.insert(parts.end(), valid.begin(), valid.end());
  std::sort(parts.begin(), parts.end());
  EXPECT_EQ(parts, both);
}

TEST_F(DataTools, StatsAreTextJsonAndAPage) {
  write_lines("a.jsonl", 0, 20);
  const Finished json = data("stats a.jsonl --json --html stats.html");
  ASSERT_EQ(json.exit_code, 0) << json.output;
  const auto stats = nlohmann::json::parse(json.output.substr(json.output.find('{')));
  EXPECT_EQ(stats["documents"], 20);
  EXPECT_EQ(stats["tokens"], 330);
  EXPECT_EQ(stats["text_bytes"], 330);
  EXPECT_EQ(stats["most_frequent"].size(), 20U);
  const std::string page = scratch_.read("stats.html");
  EXPECT_TRUE(page.starts_with("<!DOCTYPE html>"));
  EXPECT_NE(page.find("\"documents\":20"), std::string::npos);
  for (const char* place : {"<!--DATA-->", "/*STYLE*/", "/*SCRIPT*/", "http://"}) {
    EXPECT_EQ(page.find(place), std::string::npos) << place;
  }
  EXPECT_TRUE(data("stats a.jsonl --html - 2>said | cat").output == page);
  expect_said("prepare a.jsonl -o a", "in 20 documents");
  expect_said("stats a_text_document --top 3", "ids occur; --tokenizer names them");
  expect_said("stats a_text_document a.jsonl --tokenizer bytes", "\ndocuments     40\n");
  expect_said("stats none.txt", "none.txt", 4);
}

// A blend, a further validation set and a test set; the rest of the run has other ranks.
TEST_F(Resume, ABlendGoesOnWithOtherRanks) {
  scratch_.write("code.txt", scratch_.read("text.txt").substr(0, 20000));
  scratch_.write("prose.txt", std::string(9000, 'p') + scratch_.read("text.txt").substr(40000));
  const std::string blend =
      " --set data.text=[] --set train.global_batch=12 --set 'data.blend=[{path: code.txt, weight: "
      "0.3}, {path: prose.txt, weight: 0.7}]' --set 'data.valid_sets=[{name: code, path: "
      "code.txt}]' "
      "--set data.test=prose.txt";
  ASSERT_EQ(train("whole", blend).exit_code, 0);
  ASSERT_EQ(train("run", blend + kAtOnce + " --set checkpoint.every=5",
                  {{"SLUICE_FAILPOINTS", "engine.step@9:rank=1:kill"}})
                .exit_code,
            5);
  const Finished resumed = train("run", blend + " --nproc 3 --set zero.stage=1 --resume auto");
  ASSERT_EQ(resumed.exit_code, 0) << resumed.output;
  EXPECT_EQ(resumed.output.find("data: other tokens"), std::string::npos) << resumed.output;
  const auto whole = scratch_.metrics("whole");
  const auto run = scratch_.metrics("run");
  ASSERT_EQ(run.size(), whole.size());
  for (std::size_t i = 0; i < run.size(); ++i) {
    EXPECT_NEAR(run[i]["loss"].get<double>() / whole[i]["loss"].get<double>(), 1, 1e-5) << i;
  }
  EXPECT_TRUE(run.back()["eval_losses"].contains("code")) << run.back();

  const Finished test = run_program(
      scratch_, "eval whole/config.yaml --checkpoint whole/checkpoints --test --json --nproc 1");
  ASSERT_EQ(test.exit_code, 0) << test.output;
  const auto record = nlohmann::json::parse(test.output.substr(test.output.find('{')));
  EXPECT_GT(record["loss"].get<double>(), 0);
  const Finished none =
      run_program(scratch_,
                  "eval tiny.yaml --set model.hidden=32 --set model.seq=32 --checkpoint "
                  "whole/checkpoints --test");
  EXPECT_EQ(none.exit_code, 2) << none.output;
  EXPECT_NE(none.output.find("data.test"), std::string::npos) << none.output;
}

}  // namespace
}  // namespace sluice::testing
