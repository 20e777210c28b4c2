// The report of `sluice data stats` for programs and for the page.
#include <algorithm>
#include <cmath>
#include <functional>
#include <nlohmann/json.hpp>

#include "base/index.hpp"
#include "runtime/data/stats/data_stats.hpp"

namespace sluice {
namespace {

using Json = nlohmann::ordered_json;

constexpr double kRanksOfDecade = 40;  // points of the page's curve

Json length_json(const LengthCounts& lengths) {
  Json quantiles = Json::array();
  for (const double q : stats_quantiles()) {
    quantiles.push_back({{"share", q}, {"tokens", lengths.quantile(q)}});
  }
  Json histogram = Json::array();
  const auto octaves = lengths.octaves();
  for (std::size_t i = 0; i < octaves.size(); ++i) {
    const std::int64_t from = i == 0 ? 0 : std::int64_t{1} << (i - 1);
    histogram.push_back({{"from", from},
                         {"to", i == 0 ? 0 : 2 * from - 1},
                         {"documents", octaves[i].documents},
                         {"tokens", octaves[i].tokens}});
  }
  return {
      {"mean", static_cast<double>(lengths.tokens()) / static_cast<double>(lengths.documents())},
      {"least", lengths.least()},
      {"most", lengths.most()},
      {"quantiles", quantiles},
      {"histogram", histogram}};
}

Json tokens_json(const DataStats& stats, const StatsNames& names) {
  Json list = Json::array();
  for (const std::int32_t id : stats.most_frequent(names.most_frequent)) {
    const std::int64_t tokens = nth(stats.counts, id);
    Json entry{
        {"id", id},
        {"tokens", tokens},
        {"share", static_cast<double>(tokens) / static_cast<double>(stats.lengths.tokens())}};
    if (names.tokenizer != nullptr) entry["text"] = token_text(*names.tokenizer, id);
    list.push_back(std::move(entry));
  }
  return list;
}

Json stats_object(const DataStats& stats, const StatsNames& names) {
  Json json{{"inputs", names.title},
            {"pairs", stats.pairs},
            {"text_files", stats.files},
            {"left_out", stats.left_out},
            {"tokenizer", names.tokenizer != nullptr ? Json(names.tokenizer->name()) : Json()},
            {"documents", stats.lengths.documents()},
            {"empty_documents", stats.lengths.octaves()[0].documents},
            {"tokens", stats.lengths.tokens()},
            {"text_bytes", stats.text_bytes},
            {"text_tokens", stats.text_tokens},
            {"distinct_ids", stats.distinct()},
            {"outside_vocabulary", stats.outside}};
  if (stats.with_tokenizer) {
    json["vocabulary"] = stats.vocab;
    json["unknown_tokens"] = stats.unknown;
    json["byte_fallback_tokens"] = stats.bytes;
    json["end_of_text_tokens"] = stats.end_of_text;
  }
  json["lengths"] = length_json(stats.lengths);
  json["most_frequent"] = tokens_json(stats, names);
  return json;
}

// Ranks from 1 in steps of equal ratio, and the tokens of each.
Json ranks_json(const DataStats& stats) {
  std::vector<std::int64_t> counts = stats.counts;
  std::sort(counts.begin(), counts.end(), std::greater<>());
  Json ranks = Json::array(), tokens = Json::array();
  const std::int64_t last = stats.distinct();
  for (std::int64_t rank = 1, step = 0; rank <= last; ++step) {
    ranks.push_back(rank);
    tokens.push_back(nth(counts, rank - 1));
    if (rank == last) break;
    const auto next = std::llround(std::pow(10.0, static_cast<double>(step + 1) / kRanksOfDecade));
    rank = std::min<std::int64_t>(std::max<std::int64_t>(next, rank + 1), last);
  }
  return {{"rank", ranks}, {"tokens", tokens}};
}

// Names of files and tokens may hold bytes that are not UTF-8, which must not fail the report.
std::string write(const Json& json, int indent) {
  return json.dump(indent, ' ', false, Json::error_handler_t::replace);
}

}  // namespace

std::string stats_json(const DataStats& stats, const StatsNames& names) {
  return write(stats_object(stats, names), 2) + "\n";
}

std::string stats_page_json(const DataStats& stats, const StatsNames& names) {
  Json json = stats_object(stats, names);
  json["ranks"] = ranks_json(stats);
  return write(json, -1);
}

}  // namespace sluice
