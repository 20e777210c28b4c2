#include "runtime/data/corpus/clean.hpp"

#include "tests/killed_process.hpp"
#include "tests/runtime/data/corpus/corpus_testing.hpp"

namespace sluice::testing {
namespace {

using ::testing::HasSubstr;

// Lines with words, keys beside the text, some short, some broken.
std::string sample_lines(int count, unsigned seed) {
  std::mt19937 random(seed);
  std::string lines;
  for (int i = 0; i < count; ++i) {
    std::string text;
    for (unsigned w = random() % 20; w-- > 0;) text += "word" + std::to_string(random() % 50) + " ";
    lines += "{\"id\": " + std::to_string(i) + ", \"text\": " + json_string(text) +
             ", \"meta\": {\"x\": [1, 2.50, \"\\u00e9\"]}}\n";
    if (random() % 9 == 0) lines += "{\"broken\n";
    if (random() % 9 == 0) lines += "\n";
  }
  return lines;
}

class Clean : public ::testing::Test {
 protected:
  void SetUp() override {
    write_file(folder_ / "in/a.jsonl", sample_lines(40, 1));
    write_file(folder_ / "in/b.jsonl.zst", pack_zstd(sample_lines(25, 2)));
    write_file(folder_ / "in/c.jsonl", sample_lines(30, 3));
    write_file(folder_ / "in/d.txt", "a plain text of some words with \xFF in it\n");
  }
  [[nodiscard]] CleanRequest request(const std::string& out, int threads = 1) const {
    return {.files = find_corpus_files({folder_ / "in"}),
            .folder = folder_ / out,
            .filters = {parse_filter("length:min_words=5")},
            .threads = threads,
            .unit_bytes = 1500,
            .read = {.batch_bytes = 300}};
  }
  TempFolder folder_;
};

TEST_F(Clean, EveryLineIsKeptOrRejectedWithItsReason) {
  write_file(folder_ / "one/a.jsonl",
             "{\"n\": 1, \"text\": \"a b c d e\", \"z\": 1.50}\n"
             "  {\"text\" : \"few\", \"z\": {}}  \n"
             "\n{\"text\": 3}\n{\"tex\": \"x\"}\n[1]\n{\"text\": \"\"}\n\xFF{\n{}\n");
  CleanRequest one = request("out");
  one.files = find_corpus_files({folder_ / "one/a.jsonl"});
  const Counts counts = clean_corpus(one);
  const std::string path = folder_ / "one/a.jsonl";
  EXPECT_EQ(output_of(folder_ / "out", "kept"),
            "{\"n\": 1, \"text\": \"a b c d e\", \"z\": 1.50}\n");
  const auto place = [&](int byte) {
    return ", \"file\": \"" + path + "\", \"byte\": " + std::to_string(byte);
  };
  EXPECT_EQ(output_of(folder_ / "out", "rejected"),
            "{\"_rejected\": {\"reason\": \"length.min_words\", \"value\": 1" + place(41) +
                "}, \"text\" : \"few\", \"z\": {}}  \n"
                "{\"_rejected\": {\"reason\": \"record.no_text\"" +
                place(72) +
                ", \"error\": \"the value of 'text' is not a string\"}, \"text\": 3}\n"
                "{\"_rejected\": {\"reason\": \"record.no_text\"" +
                place(84) + ", \"error\": \"no key 'text'\"}, \"tex\": \"x\"}\n" +
                "{\"_rejected\": {\"reason\": \"record.broken\"" + place(97) +
                ", \"error\": \"not a JSON object\"}, \"_line\": \"[1]\"}\n" +
                "{\"_rejected\": {\"reason\": \"record.empty\"" + place(101) +
                "}, \"text\": \"\"}\n" + "{\"_rejected\": {\"reason\": \"record.broken\"" +
                place(114) +
                ", \"error\": \"not valid JSON at byte 1 of the line: a value expected\"}, "
                "\"_line\": \"\uFFFD{\"}\n"
                "{\"_rejected\": {\"reason\": \"record.no_text\"" +
                place(117) + ", \"error\": \"no key 'text'\"}}\n");
  EXPECT_EQ(counts.at("documents"), 8);
  EXPECT_EQ(counts.at("rejected"), 7);
  EXPECT_EQ(counts.at("rejected.record.no_text"), 3);
  EXPECT_EQ(counts.at("bytes"), 120);
  EXPECT_THAT(read_file(folder_ / "out/report.json"),
              HasSubstr("\"rejected.length.min_words\": 1"));
}

TEST_F(Clean, ChangedTextLeavesTheOtherBytesAlone) {
  write_file(folder_ / "one/a.jsonl",
             "{\"n\":1.0,\"text\":\"e\\u0301 \\\"q\\\" \\ud800\", \"z\" : [ ]}\n");
  CleanRequest one = request("out");
  one.files = find_corpus_files({folder_ / "one"});
  one.filters = {{"nfc"}};
  EXPECT_EQ(clean_corpus(one).at("changed"), 1);
  EXPECT_EQ(output_of(folder_ / "out", "kept"),
            "{\"n\":1.0,\"text\":\"\u00e9 \\\"q\\\" \uFFFD\", \"z\" : [ ]}\n");
}

TEST_F(Clean, ThreadsAndBatchesChangeNothing) {
  const Counts counts = clean_corpus(request("one"));
  const auto files = files_below(folder_ / "one");
  EXPECT_GT(files.size(), 8U);
  for (const int threads : {2, 4}) {
    CleanRequest more = request("threads" + std::to_string(threads), threads);
    more.read.batch_bytes = 17;
    EXPECT_EQ(clean_corpus(more), counts);
    EXPECT_EQ(files_below(more.folder), files);
  }
}

TEST_F(Clean, UnitsCutNoLineAndLoseNone) {
  write_file(
      folder_ / "small/a.jsonl",
      "{\"text\": \"1 2 3 4 5\"}\n\n{\"text\": \"6\"}\r\n{broken\n{\"text\": \"a b c d e f\"}");
  for (const char* input : {"small", "in"}) {
    CleanRequest whole = request(std::string("whole-") + input);
    whole.files = find_corpus_files({folder_ / input});
    whole.unit_bytes = 1 << 20;
    const Counts counts = clean_corpus(whole);
    const bool small = std::string(input) == "small";
    for (const std::int64_t unit_bytes : {small ? 1 : 700, small ? 3 : 1001}) {
      CleanRequest cut = whole;
      cut.folder = folder_ / (input + std::to_string(unit_bytes));
      cut.unit_bytes = unit_bytes;
      EXPECT_EQ(clean_corpus(cut), counts);
      EXPECT_EQ(output_of(cut.folder, "kept"), output_of(whole.folder, "kept"));
      EXPECT_EQ(output_of(cut.folder, "rejected"), output_of(whole.folder, "rejected"));
    }
  }
}

TEST_F(Clean, FailuresAtAnyPlaceChangeNothing) {
  const Counts counts = clean_corpus(request("one"));
  for (const char* failpoint :
       {"corpus.batch", "corpus.commit", "corpus.finish", "corpus.finished"}) {
    CleanRequest again = request(failpoint, 2);
    Counts resumed;
    EXPECT_GT(run_with_failures(failpoint, [&] { resumed = clean_corpus(again); }), 1) << failpoint;
    EXPECT_EQ(resumed, counts);
    EXPECT_EQ(files_below(again.folder), files_below(folder_ / "one")) << failpoint;
  }
}

TEST_F(Clean, AKilledProcessIsContinued) {
  const Counts counts = clean_corpus(request("one"));
  for (const char* place : {"corpus.batch@9", "corpus.commit@4", "corpus.finished@2"}) {
    const CleanRequest again = request("killed");
    std::filesystem::remove_all(again.folder);
    const pid_t child = ::fork();
    if (child == 0) {
      arm_failpoints(std::string(place) + ":kill");
      (void)clean_corpus(again);
      ::_exit(0);
    }
    int status = 0;
    ::waitpid(child, &status, 0);
    EXPECT_TRUE(WIFSIGNALED(status)) << place;
    EXPECT_EQ(clean_corpus(again), counts);
    EXPECT_EQ(files_below(again.folder), files_below(folder_ / "one")) << place;
  }
}

TEST_F(Clean, AFolderOfOtherWorkIsRefused) {
  (void)clean_corpus(request("out"));
  CleanRequest other = request("out");
  other.filters = {parse_filter("length:min_words=6")};
  EXPECT_EQ(message_of([&] { (void)clean_corpus(other); }),
            "the folder " + (folder_ / "out") +
                " holds the results of other inputs or options; remove the folder, or choose "
                "another one");
}

TEST_F(Clean, ATornLineOfTheLogIsTakenBack) {
  const Counts counts = clean_corpus(request("out"));
  const std::string log = read_file(folder_ / "out/work.log");
  for (const std::size_t size : {std::size_t{0}, std::size_t{5}, log.size() / 2, log.size() - 1}) {
    write_file(folder_ / "out/work.log", log.substr(0, size));
    EXPECT_EQ(clean_corpus(request("out")), counts);
    EXPECT_EQ(read_file(folder_ / "out/work.log"), log);
  }
}

TEST_F(Clean, ATooLongLineIsLeftOut) {
  write_file(folder_ / "one/a.jsonl", "{\"text\": \"a b c d e\"}\n{\"text\": \"" +
                                          std::string(5000, 'x') +
                                          "\"}\n{\"text\": \"1 2 3 4 5\"}");
  for (const std::int64_t unit_bytes : {40, 1 << 20}) {
    CleanRequest one = request("out" + std::to_string(unit_bytes));
    one.files = find_corpus_files({folder_ / "one"});
    one.read.longest_bytes = 1000;
    one.unit_bytes = unit_bytes;
    EXPECT_EQ(clean_corpus(one).at("rejected.record.too_long"), 1);
    EXPECT_EQ(output_of(one.folder, "kept"),
              "{\"text\": \"a b c d e\"}\n{\"text\": \"1 2 3 4 5\"}\n");
    EXPECT_THAT(output_of(one.folder, "rejected"), HasSubstr("\"byte\": 22}, \"_line\": \"\"}\n"));
  }
}

TEST_F(Clean, AFileWithoutATextIsRefused) {
  write_file(folder_ / "in/e.jsonl", "{broken\n{\"id\": 1, \"content\": \"x\"}\n{\"id\": 2}\n");
  const auto fault = [&](const std::string& found) {
    return "data: no document of the file has a text; " + (folder_ / "in/e.jsonl") +
           ", byte 8: " + found +
           "; data.json_key (of a command: --json-key) names the key of the text";
  };
  CleanRequest wrong = request("out");
  EXPECT_EQ(message_of<IoError>([&] { (void)clean_corpus(wrong); }),
            fault("no key 'text' (its keys: id, content)"));
  EXPECT_FALSE(std::filesystem::exists(wrong.folder));
  wrong.files = find_corpus_files({folder_ / "in/e.jsonl"});
  wrong.keys.text = "id";
  EXPECT_EQ(message_of<IoError>([&] { (void)clean_corpus(wrong); }),
            fault("the value of 'id' is a number, not a string (other keys: content)"));
  wrong.keys.text = "content";
  EXPECT_EQ(clean_corpus(wrong).at("rejected.record.no_text"), 1);
}

TEST_F(Clean, DamagedFilesAreNamed) {
  const std::string packed = pack_zstd(sample_lines(200, 9));
  write_file(folder_ / "cut/a.jsonl.zst", packed.substr(0, packed.size() / 2));
  EXPECT_EQ(message_of([&] { (void)find_corpus_files({folder_ / "cut"}); }),
            "data: " + (folder_ / "cut/a.jsonl.zst") +
                " is a damaged zstd file: it ends in the middle of its data, at byte " +
                std::to_string(packed.size() / 2) + "; unpack or fetch it again");
  write_file(folder_ / "bad/a.jsonl", "PAR1xxxx");
  EXPECT_THAT(message_of([&] { (void)find_corpus_files({folder_ / "bad"}); }),
              HasSubstr("bad/a.jsonl is a Parquet file; give it a name that ends in .parquet"));
  std::filesystem::create_directories(folder_ / "out");
  EXPECT_THAT(message_of([&] { (void)find_corpus_files({folder_ / "out"}); }),
              HasSubstr("no file of JSON lines, text or Parquet"));
}

TEST_F(Clean, ARowOfParquetIsALine) {
  if (!std::filesystem::exists(SLUICE_BINARY_DIR "/libsluice_parquet.so")) {
    GTEST_SKIP() << "libsluice_parquet.so is not built (./sluice parquet)";
  }
  const std::string seeds = SLUICE_SOURCE_DIR "/tests/fuzz/corpus/parquet/";
  std::filesystem::create_directories(folder_ / "rows");
  std::filesystem::copy(seeds + "small.parquet", folder_ / "rows/a.parquet");
  CleanRequest one = request("out");
  one.files = find_corpus_files({folder_ / "rows"});
  const Counts counts = clean_corpus(one);
  EXPECT_EQ(output_of(folder_ / "out", "kept"),
            "{\"id\":4,\"text\":\"Two\\nlines, \\\"quoted\\\" \\\\ café 😀\"}\n");
  EXPECT_THAT(output_of(folder_ / "out", "rejected"),
              HasSubstr("{\"_rejected\": {\"reason\": \"record.no_text\", \"file\": \"" +
                        (folder_ / "rows/a.parquet") +
                        "\", \"row\": 3, \"error\": \"the value of 'text' is not a string\"}, "
                        "\"id\":3,\"text\":null}\n"));
  EXPECT_EQ(counts.at("bytes"), one.files[0].file.size_bytes);
  one.folder = folder_ / "none";
  const auto fault = [&](const std::string& key, const std::string& found) {
    one.keys.text = key;
    EXPECT_EQ(message_of<IoError>([&] { (void)clean_corpus(one); }),
              "data: no document of the file has a text; " + (folder_ / "rows/a.parquet") +
                  ", row 1: " + found +
                  "; data.json_key (of a command: --json-key) names the key of the text");
  };
  fault("content", "no key 'content' (its keys: id, text)");
  fault("id", "the value of 'id' is a number, not a string (other keys: text)");
  EXPECT_FALSE(std::filesystem::exists(one.folder));
}

}  // namespace
}  // namespace sluice::testing
