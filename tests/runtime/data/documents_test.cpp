#include <zlib.h>
#include <zstd.h>

#include "runtime/data/document_reader.hpp"
#include "runtime/data/token_cache.hpp"
#include "tests/fuzz/targets.hpp"
#include "tests/runtime/checkpoint/mutation.hpp"
#include "tests/runtime/data/data_testing.hpp"

namespace sluice::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

std::string gzip(const std::string& text) {
  z_stream stream{};
  EXPECT_EQ(deflateInit2(&stream, 6, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY), Z_OK);
  std::string packed(deflateBound(&stream, text.size()), '\0');
  std::string input = text;
  stream.next_in = reinterpret_cast<Bytef*>(input.data());
  stream.avail_in = static_cast<uInt>(input.size());
  stream.next_out = reinterpret_cast<Bytef*>(packed.data());
  stream.avail_out = static_cast<uInt>(packed.size());
  EXPECT_EQ(deflate(&stream, Z_FINISH), Z_STREAM_END);
  packed.resize(stream.total_out);
  deflateEnd(&stream);
  return packed;
}

class Documents : public ::testing::Test {
 protected:
  TextFile write(const std::string& name, const std::string& content) {
    write_file(folder_ / name, content);
    return find_text_files({folder_ / name})[0];
  }
  std::vector<std::string> read(const TextFile& file, const ReadOptions& options = {}) {
    std::vector<std::string> documents(1);
    lines_.clear();
    result_ = read_documents(file, options, [&](DocumentPiece&& piece) {
      documents.back() += piece.text;
      if (!piece.ends_document) return;
      documents.emplace_back();
      lines_.push_back(piece.line);
    });
    EXPECT_EQ(documents.back(), "");  // each document was ended
    documents.pop_back();
    EXPECT_EQ(result_.documents, static_cast<std::int64_t>(documents.size()));
    return documents;
  }
  std::string refusal(const std::string& name, const std::string& content,
                      const ReadOptions& options = {}) {
    const TextFile file = write(name, content);
    std::string message = message_of([&] { read(file, options); });
    EXPECT_THAT(message, HasSubstr(name));
    return message;
  }
  TempFolder folder_;
  ReadResult result_;
  std::vector<std::int64_t> lines_;
};

TEST_F(Documents, EachJsonLineIsOne) {
  const std::string lines =
      "\xEF\xBB\xBF{\"id\": 7, \"text\": \"one\"}\r\n\n  \n"
      "{\"meta\": {\"text\": \"not this\"}, \"text\": \"two\\nlines \\u00e9\", \"more\": "
      "[\"text\"]}\n"
      "{\"text\": \"\"}\n{\"text\": \"last\"}";
  for (const char* name : {"a.jsonl", "a.NDJSON", "a.json"}) {
    EXPECT_THAT(read(write(name, lines)), ElementsAre("one", "two\nlines \u00e9", "last")) << name;
    EXPECT_THAT(lines_, ElementsAre(1, 4, 6));
  }
  EXPECT_THAT(read(write("a.jsonl.gz", gzip(lines))),
              ElementsAre("one", "two\nlines \u00e9", "last"));
  EXPECT_THAT(read(write("b.jsonl", "{\"content\": \"x\"}\n"), {.json_key = "content"}),
              ElementsAre("x"));
  EXPECT_THAT(read(write("c.jsonl", gzip("{\"text\": \"packed\"}"))), ElementsAre("packed"));
  EXPECT_THAT(read(write("d.txt", "{\"text\": \"plain\"}")), ElementsAre("{\"text\": \"plain\"}"));
}

TEST_F(Documents, AByteOrderMarkIsNoText) {
  EXPECT_THAT(read(write("a.txt", "\xEF\xBB\xBFplain")), ElementsAre("plain"));
  EXPECT_THAT(read(write("b.txt.gz", gzip("\xEF\xBB\xBFone two"))), ElementsAre("one two"));
  EXPECT_THAT(read(write("c.txt", "\xEF\xBB\xBF")), ElementsAre());
}

