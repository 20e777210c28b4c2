#include "parallel/comm/text_exchange.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>
#include <span>
#include <string_view>
#include <utility>

namespace sluice {

std::vector<double> Communicator::all_gather_values(std::span<const double> values) {
  const std::vector<std::byte> bytes = all_gather_bytes(std::as_bytes(values));
  std::vector<double> all(bytes.size() / sizeof(double));
  if (!all.empty()) std::memcpy(all.data(), bytes.data(), bytes.size());
  return all;
}

std::vector<std::string> exchange_text(Communicator& comm, std::string_view mine) {
  const std::array<double, 1> size{static_cast<double>(mine.size())};
  const std::vector<double> sizes = comm.all_gather_values(size);
  const auto longest = static_cast<std::size_t>(*std::max_element(sizes.begin(), sizes.end()));
  std::vector<std::string> texts(sizes.size());
  if (longest == 0) return texts;
  std::string padded(mine);
  padded.resize(longest);
  const std::vector<std::byte> all = comm.all_gather_bytes(std::as_bytes(std::span(padded)));
  for (std::size_t r = 0; r < texts.size(); ++r) {
    texts[r].assign(reinterpret_cast<const char*>(all.data()) + r * longest,
                    static_cast<std::size_t>(sizes[r]));
  }
  return texts;
}

namespace {

// "; remedy" at the end of every text that is not empty; "" where the texts end differently.
std::string_view common_remedy(const std::vector<std::string>& texts) {
  std::string_view common;
  bool begun = false;
  for (const std::string& text : texts) {
    if (text.empty()) continue;
    if (!std::exchange(begun, true)) common = text;
    const auto [differs, ignored] =
        std::mismatch(common.rbegin(), common.rend(), text.rbegin(), text.rend());
    common.remove_prefix(static_cast<std::size_t>(common.rend() - differs));
  }
  const std::size_t begin = common.find("; ");
  return begin == std::string_view::npos ? std::string_view() : common.substr(begin);
}

}  // namespace

std::string first_errors(const std::vector<std::string>& by_rank) {
  constexpr int kShown = 3;
  const std::string_view remedy = common_remedy(by_rank);
  std::string text;
  int failed = 0;
  for (std::size_t r = 0; r < by_rank.size(); ++r) {
    if (by_rank[r].empty()) continue;
    if (++failed > kShown) continue;
    text += (text.empty() ? "rank " : "; rank ") + std::to_string(r) + ": ";
    text += std::string_view(by_rank[r]).substr(0, by_rank[r].size() - remedy.size());
  }
  if (failed > kShown) text += "; and " + std::to_string(failed - kShown) + " more ranks";
  return text.append(remedy);
}

bool on_any_rank(Communicator& comm, bool mine) {
  const std::array<double, 1> value{mine ? 1.0 : 0.0};
  const std::vector<double> all = comm.all_gather_values(value);
  return std::any_of(all.begin(), all.end(), [](double v) { return v > 0; });
}

bool on_all_ranks(Communicator& comm, bool mine) { return !on_any_rank(comm, !mine); }

}  // namespace sluice
