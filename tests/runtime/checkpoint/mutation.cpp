#include "tests/runtime/checkpoint/mutation.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>

namespace sluice::testing {
namespace {

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

std::string mutated(std::string text, const std::vector<std::string>& seeds,
                    const std::vector<std::string>& pieces, std::mt19937& random) {
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
        text.insert(at, pieces[random() % pieces.size()]);
        break;
      case 3:
        text.replace(at, length, pieces[random() % pieces.size()]);
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

}  // namespace

void run_mutations(const std::string& name, FuzzTarget target,
                   const std::vector<std::string>& pieces,
                   const std::function<void(std::string&)>& fix) {
  std::mt19937 random(61);
  const std::vector<std::string> seeds = corpus(name);
  ASSERT_GE(seeds.size(), 3U);
  for (const std::string& seed : seeds) target(std::as_bytes(std::span(seed)));
  for (int i = 0; i < 4000; ++i) {
    std::string text = mutated(seeds[random() % seeds.size()], seeds, pieces, random);
    if (random() % 4 != 0) fix(text);
    SCOPED_TRACE(text.substr(0, 300));
    ASSERT_NO_THROW(target(std::as_bytes(std::span(text))));
  }
}

}  // namespace sluice::testing