TEST_F(Documents, AJsonDocumentIsNotLines) {
  for (const char* content :
       {"{\n \"text\": \"x\"\n}\n", "{\"name\": 1}", "{\"name\": 1}\n{\"broken", "3\n", ""}) {
    const auto documents = read(write("a.json", content));
    EXPECT_TRUE(result_.json_as_text) << content;
    EXPECT_EQ(documents.empty() ? "" : documents[0], content);
  }
  // Two objects are lines, so that a key of another name is not passed over.
  EXPECT_THAT(refusal("b.json", "{\"body\": \"x\"}\n{\"body\": \"y\"}\n"),
              HasSubstr("b.json, line 1: no key 'text' (its keys: body); data.json_key"));
}

TEST_F(Documents, AListAndATableAreNoText) {
  const std::string list = "\xEF\xBB\xBF \n[{\"text\": \"x\"}]\n";
  EXPECT_THAT(refusal("a.json", list),
              HasSubstr("a.json is a JSON list; write it as JSON lines: python3 -c 'import json, "
                        "sys; [print(json.dumps(r)) for r in json.load(sys.stdin)]' < FILE > "
                        "FILE.jsonl"));
  EXPECT_THAT(refusal("a.json.gz", gzip(list)), HasSubstr("a JSON list"));
  EXPECT_THAT(refusal("a.csv", "id,text\n1,x\n"), HasSubstr("a table; write it as JSON lines"));
  EXPECT_THAT(refusal("a.tsv.gz", gzip("id\ttext\n")), HasSubstr("excel-tab"));
  TextFile found = write("b.json", list);
  found.named = false;
  EXPECT_TRUE(read(found).empty());
  EXPECT_THAT(result_.left_out, HasSubstr("a JSON list"));
  EXPECT_THAT(read(write("c.txt", "[1]")), ElementsAre("[1]"));
}

TEST_F(Documents, ANumberBeyondADoubleIsJson) {
  const std::string line = R"({"a": [-1e400, "\"1e400"], "text": "1e999", "b": 12e4000})";
  EXPECT_THAT(read(write("a.jsonl", line)), ElementsAre("1e999"));
}

TEST_F(Documents, ABrokenLineIsNamed) {
  const std::string good = "{\"text\": \"x\"}\n";
  const auto line_2 = [&](const std::string& line) {
    std::string message = refusal("a.jsonl", good + line + "\n" + good);
    EXPECT_THAT(message, HasSubstr("a.jsonl, line 2: "));
    return message;
  };
  EXPECT_THAT(line_2("{\"text\": \"cut"), HasSubstr("not valid JSON at byte 14 of the line"));
  EXPECT_THAT(line_2("{\"text\": \"x\"} {}"), HasSubstr("not valid JSON"));
  EXPECT_THAT(line_2("{\"text\": \"\xFF\"}"), HasSubstr("ill-formed UTF-8"));
  EXPECT_THAT(line_2("{\"text\": 1e999}"), HasSubstr("the value of 'text' is a number, not"));
  for (const char* number : {"01e400", ".5e999", "7.e999"}) {
    const std::string line = std::string("{\"m\": 1e400, \"n\": ") + number + ", \"text\": \"x\"}";
    EXPECT_THAT(line_2(line), HasSubstr("not valid JSON")) << number;
  }
  EXPECT_THAT(line_2("{\"n\": 1e999, \"text\": x"), HasSubstr("not valid JSON at byte 22 of the"));
  EXPECT_THAT(line_2("[1]"), HasSubstr("not a JSON object"));
  EXPECT_THAT(line_2("{\"text\": null}"), HasSubstr("the value of 'text' is null, not a string"));
  EXPECT_THAT(line_2("{\"text\": [\"x\"]}"),
              HasSubstr("is a list, not a string; data.json_key (of a command: --json-key) names"));
  for (const std::string talk : {"[{\"role\": \"user\", \"content\": \"x\"}]",
                                 "[{\"from\": \"human\", \"value\": \"x\"}]"}) {
    EXPECT_THAT(line_2("{\"text\": " + talk + "}"),
                HasSubstr("the value of 'text' is a list of messages, not a string; conversations "
                          "are for data.sft"));
  }
  EXPECT_THAT(line_2("{\"a\": 1, \"b\": {\"text\": \"x\"}}"),
              HasSubstr("no key 'text' (its keys: a, b); data.json_key"));
}

