#include <cmath>
#include <nlohmann/json.hpp>

#include "base/index.hpp"
#include "runtime/plan/mesh_text.hpp"
#include "runtime/plan/plan_report.hpp"
#include "runtime/program/program_text.hpp"

namespace sluice {
namespace {

using Json = nlohmann::ordered_json;

Json tags_json(const TagBytes& tags) {
  Json json = Json::object();
  for (int t = 0; t < kTagCount; ++t) {
    const std::int64_t bytes = nth(tags, t);
    if (bytes > 0) json[std::string(name_of(static_cast<Tag>(t)))] = bytes;
  }
  return json;
}

Json tier_json(const TierPlan& tier) {
  Json tags = Json::object();
  for (const auto& [tag, bytes] : tier.by_tag) tags[tag] = bytes;
  Json json{{"peak", tier.peak},
            {"budget", tier.budget > 0 ? Json(tier.budget) : Json(nullptr)},
            {"fits", tier.fits()},
            {"by_tag", tags}};
  if (tier.nccl > 0) json["nccl_estimate"] = tier.nccl;
  return json;
}

Json tiers_json(const StagePlan& plan) {
  Json tiers;
  for (const Tier tier : {Tier::kDevice, Tier::kHost, Tier::kNvme}) {
    tiers[std::string(name_of(tier))] = tier_json(plan.memory.of(tier));
  }
  // Pinned bytes are a part of the host tier.
  tiers["pinned"] = {
      {"peak", plan.pinned}, {"budget", nullptr}, {"fits", true}, {"by_tag", Json::object()}};
  return tiers;
}

Json phases_json(const StagePlan& plan) {
  Json json;
  for (int p = 0; p < kPhaseCount; ++p) {
    Json& phase = json[std::string(name_of(static_cast<Phase>(p)))];
    for (const Tier tier : {Tier::kDevice, Tier::kHost, Tier::kNvme}) {
      const PhaseMemory& memory = nth(nth(plan.phases, tier), p);
      const std::int64_t beside = plan.beside_program(tier);
      Json tags = tags_json(memory.by_tag);
      if (beside > 0) tags["step_program"] = beside;
      phase[std::string(name_of(tier))] = {{"peak", memory.peak + beside}, {"by_tag", tags}};
    }
  }
  return json;
}

Json lanes_json(const RunPlan& plan, const RunFacts& facts) {
  Json json;
  for (int l = 0; l < kLaneCount; ++l) {
    const auto i = static_cast<std::size_t>(l);
    const double hides = facts.hiding[i];
    json[std::string(name_of(static_cast<Lane>(l)))] = {
        {"busy_ms", plan.time.busy[i] * 1e3},
        {"waiting_ms", plan.time.waiting[i] * 1e3},
        {"tokens_to_hide", std::isfinite(hides) ? Json(hides) : Json(nullptr)}};
  }
  return json;
}

// Sums over the ranks of the node that holds most.
Json node_json(const RunPlan& plan) {
  const NodePlan& node = plan.node;
  return {{"ranks", node.ranks},
          {"device", nth(node.peak, Tier::kDevice)},
          {"host", nth(node.peak, Tier::kHost)},
          {"nvme", nth(node.peak, Tier::kNvme)},
          {"pinned", node.pinned},
          {"comm_bytes", node.traffic.sent()},
          {"to_host_bytes", node.traffic.to_host},
          {"to_device_bytes", node.traffic.to_device},
          {"nvme_read_bytes_per_step", node.traffic.disk_read},
          {"nvme_write_bytes_per_step", node.traffic.disk_written}};
}

Json peaks_json(const StagePlan& stage) {
  return {{"device", stage.peak(Tier::kDevice)},
          {"host", stage.peak(Tier::kHost)},
          {"nvme", stage.peak(Tier::kNvme)}};
}

// The device's peak with NCCL's buffers.
Json needs_json(const StagePlan& stage) {
  Json json = peaks_json(stage);
  json["device"] = stage.need(Tier::kDevice);
  return json;
}

// Tiers and phases in the format of the whole plan, which has those of its worst class.
Json classes_json(const RunPlan& plan) {
  Json list = Json::array();
  for (const RankClass& one : rank_classes(plan)) {
    list.push_back({{"name", one.name},
                    {"stages", one.stages},
                    {"ranks", one.ranks},
                    {"stage", one.worst->stage},
                    {"fits", one.worst->missing() == 0},
                    {"peak", peaks_json(*one.worst)},
                    {"tiers", tiers_json(*one.worst)},
                    {"by_phase", phases_json(*one.worst)}});
  }
  return list;
}

Json stages_json(const RunPlan& plan) {
  Json list = Json::array();
  for (const StagePlan& stage : plan.stages) {
    list.push_back({{"stage", stage.stage},
                    {"units", stage.unit_names.size()},
                    {"parameters", stage.params_held},
                    {"peak", peaks_json(stage)},
                    {"in_flight", stage.in_flight},
                    {"activation_bytes", stage.activation_bytes},
                    {"compute_ms", nth(stage.time.busy, Lane::kCompute) * 1e3},
                    {"bubble", stage.bubble}});
  }
  return list;
}

Json mesh_json(const RunPlan& plan) {
  return {{"tensor", plan.mesh.tensor},
          {"sequence", plan.mesh.sequence},
          {"pipeline", plan.mesh.pipeline},
          {"virtual_stages", plan.mesh.virtual_stages},
          {"schedule", name_of(plan.mesh.schedule)},
          {"stage_layers", plan.mesh.stage_layers},
          {"data", plan.mesh.data}};
}

// Exchanges inside operations, of the rank that needs most memory.
Json exchanges_json(const Program& program) {
  Json uses = Json::array();
  for (const ExchangeUse& use : exchange_uses(program)) {
    Json list = Json::array();
    for (const Exchange& exchange : nth(program.exchanges, use.exchanges)) {
      list.push_back(
          {{"kind", name_of(exchange.kind)},
           {"ranks", name_of(exchange.ranks)},
           {"bytes", exchange.bytes},
           {"times", exchange.times},
           {"beside",
            exchange.beside == Beside::kNothing ? Json(nullptr) : Json(name_of(exchange.beside))}});
    }
    uses.push_back({{"operation", name_of(use.kind)},
                    {"units", use.units},
                    {"operations_per_step", use.times},
                    {"exchanges", list}});
  }
  return uses;
}

Json axes_json(const RunPlan& plan) {
  Json json;
  for (const AxisBytes& axis : bytes_by_axis(plan, plan.wires)) {
    json[axis.name] = {{"bytes", axis.bytes},
                       {"within_node", axis.bytes - axis.between_nodes},
                       {"between_nodes", axis.between_nodes},
                       {"bps", axis.bps}};
  }
  return json;
}

// null: no token budget was given.
Json token_budget_json(const RunPlan& plan, const RunFacts& facts) {
  if (facts.tokens == 0) return nullptr;
  const double steps = plan.steps_for(facts.tokens);
  return {{"tokens", facts.tokens},
          {"steps", steps},
          {"seconds", steps * plan.time.step_s},
          {"nvme_write_bytes_of_node", steps * plan.node_written()}};
}

Json drive_json(const RunPlan& plan, const RunFacts& facts) {
  const double seconds = plan.drive_seconds(facts.endurance_bytes);
  return seconds > 0 ? Json(seconds) : Json(nullptr);
}

Json suggestion_json(const Suggestion& s) {
  Json set = Json::object();
  for (const Setting& setting : s.set) set[setting.key] = setting.value;
  Json json{{"set", set},
            {"set_line", set_line(s.set)},
            {"fits", s.plan.fits()},
            {"missing", s.plan.missing()},
            {"peak", needs_json(s.plan)},
            {"step_ms", s.plan.time.step_s * 1e3},
            {"tokens_per_s", s.plan.tokens_per_s()}};
  if (!s.with.empty()) json["with"] = s.with;
  return json;
}

void add_search(const SearchResult& result, Json& json) {
  for (const Suggestion& s : result.suggestions) {
    json["suggestions"].push_back(suggestion_json(s));
  }
  for (const Suggestion& s : result.others) json["other_numbers"].push_back(suggestion_json(s));
  json["search"] = {{"candidates", result.candidates}, {"evaluated", result.evaluated}};
}

Json compare_json(const std::vector<FitRow>& rows) {
  Json list = Json::array();
  for (const FitRow& row : rows) {
    for (std::size_t stage = 0; stage < row.stages.size(); ++stage) {
      const FitCell& cell = row.stages[stage];
      if (!cell.possible) continue;
      if (!cell.refused.empty()) {
        list.push_back(
            {{"offload", row.name}, {"stage", stage}, {"fits", false}, {"refused", cell.refused}});
        continue;
      }
      list.push_back({{"offload", row.name},
                      {"stage", stage},
                      {"fits", cell.fits},
                      {"peak", {{"device", cell.device}, {"host", cell.host}, {"nvme", cell.nvme}}},
                      {"step_ms", cell.step_s * 1e3}});
    }
  }
  return list;
}

}  // namespace

std::string report_json(const RunPlan& plan, const RunFacts& facts, const SearchResult* result,
                        const std::vector<FitRow>* rows) {
  Json json{{"fits", plan.fits() && facts.shortages.empty()}, {"missing", plan.missing()}};
  json["tiers"] = tiers_json(plan);
  json["by_phase"] = phases_json(plan);
  json["step_ms"] = plan.time.step_s * 1e3;
  json["tokens_per_step"] = plan.tokens_per_step;
  json["tokens_per_s"] = plan.tokens_per_s();
  json["mfu"] = plan.mfu();
  json["limiting_lane"] = name_of(plan.time.limiting);
  json["bubble"] = plan.bubble_share();
  json["stage_imbalance"] = plan.imbalance();
  json["lanes"] = lanes_json(plan, facts);
  json["comm_bytes"] = plan.traffic.sent();
  json["comm_bytes_by_axis"] = axes_json(plan);
  json["exchanges"] = exchanges_json(plan.program);
  json["to_host_bytes"] = plan.traffic.to_host;
  json["to_device_bytes"] = plan.traffic.to_device;
  json["nvme_read_bytes_per_step"] = plan.traffic.disk_read;
  json["nvme_write_bytes_per_step"] = plan.traffic.disk_written;
  json["run_seconds"] = static_cast<double>(facts.steps) * plan.time.step_s;
  json["run_steps"] = facts.steps;
  json["token_budget"] = token_budget_json(plan, facts);
  json["endurance_bytes"] = facts.endurance_bytes;
  json["drive_seconds"] = drive_json(plan, facts);
  json["ranks"] = plan.ranks;
  json["nodes"] = plan.nodes;
  json["mesh"] = mesh_json(plan);
  json["rank_classes"] = classes_json(plan);
  json["stages"] = stages_json(plan);
  json["per_node"] = node_json(plan);
  json["parameters"] = plan.params;
  json["frozen_parameters"] = plan.frozen_params;
  json["model_flops"] = plan.model_flops_per_step;
  json["stage"] = plan.shape.stage;
  json["micro_batches"] = plan.shape.micro_batches;
  json["operations"] = plan.program.ops.size();
  json["machine"] = {{"name", facts.machine}, {"rates_from", facts.rates_from}};
  json["notes"] = facts.notes;
  json["shortages"] = facts.shortages;
  json["suggestions"] = json["other_numbers"] = Json::array();
  if (result != nullptr) add_search(*result, json);
  if (rows != nullptr) json["compare"] = compare_json(*rows);
  // User-given names may hold bytes that are not UTF-8, which must not fail the plan.
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace sluice
