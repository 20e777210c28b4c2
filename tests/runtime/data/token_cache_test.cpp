#include "runtime/data/token_cache.hpp"

#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "tests/runtime/data/data_testing.hpp"

namespace sluice::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class Cache : public ::testing::Test {
 protected:
  TokenCacheRequest request(const std::vector<std::string>& specs) {
    TokenCacheRequest result;
    result.folder = folder_ / "cache";
    result.files = find_text_files(specs);
    result.tokenizer = tokenizer_.get();
    result.progress = [this](std::int64_t done, std::int64_t total) {
      ++rounds_;
      EXPECT_LE(done, total);
    };
    return result;
  }
  std::vector<std::int64_t> all(const TokenSource& source) {
    std::vector<std::int64_t> tokens(static_cast<std::size_t>(source.size()));
    source.read(0, tokens);
    return tokens;
  }
  std::vector<std::string> caches() {
    std::vector<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(folder_ / "cache")) {
      if (entry.path().extension() != ".lock") names.push_back(entry.path().string());
    }
    return names;
  }

  TempFolder folder_;
  std::unique_ptr<Tokenizer> tokenizer_ = make_tokenizer("bytes");
  std::atomic<int> rounds_ = 0;  // 0: nothing was built
};

TEST_F(Cache, HoldsEachFileAndAnEndOfText) {
  write_file(folder_ / "t/b.txt", "xyz");
  write_file(folder_ / "t/a.txt", "h\xff");
  write_file(folder_ / "t/empty.txt", "");
  write_file(folder_ / "t/binary.txt", std::string("a\0b", 3));
  const auto cache = TokenCache::open_or_build(request({folder_ / "t"}));
  EXPECT_THAT(all(*cache), ElementsAre('h', 255, 256, 'x', 'y', 'z', 256));
  EXPECT_THAT(std::vector(cache->document_starts().begin(), cache->document_starts().end()),
              ElementsAre(0, 3, 7));
  EXPECT_EQ(cache->header().token_bytes, 2U);
  std::vector<std::int64_t> part(3);
  cache->read(2, part);
  EXPECT_THAT(part, ElementsAre(256, 'x', 'y'));
  EXPECT_NO_THROW(cache->verify());
}

TEST_F(Cache, IsReusedUntilSomethingChanges) {
  const std::string path = folder_ / "t/a.txt";
  write_file(path, "one");
  const auto built = [&](const std::vector<std::string>& specs) {
    rounds_ = 0;
    TokenCache::open_or_build(request(specs));
    return rounds_ > 0;
  };
  EXPECT_TRUE(built({path}));
  EXPECT_FALSE(built({path}));
  write_file(path, "three");  // size
  EXPECT_TRUE(built({path}));
  const auto when = std::filesystem::last_write_time(path);
  std::filesystem::last_write_time(path, when + std::chrono::nanoseconds(1));
  EXPECT_TRUE(built({path}));
  write_file(folder_ / "t/b.txt", "more");
  EXPECT_TRUE(built({folder_ / "t"}));
  EXPECT_TRUE(built({folder_ / "t/b.txt"}));
  write_small_gpt2(folder_ / "gpt2");
  tokenizer_ = make_tokenizer(folder_ / "gpt2");
  EXPECT_TRUE(built({path}));
  EXPECT_FALSE(built({path}));
}

// Pieces, threads and the width of a token do not change what is in it.
TEST_F(Cache, IsTheTokenizersTextHoweverItWasBuilt) {
  write_small_gpt2(folder_ / "gpt2");
  tokenizer_ = make_tokenizer(folder_ / "gpt2");
  std::vector<std::int64_t> expected;
  for (unsigned d = 0; d < 20; ++d) {
    const std::string text = random_text(1 + d * 150, d, false);
    write_file(folder_ / ("t/" + std::to_string(100 + d) + ".txt"), text);
    for (const std::int32_t id : tokenizer_->encode(text)) expected.push_back(id);
    expected.push_back(tokenizer_->end_of_text());
  }
  for (const std::size_t piece_bytes : {50U, 1000U, 1U << 20U}) {
    for (const int threads : {1, 3}) {
      auto asked = request({folder_ / "t"});
      asked.read.piece_bytes = piece_bytes;
      asked.threads = threads;
      std::filesystem::remove_all(folder_ / "cache");
      const auto cache = TokenCache::open_or_build(asked);
      EXPECT_EQ(all(*cache), expected) << piece_bytes << " " << threads;
      EXPECT_EQ(cache->header().documents, 20);
    }
  }
}

