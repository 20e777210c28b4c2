#include "runtime/data/text_files.hpp"

#include <sys/stat.h>

#include "runtime/data/document_reader.hpp"
#include "runtime/data/tokenizer/split_pattern.hpp"
#include "tests/runtime/data/data_testing.hpp"

namespace sluice::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(Glob, Components) {
  const auto match = [](std::string_view name, std::string_view pattern) {
    return matches_glob(name, pattern);
  };
  EXPECT_TRUE(match("a.txt", "*.txt") && match(".txt", "*.txt") && match("abc", "a*c"));
  EXPECT_TRUE(match("aXbXc", "a*b*c") && match("ab", "ab**") && match("", "*"));
  EXPECT_FALSE(match("a.txt.gz", "*.txt") || match("ab", "a?b") || match("", "?") ||
               match("ac", "a"));
  EXPECT_TRUE(match("f7", "f[0-9]") && match("fx", "f[!0-9]") && match("fx", "f[^0-9]"));
  EXPECT_FALSE(match("fx", "f[0-9]") || match("f7", "f[!0-9]") || match("f", "f[!0-9]"));
  EXPECT_TRUE(match("a]", "a[]]") && match("a-", "a[x-]") && match("a[", "a["));
  EXPECT_TRUE(match("\u00e9x", "?x") && match("\u00e9", "[\u00e0-\u00ef]") && match("*", "\\*"));
  EXPECT_FALSE(match("a", "\\*"));
  // Hundreds of stars end soon.
  std::string stars;
  for (int i = 0; i < 200; ++i) stars += "*a";
  EXPECT_FALSE(match(std::string(2000, 'a') + "b", stars));
}

class Files : public ::testing::Test {
 protected:
  Files() {
    for (const char* name :
         {"a.txt", "b.md", "c.bin", "sub/d.py", "sub/deep/e.txt", "sub/deep/f.PY", ".git/g.txt",
          "sub/.h.txt", "x1/y/z.txt", "x2/y/z.txt", "odd[1].txt"}) {
      write_file(folder_ / name, name);
    }
  }
  std::vector<std::string> find(const std::vector<std::string>& specs) {
    std::vector<std::string> full, names;
    for (const std::string& spec : specs) full.push_back(folder_ / spec);
    for (const TextFile& file : find_text_files(full)) {
      names.push_back(file.path.substr(folder_.path().size() + 1));
    }
    return names;
  }
  TempFolder folder_;
};

TEST_F(Files, AFolderGivesItsTextFilesToTheBottom) {
  EXPECT_THAT(find({"sub"}), ElementsAre("sub/d.py", "sub/deep/e.txt", "sub/deep/f.PY"));
  EXPECT_THAT(find({""}), ElementsAre("a.txt", "b.md", "odd[1].txt", "sub/d.py", "sub/deep/e.txt",
                                      "sub/deep/f.PY", "x1/y/z.txt", "x2/y/z.txt"));
}

TEST_F(Files, AFolderOfConversationsGivesItsJson) {
  for (const char* name : {"talks/a.json", "talks/b.json.zst", "talks/c.ndjson", "talks/d.parquet",
                           "talks/e.txt.gz", "talks/f.csv"}) {
    write_file(folder_ / name, name);
  }
  const auto names_of = [&](FolderFiles wanted) {
    std::vector<std::string> names;
    for (const TextFile& file : find_text_files({folder_ / "talks"}, "data.sft", wanted)) {
      names.push_back(std::filesystem::path(file.path).filename().string());
    }
    return names;
  };
  EXPECT_THAT(names_of(FolderFiles::kConversations),
              ElementsAre("a.json", "b.json.zst", "c.ndjson", "d.parquet"));
  ::testing::internal::CaptureStderr();
  EXPECT_THAT(names_of(FolderFiles::kText), ElementsAre("c.ndjson", "d.parquet", "e.txt.gz"));
  EXPECT_THAT(
      ::testing::internal::GetCapturedStderr(),
      HasSubstr("not read: 3 files of the folder " + (folder_ / "talks") +
                " (2 .json, 1 .csv), e.g. " + (folder_ / "talks/a.json") + "; a glob such as " +
                (folder_ / "talks/**/*.json*") + " takes the .json files"));
  for (const char* name : {"a.pdf", "b.PDF", "c.jpg", "d.avi", "e", "f.x", "g.y.gz"}) {
    write_file(folder_ / (std::string("talks/") + name), name);
  }
  ::testing::internal::CaptureStderr();
  EXPECT_EQ(names_of(FolderFiles::kText).size(), 3U);
  EXPECT_THAT(::testing::internal::GetCapturedStderr(),
              HasSubstr(" (2 .json, 2 .pdf, 1 without an ending, 1 .avi, 1 .csv, 3 others)"));
}

TEST_F(Files, Globs) {
  EXPECT_THAT(find({"*.txt"}), ElementsAre("a.txt", "odd[1].txt"));
  EXPECT_THAT(find({"*/d.py"}), ElementsAre("sub/d.py"));
  EXPECT_THAT(find({"**/*.txt"}),
              ElementsAre("a.txt", "odd[1].txt", "sub/deep/e.txt", "x1/y/z.txt", "x2/y/z.txt"));
  EXPECT_THAT(find({"sub/**"}), ElementsAre("sub/d.py", "sub/deep/e.txt", "sub/deep/f.PY"));
  EXPECT_THAT(find({"**/y/*"}), ElementsAre("x1/y/z.txt", "x2/y/z.txt"));
  EXPECT_THAT(find({"x[13]/*/z.txt"}), ElementsAre("x1/y/z.txt"));
  EXPECT_THAT(find({"**/.h*"}), ElementsAre("sub/.h.txt"));
  EXPECT_THAT(find({"?.bin"}), ElementsAre("c.bin"));            // any extension
  EXPECT_THAT(find({"odd[1].txt"}), ElementsAre("odd[1].txt"));  // a file of that name
  EXPECT_THAT(find({"odd\\[?].txt"}), ElementsAre("odd[1].txt"));
}

