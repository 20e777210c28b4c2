#include "runtime/checkpoint/import/pickle_stack.hpp"

#include <algorithm>
#include <utility>

#include "base/format.hpp"

namespace sluice {

PickleStack::PickleStack(std::span<const std::byte> pickle, const std::string& path,
                         std::int64_t base, const PickleLimits& limits)
    : limits_(limits), pickle_(pickle), base_(base) {
  tree_.path = path;
}

void PickleStack::fail(const std::string& what) const {
  throw CheckpointError(what, tree_.path, "", base_ + static_cast<std::int64_t>(opcode_at_));
}

void PickleStack::check_size() const {
  if (static_cast<std::int64_t>(pickle_.size()) <= limits_.bytes) return;
  fail(
      format_text("has a pickle of {} bytes, over the limit of {}", pickle_.size(), limits_.bytes));
}

std::uint8_t PickleStack::next_opcode() {
  opcode_at_ = at_;
  return number<std::uint8_t>();
}

std::span<const std::byte> PickleStack::take(std::uint64_t length) {
  if (length > pickle_.size() - at_) fail("ends within a pickle's opcode");
  const auto bytes = pickle_.subspan(at_, static_cast<std::size_t>(length));
  at_ += static_cast<std::size_t>(length);
  return bytes;
}

std::string PickleStack::text(std::uint64_t length) {
  const auto bytes = take(length);
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

std::string PickleStack::line() {
  const auto rest = pickle_.subspan(at_);
  const auto end = std::find(rest.begin(), rest.end(), std::byte{'\n'});
  if (end == rest.end()) fail("ends within a pickle's opcode");
  std::string found = text(static_cast<std::uint64_t>(end - rest.begin()));
  ++at_;
  return found;
}

std::int64_t PickleStack::long_number(std::uint8_t length) {
  if (length > 8) fail(format_text("holds a number of {} bytes, over 8", length));
  std::uint64_t value = 0;
  const auto bytes = take(length);
  if (length == 0) return 0;
  std::memcpy(&value, bytes.data(), length);
  const unsigned shift = 64U - 8U * length;
  return static_cast<std::int64_t>(value << shift) >> shift;  // extends the sign
}

void PickleStack::push(PickleValue value) {
  if (tree_.values.size() >= limits_.values) {
    fail(format_text("holds more than {} values", limits_.values));
  }
  value.at = base_ + static_cast<std::int64_t>(opcode_at_);
  tree_.values.push_back(std::move(value));
  stack_.push_back(static_cast<PickleId>(tree_.values.size() - 1));
}

void PickleStack::push(Kind kind, std::int64_t number) {
  PickleValue value;
  value.kind = kind;
  value.number = number;
  push(std::move(value));
}

void PickleStack::push(Kind kind, std::string text, std::vector<PickleId> items) {
  PickleValue value;
  value.kind = kind;
  value.text = std::move(text);
  value.items = std::move(items);
  push(std::move(value));
}

PickleId PickleStack::pop() {
  if (stack_.size() <= floor()) fail("takes a value that does not exist");
  const PickleId id = stack_.back();
  stack_.pop_back();
  return id;
}

PickleValue& PickleStack::top() {
  if (stack_.size() <= floor()) fail("takes a value that does not exist");
  return tree_.values[stack_.back()];
}

std::vector<PickleId> PickleStack::pop_mark() {
  if (marks_.empty()) fail("ends a list that was not begun");
  std::vector<PickleId> items(stack_.begin() + static_cast<std::ptrdiff_t>(marks_.back()),
                              stack_.end());
  stack_.resize(marks_.back());
  marks_.pop_back();
  return items;
}

void PickleStack::remember(std::uint64_t index) {
  (void)top();
  memo_[index] = stack_.back();
}

void PickleStack::recall(std::uint64_t index) {
  const auto found = memo_.find(index);
  if (found == memo_.end()) fail(format_text("takes value {}, which does not exist", index));
  stack_.push_back(found->second);
}

}  // namespace sluice
