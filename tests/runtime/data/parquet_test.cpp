#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/data/document_reader.hpp"
#include "runtime/data/prepare/document_text.hpp"
#include "runtime/data/prepare/prepare_tokens.hpp"
#include "runtime/data/training_data.hpp"
#include "tests/fuzz/targets.hpp"
#include "tests/runtime/checkpoint/mutation.hpp"
#include "tests/runtime/data/data_testing.hpp"

namespace sluice::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// The small files are of parquet_oracle.py.
class Parquet : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!std::filesystem::exists(SLUICE_BINARY_DIR "/libsluice_parquet.so")) {
      GTEST_SKIP() << "libsluice_parquet.so is not built (./sluice parquet)";
    }
  }
  static TextFile file_of(const std::string& path) { return find_text_files({path}).at(0); }
  static TextFile small_file(const std::string& name) {
    return file_of(SLUICE_SOURCE_DIR "/tests/fuzz/corpus/parquet/" + name + ".parquet");
  }
  std::vector<std::string> read(const TextFile& file, const std::string& key = "text") {
    std::vector<std::string> documents;
    used_bytes_ = 0;
    (void)read_documents(file, {.json_key = key}, [&](DocumentPiece&& piece) {
      documents.push_back(std::move(piece.text));
      used_bytes_ += piece.file_bytes;
    });
    return documents;
  }
  TempFolder folder_;
  std::int64_t used_bytes_ = 0;
};

// The first test of the file: once loaded, the reader stays.
TEST(ParquetReader, AMissingReaderIsNamedWithItsRemedy) {
  const TempFolder folder;
  write_file(folder / "a.parquet", "PAR1");
  setenv("SLUICE_PARQUET_MODULE", "/nowhere/libsluice_parquet.so", 1);
  const std::string message = message_of<ConfigError>([&] {
    (void)read_documents(find_text_files({folder.path()}, "data.train").at(0), {},
                         [](DocumentPiece&&) {});
  });
  unsetenv("SLUICE_PARQUET_MODULE");
  EXPECT_EQ(message, "data.train: " + folder / "a.parquet" +
                         " is a Parquet file, and the reader /nowhere/libsluice_parquet.so is not "
                         "there; run ./sluice parquet, which fetches Arrow and builds the reader, "
                         "or write the rows as JSON lines");
}

TEST_F(Parquet, ARowIsADocument) {
  EXPECT_THAT(read(small_file("several"))[5], "Document 5 of a file in three row groups.");
  EXPECT_EQ(used_bytes_, small_file("several").size_bytes);
  EXPECT_THAT(read(small_file("several"), "url"), ::testing::SizeIs(6));
}

TEST_F(Parquet, ARowWithoutTextIsAnErrorWithItsNumber) {
  EXPECT_THAT(message_of([&] { read(small_file("small")); }),
              HasSubstr("small.parquet, row 3: the value of 'text' is null, not a string"));
  EXPECT_THAT(message_of([&] { read(small_file("invalid_utf8")); }),
              HasSubstr("invalid_utf8.parquet, row 2: "));
}

TEST_F(Parquet, AllColumnsButBytesAreTheKeysOfALine) {
  std::vector<std::string> lines;
  read_lines(small_file("several"), {},
             [&](const TextLine& line) { lines.emplace_back(line.text); });
  EXPECT_EQ(lines.at(1),
            R"({"url":"https://example.org/1","text":"Document 1 of a file in three row groups.",)"
            R"("messages":[{"role":"user","content":"Question 1"},)"
            R"({"role":"assistant","content":"Answer 1"}]})");
  lines.clear();
  read_lines(small_file("small"), {}, [&](const TextLine& line) { lines.emplace_back(line.text); });
  EXPECT_THAT(lines, ElementsAre(R"({"id":1,"text":"One line."})", R"({"id":2,"text":""})",
                                 R"({"id":3,"text":null})",
                                 "{\"id\":4,\"text\":\"Two\\nlines, \\\"quoted\\\" \\\\ café 😀\"}",
                                 R"({"id":5,"text":"One line."})"));
}

