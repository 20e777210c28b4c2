#include "runtime/plan/page/html_page.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <nlohmann/json.hpp>

#include "base/bytes.hpp"
#include "base/index.hpp"
#include "runtime/page/page.hpp"
#include "runtime/plan/lane_bars.hpp"
#include "runtime/plan/memory_curve.hpp"
#include "runtime/plan/mesh_text.hpp"
#include "runtime/plan/plan_text.hpp"
#include "runtime/plan/search/search_text.hpp"
#include "runtime/plan/timeline.hpp"

namespace sluice {

std::string_view plan_page_body();
std::string_view plan_page_script();

namespace {

using Json = nlohmann::ordered_json;

// Times are whole ticks of the drawn step. The numbers are short, and a tick is a thousandth of a
// pixel of the whole step.
constexpr double kTicks = 1e7;

std::int64_t ticks_of(double seconds, double end_s) {
  return end_s > 0 ? std::llround(seconds / end_s * kTicks) : 0;
}

Json layer(const std::string& name, const std::string& colour, Json bytes) {
  return {{"name", name}, {"colour", colour}, {"bytes", std::move(bytes)}};
}

// Layers from the bottom: tags, unused slots, bytes that the run adds to the program.
Json tier_json(const RunPlan& plan, Tier tier, double end_s, bool& thinned) {
  const TierPlan& memory = plan.memory.of(tier);
  const MemoryCurve curve = memory_curve(plan.program, plan.time.timeline, tier);
  thinned = thinned || curve.thinned;
  Json times = Json::array();
  for (const MemoryPoint& point : curve.points) times.push_back(ticks_of(point.at_s, end_s));
  Json layers = Json::array();
  const auto add = [&](const std::string& name, const std::string& colour, auto bytes_of) {
    Json bytes = Json::array();
    bool any = false;
    for (const MemoryPoint& point : curve.points) {
      bytes.push_back(bytes_of(point));
      any = any || bytes_of(point) > 0;
    }
    if (any) layers.push_back(layer(name, colour, std::move(bytes)));
  };
  for (int t = 0; t < kTagCount; ++t) {
    add(std::string(name_of(static_cast<Tag>(t))), "c" + std::to_string(t),
        [t](const MemoryPoint& point) { return nth(point.by_tag, t); });
  }
  add("slots not in use", "free", [](const MemoryPoint& point) {
    std::int64_t rest = point.total;
    for (const std::int64_t bytes : point.by_tag) rest -= bytes;
    return rest;
  });
  const std::int64_t beside = plan.beside_program(tier);
  add(std::string(kBesideProgram), "beside", [beside](const MemoryPoint&) { return beside; });
  return {
      {"name", name_of(tier)},         {"budget", memory.budget}, {"peak", memory.peak},
      {"beside_name", kBesideProgram}, {"beside", beside},        {"nccl_name", kNcclBuffers},
      {"nccl", memory.nccl},           {"t", std::move(times)},   {"layers", std::move(layers)}};
}

Json bars_json(const RunPlan& plan, const LaneBars& bars, double end_s) {
  Json row, begin, length, busy, count, bytes, kind, unit, batch, group, bucket, chunk;
  for (const LaneBar& bar : bars.bars) {
    const Op& op = nth(plan.program.ops, bar.op);
    row.push_back(bar.row);
    begin.push_back(ticks_of(bar.begin_s, end_s));
    length.push_back(ticks_of(bar.end_s - bar.begin_s, end_s));
    busy.push_back(ticks_of(bar.busy_s, end_s));
    count.push_back(bar.count);
    bytes.push_back(bar.bytes);
    kind.push_back(static_cast<int>(op.kind));
    unit.push_back(op.unit);
    batch.push_back(op.micro_batch);
    group.push_back(op.group);
    bucket.push_back(op.bucket);
    chunk.push_back(op.chunk);
  }
  Json json;
  const auto put = [&json](const char* name, Json& list) {
    json[name] = list.is_null() ? Json::array() : std::move(list);
  };
  put("row", row);
  put("begin", begin);
  put("length", length);
  put("busy", busy);
  put("count", count);
  put("bytes", bytes);
  put("kind", kind);
  put("unit", unit);
  put("batch", batch);
  put("group", group);
  put("bucket", bucket);
  put("chunk", chunk);
  return json;
}

// Leaves out rows without bars and renumbers the rows of the bars.
Json rows_json(LaneBars& bars) {
  Json rows = Json::array();
  std::array<int, kBarRows> place{};
  place.fill(-1);
  for (LaneBar& bar : bars.bars) {
    int& at = nth(place, bar.row);
    if (at < 0) {
      at = static_cast<int>(rows.size());
      rows.push_back({{"name", bar_row_name(bar.row)}, {"wire", bar_row_sends(bar.row)}});
    }
    bar.row = at;
  }
  return rows;
}

Json remarks_json(const RunPlan& plan, const LaneBars& bars, bool curve_thinned, double end_s) {
  Json remarks = Json::array();
  std::string drawn = std::to_string(plan.program.ops.size()) + " operations";
  if (bars.merged) {
    drawn += " as " + std::to_string(bars.bars.size()) + " bars: short neighbours are one bar";
  }
  if (bars.instant > 0) {
    drawn += "; " + std::to_string(bars.instant) + " take no time and are not drawn";
  }
  remarks.push_back(drawn + ".");
  if (curve_thinned) {
    remarks.push_back(
        "The memory curves keep the highest and the last point of each slice of time.");
  }
  if (plan.time.step_s > end_s * 1.0005) {
    remarks.push_back(
        "Lanes are drawn as if each had cores of its own, which they share: so the "
        "step takes " +
        step_seconds_text(plan.time.step_s) + ".");
  }
  return remarks;
}

// The curves and lanes of one rank.
std::string whose(const RunPlan& plan) {
  if (plan.stages.size() == 1) return "";
  return " Memory and lanes are those of a rank of stage " + std::to_string(plan.stage) +
         ", which needs most.";
}

std::string about(const RunPlan& plan, const RunFacts& facts) {
  return std::to_string(plan.ranks) + (plan.ranks == 1 ? " rank" : " ranks") + " on " +
         std::to_string(plan.nodes) + (plan.nodes == 1 ? " node" : " nodes") + " of " +
         facts.machine + " (" + facts.rates_from + "). " + facts.model + ", " +
         format_count(static_cast<double>(plan.params)) + " parameters, " + facts.dtype +
         "; stage " + std::to_string(plan.shape.stage) + ", recompute " + facts.recompute + ", " +
         std::to_string(plan.shape.micro_batches) +
         (plan.shape.micro_batches == 1 ? " micro-batch in " : " micro-batches in ") + facts.order +
         " order; " + format_count(static_cast<double>(plan.tokens_per_step)) + " tokens a step." +
         (is_mesh(plan) ? " " + mesh_words(plan) + "." + whose(plan) : "");
}

Json page_data(const RunPlan& plan, const RunFacts& facts) {
  double end_s = 0;
  for (const OpInterval& op : plan.time.timeline) end_s = std::max(end_s, op.end);
  Json json{{"about", about(plan, facts)},
            {"verdict", verdict_text(plan, facts)},
            {"ticks", kTicks},
            {"end_s", end_s}};
  bool thinned = false;
  json["tiers"] = Json::array();
  for (const Tier tier : {Tier::kDevice, Tier::kHost, Tier::kNvme}) {
    const TierPlan& memory = plan.memory.of(tier);
    if (memory.peak == 0 && memory.budget == 0) continue;
    json["tiers"].push_back(tier_json(plan, tier, end_s, thinned));
  }
  LaneBars bars = lane_bars(plan.program, plan.time);
  json["remarks"] = remarks_json(plan, bars, thinned, end_s);
  json["rows"] = rows_json(bars);
  json["bars"] = bars_json(plan, bars, end_s);
  json["kinds"] = Json::array();
  for (int k = 0; k < kOpKindCount; ++k) {
    const auto kind = static_cast<OpKind>(k);
    json["kinds"].push_back(
        {{"name", name_of(kind)}, {"letter", std::string(1, timeline_letter(kind))}});
  }
  json["units"] = plan.unit_names;
  return json;
}

}  // namespace

std::string plan_html(const RunPlan& plan, const RunFacts& facts, const SearchResult* result,
                      const std::vector<FitRow>* rows) {
  // User-given names may hold bytes that are not UTF-8, which must not fail the page.
  std::string data = page_data(plan, facts).dump(-1, ' ', false, Json::error_handler_t::replace);
  data.pop_back();
  data += ",\"plan\":" + report_json(plan, facts, result, rows) + "}";
  std::string text = report_text(plan, facts);
  if (rows != nullptr) text += compare_text(*rows);
  if (result != nullptr) text += suggestions_text(*result);
  return make_page({.title = "plan of " + facts.config,
                    .command = "sluice plan",
                    .body = plan_page_body(),
                    .scripts = {timeline_script(), plan_page_script()},
                    .json = std::move(data),
                    .text = std::move(text)});
}

}  // namespace sluice
