#include "runtime/data/corpus/dedupe/minhash.hpp"

#include <algorithm>
#include <array>
#include <limits>

#include "base/error.hpp"
#include "runtime/data/corpus/filters/text_parts.hpp"
#include "runtime/data/tokenizer/utf8.hpp"

namespace sluice {
namespace {

constexpr std::size_t kMostValues = 1024;

std::uint64_t hash_of(std::string_view text) { return hash64(std::as_bytes(std::span(text))); }

bool all_digits(std::string_view word) {
  return std::all_of(word.begin(), word.end(), [](char c) { return c >= '0' && c <= '9'; });
}

// Words in lower case, a space between.
std::string normalised(std::string_view text) {
  const std::string lower = to_lower(text);
  std::string out;
  out.reserve(lower.size());
  for (const Word& word : split_words(lower)) {
    if (word.symbols) continue;
    if (!out.empty()) out += ' ';
    out += all_digits(word.text) ? std::string_view("0") : word.text;
  }
  return out;
}

// Where the characters, or the words of a text with single spaces, begin; then the end.
std::vector<std::size_t> starts_of(std::string_view text, ShingleUnit unit) {
  std::vector<std::size_t> starts;
  for (std::size_t at = 0; at < text.size();) {
    std::size_t length = 0;
    starts.push_back(at);
    if (unit == ShingleUnit::kCharacters) {
      (void)first_code_point(text.substr(at), length);
      at += length;
    } else {
      at = std::min(text.find(' ', at), text.size());
      at += at < text.size();
    }
  }
  return starts;
}

}  // namespace

MinHasher::MinHasher(const MinHashOptions& options) : options_(options) {
  if (options.shingle < 1 || options.bands < 1 || options.rows < 1 ||
      static_cast<std::size_t>(options.bands) * static_cast<std::size_t>(options.rows) >
          kMostValues) {
    throw ConfigError(
        "near duplicates: shingle, bands and rows are at least 1, and bands x rows at "
        "most 1024");
  }
  for (std::uint64_t i = 0; i < options.values(); ++i) {
    const std::array<std::uint64_t, 2> numbered{options.seed, i};
    const Hash128 random = hash128(std::as_bytes(std::span(numbered)));
    factors_.push_back(random.high | 1U);
    terms_.push_back(random.low);
  }
}

std::vector<std::uint64_t> MinHasher::shingles(std::string_view text) const {
  const bool words = options_.unit == ShingleUnit::kWords;
  std::string buffer;
  if (options_.normalise || words) {
    buffer = normalised(text);
    text = buffer;
  }
  std::vector<std::size_t> starts = starts_of(text, options_.unit);
  std::vector<std::uint64_t> hashes;
  if (starts.empty()) return hashes;
  const auto n = std::min(static_cast<std::size_t>(options_.shingle), starts.size());
  // A shingle of words ends with the space behind the last word.
  if (words) buffer += ' ';
  text = words ? std::string_view(buffer) : text;
  starts.push_back(text.size());
  hashes.reserve(starts.size() - n);
  for (std::size_t i = 0; i + n < starts.size(); ++i) {
    hashes.push_back(hash_of(text.substr(starts[i], starts[i + n] - starts[i])));
  }
  return hashes;
}

std::vector<std::uint32_t> MinHasher::signature(std::span<const std::uint64_t> shingles) const {
  check(!shingles.empty(), "a signature of no shingle");
  const std::size_t count = factors_.size();
  std::vector<std::uint32_t> least(count, std::numeric_limits<std::uint32_t>::max());
  for (const std::uint64_t shingle : shingles) {
    for (std::size_t i = 0; i < count; ++i) {
      const auto value = static_cast<std::uint32_t>((factors_[i] * shingle + terms_[i]) >> 32U);
      least[i] = std::min(least[i], value);
    }
  }
  return least;
}

Hash128 MinHasher::band(std::span<const std::uint32_t> signature, int band) const {
  const auto rows = static_cast<std::size_t>(options_.rows);
  return hash128(std::as_bytes(signature.subspan(static_cast<std::size_t>(band) * rows, rows)));
}

double estimated_similarity(std::span<const std::uint32_t> a, std::span<const std::uint32_t> b) {
  check(a.size() == b.size() && !a.empty(), "signatures of different sizes");
  std::size_t same = 0;
  for (std::size_t i = 0; i < a.size(); ++i) same += a[i] == b[i];
  return static_cast<double>(same) / static_cast<double>(a.size());
}

}  // namespace sluice