// A tokenizer of 70 000 ids, each byte one of the last ones.
class WideTokenizer : public Tokenizer {
 public:
  explicit WideTokenizer(std::int64_t vocab) : vocab_(vocab) {}
  std::int64_t vocab_size() const override { return vocab_; }
  std::int32_t end_of_text() const override { return static_cast<std::int32_t>(vocab_ - 1); }
  std::vector<std::int32_t> encode(std::string_view text) const override {
    std::vector<std::int32_t> ids;
    for (const char c : text) ids.push_back(static_cast<std::int32_t>(vocab_ - 2 - (c - 'a')));
    return ids;
  }
  std::string decode(std::span<const std::int32_t>) const override { return ""; }
  const std::string& name() const override { return name_; }
  const std::string& fingerprint() const override { return name_; }

 private:
  std::int64_t vocab_;
  std::string name_ = "wide " + std::to_string(vocab_);
};

TEST_F(Cache, TokensAreAsWideAsTheVocabularyNeeds) {
  write_file(folder_ / "a.txt", "abc");
  for (const std::int64_t vocab : {50257, 65536, 65537, 70000}) {
    tokenizer_ = std::make_unique<WideTokenizer>(vocab);
    const auto cache = TokenCache::open_or_build(request({folder_ / "a.txt"}));
    EXPECT_EQ(cache->header().token_bytes, vocab <= 65536 ? 2U : 4U);
    EXPECT_THAT(all(*cache), ElementsAre(vocab - 2, vocab - 3, vocab - 4, vocab - 1));
  }
}

TEST_F(Cache, DamageIsSeenAndMended) {
  write_file(folder_ / "a.txt", std::string(1000, 'a'));
  const auto asked = request({folder_ / "a.txt"});
  const std::string path = TokenCache::open_or_build(asked)->path();
  const std::string whole = read_file(path);
  const auto mended = [&](const std::string& content) {
    write_file(path, content);
    rounds_ = 0;
    EXPECT_EQ(all(*TokenCache::open_or_build(asked)), std::vector<std::int64_t>([] {
                std::vector<std::int64_t> tokens(1000, 'a');
                tokens.push_back(256);
                return tokens;
              }()));
    return rounds_ > 0 && read_file(path) == whole;
  };
  for (const std::size_t size : {std::size_t{0}, std::size_t{8}, std::size_t{95}, std::size_t{96},
                                 whole.size() / 2, whole.size() - 1}) {
    EXPECT_TRUE(mended(whole.substr(0, size))) << size;
  }
  EXPECT_TRUE(mended(whole + "x"));
  for (const std::size_t at : {0U, 8U, 12U, 16U, 24U, 39U, 60U, 95U}) {  // each field of the header
    std::string damaged = whole;
    damaged[at] = static_cast<char>(damaged[at] ^ 1);
    EXPECT_TRUE(mended(damaged)) << at;
  }
  std::string damaged = whole;
  damaged[whole.size() - 2] = 1;  // the document table
  EXPECT_TRUE(mended(damaged));
  damaged = whole;
  damaged[200] = 'b';  // a token: seen by verify only
  write_file(path, damaged);
  EXPECT_THAT(message_of([&] { TokenCache(path).verify(); }), HasSubstr("its tokens"));
}

TEST_F(Cache, ThreadsBuildItOnce) {
  for (int d = 0; d < 50; ++d) {
    write_file(folder_ / ("t/" + std::to_string(d) + ".txt"),
               random_text(200, static_cast<unsigned>(d)));
  }
  auto asked = request({folder_ / "t"});
  asked.read.piece_bytes = 4096;
  asked.threads = 1;
  std::atomic<int> builders = 0;
  {
    std::vector<std::jthread> threads;
    for (int t = 0; t < 4; ++t) {
      threads.emplace_back([&] {
        auto own = asked;
        bool built = false;
        own.progress = [&built](std::int64_t, std::int64_t) { built = true; };
        EXPECT_GT(TokenCache::open_or_build(own)->size(), 0);
        builders += built;
      });
    }
  }
  EXPECT_EQ(builders, 1);
  EXPECT_EQ(caches().size(), 1U);
}

