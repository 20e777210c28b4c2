// Preparing .bin/.idx: the bytes against an independent writer, for any threads and interruptions.
#include <sys/wait.h>

#include <csignal>
#include <filesystem>
#include <functional>
#include <random>
#include <utility>

#include "runtime/data/indexed_dataset.hpp"
#include "runtime/data/prepare/prepare_state.hpp"
#include "runtime/data/prepare/prepare_tokens.hpp"
#include "runtime/data/tokenizer/tokenizer.hpp"
#include "tests/fuzz/targets.hpp"
#include "tests/runtime/checkpoint/mutation.hpp"
#include "tests/runtime/data/data_testing.hpp"
#include "tests/runtime/data/megatron_files.hpp"

namespace sluice::testing {
namespace {

using ::testing::HasSubstr;

std::vector<std::int64_t> ids_of(const std::string& text, bool end) {
  std::vector<std::int64_t> ids;
  for (const char c : text) ids.push_back(static_cast<unsigned char>(c));
  if (end && !ids.empty()) ids.push_back(256);
  return ids;
}

class Prepare : public ::testing::Test {
 protected:
  PrepareOptions options(const std::vector<std::string>& names) {
    PrepareOptions options;
    std::vector<std::string> paths;
    for (const std::string& name : names) paths.push_back(folder_ / name);
    options.files = find_text_files(paths, "data prepare");
    options.prefix = folder_ / "out/corpus";
    options.tokenizer = tokenizer_.get();
    options.threads = 2;
    options.progress = [](std::int64_t, std::int64_t) {};
    return options;
  }
  // Lines of many lengths, of which every seventh is empty, in two files.
  std::vector<std::string> write_lines() {
    std::vector<std::string> texts;
    std::string files[2];
    for (std::size_t i = 0; i < 100; ++i) {
      texts.push_back(i % 7 == 3 ? ""
                                 : std::string(1 + i * i % 90, static_cast<char>('a' + i % 26)));
      files[i / 60] +=
          "{\"text\": \"" + texts.back() + "\", \"id\": 1}\n" + (i % 9 == 0 ? "\n" : "");
    }
    write_file(folder_ / "a.jsonl", files[0]);
    write_file(folder_ / "b.jsonl", files[1]);
    return texts;
  }
  std::string output(const std::string& ending) {
    return read_file(folder_ / ("out/corpus_text_document" + ending));
  }
  std::vector<std::string> files_left() {
    std::vector<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(folder_ / "out")) {
      names.push_back(entry.path().filename().string());
    }
    std::sort(names.begin(), names.end());
    return names;
  }