TEST_F(Documents, HalfASurrogatePairIsAReplacementCharacter) {
  EXPECT_THAT(read(write("a.jsonl",
                         R"({"text": "\ud83d\udc4d \uD83D \udc4d\ud83d \\ud83d \ud83dx\u0041"})")),
              ElementsAre("\U0001F44D \uFFFD \uFFFD\uFFFD \\ud83d \uFFFDxA"));
}

TEST_F(Documents, GzipIsUnpackedWhateverItsName) {
  const std::string text = random_text(20000, 3);
  for (const std::size_t piece_bytes : {100U, 1U << 20U}) {
    for (const char* name : {"a.txt.gz", "a.txt", "a"}) {
      EXPECT_THAT(read(write(name, gzip(text)), {.piece_bytes = piece_bytes}), ElementsAre(text));
    }
  }
  // Members follow each other, as gzip has it; zeros behind them are padding.
  const std::string members = gzip("one ") + gzip("") + gzip("two") + std::string(600, '\0');
  EXPECT_THAT(read(write("m.gz", members)), ElementsAre("one two"));
  EXPECT_THAT(read(write("e.gz", gzip(""))), IsEmpty());
}

TEST_F(Documents, DamagedGzipIsNamedWithItsByte) {
  const std::string whole = gzip(random_text(3000, 5));
  for (const std::size_t size :
       {std::size_t{2}, std::size_t{9}, whole.size() / 2, whole.size() - 1}) {
    EXPECT_THAT(refusal("a.gz", whole.substr(0, size)),
                HasSubstr("damaged gzip file: it ends in the middle of its data, at byte " +
                          std::to_string(size) + ";"));
  }
  std::string damaged = whole;
  damaged[whole.size() - 6] ^= 1;  // the checksum
  EXPECT_THAT(refusal("a.gz", damaged), HasSubstr("incorrect data check"));
  damaged = whole;
  damaged[whole.size() / 2] ^= 0x55;
  EXPECT_THAT(refusal("a.gz", damaged), HasSubstr("damaged gzip file: "));
  EXPECT_THAT(refusal("a.gz", whole + "rest"), HasSubstr("incorrect header check"));
}

std::string zstd(const std::string& text) {
  std::string packed(ZSTD_compressBound(text.size()), '\0');
  packed.resize(ZSTD_compress(packed.data(), packed.size(), text.data(), text.size(), 3));
  return packed;
}

TEST_F(Documents, ZstdIsUnpackedWhateverItsName) {
  const std::string text = random_text(20000, 3);
  for (const std::size_t piece_bytes : {100U, 1U << 20U}) {
    for (const char* name : {"a.txt.zst", "a.txt", "a"}) {
      // Two frames are one text.
      const TextFile file = write(name, zstd(text.substr(0, 999)) + zstd(text.substr(999)));
      EXPECT_THAT(read(file, {.piece_bytes = piece_bytes}), ElementsAre(text)) << name;
    }
  }
  EXPECT_THAT(read(write("b.jsonl.zst", zstd("{\"text\": \"x\"}\n"))), ElementsAre("x"));
  EXPECT_THAT(read(write("c.txt.zst", zstd(""))), IsEmpty());
}

