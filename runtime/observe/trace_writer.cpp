#include "runtime/observe/trace_writer.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "base/posix/atomic_file.hpp"

namespace sluice {
namespace {

using Json = nlohmann::ordered_json;

Json name_record(const char* kind, int rank, std::size_t lane, const std::string& name) {
  return {{"ph", "M"}, {"name", kind}, {"pid", rank}, {"tid", lane}, {"args", {{"name", name}}}};
}

Json slice(const TraceEvent& event, std::size_t lane) {
  Json args = Json::object();
  for (const auto& [key, value] : event.args) {
    std::visit([&, &key = key](const auto& v) { args[key] = v; }, value);
  }
  return {{"ph", "X"},   {"name", event.name},   {"cat", event.lane},        {"pid", event.rank},
          {"tid", lane}, {"ts", event.start_us}, {"dur", event.duration_us}, {"args", args}};
}

}  // namespace

std::string format_trace(std::span<const TraceEvent> events, const TraceLayout& layout) {
  std::vector<std::string> lanes = layout.lanes;
  const auto lane_of = [&lanes](const std::string& name) {
    const auto found = std::find(lanes.begin(), lanes.end(), name);
    const auto index = static_cast<std::size_t>(found - lanes.begin());
    if (found == lanes.end()) lanes.push_back(name);
    return index;
  };
  Json slices = Json::array();
  std::set<std::pair<int, std::size_t>> tracks;
  for (const TraceEvent& event : events) {
    const std::size_t lane = lane_of(event.lane);
    tracks.emplace(event.rank, lane);
    slices.push_back(slice(event, lane));
  }
  Json all = Json::array();
  int named_rank = -1;
  for (const auto& [rank, lane] : tracks) {
    if (rank != named_rank) {
      const auto named = layout.process_names.find(rank);
      const std::string name = named == layout.process_names.end()
                                   ? layout.process_prefix + std::to_string(rank)
                                   : named->second;
      all.push_back(name_record("process_name", rank, 0, name));
      if (!layout.process_names.empty()) {
        all.push_back({{"ph", "M"},
                       {"name", "process_sort_index"},
                       {"pid", rank},
                       {"tid", 0},
                       {"args", {{"sort_index", rank}}}});
      }
      named_rank = rank;
    }
    all.push_back(name_record("thread_name", rank, lane, lanes[lane]));
    all.push_back({{"ph", "M"},
                   {"name", "thread_sort_index"},
                   {"pid", rank},
                   {"tid", lane},
                   {"args", {{"sort_index", lane}}}});
  }
  for (Json& entry : slices) all.push_back(std::move(entry));
  const Json file{{"traceEvents", std::move(all)}, {"displayTimeUnit", "ms"}};
  // Names come from users' parameters: bytes that are not UTF-8 must not cost the whole trace.
  return file.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
}

void write_trace(const std::string& path, std::span<const TraceEvent> events,
                 const TraceLayout& layout) {
  write_file_atomically(path, format_trace(events, layout));
}

}  // namespace sluice