  TempFolder folder_;
  std::unique_ptr<Tokenizer> tokenizer_ = make_tokenizer("bytes");
};

// Megatron's index of documents, of which some are empty: those have no sequence.
void write_expected(const std::string& prefix, const std::vector<std::string>& texts, bool end) {
  std::vector<std::vector<std::int64_t>> full;
  std::string positions(8, '\0');
  for (const std::string& text : texts) {
    if (!text.empty()) full.push_back(ids_of(text, end));
    const auto sequences = static_cast<std::int64_t>(full.size());
    positions.append(reinterpret_cast<const char*>(&sequences), sizeof sequences);
  }
  write_megatron<std::uint16_t>(prefix, 8, full);
  std::string idx = read_file(prefix + ".idx");
  const auto columns = static_cast<std::ptrdiff_t>(34 + 12 * full.size());
  const std::uint64_t count = texts.size() + 1;
  idx.replace(26, 8, reinterpret_cast<const char*>(&count), 8);
  idx.replace(idx.begin() + columns, idx.end(), positions);
  write_file(prefix + ".idx", idx);
}

TEST_F(Prepare, BytesAreMegatronsForAnyNumberOfThreads) {
  const std::vector<std::string> texts = write_lines();
  for (const bool end : {false, true}) {
    write_expected(folder_ / "expected", texts, end);
    for (const int threads : {1, 2, 4}) {
      for (const std::size_t piece_bytes : {1U, 100U, 1U << 20U}) {
        PrepareOptions options = this->options({"a.jsonl", "b.jsonl"});
        options.append_eod = end;
        options.threads = threads;
        options.piece_bytes = piece_bytes;
        const PrepareResult result = prepare_tokens(options);
        EXPECT_TRUE(output(".bin") == read_file(folder_ / "expected.bin"));
        EXPECT_TRUE(output(".idx") == read_file(folder_ / "expected.idx"));
        EXPECT_EQ(result.outputs.at(0).documents, 100);
        EXPECT_EQ(result.empty, 14);
        EXPECT_FALSE(result.resumed);
        std::filesystem::remove_all(folder_ / "out");
      }
    }
  }
}

// Interrupts at each round in turn; the next run goes on.
TEST_F(Prepare, AnInterruptedRunEndsWithTheSameBytes) {
  write_expected(folder_ / "expected", write_lines(), true);
  int resumed = 0;
  for (int stop = 1; stop < 12; ++stop) {
    PrepareOptions options = this->options({"a.jsonl", "b.jsonl"});
    options.append_eod = true;
    options.piece_bytes = 300;
    options.record_bytes = 400;
    int rounds = 0;
    options.progress = [&](std::int64_t, std::int64_t) {
      if (++rounds == stop) throw std::runtime_error("stop");
    };
    int runs = 1;
    for (bool done = false; !done && runs < 40; ++runs) {
      rounds = 0;
      try {
        const PrepareResult result = prepare_tokens(options);
        resumed += result.resumed ? 1 : 0;
        done = true;
      } catch (const std::runtime_error&) {
        stop += runs % 3 == 0 ? 1 : 0;  // else a short stop would never come to an end
      }
    }
    ASSERT_LT(runs, 40);
    EXPECT_TRUE(output(".bin") == read_file(folder_ / "expected.bin"));
    EXPECT_TRUE(output(".idx") == read_file(folder_ / "expected.idx"));
    EXPECT_THAT(files_left(),
                ::testing::ElementsAre("corpus_text_document.bin", "corpus_text_document.idx"));
    std::filesystem::remove_all(folder_ / "out");
  }
  EXPECT_GT(resumed, 3);
}

// The process of the preparation dies ten times between two rounds, without a word.
TEST_F(Prepare, AKilledRunEndsWithTheSameBytes) {
  write_expected(folder_ / "expected", write_lines(), true);
  for (const int threads : {1, 2, 4}) {
    std::mt19937 random(static_cast<unsigned>(threads));
    PrepareOptions options = this->options({"a.jsonl", "b.jsonl"});
    options.append_eod = true;
    options.threads = threads;
    options.piece_bytes = 64;
    options.record_bytes = 100;
    int killed = 0;
    for (bool done = false; !done;) {
      const unsigned last = killed < 10 ? 1 + random() % 3 : ~0U;
      const pid_t child = ::fork();
      if (child == 0) {
        unsigned rounds = 0;
        options.progress = [&](std::int64_t, std::int64_t) {
          if (++rounds == last) (void)::raise(SIGKILL);
        };
        (void)prepare_tokens(options);
        ::_exit(0);
      }
      int status = 0;
      ASSERT_EQ(::waitpid(child, &status, 0), child);
      done = WIFEXITED(status);
      killed += done ? 0 : 1;
      ASSERT_TRUE(done || WTERMSIG(status) == SIGKILL);
    }
    EXPECT_GT(killed, 3);
    EXPECT_TRUE(output(".bin") == read_file(folder_ / "expected.bin"));
    EXPECT_TRUE(output(".idx") == read_file(folder_ / "expected.idx"));
    std::filesystem::remove_all(folder_ / "out");
  }
}

TEST_F(Prepare, ARunThatWasKilledWhileItFinishedIsCompleted) {
  write_expected(folder_ / "expected", write_lines(), false);
  PrepareOptions options = this->options({"a.jsonl", "b.jsonl"});
  options.record_bytes = 1;
  options.piece_bytes = 300;
  int rounds = 0, last = 0;
  options.progress = [&](std::int64_t, std::int64_t) {
    if (++rounds == last) throw std::runtime_error("stop");
  };
  (void)prepare_tokens(options);
  std::filesystem::remove_all(folder_ / "out");
  last = std::exchange(rounds, 0);
  EXPECT_THROW((void)prepare_tokens(options), std::runtime_error);
  PrepareState at = read_prepare_state(read_file(folder_ / "out/corpus.prepare")).value();
  at.finishing = true;
  write_file(folder_ / "out/corpus.prepare", write_prepare_state(at));
  std::filesystem::rename(folder_ / "out/corpus_text_document.bin.part",
                          folder_ / "out/corpus_text_document.bin");
  (void)prepare_tokens(options);
  EXPECT_TRUE(output(".bin") == read_file(folder_ / "expected.bin"));
  EXPECT_TRUE(output(".idx") == read_file(folder_ / "expected.idx"));
}

TEST_F(Prepare, OtherInputsBeginAgain) {
  write_lines();
  PrepareOptions options = this->options({"a.jsonl", "b.jsonl"});
  options.piece_bytes = 100;
  options.record_bytes = 1;
  int rounds = 0;
  options.progress = [&](std::int64_t, std::int64_t) {
    if (++rounds == 3) throw std::runtime_error("stop");
  };
  EXPECT_THROW((void)prepare_tokens(options), std::runtime_error);
  write_file(folder_ / "c.jsonl", "{\"text\": \"other\"}\n");
  const PrepareResult result = prepare_tokens(this->options({"c.jsonl"}));
  EXPECT_FALSE(result.resumed);
  EXPECT_EQ(IndexedDataset(result.outputs.at(0).prefix).size(), 5);
}

TEST_F(Prepare, EachKeyHasAnOutput) {
  write_file(folder_ / "a.jsonl",
             "{\"q\": \"why\", \"a\": \"so\"}\n{\"q\": \"\", \"a\": \"and\"}\n");
  PrepareOptions options = this->options({"a.jsonl"});
  options.json_keys = {"q", "a"};
  const PrepareResult result = prepare_tokens(options);
  EXPECT_EQ(result.outputs.at(0).tokens, 3);
  EXPECT_EQ(result.outputs.at(1).tokens, 5);
  EXPECT_EQ(result.outputs.at(1).prefix, folder_ / "out/corpus_a_document");
  EXPECT_EQ(IndexedDataset(folder_ / "out/corpus_q_document").document_starts().size(), 3U);
}

TEST_F(Prepare, APlainFileIsOneDocument) {
  std::string text;
  for (int i = 0; i < 300; ++i) text += "word" + std::to_string(i) + (i % 10 == 9 ? "\n" : " ");
  write_file(folder_ / "a.txt", text);
  PrepareOptions options = this->options({"a.txt"});
  options.piece_bytes = 64;
  options.append_eod = true;
  const PrepareResult result = prepare_tokens(options);
  EXPECT_EQ(result.outputs.at(0).documents, 1);
  EXPECT_EQ(result.outputs.at(0).tokens, std::ssize(text) + 1);
}

// SentencePiece's first space belongs to the document, not to each of its pieces.
TEST_F(Prepare, PiecesOfAPlainFileContinueTheDocument) {
  write_file(folder_ / "model/tokenizer.json", R"({"model": {"type": "BPE",
    "vocab": {"<unk>": 0, "<|endoftext|>": 1, "\u2581": 2, "a": 3, "b": 4}, "merges": [],
    "unk_token": "<unk>"}, "normalizer": {"type": "Sequence", "normalizers": [
    {"type": "Prepend", "prepend": "\u2581"},
    {"type": "Replace", "pattern": {"String": " "}, "content": "\u2581"}]}})");
  tokenizer_ = make_tokenizer(folder_ / "model");
  std::string text;
  for (int i = 0; i < 100; ++i) text += "abba ";
  write_file(folder_ / "a.txt", text);
  PrepareOptions options = this->options({"a.txt"});
  options.piece_bytes = 64;
  EXPECT_EQ(prepare_tokens(options).outputs.at(0).tokens, std::ssize(text) + 1);
}