TEST_F(Documents, DamagedZstdIsNamed) {
  const std::string whole = zstd(random_text(2000, 4));
  for (const std::size_t size :
       {std::size_t{4}, std::size_t{9}, whole.size() / 2, whole.size() - 1}) {
    EXPECT_THAT(
        refusal("a.zst", whole.substr(0, size)),
        HasSubstr("a.zst is a damaged zstd file: it ends in the middle of its data, at byte " +
                  std::to_string(size) + "; unpack or fetch it again"));
  }
  EXPECT_THAT(refusal("a.zst", whole + "rest"), HasSubstr("a.zst is a damaged zstd file: "));
  EXPECT_THAT(refusal("a.zst", zstd(whole)),
              HasSubstr("packed twice, by zstd inside; unpack it once"));
}

TEST_F(Documents, OtherKindsAreRefusedByName) {
  const std::string rest(300, 'x');
  const std::pair<std::string, const char*> kinds[] = {
      {"PAR1" + rest, "a Parquet file; give it a name that ends in .parquet"},
      {std::string("\xFD\x37zXZ\0", 6) + rest, "packed by xz"},
      {"BZh91AY&SY" + rest, "packed by bzip2"},
      {"PK\x03\x04" + rest, "a zip archive"},
      {"%PDF-1.7" + rest, "a PDF"},
      {std::string("\x08\0\0\0\0\0\0\0{\"a", 11) + rest, "a safetensors file"},
      {std::string(257, 'n') + "ustar" + rest, "a tar archive"},
      {std::string("\xFF\xFEh\0i\0", 6), "UTF-16; convert it"},
      {"plain" + std::string(1, '\0'), "binary: byte 5 is zero"}};
  for (const auto& [content, kind] : kinds) {
    EXPECT_THAT(refusal("a.txt", content), HasSubstr("a.txt is " + std::string(kind)));
    EXPECT_THAT(refusal("a.txt.gz", gzip(content)), HasSubstr(kind));
    TextFile found = write("a.jsonl", content);
    found.named = false;
    EXPECT_THAT(read(found), IsEmpty());
    EXPECT_THAT(result_.left_out, HasSubstr(kind));
  }
  EXPECT_THAT(refusal("a.gz", gzip(gzip("x"))), HasSubstr("twice"));
  EXPECT_THAT(read(write("a.txt", "BZh is a text")), ElementsAre("BZh is a text"));
}

TEST_F(Documents, InTheCacheEachEndsWithEndOfText) {
  const auto tokenizer = make_tokenizer("bytes");
  const auto tokens = [&](const TextFile& file, const std::string& key) {
    TokenCacheRequest request;
    request.folder = folder_ / "cache";
    request.files = {file};
    request.tokenizer = tokenizer.get();
    request.read.json_key = key;
    const auto cache = TokenCache::open_or_build(request);
    std::vector<std::int64_t> all(static_cast<std::size_t>(cache->size()));
    cache->read(0, all);
    return all;
  };
  const std::string lines = "{\"text\": \"ab\", \"b\": \"x\"}\n{\"text\": \"c\", \"b\": \"y\"}\n";
  for (const auto& file : {write("a.jsonl", lines), write("a.json.gz", gzip(lines))}) {
    EXPECT_THAT(tokens(file, "text"), ElementsAre('a', 'b', 256, 'c', 256));
    EXPECT_THAT(tokens(file, "b"), ElementsAre('x', 256, 'y', 256));  // another key, another cache
  }
  EXPECT_THAT(message_of([&] { tokens(write("e.gz", gzip("")), "text"); }), HasSubstr("is empty"));
}

TEST(Mutation, Documents) {
  run_mutations("documents", fuzz_documents,
                {"{", "}", "\"", "\\", "\\ud800", "\\u0000", "\n", "\"text\":", "null", "1e99",
                 "[[", "\xFF", "\x1F\x8B\x08", std::string(1, '\0'), std::string(300, '[')},
                [](std::string&) {});
}

}  // namespace
}  // namespace sluice::testing
