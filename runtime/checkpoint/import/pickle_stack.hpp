// The state of reading a pickle: the remaining bytes, the stack, the memo, and the values so far.
// Only for this folder's pickle sources. Not thread-safe.
//
// A missing value or a value over a limit is a CheckpointError with the opcode's byte in the file.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "runtime/checkpoint/import/pickle.hpp"

namespace sluice {

class PickleStack {
 public:
  // `base`: offset of the pickle in its file.
  PickleStack(std::span<const std::byte> pickle, const std::string& path, std::int64_t base,
              const PickleLimits& limits);

 protected:
  using Kind = PickleValue::Kind;

  [[noreturn]] void fail(const std::string& what) const;
  void check_size() const;

  // The bytes.
  [[nodiscard]] std::uint8_t next_opcode();
  [[nodiscard]] bool at_end() const { return at_ == pickle_.size(); }
  template <class T>
  [[nodiscard]] T number() {  // little-endian
    T value = 0;
    const auto bytes = take(sizeof value);
    std::memcpy(&value, bytes.data(), sizeof value);
    return value;
  }
  [[nodiscard]] std::int64_t long_number(std::uint8_t length);
  [[nodiscard]] std::string text(std::uint64_t length);
  [[nodiscard]] std::string line();

  // The stack. Values below the last mark cannot be popped.
  void push(PickleValue value);
  void push(Kind kind, std::int64_t number);
  void push(Kind kind, std::string text, std::vector<PickleId> items = {});
  PickleId pop();
  [[nodiscard]] PickleValue& top();
  std::vector<PickleId> pop_mark();
  void remember(std::uint64_t index);
  void recall(std::uint64_t index);

  PickleLimits limits_;
  PickleTree tree_;
  std::vector<PickleId> stack_;
  std::vector<std::size_t> marks_;  // stack sizes at the marks
  std::unordered_map<std::uint64_t, PickleId> memo_;

 private:
  std::span<const std::byte> take(std::uint64_t length);
  [[nodiscard]] std::size_t floor() const { return marks_.empty() ? 0 : marks_.back(); }

  std::span<const std::byte> pickle_;
  std::int64_t base_;
  std::size_t at_ = 0, opcode_at_ = 0;
};

}  // namespace sluice
