#include "runtime/observe/pickle_writer.hpp"

#include <limits>
#include <utility>

namespace sluice {
namespace {

// Opcodes of Python's pickletools.
enum Opcode : unsigned char {
  kProto = 0x80,
  kMark = '(',
  kStop = '.',
  kEmptyDict = '}',
  kSetItems = 'u',
  kEmptyList = ']',
  kAppends = 'e',
  kUnicode = 'X',  // uint32 length
  kPut = 'r',      // uint32 index in the memo
  kGet = 'j',
  kInt = 'J',    // int32
  kLong = 0x8a,  // uint8 length
  kTrue = 0x88,
  kFalse = 0x89,
  kPair = 0x86,
};

// Readers take a batch of items on a stack of bounded size; Python's writer has this number too.
constexpr std::size_t kBatch = 1000;

}  // namespace

PickleWriter::PickleWriter() {
  out_ += static_cast<char>(kProto);
  out_ += '\2';
}

void PickleWriter::unsigned_bytes(std::uint64_t value, int bytes) {
  for (int i = 0; i < bytes; ++i) out_ += static_cast<char>(value >> (8 * i));
}

void PickleWriter::begin_dict() {
  out_ += static_cast<char>(kEmptyDict);
  out_ += static_cast<char>(kMark);
}

void PickleWriter::end_dict() { out_ += static_cast<char>(kSetItems); }

void PickleWriter::begin_list() {
  out_ += static_cast<char>(kEmptyList);
  out_ += static_cast<char>(kMark);
  items_.push_back(0);
}

void PickleWriter::next() {
  std::size_t& items = items_.back();
  if (items > 0 && items % kBatch == 0) {
    out_ += static_cast<char>(kAppends);
    out_ += static_cast<char>(kMark);
  }
  ++items;
}

void PickleWriter::end_list() {
  out_ += static_cast<char>(kAppends);
  items_.pop_back();
}

void PickleWriter::text(std::string_view utf8) {
  const auto [at, is_new] =
      memo_.try_emplace(std::string(utf8), static_cast<std::uint32_t>(memo_.size()));
  if (!is_new) {
    out_ += static_cast<char>(kGet);
    unsigned_bytes(at->second, 4);
    return;
  }
  out_ += static_cast<char>(kUnicode);
  unsigned_bytes(utf8.size(), 4);
  out_ += utf8;
  out_ += static_cast<char>(kPut);
  unsigned_bytes(at->second, 4);
}

void PickleWriter::number(std::int64_t value) {
  const bool small = value >= std::numeric_limits<std::int32_t>::min() &&
                     value <= std::numeric_limits<std::int32_t>::max();
  out_ += static_cast<char>(small ? kInt : kLong);
  if (!small) out_ += '\10';
  unsigned_bytes(static_cast<std::uint64_t>(value), small ? 4 : 8);
}

void PickleWriter::boolean(bool value) { out_ += static_cast<char>(value ? kTrue : kFalse); }

void PickleWriter::zero_pair() {
  number(0);
  number(0);
  out_ += static_cast<char>(kPair);
}

std::string PickleWriter::take() {
  out_ += static_cast<char>(kStop);
  return std::move(out_);
}

}  // namespace sluice