TEST_F(Prepare, RefusesWithPlaceAndRemedy) {
  write_file(folder_ / "a.jsonl", "{\"text\": \"x\"}\n{\"txt\": 1}\n");
  EXPECT_EQ(message_of([&] { (void)prepare_tokens(options({"a.jsonl"})); }),
            "data prepare: " + folder_ / "a.jsonl" +
                ", line 2: no key 'text' (its keys: txt); data.json_key (of a command: "
                "--json-key) names the key of the text");
  write_file(folder_ / "e.jsonl", "{\"text\": \"\"}\n");
  EXPECT_EQ(message_of([&] { (void)prepare_tokens(options({"e.jsonl"})); }),
            "data prepare: no token in 1 files; all are empty or without text");
  write_file(folder_ / "u.jsonl", std::string("\xFF\xFE{\0\"\0", 6));
  EXPECT_EQ(
      message_of([&] { (void)prepare_tokens(options({"u.jsonl"})); }),
      "data prepare: " + folder_ / "u.jsonl" + " is UTF-16; convert it (iconv -f UTF-16 -t UTF-8)");
  write_file(folder_ / "t.txt", "x");
  PrepareOptions keys = options({"t.txt"});
  keys.json_keys = {"a", "b"};
  EXPECT_THAT(message_of<ConfigError>([&] { (void)prepare_tokens(keys); }),
              HasSubstr("t.txt is no file of JSON lines, so it has no keys; give one --json-key"));
  keys.json_keys = {"a/b"};
  EXPECT_THAT(message_of<ConfigError>([&] { (void)prepare_tokens(keys); }),
              HasSubstr("'a/b' cannot be part of a file's name"));
  (void)prepare_tokens(options({"t.txt"}));
  EXPECT_THAT(message_of<ConfigError>([&] { (void)prepare_tokens(options({"t.txt"})); }),
              HasSubstr("corpus_text_document.bin exists; remove it, or give another prefix"));
}