TEST_F(Files, EachFileOnceAndNamedStaysNamed) {
  std::filesystem::create_symlink(folder_ / "a.txt", folder_ / "link.txt");
  std::filesystem::create_directory_symlink(folder_.path(), folder_ / "sub/loop");
  EXPECT_THAT(find({"*.txt", "a.txt", "a.txt", "sub"}),
              ElementsAre("a.txt", "odd[1].txt", "sub/d.py", "sub/deep/e.txt", "sub/deep/f.PY"));
  const auto files = find_text_files({folder_ / "*.txt", folder_ / "link.txt"});
  EXPECT_TRUE(files[0].named);
  EXPECT_FALSE(files[1].named);
  EXPECT_EQ(files[0].size_bytes, 5);
}

TEST_F(Files, WhatMatchesNothingIsSaid) {
  EXPECT_THAT(message_of([&] { find({"a.txt", "*.rs"}); }), HasSubstr("/*.rs'"));
  EXPECT_THAT(message_of([&] { find({"none.txt"}); }), HasSubstr("no file matches '"));
  EXPECT_THAT(message_of([&] { find({"none/**/*.txt"}); }), HasSubstr("no file matches '"));
  std::filesystem::create_directory(folder_ / "bare");
  EXPECT_THAT(message_of([&] { find({"bare"}); }), HasSubstr("no text file"));
  std::filesystem::create_symlink("gone.txt", folder_ / "broken.txt");
  EXPECT_THAT(message_of([&] { find({"broken.txt"}); }),
              HasSubstr("broken.txt is a link to gone.txt, and nothing is there"));
  ASSERT_EQ(mkfifo((folder_ / "pipe").c_str(), 0600), 0);
  EXPECT_THAT(message_of([&] { find({"pipe"}); }), HasSubstr("pipe is a pipe, a socket"));
}

std::vector<std::string> pieces_of(const TextFile& file, std::size_t piece_bytes) {
  std::vector<std::string> pieces;
  bool last = false;
  const auto result =
      read_documents(file, {.piece_bytes = piece_bytes}, [&](DocumentPiece&& piece) {
        EXPECT_FALSE(last);
        last = piece.ends_document;
        pieces.push_back(std::move(piece.text));
      });
  EXPECT_TRUE(last && result.documents == 1);
  return pieces;
}

std::vector<std::string> words_of(const char* pattern, const std::vector<std::string>& texts) {
  std::vector<std::string> words;
  const SplitPattern split(pattern);
  for (const std::string& text : texts) {
    std::vector<std::string_view> of_text;
    split.split(text, of_text);
    words.insert(words.end(), of_text.begin(), of_text.end());
  }
  return words;
}

TEST_F(Files, PiecesAreTheFileAndCutNoWord) {
  for (unsigned seed = 0; seed < 30; ++seed) {
    const std::string text = random_text(400, seed);
    write_file(folder_ / "t.txt", text);
    const TextFile file = find_text_files({folder_ / "t.txt"})[0];
    for (const std::size_t piece_bytes : {1U, 7U, 64U, 1000000U}) {
      const auto pieces = pieces_of(file, piece_bytes);
      EXPECT_EQ(pieces.size() > 1, piece_bytes < 1000);
      for (const char* pattern : {kGpt2Pattern, kCl100kPattern, kO200kPattern}) {
        EXPECT_EQ(words_of(pattern, pieces), words_of(pattern, {text}))
            << seed << " " << piece_bytes;
      }
    }
  }
}

TEST_F(Files, PlacesToCut) {
  EXPECT_EQ(find_cut("ab cd"), 2U);
  EXPECT_EQ(find_cut("ab\ncd"), 3U);
  EXPECT_EQ(find_cut("ab\n\ncd"), 0U);  // at the end of a text the two newlines would be one word
  EXPECT_EQ(find_cut("ab  cd"), 2U);
  EXPECT_EQ(find_cut("ab\n/"), 0U);
  EXPECT_EQ(find_cut("\u3000\nab"), 0U);
  EXPECT_EQ(find_cut("\u3002\n\u65e5"), 4U);
  EXPECT_EQ(find_cut(" ab") + find_cut("") + find_cut("x") + find_cut("abcd"), 0U);
}

TEST_F(Files, BinariesAndFilesThatChange) {
  write_file(folder_ / "zero.txt", std::string("a\0b", 3));
  TextFile file = find_text_files({folder_ / "z*.txt"})[0];
  const auto read = [&] { return read_documents(file, {}, [](DocumentPiece&&) {}); };
  EXPECT_EQ(read().left_out, "binary: byte 1 is zero");
  file.named = true;
  EXPECT_THAT(message_of(read), HasSubstr("zero.txt is binary: byte 1 is zero"));
  file.size_bytes = 4;
  EXPECT_THAT(message_of(read), HasSubstr("became shorter"));
  file.path += "x";
  EXPECT_THAT(message_of(read), HasSubstr("cannot read"));
}

}  // namespace
}  // namespace sluice::testing
