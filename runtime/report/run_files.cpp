#include "runtime/report/run_files.hpp"

#include <nlohmann/json.hpp>

namespace sluice {
namespace {

double number_of(const nlohmann::json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_number() ? found->get<double>() : 0;
}

std::string text_of(const nlohmann::json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_string() ? found->get<std::string>() : "";
}

}  // namespace

std::optional<EventLine> parse_event_line(std::string_view text) {
  const nlohmann::json object = nlohmann::json::parse(text, nullptr, false);
  if (!object.is_object()) return std::nullopt;
  EventLine event{.kind = text_of(object, "event"),
                  .text = text_of(object, "text"),
                  .unix_seconds = number_of(object, "time")};
  if (event.kind.empty()) return std::nullopt;
  const auto step = object.find("step");
  if (step != object.end() && step->is_number_integer()) event.step = step->get<std::int64_t>();
  return event;
}

std::optional<PlanFigures> parse_plan(std::string_view text) {
  const nlohmann::json object = nlohmann::json::parse(text, nullptr, false);
  if (!object.is_object() || !object.contains("tiers") || !object["tiers"].is_object()) {
    return std::nullopt;
  }
  PlanFigures plan{.step_ms = number_of(object, "step_ms")};
  for (const char* name : {"device", "host", "nvme"}) {
    const auto found = object["tiers"].find(name);
    if (found == object["tiers"].end() || !found->is_object()) continue;
    PlannedTier tier{
        .name = name, .peak = number_of(*found, "peak"), .budget = number_of(*found, "budget")};
    if (const auto tags = found->find("by_tag"); tags != found->end() && tags->is_object()) {
      for (const auto& [tag, bytes] : tags->items()) {
        if (bytes.is_number()) tier.by_tag.emplace_back(tag, bytes.get<double>());
      }
    }
    plan.tiers.push_back(std::move(tier));
  }
  return plan;
}

}  // namespace sluice
