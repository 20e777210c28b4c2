// Merge, split and shuffle: every document once, in the promised order, with its sequences.
#include "runtime/data/prepare/indexed_tools.hpp"

#include <algorithm>
#include <filesystem>
#include <map>

#include "runtime/data/prepare/indexed_file.hpp"
#include "runtime/data/prepare/indexed_writer.hpp"
#include "tests/runtime/data/data_testing.hpp"
#include "tests/runtime/data/megatron_files.hpp"

namespace sluice::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// A document by the bytes of its sequences.
using Sequences = std::vector<std::string>;

std::vector<Sequences> documents_of(const std::string& prefix) {
  const IndexedFile file(prefix);
  std::vector<Sequences> documents;
  IndexedFile::Document document;
  for (std::int64_t d = 0; d < file.documents(); ++d) {
    file.read(d, document);
    Sequences sequences;
    for (const auto& tokens : document.tokens) {
      sequences.emplace_back(reinterpret_cast<const char*>(tokens.data()), tokens.size());
    }
    documents.push_back(std::move(sequences));
  }
  return documents;
}

class IndexedTools : public ::testing::Test {
 protected:
  // Document d has d % 4 sequences of its own number.
  std::string write(const std::string& name, int documents, std::int32_t first = 0) {
    IndexedWriter writer(folder_ / name, TokenType::kUInt16);
    std::vector<std::byte> tokens;
    for (std::int32_t d = 0; d < documents; ++d) {
      std::vector<std::int32_t> lengths;
      for (std::int32_t s = 0; s < d % 4; ++s) {
        lengths.push_back(s + 1);
        tokens.clear();
        store_tokens(TokenType::kUInt16,
                     std::vector<std::int32_t>(static_cast<std::size_t>(s) + 1, first + d), tokens);
        writer.append(tokens);
      }
      writer.end_document(lengths);
    }
    writer.finish();
    return folder_ / name;
  }
  TempFolder folder_;
};

TEST_F(IndexedTools, TheWriterWritesMegatronsFiles) {
  const std::vector<std::vector<std::int64_t>> documents{{1, 2, 3}, {70000}, {4, 5}};
  write_megatron<std::int32_t>(folder_ / "expected", 4, documents);
  IndexedWriter writer(folder_ / "out", TokenType::kInt32);
  for (const auto& document : documents) {
    const std::vector<std::int32_t> ids(document.begin(), document.end());
    std::vector<std::byte> bytes;
    store_tokens(TokenType::kInt32, ids, bytes);
    writer.append(bytes);
    writer.end_document();
  }
  writer.finish();
  for (const char* const ending : {".bin", ".idx"}) {
    EXPECT_TRUE(read_file(folder_ / "out" + ending) == read_file(folder_ / "expected" + ending));
  }
  EXPECT_EQ(token_type_of(65499), TokenType::kUInt16);
  EXPECT_EQ(token_type_of(65500), TokenType::kInt32);
}

TEST_F(IndexedTools, MergeLaysFilesEndToEnd) {
  const std::string a = write("a", 10), b = write("b", 7, 100);
  EXPECT_EQ(merge_indexed({b, a + ".bin"}, folder_ / "out/merged"), 17);
  std::vector<Sequences> expected = documents_of(b);
  const std::vector<Sequences> second = documents_of(a);
  expected.insert(expected.end(), second.begin(), second.end());
  EXPECT_TRUE(documents_of(folder_ / "out/merged") == expected);
  EXPECT_EQ(read_file(folder_ / "out/merged.bin"), read_file(b + ".bin") + read_file(a + ".bin"));
}

TEST_F(IndexedTools, MergeRefusesOtherTypesAndAnOutputThatExists) {
  const std::string a = write("a", 10);
  write_megatron<std::int32_t>(folder_ / "wide", 4, {{1}});
  EXPECT_EQ(message_of<ConfigError>([&] {
              (void)merge_indexed({a, folder_ / "wide"}, folder_ / "out");
            }),
            "data merge: the tokens of " + folder_ / "wide" + " have 4 bytes, those of " + a +
                " have 2, or another sign; prepare both with one tokenizer");
  EXPECT_EQ(message_of<ConfigError>([&] { (void)merge_indexed({a}, a); }),
            "data merge: " + a + ".bin exists; remove it, or give another prefix");
}

