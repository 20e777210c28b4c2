// Helpers of this folder's tests: a temporary folder, files, a small vocabulary, bytes.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "base/log.hpp"
#include "runtime/data/tokenizer/utf8.hpp"

namespace sluice::testing {

class TempFolder {
 public:
  TempFolder() {
    std::string name = (std::filesystem::temp_directory_path() / "sluice-data-XXXXXX").string();
    if (mkdtemp(name.data()) == nullptr) throw Error("cannot make a temporary folder");
    path_ = std::filesystem::canonical(name);
  }
  ~TempFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TempFolder(const TempFolder&) = delete;
  TempFolder& operator=(const TempFolder&) = delete;
  [[nodiscard]] std::string operator/(const std::string& name) const {
    return (path_ / name).string();
  }
  [[nodiscard]] std::string path() const { return path_.string(); }

 private:
  std::filesystem::path path_;
};

inline void write_file(const std::string& path, std::string_view content) {
  std::filesystem::create_directories(std::filesystem::path(path).parent_path());
  std::ofstream(path, std::ios::binary) << content;
}

inline std::string read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

// The lines that `call` logs.
template <typename Call>
std::vector<std::string> logged_by(Call&& call) {
  std::vector<std::string> lines;
  set_log_sink([&lines](LogLevel, std::string_view line) { lines.emplace_back(line); });
  call();
  set_log_sink({});
  return lines;
}

// The message of the E that `call` throws; a test failure if it throws none.
template <typename E = IoError, typename Call>
std::string message_of(Call&& call) {
  try {
    call();
  } catch (const E& error) {
    return error.what();
  }
  ADD_FAILURE() << "nothing was thrown";
  return "";
}

inline std::string random_bytes(std::size_t count, unsigned seed) {
  std::mt19937 random(seed);
  std::string bytes(count, '\0');
  for (char& byte : bytes) byte = static_cast<char>(random());
  return bytes;
}

// Text with all kinds of characters that split patterns treat differently, some of them invalid
// UTF-8.
inline std::string random_text(std::size_t parts, unsigned seed, bool valid = true) {
  static const std::vector<std::string> kParts{" ",
                                               "  ",
                                               "\n",
                                               "\t",
                                               "\r\n",
                                               "'s",
                                               "'LL",
                                               "don't",
                                               "\u00e9",
                                               "\u00df",
                                               "\u65e5\u672c",
                                               "\u3002",
                                               "\u3000",
                                               "\u00a0",
                                               "\u0661\u0662",
                                               "\u00b2",
                                               "12345",
                                               "a",
                                               "Hello",
                                               "x_y",
                                               "!?",
                                               "/",
                                               "...",
                                               "\U0001F44D",
                                               "e\u0301",
                                               "<|endoftext|>",
                                               "low lower lowest",
                                               "\xff",
                                               "\xe6\x97",
                                               "\xc0\x80"};
  std::mt19937 random(seed);
  std::string text;
  for (std::size_t i = 0; i < parts; ++i)
    text += kParts[random() % (kParts.size() - (valid ? 3 : 0))];
  return text;
}

// The pieces and merges of the small vocabulary: "l o", "lo w", "e r", "G l" (" l"), "Gl o" ...; id
// of a byte is its value, of the i-th merge 256 + i, of <|endoftext|> 256 + merges.
inline const std::vector<std::pair<std::string, std::string>>& small_merges() {
  static const std::vector<std::pair<std::string, std::string>> kMerges{
      {"l", "o"},    {"lo", "w"},    {"e", "r"}, {" ", "low"}, {"e", "s"}, {"es", "t"},
      {"low", "er"}, {" low", "er"}, {" ", " "}, {"\n", "\n"}, {"'", "s"}, {"\xc3", "\xa9"}};
  return kMerges;
}

inline std::string json_string(const std::string& text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    out += c;
  }
  return out + "\"";
}

// {"piece": id, ...} without end-of-text.
inline std::string small_vocab_json(const std::string& more = "") {
  std::string json = "{";
  for (int byte = 0; byte < 256; ++byte) {
    json += json_string(to_alphabet(std::string(1, static_cast<char>(byte)))) + ": " +
            std::to_string(byte) + ", ";
  }
  std::size_t id = 256;
  for (const auto& [left, right] : small_merges()) {
    json += (id == 256 ? "" : ", ") + json_string(to_alphabet(left + right)) + ": " +
            std::to_string(id);
    ++id;
  }
  return json + more + "}";
}

inline constexpr int kSmallEndOfText = 256 + 12;

inline void write_small_gpt2(const std::string& folder) {
  write_file(folder + "/vocab.json",
             small_vocab_json(", \"<|endoftext|>\": " + std::to_string(kSmallEndOfText)));
  std::string merges = "#version: 0.2\n";
  for (const auto& [left, right] : small_merges()) {
    merges += to_alphabet(left) + " " + to_alphabet(right) + "\n";
  }
  write_file(folder + "/merges.txt", merges);
}

}  // namespace sluice::testing
