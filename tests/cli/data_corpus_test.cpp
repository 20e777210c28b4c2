// `sluice data clean` and `sluice data dedupe` as a user runs them: the same files from any number
// of threads and after kills, planted duplicates, damaged inputs.
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <map>
#include <random>

#include "tests/cli/program.hpp"

namespace sluice::testing {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

class DataCorpus : public ::testing::Test {
 protected:
  // Words of letters; the n-th is the same in each run.
  static std::string word(std::size_t n) {
    std::string text = "w";
    for (n += 26; n > 0; n /= 26) text += static_cast<char>('a' + n % 26);
    return text;
  }
  std::string new_words(int count) {
    std::string text;
    while (count-- > 0) text += word(next_word_++) + " ";
    return text;
  }
  void add(const std::string& text) {
    lines_ += json{{"n", documents_++}, {"text", text}}.dump() + "\n";
  }
  // Files of a result by relative path, without the log and its lock.
  [[nodiscard]] std::map<std::string, std::string> files(const std::string& folder) const {
    std::map<std::string, std::string> all;
    for (const auto& entry : fs::recursive_directory_iterator(scratch_.path(folder))) {
      const std::string name = fs::relative(entry.path(), scratch_.path()).string();
      const std::string inner = name.substr(folder.size() + 1);
      if (entry.is_regular_file() && !inner.starts_with("work.")) all[inner] = scratch_.read(name);
    }
    return all;
  }
  // The objects of all lines of an output.
  [[nodiscard]] std::vector<json> objects(const std::string& folder) const {
    std::vector<json> all;
    for (const auto& [name, content] : files(folder)) {
      std::istringstream stream(content);
      for (std::string line; std::getline(stream, line);) all.push_back(json::parse(line));
    }
    return all;
  }
  Finished run(const std::string& arguments, const std::string& failpoints = "") {
    std::map<std::string, std::string> environment;
    if (!failpoints.empty()) environment["SLUICE_FAILPOINTS"] = failpoints;
    return run_program(scratch_, arguments, environment);
  }
  // 80 documents, each tenth with a copy, in units of 12 KiB.
  void write_sample() {
    std::mt19937 random(1);
    std::vector<std::string> texts;
    for (int i = 0; i < 80; ++i) texts.push_back(new_words(40 + static_cast<int>(random() % 80)));
    for (int i = 0; i < 80; i += 10) texts.push_back(texts[static_cast<std::size_t>(i)]);
    for (const std::string& text : texts) add(text);
    scratch_.write("in.jsonl", lines_ + "{broken\n");
  }

