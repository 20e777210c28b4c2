// The fuzz targets over their corpora, and over thousands of damaged copies, the same on every run.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <random>
#include <string>
#include <vector>

#include "tests/fuzz/targets.hpp"

namespace sluice::testing {
namespace {

// On which readers of JSON, of numbers and of ranges trip.
const std::vector<std::string> kPieces{"{",
                                       "}",
                                       "[",
                                       "]",
                                       ",",
                                       ":",
                                       "\"",
                                       "\\u0000",
                                       "\\ud800",
                                       "null",
                                       "true",
                                       "-1",
                                       "0",
                                       "1.5",
                                       "1e99",
                                       "9223372036854775807",
                                       "9223372036854775808",
                                       "18446744073709551616",
                                       "[0,0]",
                                       "[[",
                                       "\n",
                                       "\xFF",
                                       "\"shape\":[]",
                                       "\"shape\":[0]",
                                       "\"box\":[[0,1]]",
                                       "\"elems\":[0,1]",
                                       "\"kind\":\"master\"",
                                       "\"dtype\":\"F32\"",
                                       "\"dtype\":\"BOOL\"",
                                       "\"data_offsets\":[0,8]",
                                       "\"__metadata__\":{}",
                                       std::string(1, '\0'),
                                       std::string(300, '[')};

std::vector<std::string> corpus(const std::string& name) {
  std::vector<std::filesystem::path> paths;
  for (const auto& entry :
       std::filesystem::directory_iterator(SLUICE_SOURCE_DIR "/tests/fuzz/corpus/" + name)) {
    paths.push_back(entry.path());
  }
  std::sort(paths.begin(), paths.end());
  std::vector<std::string> seeds;
  for (const auto& path : paths) {
    std::ifstream file(path, std::ios::binary);
    seeds.emplace_back(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
  }
  return seeds;
}

std::string mutated(std::string text, const std::vector<std::string>& seeds, std::mt19937& random) {
  for (unsigned changes = 1 + random() % 3; changes > 0; --changes) {
    const std::size_t at = text.empty() ? 0 : random() % text.size();
    const std::size_t length = std::min<std::size_t>(random() % 24, text.size() - at);
    switch (random() % 6) {
      case 0:
        if (!text.empty()) text[at] = static_cast<char>(text[at] ^ (1 << random() % 8));
        break;
      case 1:
        text.erase(at, length);
        break;
      case 2:
        text.insert(at, kPieces[random() % kPieces.size()]);
        break;
      case 3:
        text.replace(at, length, kPieces[random() % kPieces.size()]);
        break;
      case 4:
        text.insert(at, text.substr(text.empty() ? 0 : random() % text.size(), random() % 200));
        break;
      default: {
        const std::string& other = seeds[random() % seeds.size()];
        text = text.substr(0, at) + other.substr(other.empty() ? 0 : random() % other.size());
      }
    }
  }
  return text;
}

// `fix` may repair what would end every trial at once.
void run(const std::string& name, void (*target)(std::span<const std::byte>),
         const std::function<void(std::string&)>& fix) {
  std::mt19937 random(61);
  const std::vector<std::string> seeds = corpus(name);
  ASSERT_GE(seeds.size(), 3U);
  for (const std::string& seed : seeds) target(std::as_bytes(std::span(seed)));
  for (int i = 0; i < 4000; ++i) {
    std::string text = mutated(seeds[random() % seeds.size()], seeds, random);
    if (random() % 4 != 0) fix(text);
    SCOPED_TRACE(text.substr(0, 300));
    ASSERT_NO_THROW(target(std::as_bytes(std::span(text))));
  }
}

TEST(Mutation, Safetensors) {
  run("safetensors", fuzz_safetensors, [](std::string& text) {
    // The header's length, so that more than one in a hundred comes to the JSON.
    const std::size_t end = text.rfind('}');
    if (text.size() < 8 || end == std::string::npos || end < 8) return;
    const std::uint64_t length = end + 1 - 8;
    for (unsigned i = 0; i < 8; ++i) text[i] = static_cast<char>(length >> (8 * i) & 0xFFU);
  });
}

TEST(Mutation, Manifest) {
  run("manifest", fuzz_manifest, [](std::string&) {});
}

}  // namespace
}  // namespace sluice::testing