TEST_F(Parquet, OtherColumnsAreRefusedByNameAndType) {
  EXPECT_THAT(
      message_of([&] { read(small_file("small"), "id"); }),
      HasSubstr("small.parquet: the column 'id' has the type int64, not string; the columns "
                "are id (int64), text (string); name another column"));
  EXPECT_THAT(
      message_of([&] { read(small_file("small"), "content"); }),
      HasSubstr("no column, or several, named 'content'; the columns are id (int64), text"));
}

TEST_F(Parquet, DamageIsRefused) {
  const std::string whole = read_file(small_file("several").path);
  write_file(folder_ / "cut.parquet", whole.substr(0, whole.size() - 9));
  write_file(folder_ / "text.parquet", "A text.");
  std::string flipped = whole;
  flipped[30] = static_cast<char>(flipped[30] ^ 1);  // of a page, which has a checksum
  write_file(folder_ / "flipped.parquet", flipped);
  for (const char* const name : {"cut", "text", "flipped"}) {
    const std::string path = folder_ / (std::string(name) + ".parquet");
    EXPECT_THAT(message_of([&] { read(file_of(path), "url"); }),
                ::testing::StartsWith("data.text: cannot read the Parquet file " + path + ": "));
  }
}

TEST_F(Parquet, PreparesSeveralColumns) {
  const auto tokenizer = make_tokenizer("bytes");
  PrepareOptions options;
  options.files = {small_file("several")};
  options.prefix = folder_ / "out";
  options.json_keys = {"text", "url"};
  options.tokenizer = tokenizer.get();
  const PrepareResult result = prepare_tokens(options);
  EXPECT_EQ(result.outputs.at(0).documents, 6);
  EXPECT_EQ(result.outputs.at(1).tokens, 6 * 21);  // https://example.org/0
}

TEST_F(Parquet, ConversationsOfRowsAreThoseOfLines) {
  std::string lines;
  read_lines(small_file("several"), {},
             [&](const TextLine& line) { lines.append(line.text).append("\n"); });
  write_file(folder_ / "lines.jsonl", lines);
  write_file(folder_ / "template.jinja",
             "{% for m in messages %}[{{ m.role }}]{{ m.content }}{% endfor %}");
  const auto rows_of = [&](const std::string& path) {
    DataOptions options;
    options.sft = {{.path = path}};
    options.chat_template = folder_ / "template.jinja";
    options.split = {1, 0};
    options.cache_dir = folder_ / "cache";
    SampleRows rows;
    const TrainingData data(options, 64, 1);
    data.train_rows(1, data.train_samples(), 0, data.train_samples(), rows);
    return rows;
  };
  const SampleRows expected = rows_of(folder_ / "lines.jsonl");
  const SampleRows rows = rows_of(small_file("several").path);
  EXPECT_EQ(rows.tokens, expected.tokens);
  EXPECT_EQ(rows.targets, expected.targets);
  EXPECT_THAT(rows.targets, ::testing::Contains('A'));  // of an answer
}

// A link of Hugging Face's cache names a file of another name.
TEST_F(Parquet, ALinksNameDecidesTheType) {
  write_file(folder_ / "blobs/6fa2", read_file(small_file("several").path));
  std::filesystem::create_symlink("blobs/6fa2", folder_ / "train.parquet");
  EXPECT_THAT(read(file_of(folder_ / "train.parquet")), ::testing::SizeIs(6));
}

TEST_F(Parquet, Mutations) {
  run_mutations("parquet", fuzz_parquet, {"PAR1", std::string(4, '\0'), "\xFF\xFF\xFF\x7F"},
                [](std::string&) {});
}

}  // namespace
}  // namespace sluice::testing