TEST_F(Cache, ProcessesBuildItOnceEvenWhenTheFirstDies) {
  write_file(folder_ / "a.txt", random_text(5000, 1));
  auto asked = request({folder_ / "a.txt"});
  asked.read.piece_bytes = 256;
  asked.threads = 1;
  const auto spawn = [&](bool dies) {
    const pid_t child = fork();
    if (child != 0) return child;
    auto own = asked;
    bool built = false;
    own.progress = [&](std::int64_t done, std::int64_t total) {
      built = true;
      if (dies && done > total / 2) raise(SIGKILL);
    };
    int code = 3;
    try {
      TokenCache::open_or_build(own);
      code = built ? 1 : 0;
    } catch (...) {
    }
    _exit(code);
  };
  int status = 0;
  ASSERT_EQ(waitpid(spawn(true), &status, 0) > 0 && WIFSIGNALED(status), true);
  EXPECT_EQ(caches().size(), 1U);  // what the dead one left
  std::vector<pid_t> children;
  for (int i = 0; i < 4; ++i) children.push_back(spawn(false));
  int builders = 0;
  for (const pid_t child : children) {
    waitpid(child, &status, 0);
    ASSERT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) <= 1);
    builders += WEXITSTATUS(status);
  }
  EXPECT_EQ(builders, 1);
  EXPECT_EQ(caches().size(), 1U);  // and only the cache
  EXPECT_NO_THROW(TokenCache(caches()[0]).verify());
}

TEST_F(Cache, AFailedBuildLeavesNothing) {
  write_file(folder_ / "a.txt", random_text(5000, 1));
  auto asked = request({folder_ / "a.txt"});
  asked.read.piece_bytes = 256;
  asked.threads = 1;
  asked.progress = [](std::int64_t, std::int64_t) { throw Error("stop"); };
  EXPECT_EQ(message_of<Error>([&] { TokenCache::open_or_build(asked); }), "stop");
  EXPECT_TRUE(caches().empty());
}

TEST_F(Cache, WhatCannotBeHadIsSaid) {
  write_file(folder_ / "a.txt", "abc");
  write_file(folder_ / "empty.txt", "");
  write_file(folder_ / "t/none.txt", "");
  EXPECT_THAT(message_of([&] { TokenCache::open_or_build(request({folder_ / "empty.txt"})); }),
              HasSubstr("empty.txt is empty"));
  EXPECT_THAT(message_of([&] { TokenCache::open_or_build(request({folder_ / "t"})); }),
              HasSubstr("/t/none.txt is empty or without text"));
  auto asked = request({folder_ / "a.txt"});
  asked.folder = folder_ / "a.txt/cache";  // below a file: no user can write there
  EXPECT_THAT(message_of([&] { TokenCache::open_or_build(asked); }),
              HasSubstr("cannot create the folder"));
  auto gone = request({folder_ / "a.txt"});
  std::filesystem::remove(folder_ / "a.txt");
  EXPECT_THAT(message_of([&] { TokenCache::open_or_build(gone); }), HasSubstr("cannot read"));
}

// A limit on the size of files stands in for a full disk.
TEST_F(Cache, ADiskThatIsFull) {
  write_file(folder_ / "a.txt", std::string(3 << 20, 'a'));
  const auto asked = request({folder_ / "a.txt"});
  const pid_t child = fork();
  if (child == 0) {
    signal(SIGXFSZ, SIG_IGN);
    const rlimit limit{1 << 20, 1 << 20};
    setrlimit(RLIMIT_FSIZE, &limit);
    int code = 1;
    try {
      TokenCache::open_or_build(asked);
    } catch (const IoError& error) {
      code = error.error_number() == EFBIG &&
                     std::string(error.what()).find("cannot write") != std::string::npos
                 ? 0
                 : 2;
    }
    _exit(code);
  }
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_EQ(WEXITSTATUS(status), 0);
  EXPECT_TRUE(caches().empty());
}

}  // namespace
}  // namespace sluice::testing
