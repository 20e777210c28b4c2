// The text report of `sluice data stats`.
#include <algorithm>
#include <array>
#include <string>

#include "base/bytes.hpp"
#include "base/format.hpp"
#include "base/index.hpp"
#include "runtime/data/stats/data_stats.hpp"
#include "runtime/data/tokenizer/utf8.hpp"

namespace sluice {
namespace {

constexpr std::int64_t kBarWidth = 40;

std::string count(std::int64_t value) { return format_count(static_cast<double>(value)); }

double share(std::int64_t part, std::int64_t whole) {
  return whole > 0 ? static_cast<double>(part) / static_cast<double>(whole) : 0;
}

std::string percent(std::int64_t part, std::int64_t whole) {
  return format_text("{:.3g} %", 100 * share(part, whole));
}

std::string row(const char* name, const std::string& value) {
  return format_text("{:<14}{}\n", name, value);
}

std::string input_rows(const DataStats& stats) {
  std::string inputs;
  if (stats.pairs > 0) inputs += format_text("{} .bin/.idx", stats.pairs);
  if (stats.files > 0) {
    inputs += format_text("{}{} text file{}", inputs.empty() ? "" : ", ", stats.files,
                          stats.files == 1 ? "" : "s");
  }
  if (stats.left_out > 0)
    inputs += format_text(", {} of them without text, left out", stats.left_out);
  std::string text = row("inputs", inputs);
  const std::int64_t empty = stats.lengths.octaves()[0].documents;
  text += row("documents", count(stats.lengths.documents()) +
                               (empty > 0 ? ", " + count(empty) + " without a token" : ""));
  text += row("tokens", count(stats.lengths.tokens()));
  if (stats.text_bytes > 0) {
    text +=
        row("text",
            format_text("{}, {:.2f} bytes a token", format_bytes(stats.text_bytes),
                        stats.text_tokens > 0 ? share(stats.text_bytes, stats.text_tokens) : 0.0));
  }
  return text;
}

std::string vocabulary_rows(const DataStats& stats) {
  const std::int64_t tokens = stats.lengths.tokens();
  const auto of_tokens = [&](std::int64_t part) {
    return count(part) + " tokens, " + percent(part, tokens);
  };
  std::string text;
  if (!stats.with_tokenizer) {
    text += row("vocabulary", count(stats.distinct()) + " ids occur; --tokenizer names them");
  } else {
    text += row("vocabulary", format_text("{} of {} ids occur", stats.distinct(), stats.vocab));
    text += row("unknown", of_tokens(stats.unknown));
    std::string bytes = of_tokens(stats.bytes);
    if (stats.text_bytes > 0 && stats.pairs == 0) {
      bytes += format_text(", {} of the bytes", percent(stats.bytes, stats.text_bytes));
    }
    text += row("byte fallback", bytes);
    if (stats.end_of_text > 0) text += row("end of text", of_tokens(stats.end_of_text));
  }
  if (stats.outside > 0) {
    text += row("outside", of_tokens(stats.outside) + " that are no id of the vocabulary");
  }
  return text;
}

std::string length_rows(const DataStats& stats) {
  const LengthCounts& lengths = stats.lengths;
  std::string text = "\ntokens of a document\n";
  text += row("  mean", format_text("{:.1f}", share(lengths.tokens(), lengths.documents())));
  text += row("  least", std::to_string(lengths.least()));
  for (const double q : stats_quantiles()) {
    text += row(format_text("  {:g} %", 100 * q).c_str(), std::to_string(lengths.quantile(q)));
  }
  text += row("  most", std::to_string(lengths.most()));
  const auto octaves = lengths.octaves();
  std::int64_t highest = 0;
  for (const auto& octave : octaves) highest = std::max(highest, octave.documents);
  text += format_text("\n{:>12}  {:>10}  {:>10}\n", "up to", "documents", "tokens");
  for (std::size_t i = 0; i < octaves.size(); ++i) {
    const auto& octave = octaves[i];
    if (octave.documents == 0) continue;
    const auto bar =
        static_cast<std::size_t>((octave.documents * kBarWidth + highest - 1) / highest);
    text += format_text("{:>12}  {:>10}  {:>10}  {}\n", (std::uint64_t{1} << i) - 1,
                        count(octave.documents), count(octave.tokens), std::string(bar, '#'));
  }
  return text;
}

std::string token_rows(const DataStats& stats, const StatsNames& names) {
  const auto ids = stats.most_frequent(names.most_frequent);
  if (ids.empty()) return "";
  std::string text =
      format_text("\n{:>12}  {:>10}  {:>10}  text\n", "most frequent", "tokens", "share");
  for (const std::int32_t id : ids) {
    const std::int64_t tokens = nth(stats.counts, id);
    text += format_text("{:>13}  {:>10}  {:>10}  {}\n", id, count(tokens),
                        percent(tokens, stats.lengths.tokens()),
                        names.tokenizer != nullptr ? token_text(*names.tokenizer, id) : "");
  }
  return text;
}

}  // namespace

std::span<const double> stats_quantiles() {
  static constexpr std::array<double, 7> kQuantiles{0.01, 0.1, 0.25, 0.5, 0.75, 0.9, 0.99};
  return kQuantiles;
}

std::string token_text(const Tokenizer& tokenizer, std::int32_t id) {
  const std::string bytes = tokenizer.decode_continued(std::span(&id, 1));
  std::string text = "'";
  for (std::string_view rest = bytes; !rest.empty();) {
    const std::size_t valid = valid_utf8_prefix(rest);
    for (const char c : rest.substr(0, valid)) {
      const auto byte = static_cast<unsigned char>(c);
      if (byte < 0x20 || byte == 0x7F) {
        text += c == '\n' ? "\\n" : c == '\t' ? "\\t" : format_text("\\x{:02x}", byte);
      } else {
        text += c == '\\' ? "\\\\" : std::string(1, c);
      }
    }
    rest.remove_prefix(valid);
    if (rest.empty()) break;
    text += format_text("\\x{:02x}", static_cast<unsigned char>(rest.front()));
    rest.remove_prefix(1);
  }
  return text + "'";
}

std::string stats_text(const DataStats& stats, const StatsNames& names) {
  return input_rows(stats) +
         (names.tokenizer != nullptr ? row("tokenizer", names.tokenizer->name()) : "") +
         vocabulary_rows(stats) + length_rows(stats) + token_rows(stats, names);
}

}  // namespace sluice
