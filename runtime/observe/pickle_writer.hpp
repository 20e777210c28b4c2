// Writes a Python pickle, protocol 2: dicts, lists, texts, whole numbers, booleans and pairs.
// Recurring texts are stored once (memo). Any Python reads the result, and so does PyTorch's memory
// viewer, which knows these opcodes. Not thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace sluice {

class PickleWriter {
 public:
  PickleWriter();

  // A dict is a run of keys, each with its value: begin_dict, text, number, text, ..., end_dict.
  void begin_dict();
  void end_dict();
  // next() comes before each item of a list.
  void begin_list();
  void next();
  void end_list();

  void text(std::string_view utf8);
  void number(std::int64_t value);
  void boolean(bool value);
  void zero_pair();  // (0, 0)

  // Ends the pickle. REQUIRES: one whole value was written.
  [[nodiscard]] std::string take();

 private:
  void unsigned_bytes(std::uint64_t value, int bytes);

  std::string out_;
  std::unordered_map<std::string, std::uint32_t> memo_;
  std::vector<std::size_t> items_;  // of each open list
};

}  // namespace sluice
