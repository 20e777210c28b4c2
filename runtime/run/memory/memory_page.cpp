#include "runtime/run/memory/memory_page.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/bytes.hpp"
#include "base/index.hpp"
#include "runtime/page/page.hpp"
#include "runtime/plan/memory_curve.hpp"

namespace sluice {

std::string_view memory_page_body();
std::string_view memory_page_script();

namespace {

using Json = nlohmann::ordered_json;

// A page with more rows is slow to draw; the file for PyTorch's viewer has all of them.
constexpr std::size_t kMostRows = 1000;

constexpr std::array<Tier, kTierCount> kTiers{Tier::kDevice, Tier::kHost, Tier::kNvme};

std::vector<OpInterval> measured_timeline(const std::vector<OpTiming>& timings) {
  std::vector<OpInterval> timeline;
  const std::int64_t zero = timings.empty() ? 0 : timings.front().wait_us;
  for (const OpTiming& timing : timings) {
    timeline.push_back({1e-6 * static_cast<double>(timing.begin_us - zero),
                        1e-6 * static_cast<double>(timing.end_us - zero)});
  }
  return timeline;
}

Json curve_json(const MemoryCurve& curve) {
  Json times = Json::array();
  for (const MemoryPoint& point : curve.points) times.push_back(point.at_s);
  Json layers = Json::array();
  const auto add = [&](std::string_view name, const std::string& colour, auto bytes_of) {
    Json bytes = Json::array();
    bool any = false;
    for (const MemoryPoint& point : curve.points) {
      bytes.push_back(bytes_of(point));
      any = any || bytes_of(point) > 0;
    }
    if (any) layers.push_back({{"name", name}, {"colour", colour}, {"bytes", std::move(bytes)}});
  };
  for (int t = 0; t < kTagCount; ++t) {
    add(name_of(static_cast<Tag>(t)), "c" + std::to_string(t),
        [t](const MemoryPoint& point) { return nth(point.by_tag, t); });
  }
  add("slots not in use", "free", [](const MemoryPoint& point) {
    std::int64_t rest = point.total;
    for (const std::int64_t bytes : point.by_tag) rest -= bytes;
    return rest;
  });
  return {{"t", std::move(times)}, {"layers", std::move(layers)}, {"thinned", curve.thinned}};
}

Json arrays_json(const TierMemory& tier) {
  std::vector<const MemoryRange*> ranges;
  for (const MemorySegment& segment : tier.segments) {
    for (const MemoryRange& range : segment.held) ranges.push_back(&range);
  }
  std::stable_sort(ranges.begin(), ranges.end(),
                   [](const auto* a, const auto* b) { return a->bytes > b->bytes; });
  Json rows = Json::array();
  for (std::size_t i = 0; i < std::min(ranges.size(), kMostRows); ++i) {
    const MemoryRange& range = *ranges[i];
    rows.push_back({range.name, range.array, name_of(range.tag), range.bytes});
  }
  return {{"all", ranges.size()}, {"rows", std::move(rows)}};
}

Json buffers_json(const TierMemory& tier, const Program& program) {
  std::vector<const BufferLife*> lives;
  for (const BufferLife& life : tier.lives) lives.push_back(&life);
  std::stable_sort(lives.begin(), lives.end(),
                   [](const auto* a, const auto* b) { return a->range.bytes > b->range.bytes; });
  const auto op = [&](OpId id) { return id < 0 ? std::string() : describe(nth(program.ops, id)); };
  Json rows = Json::array();
  for (std::size_t i = 0; i < std::min(lives.size(), kMostRows); ++i) {
    const BufferLife& life = *lives[i];
    rows.push_back({life.range.name, name_of(life.range.tag), life.range.bytes, life.in_arena,
                    op(life.born), op(life.dies)});
  }
  return {{"all", lives.size()}, {"rows", std::move(rows)}};
}

std::int64_t measured_of(const StepMemory& memory, Tier tier) {
  return tier == Tier::kDevice ? memory.device_peak
         : tier == Tier::kHost ? memory.host_peak
                               : memory.nvme;
}

std::string page_text(const MemoryPageInput& input) {
  std::string text;
  for (const Tier tier : kTiers) {
    const TierPlan& planned = input.plan.of(tier);
    if (planned.peak == 0) continue;
    text += std::string(name_of(tier)) + ": planned peak " + format_bytes(planned.peak) + " (" +
            describe_tags(planned) + "), measured " +
            format_bytes(measured_of(input.record.memory, tier)) + "\n";
  }
  return text;
}

}  // namespace

std::string memory_page(const MemoryPageInput& input, const TierMemories& tiers) {
  const std::vector<OpInterval> timeline = measured_timeline(input.timings);
  double end_s = 0;
  for (const OpInterval& interval : timeline) end_s = std::max(end_s, interval.end);
  Json json{{"step", input.record.step},
            {"rank", input.rank},
            {"end_s", end_s},
            {"resident_peak", input.record.memory.resident_peak},
            {"pinned", input.record.memory.pinned},
            {"tiers", Json::array()}};
  for (const Tier tier : kTiers) {
    const TierPlan& planned = input.plan.of(tier);
    if (planned.peak == 0) continue;
    const TierMemory& memory = nth(tiers, tier);
    json["tiers"].push_back({{"name", name_of(tier)},
                             {"planned", planned.peak},
                             {"budget", planned.budget},
                             {"measured", measured_of(input.record.memory, tier)},
                             {"curve", curve_json(memory_curve(input.program, timeline, tier))},
                             {"arrays", arrays_json(memory)},
                             {"buffers", buffers_json(memory, input.program)}});
  }
  const std::string title = "memory of " + input.run + ", step " +
                            std::to_string(input.record.step) + ", rank " +
                            std::to_string(input.rank);
  // Names come from users: bytes that are not UTF-8 must not fail the page.
  const std::string data = json.dump(-1, ' ', false, Json::error_handler_t::replace);
  return make_page({.title = title,
                    .command = "sluice train",
                    .body = memory_page_body(),
                    .scripts = {memory_page_script()},
                    .json = data,
                    .text = page_text(input)});
}

}  // namespace sluice