TEST(PrepareState, ADamagedRecordIsNone) {
  PrepareState state{.request = "r", .file = 1, .items = 2, .outputs = {{4, 8, 1, 2, 0}}};
  const std::string text = write_prepare_state(state);
  ASSERT_TRUE(read_prepare_state(text).has_value());
  EXPECT_EQ(read_prepare_state(text)->outputs.at(0).lengths_bytes, 8);
  for (std::size_t i = 0; i < text.size(); ++i) {
    std::string damaged = text;
    damaged[i] = static_cast<char>(damaged[i] ^ 1);
    EXPECT_FALSE(read_prepare_state(damaged).has_value()) << i;
    EXPECT_FALSE(read_prepare_state(text.substr(0, i)).has_value());
  }
}

TEST(PrepareState, ARecordOfAnotherProgramIsNone) {
  PrepareState state{.request = "r", .file = -1, .outputs = {{}}};
  EXPECT_FALSE(read_prepare_state(write_prepare_state(state)).has_value());
  state.file = 0;
  EXPECT_TRUE(read_prepare_state(write_prepare_state(state)).has_value());
  state.outputs[0].bin_bytes = -2;
  EXPECT_FALSE(read_prepare_state(write_prepare_state(state)).has_value());
}

TEST(Mutation, PrepareRecord) {
  run_mutations("prepare_record", fuzz_prepare_record,
                {" ", "\n", "-1", "0", "99999999999999999999", "1001", "+1", "0x1", "\t"},
                [](std::string&) {});
}

}  // namespace
}  // namespace sluice::testing
