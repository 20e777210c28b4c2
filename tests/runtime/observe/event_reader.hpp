// Parses a TensorBoard event file: framing, checksums, messages. Shares no code with the writer; a
// mistake fails the test.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <fstream>
#include <iterator>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace sluice::testing {

// Bit by bit, as RFC 3720 defines it.
inline std::uint32_t slow_crc(std::string_view bytes) {
  std::uint32_t crc = 0xffffffff;
  for (const char c : bytes) {
    for (int bit = 0; bit < 8; ++bit) {
      const bool out = ((crc ^ (static_cast<unsigned char>(c) >> bit)) & 1) != 0;
      crc = (crc >> 1) ^ (out ? 0x82f63b78U : 0U);
    }
  }
  return ~crc;
}

template <typename T>
T take(std::string_view& bytes) {
  T value{};
  if (bytes.size() < sizeof value) {
    ADD_FAILURE() << "cut short";
    bytes = {};
    return value;
  }
  bytes.copy(reinterpret_cast<char*>(&value), sizeof value);
  bytes.remove_prefix(sizeof value);
  return value;
}

inline std::uint32_t unmasked(std::uint32_t masked) { return std::rotl(masked - 0xa282ead8U, 15); }

inline std::vector<std::string> messages_of(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  const std::string text(std::istreambuf_iterator<char>(file), {});
  std::string_view rest = text;
  std::vector<std::string> messages;
  while (!rest.empty()) {
    const std::string_view head = rest.substr(0, 8);
    const auto size = take<std::uint64_t>(rest);
    EXPECT_EQ(unmasked(take<std::uint32_t>(rest)), slow_crc(head));
    if (size > rest.size()) {
      ADD_FAILURE() << "a record of " << size << " bytes, " << rest.size() << " are left";
      break;
    }
    messages.emplace_back(rest.substr(0, size));
    rest.remove_prefix(size);
    EXPECT_EQ(unmasked(take<std::uint32_t>(rest)), slow_crc(messages.back()));
  }
  return messages;
}

inline std::uint64_t take_varint(std::string_view& bytes) {
  std::uint64_t value = 0;
  for (int shift = 0; shift < 64; shift += 7) {
    const auto byte = take<std::uint8_t>(bytes);
    value |= std::uint64_t{byte & 0x7fU} << shift;
    if (byte < 0x80) return value;
  }
  ADD_FAILURE() << "an endless varint";
  return value;
}

struct ProtoField {
  int number = 0;
  std::uint64_t bits = 0;  // of a number
  std::string bytes;
};

inline std::vector<ProtoField> fields_of(std::string_view message) {
  std::vector<ProtoField> fields;
  while (!message.empty()) {
    const std::uint64_t key = take_varint(message);
    ProtoField field{.number = static_cast<int>(key >> 3), .bits = 0, .bytes = {}};
    switch (key & 7) {
      case 0:
        field.bits = take_varint(message);
        break;
      case 1:
        field.bits = take<std::uint64_t>(message);
        break;
      case 5:
        field.bits = take<std::uint32_t>(message);
        break;
      default: {
        EXPECT_EQ(key & 7, 2U);
        const std::uint64_t size = take_varint(message);
        EXPECT_LE(size, message.size());
        field.bytes = message.substr(0, size);
        message.remove_prefix(std::min<std::size_t>(size, message.size()));
      }
    }
    fields.push_back(field);
  }
  return fields;
}

struct ReadEvent {
  double wall_time = 0;
  std::int64_t step = 0;
  std::string version;
  bool starts = false;
  std::map<std::string, float> values;
};

inline ReadEvent read_event(const std::string& message) {
  ReadEvent event;
  for (const ProtoField& field : fields_of(message)) {
    if (field.number == 1) event.wall_time = std::bit_cast<double>(field.bits);
    if (field.number == 2) event.step = static_cast<std::int64_t>(field.bits);
    if (field.number == 3) event.version = field.bytes;
    if (field.number == 7) event.starts = fields_of(field.bytes).at(0).bits == 1;
    if (field.number != 5) continue;
    for (const ProtoField& value : fields_of(field.bytes)) {
      const std::vector<ProtoField> parts = fields_of(value.bytes);
      EXPECT_EQ(value.number, 1);
      EXPECT_EQ(parts.at(0).number, 1);
      EXPECT_EQ(parts.at(1).number, 2);
      event.values[parts[0].bytes] =
          std::bit_cast<float>(static_cast<std::uint32_t>(parts[1].bits));
    }
  }
  return event;
}

inline std::vector<ReadEvent> events_of(const std::string& path) {
  std::vector<ReadEvent> events;
  for (const std::string& message : messages_of(path)) events.push_back(read_event(message));
  return events;
}

}  // namespace sluice::testing
