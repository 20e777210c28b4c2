// Thousands of small damages to config.json and index.json, the same in every run: each is read or
// refused with an Error that names the file.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <random>
#include <sstream>

#include "base/error.hpp"
#include "runtime/checkpoint/hf/hf_config.hpp"
#include "runtime/checkpoint/hf/hf_weights.hpp"

namespace sluice {
namespace {

std::string text_of(const std::string& path) {
  std::ifstream stream(std::string(SLUICE_SOURCE_DIR "/tests/golden/hf/") + path);
  std::stringstream text;
  text << stream.rdbuf();
  EXPECT_FALSE(text.str().empty()) << path;
  return text.str();
}

// One to three edits: a byte changed, a stretch removed, doubled, or replaced by what tends to
// hurt.
std::string damaged(std::string text, std::mt19937& random) {
  constexpr const char* kNasty[] = {"null", "-1",      "1e999", "18446744073709551615",
                                    "{",    "[[[[",    "\"\"",  "true",
                                    "0.5",  "\\u0000", "\xFF",  "\"x\":"};
  const auto below = [&](std::size_t n) { return random() % std::max<std::size_t>(1, n); };
  for (std::size_t edits = 1 + below(3); edits > 0; --edits) {
    const std::size_t at = below(text.size());
    const std::size_t length = std::min(1 + below(12), text.size() - at);
    switch (below(4)) {
      case 0:
        text[at] = static_cast<char>(below(256));
        break;
      case 1:
        text.erase(at, length);
        break;
      case 2:
        text.insert(at, text.substr(at, length));
        break;
      default:
        text.replace(at, length, kNasty[below(std::size(kNasty))]);
    }
    if (text.empty()) text = " ";
  }
  return text;
}

template <class Read>
void survive(const std::string& text, Read&& read) {
  std::mt19937 random(20261121);
  int refused = 0;
  constexpr int kRounds = 3000;
  for (int i = 0; i < kRounds; ++i) {
    const std::string broken = damaged(text, random);
    try {
      read(broken);
    } catch (const Error& error) {
      ++refused;
      ASSERT_THAT(error.what(), ::testing::HasSubstr("the.json")) << broken;
    }
  }
  EXPECT_GT(refused, kRounds / 2);
}

TEST(HfMutation, Config) {
  for (const char* family : {"gpt2", "llama", "mistral", "qwen2"}) {
    survive(text_of(std::string(family) + "/config.json"), [](const std::string& broken) {
      const ModelOptions o = parse_hf_config("the.json", broken);
      ASSERT_GT(o.hidden, 0);
      ASSERT_GT(o.head_dim, 0);
      ASSERT_GT(o.heads, 0);
      ASSERT_GT(o.norm_eps, 0);
      (void)write_hf_config(o, "float32", broken);
    });
  }
}

TEST(HfMutation, Index) {
  survive(text_of("llama/model.safetensors.index.json"), [](const std::string& broken) {
    const HfFiles files = parse_hf_index("dir", "the.json", broken);
    for (const std::string& path : files.paths) {
      ASSERT_EQ(path.rfind('/'), 3U) << path;
    }
  });
}

}  // namespace
}  // namespace sluice
