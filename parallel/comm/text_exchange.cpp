#include "parallel/comm/text_exchange.hpp"

#include <algorithm>
#include <array>
#include <cstdint>

namespace sluice {
namespace {

constexpr std::size_t kBytesInDouble = 6;  // whole numbers below 2^48 are exact

std::vector<double> pack(std::string_view text, std::size_t values) {
  std::vector<double> packed(values, 0.0);
  for (std::size_t i = 0; i < text.size(); ++i) {
    const std::size_t shift = i % kBytesInDouble * 8;
    const auto byte = static_cast<std::uint64_t>(static_cast<unsigned char>(text[i]));
    packed[i / kBytesInDouble] += static_cast<double>(byte << shift);
  }
  return packed;
}

std::string unpack(const double* packed, std::size_t size) {
  std::string text(size, '\0');
  for (std::size_t i = 0; i < size; ++i) {
    const auto value = static_cast<std::uint64_t>(packed[i / kBytesInDouble]);
    text[i] = static_cast<char>(value >> (i % kBytesInDouble * 8) & 0xFF);
  }
  return text;
}

}  // namespace

std::vector<std::string> exchange_text(Communicator& comm, std::string_view mine) {
  const std::array<double, 1> size{static_cast<double>(mine.size())};
  const std::vector<double> sizes = comm.all_gather_values(size);
  const auto longest = static_cast<std::size_t>(*std::max_element(sizes.begin(), sizes.end()));
  const std::size_t values = (longest + kBytesInDouble - 1) / kBytesInDouble;
  std::vector<std::string> texts(sizes.size());
  if (values == 0) return texts;
  const std::vector<double> all = comm.all_gather_values(pack(mine, values));
  for (std::size_t r = 0; r < texts.size(); ++r) {
    texts[r] = unpack(all.data() + r * values, static_cast<std::size_t>(sizes[r]));
  }
  return texts;
}

std::string first_errors(const std::vector<std::string>& by_rank) {
  constexpr int kShown = 3;
  std::string text;
  int failed = 0;
  for (std::size_t r = 0; r < by_rank.size(); ++r) {
    if (by_rank[r].empty()) continue;
    if (++failed > kShown) continue;
    text += (text.empty() ? "rank " : "; rank ") + std::to_string(r) + ": " + by_rank[r];
  }
  if (failed > kShown) text += "; and " + std::to_string(failed - kShown) + " more ranks";
  return text;
}

bool on_any_rank(Communicator& comm, bool mine) {
  const std::array<double, 1> value{mine ? 1.0 : 0.0};
  const std::vector<double> all = comm.all_gather_values(value);
  return std::any_of(all.begin(), all.end(), [](double v) { return v > 0; });
}

bool on_all_ranks(Communicator& comm, bool mine) { return !on_any_rank(comm, !mine); }

}  // namespace sluice
