#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>

#include "runtime/report/run_files.hpp"

namespace sluice {
namespace {

using Json = nlohmann::ordered_json;

// As in runtime/plan/page/html_page.cpp: a tick is a thousandth of a pixel of the whole step.
constexpr double kTicks = 1e7;
constexpr std::size_t kMostBars = 6000;

struct Slice {
  double begin = 0, end = 0;  // microseconds
  double busy = 0;
  int count = 1;
  std::int64_t bytes = 0;
  std::string name;
};
// Track and process of the trace: the plan of a lane stands below its measurement.
using Lane = std::pair<int, int>;

struct Trace {
  std::map<Lane, std::vector<Slice>> lanes;
  std::map<Lane, std::string> names;
  std::map<int, std::string> processes;
};

std::int64_t bytes_of(const Json& event) {
  std::int64_t bytes = 0;
  const auto args = event.find("args");
  if (args == event.end() || !args->is_object()) return 0;
  for (const char* key : {"wire_bytes", "exchanged_bytes", "moved_bytes"}) {
    const auto found = args->find(key);
    if (found != args->end() && found->is_number()) bytes += found->get<std::int64_t>();
  }
  return bytes;
}

// Events of other forms are passed over.
void take(Trace& trace, const Json& event) {
  if (!event.is_object()) return;
  const std::string kind = event.value("ph", "");
  const Lane lane{event.value("tid", 0), event.value("pid", 0)};
  if (kind == "M") {
    const std::string name = event.at("args").value("name", "");
    if (event.value("name", "") == "thread_name") trace.names[lane] = name;
    if (event.value("name", "") == "process_name") trace.processes[lane.second] = name;
    return;
  }
  if (kind != "X") return;
  const double begin = event.value("ts", 0.0);
  const double length = event.value("dur", 0.0);
  if (!std::isfinite(begin) || !(length > 0)) return;
  trace.lanes[lane].push_back({.begin = begin,
                               .end = begin + length,
                               .busy = length,
                               .bytes = bytes_of(event),
                               .name = event.value("name", "")});
}

// Slices shorter than `least` join the one before while both stay shorter together.
std::vector<Slice> merged(std::vector<Slice> slices, double least) {
  std::sort(slices.begin(), slices.end(),
            [](const Slice& a, const Slice& b) { return a.begin < b.begin; });
  std::vector<Slice> result;
  double longest = 0;  // of the slices of the last bar
  for (Slice& slice : slices) {
    const bool joins =
        !result.empty() && slice.busy < least && slice.end - result.back().begin <= least;
    if (!joins) {
      longest = slice.busy;
      result.push_back(std::move(slice));
      continue;
    }
    Slice& last = result.back();
    last.end = std::max(last.end, slice.end);
    last.busy += slice.busy;
    last.bytes += slice.bytes;
    ++last.count;
    if (slice.busy > longest) {
      longest = slice.busy;
      last.name = slice.name;
    }
  }
  return result;
}

// The letter of timeline.js for an operation's name.
char letter_of(const std::string& name, const std::string& lane) {
  static constexpr std::pair<const char*, char> kWords[]{
      {"wait", '_'},      {"Forward", 'F'},      {"LossHead", 'L'},    {"BackwardWeights", 'W'},
      {"Backward", 'B'},  {"NormAndScale", 'N'}, {"SumSquares", 'N'},  {"Meet", 'N'},
      {"Update", 'U'},    {"Gather", 'G'},       {"ReduceGrads", 'R'}, {"Add", 'R'},
      {"ReadShard", 'P'}, {"FetchShard", 'P'},   {"CopyParams", 'P'},  {"WriteParams", 'P'},
      {"SaveInput", 'A'}, {"WriteInput", 'A'},   {"ReadInput", 'A'},   {"FetchInput", 'A'},
      {"Send", 'X'},      {"Receive", 'X'}};
  if (lane == "tensor") return 'T';
  for (const auto& [word, letter] : kWords) {
    if (name.starts_with(word)) return letter;
  }
  return lane == "compute" || lane == "issue" ? 'O' : 'S';
}

struct Bars {
  Json rows = Json::array(), names = Json::array(), kinds = Json::array();
  Json row = Json::array(), begin = Json::array(), length = Json::array(), busy = Json::array(),
       count = Json::array(), bytes = Json::array(), kind = Json::array();
  std::map<char, int> letters;

  void add(const Slice& slice, const std::string& lane, double end_us) {
    const auto ticks = [end_us](double us) { return std::llround(us / end_us * kTicks); };
    const char letter = letter_of(slice.name, lane);
    if (letters.emplace(letter, static_cast<int>(letters.size())).second) {
      kinds.push_back({{"name", ""}, {"letter", std::string(1, letter)}});
    }
    row.push_back(rows.size() - 1);
    begin.push_back(ticks(slice.begin));
    length.push_back(ticks(slice.end - slice.begin));
    busy.push_back(ticks(slice.busy));
    count.push_back(slice.count);
    bytes.push_back(slice.bytes);
    kind.push_back(letters[letter]);
    names.push_back(slice.name);
  }
};

std::string lanes_json(Trace& trace) {
  double end_us = 0;
  std::size_t slices = 0;
  for (const auto& [lane, list] : trace.lanes) {
    slices += list.size();
    for (const Slice& slice : list) end_us = std::max(end_us, slice.end);
  }
  if (slices == 0 || !(end_us > 0)) return "";
  const bool merges = slices > kMostBars;
  const double least =
      merges ? end_us * 2 * static_cast<double>(trace.lanes.size()) / double{kMostBars} : 0;
  Bars bars;
  for (auto& [lane, list] : trace.lanes) {
    const std::string process = trace.processes[lane.second];
    const bool predicted = process == "predicted";
    const std::string& name = trace.names[lane];
    bars.rows.push_back({{"name", (predicted ? "plan " : "") + name},
                         {"wire", name == "comm" || name == "tensor" || name.starts_with("pipe")}});
    for (const Slice& slice : merged(std::move(list), least)) bars.add(slice, name, end_us);
  }
  Json remarks = Json::array();
  if (merges) {
    remarks.push_back(std::to_string(slices) + " slices as " + std::to_string(bars.row.size()) +
                      " bars: short neighbours are one bar.");
  }
  const Json json{{"ticks", kTicks},
                  {"end_s", end_us / 1e6},
                  {"tiers", Json::array()},
                  {"rows", std::move(bars.rows)},
                  {"kinds", std::move(bars.kinds)},
                  {"names", std::move(bars.names)},
                  {"bars",
                   {{"row", std::move(bars.row)},
                    {"begin", std::move(bars.begin)},
                    {"length", std::move(bars.length)},
                    {"busy", std::move(bars.busy)},
                    {"count", std::move(bars.count)},
                    {"bytes", std::move(bars.bytes)},
                    {"kind", std::move(bars.kind)}}},
                  {"remarks", std::move(remarks)}};
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace

std::string timeline_json(std::string_view text) {
  const Json file = Json::parse(text, nullptr, false);
  if (!file.is_object() || !file.contains("traceEvents") || !file["traceEvents"].is_array()) {
    return "";
  }
  Trace trace;
  try {
    for (const Json& event : file["traceEvents"]) take(trace, event);
  } catch (const nlohmann::json::exception&) {  // a value of an unexpected type
    return "";
  }
  return lanes_json(trace);
}

}  // namespace sluice