TEST_F(IndexedTools, SplitGivesEachDocumentToOnePart) {
  const std::string a = write("a", 100);
  const IndexedSplit split{.input = a, .output = folder_ / "out/s", .shares = {80, 15, 5}};
  EXPECT_THAT(split_indexed(split), ElementsAre(80, 15, 5));
  std::map<Sequences, int> whole, parts;
  for (const Sequences& document : documents_of(a)) ++whole[document];
  std::vector<Sequences> train = documents_of(folder_ / "out/s_train");
  for (const char* const name : {"_train", "_valid", "_test"}) {
    std::vector<Sequences> part = documents_of(folder_ / "out/s" + std::string(name));
    std::erase(part, Sequences{});
    EXPECT_TRUE(std::is_sorted(part.begin(), part.end())) << "the order stays";
    for (const Sequences& document : documents_of(folder_ / "out/s" + std::string(name))) {
      ++parts[document];
    }
  }
  EXPECT_TRUE(whole == parts);
  IndexedSplit other = split;
  other.output = folder_ / "out/other";
  other.seed = 7;
  (void)split_indexed(other);
  EXPECT_FALSE(documents_of(folder_ / "out/other_train") == train);
  other.shares = {1, -1};
  EXPECT_THAT(message_of<ConfigError>([&] { (void)split_indexed(other); }),
              HasSubstr("data split: expected one to three shares"));
}

TEST_F(IndexedTools, AShuffleIsTheSameWithAnyMemory) {
  const std::string a = write("a", 200);
  std::string first;
  for (const std::int64_t memory : {1 << 20, 100, 1}) {
    const std::string out = folder_ / ("out" + std::to_string(memory));
    EXPECT_EQ(shuffle_indexed({.input = a, .output = out, .memory_bytes = memory}), 200);
    const std::string bytes = read_file(out + ".bin") + read_file(out + ".idx");
    if (first.empty()) first = bytes;
    EXPECT_TRUE(bytes == first) << memory;
  }
  std::vector<Sequences> before = documents_of(a), after = documents_of(folder_ / "out1");
  EXPECT_FALSE(before == after);
  std::sort(before.begin(), before.end());
  std::sort(after.begin(), after.end());
  EXPECT_TRUE(before == after);
  (void)shuffle_indexed({.input = a, .output = folder_ / "seed", .seed = 5});
  EXPECT_FALSE(read_file(folder_ / "seed.bin") + read_file(folder_ / "seed.idx") == first);
  for (const auto& entry : std::filesystem::directory_iterator(folder_.path())) {
    EXPECT_FALSE(entry.path().string().ends_with(".part")) << entry.path();
  }
}

// Every byte of the index in turn: an error, or documents inside the file.
TEST_F(IndexedTools, ADamagedIndexIsAnError) {
  const std::string a = write("a", 6);
  const std::string good = read_file(a + ".idx");
  for (std::size_t i = 0; i < good.size(); ++i) {
    for (const char change : {'\x01', '\x80'}) {
      std::string bad = good;
      bad[i] = static_cast<char>(bad[i] ^ change);
      write_file(a + ".idx", bad);
      try {
        (void)documents_of(a);
      } catch (const IoError& error) {
        EXPECT_THAT(error.what(), HasSubstr("is not a usable Megatron index: ")) << i;
      }
    }
  }
  std::string bad = good;
  bad[34 + 4 * 7 + 8] = 100;  // the second sequence's offset
  write_file(a + ".idx", bad);
  EXPECT_EQ(message_of([&] { (void)documents_of(a); }),
            a +
                ".idx is not a usable Megatron index: sequence 1 of 1 tokens at byte 100 lies "
                "outside " +
                a + ".bin, which has 22 bytes");
}

}  // namespace
}  // namespace sluice::testing