  Scratch scratch_;
  std::string lines_;
  std::size_t next_word_ = 0;
  int documents_ = 0;
};

constexpr char kClean[] =
    "data clean in.jsonl --unit 12KiB --filter repair --filter length:min_words=60 -o ";
constexpr char kDedupe[] = "data dedupe in.jsonl --unit 12KiB --bands 6 -o ";

TEST_F(DataCorpus, ThreadsChangeNothing) {
  write_sample();
  for (const char* command : {kClean, kDedupe}) {
    const Finished first = run(command + std::string("one --threads 1 --json"));
    ASSERT_EQ(first.exit_code, 0) << first.output;
    EXPECT_EQ(json::parse(first.output)["documents"], 89);
    const auto expected = files("one");
    EXPECT_GE(expected.size(), 5U);
    for (const char* threads : {"2", "4"}) {
      const Finished more = run(command + std::string("more --json --threads ") + threads);
      EXPECT_EQ(more.output, first.output);
      EXPECT_EQ(files("more"), expected) << command << threads;
      fs::remove_all(scratch_.path("more"));
    }
    fs::remove_all(scratch_.path("one"));
  }
}

TEST_F(DataCorpus, AKilledCommandContinues) {
  write_sample();
  const std::map<std::string, std::vector<std::string>> places{
      {kClean, {"batch@1", "commit@2", "finish@2", "finished@3"}},
      {kDedupe, {"batch@2", "commit@9", "finish@3", "commit@25", "finished@7", "batch@4"}}};
  for (const auto& [command, kills] : places) {
    ASSERT_EQ(run(command + "one").exit_code, 0);
    const auto expected = files("one");
    for (const std::string& kill : kills) {
      EXPECT_NE(run(command + "again --threads 2", "corpus." + kill + ":kill").exit_code, 0)
          << kill;
      const Finished finished = run(command + "again --threads 1");
      EXPECT_EQ(finished.exit_code, 0) << finished.output;
      EXPECT_EQ(files("again"), expected) << command << kill;
      fs::remove_all(scratch_.path("again"));
    }
    fs::remove_all(scratch_.path("one"));
  }
}

// 14 bands of 8 rows join texts of similarity s with the probability 1 - (1 - s^8)^14.
TEST_F(DataCorpus, PlantedDuplicatesAreFoundAtTheRatesOfTheory) {
  constexpr int kPairs = 120;
  const std::map<int, int> own{{100, 0}, {90, 5}, {70, 15}};  // words of each text alone
  std::map<int, int> kind;  // of a document: similarity in percent
  for (const auto& [percent, words] : own) {
    for (int i = 0; i < kPairs; ++i) {
      const std::string common = new_words(100 - 2 * words);
      add(common + new_words(words));
      kind[documents_] = percent;
      add(common + new_words(words));
    }
  }
  scratch_.write("in.jsonl", lines_);
  const Finished finished = run("data dedupe in.jsonl --shingle words:1 -o out");
  ASSERT_EQ(finished.exit_code, 0) << finished.output;
  std::map<int, int> found;
  for (const json& removed : objects("out/removed")) {
    const int n = removed["n"];
    EXPECT_EQ(removed["_rejected"]["of"], n - 1);
    ++found[kind.at(n)];
  }
  EXPECT_EQ(found[100], kPairs);
  for (const int percent : {90, 70}) {
    const double p = 1 - std::pow(1 - std::pow(percent / 100.0, 8), 14);
    EXPECT_NEAR(found[percent], kPairs * p, 3 * std::sqrt(kPairs * p * (1 - p)) + 1) << percent;
  }
}

TEST_F(DataCorpus, RecipesFiltersAndReasonsAreShown) {
  add("A text of a few words.");
  add(new_words(200));
  fs::create_directories(scratch_.path("in"));
  scratch_.write("in/a.jsonl", lines_);
  const Finished done =
      run("data clean in --recipe openwebtext --without language --tokenizer bytes "
          "--filter length:min_tokens=30 -o out");
  EXPECT_EQ(done.exit_code, 0) << done.output;
  EXPECT_NE(done.output.find("  length.min_tokens                              1   50.0 %\n"),
            std::string::npos)
      << done.output;
  EXPECT_EQ(objects("out/rejected")[0]["_rejected"]["value"], 22);
  const auto refused = [&](const std::string& arguments) {
    const Finished wrong = run(arguments);
    EXPECT_EQ(wrong.exit_code, 2) << wrong.output;
    return wrong.output;
  };
  EXPECT_NE(refused("data clean in --without length -o x")
                .find("data clean: --without length: the recipe 'none' has no such filter"),
            std::string::npos);
  EXPECT_NE(refused("data clean in -o in/out")
                .find("data clean: the output folder in/out lies in the input in; a second run "
                      "would read its own results; choose another folder"),
            std::string::npos);
  EXPECT_NE(refused("data dedupe in --shingle word:5 -o x")
                .find("data dedupe: --shingle word:5 is not of the form words:5 or characters:24"),
            std::string::npos);
  EXPECT_NE(refused("data dedupe in --preset exact --bands 3 -o x").find("the preset 'exact'"),
            std::string::npos);
  EXPECT_NE(run("data clean --list-filters").output.find("    min_tokens=off: least tokens"),
            std::string::npos);
}

TEST_F(DataCorpus, AWrongKeyEndsWithTheKeysThatAreThere) {
  add("A text.");
  scratch_.write("in.jsonl", lines_);
  for (const std::string command : {"clean", "dedupe"}) {
    const Finished wrong = run("data " + command + " in.jsonl --json-key content -o out");
    EXPECT_EQ(wrong.exit_code, 4);
    EXPECT_NE(wrong.output.find("data " + command + ": no document of the file has a text; " +
                                scratch_.path("in.jsonl") +
                                ", byte 0: no key 'content' (its keys: n, text); data.json_key (of "
                                "a command: --json-key) names the key of the text"),
              std::string::npos)
        << wrong.output;
  }
}

TEST_F(DataCorpus, AWrongKeyOfTheUrlEndsTheCommand) {
  scratch_.write("in.jsonl", "{\"text\": \"A text.\", \"URL\": \"http://a.b/c\"}\n");
  const std::string what = ": no document has a URL; " + scratch_.path("in.jsonl") +
                           ", byte 0: no key 'link' (its keys: text, URL); --url-key names the key "
                           "of the URL";
  for (const std::string command : {"clean --filter url", "dedupe --urls"}) {
    const Finished wrong = run("data " + command + " in.jsonl --url-key link -o out");
    EXPECT_EQ(wrong.exit_code, 4);
    EXPECT_NE(wrong.output.find(what), std::string::npos) << wrong.output;
    const Finished right = run("data " + command + " in.jsonl --url-key URL -o out");
    EXPECT_EQ(right.exit_code, 0) << right.output;
    std::filesystem::remove_all(scratch_.path("out"));
  }
  EXPECT_NE(run("data clean in.jsonl --url-key URL -o out")
                .output.find("data clean: --url-key is for the filter url, which is off; add "
                             "--filter url"),
            std::string::npos);
  EXPECT_NE(run("data dedupe in.jsonl --url-key URL -o out")
                .output.find("data dedupe: --url-key is for equal URLs; add --urls"),
            std::string::npos);
}

TEST_F(DataCorpus, EvaluationSetsAreCutOut) {
  const std::string shared = new_words(14);
  std::string sentences;
  for (int i = 0; i < 60; ++i) sentences += new_words(10) + ". ";
  add(sentences + shared + ". " + sentences);
  add(new_words(50));
  scratch_.write("in.jsonl", lines_);
  scratch_.write("eval.jsonl", json{{"text", shared}}.dump() + "\n");
  const Finished done = run("data dedupe in.jsonl --against eval.jsonl -o out");
  EXPECT_EQ(done.exit_code, 0) << done.output;
  EXPECT_EQ(objects("out/kept").size(), 3U);
  EXPECT_NE(done.output.find("kept                                             2  100.0 %\n"),
            std::string::npos)
      << done.output;
  EXPECT_EQ(objects("out/removed")[0]["_rejected"]["reason"], "contaminated.cut");
  EXPECT_EQ(files("out")["kept/000000.jsonl"].find(shared), std::string::npos);
}

TEST_F(DataCorpus, DamagedInputsAreErrorsOrRejected) {
  // A gzip member with a stored block of 100 bytes that ends after 20.
  const char header[] = {'\x1f', '\x8b', 8, 0, 0, 0, 0, 0, 0, 3, 0, 100, 0, '\x9b', '\xff'};
  scratch_.write("cut.jsonl.gz", std::string(header, sizeof header) + "{\"text\": \"abcdefgh\"");
  const Finished cut = run("data clean cut.jsonl.gz -o out");
  EXPECT_EQ(cut.exit_code, 4);
  EXPECT_NE(cut.output.find("cut.jsonl.gz is a damaged gzip file: it ends in the middle of its "
                            "data, at byte "),
            std::string::npos)
      << cut.output;
  // A line above the limit of 256 MiB, most of it a hole of the file, between two good ones.
  const std::string first = json{{"text", new_words(3000)}}.dump() + "\n";
  scratch_.write("long.jsonl", first + "{\"text\": \"");
  fs::resize_file(scratch_.path("long.jsonl"), first.size() + (std::size_t{260} << 20U));
  std::ofstream(scratch_.path("long.jsonl"), std::ios::app)
      << "\"}\n{\"text\": \"\\ud800 alone\"}\n";
  const Finished longest = run("data clean long.jsonl --filter nfc --json -o long");
  ASSERT_EQ(longest.exit_code, 0) << longest.output;
  EXPECT_EQ(json::parse(longest.output)["rejected.record.too_long"], 1);
  // Half a surrogate pair is not changed by this filter, so the line keeps its bytes.
  EXPECT_EQ(scratch_.read("long/kept/000000.jsonl"), first);
  EXPECT_EQ(scratch_.read("long/kept/000004.jsonl"), "{\"text\": \"\\ud800 alone\"}\n");
}

}  // namespace
}  // namespace sluice::testing
