#include "runtime/plan/mesh_text.hpp"

#include <array>
#include <cstdio>
#include <utility>

#include "base/bytes.hpp"
#include "base/index.hpp"
#include "runtime/program/program_text.hpp"

namespace sluice {
namespace {

constexpr std::size_t kMostRows = 12;

std::string stage_row(const std::string& label, const StagePlan& stage) {
  std::array<char, 128> text{};
  const double step = stage.time.step_s;
  const double busy = nth(stage.time.busy, Lane::kCompute);
  std::snprintf(text.data(), text.size(), "  %-10s%6zu%9s%11s%11d%13s%8.1f %%%6.1f %%\n",
                label.c_str(), stage.unit_names.size(),
                format_count(static_cast<double>(stage.params_held)).c_str(),
                format_bytes(stage.peak(Tier::kDevice)).c_str(), stage.in_flight,
                format_bytes(stage.activation_bytes).c_str(), step > 0 ? 100 * busy / step : 0,
                100 * stage.bubble);
  return text.data();
}

std::vector<std::pair<std::string, const StagePlan*>> rows_of(const RunPlan& plan) {
  std::vector<std::pair<std::string, const StagePlan*>> rows;
  const std::vector<RankClass> classes = rank_classes(plan);
  if (plan.stages.size() > kMostRows) {
    for (const RankClass& one : classes) rows.emplace_back(one.name, one.worst);
    return rows;
  }
  for (const StagePlan& stage : plan.stages) {
    const bool first = stage.stage == 0;
    const bool last = &stage == &plan.stages.back();
    rows.emplace_back(std::to_string(stage.stage) + (first  ? " first"
                                                     : last ? " last"
                                                            : ""),
                      &stage);
  }
  return rows;
}

// Text for a tier without a column in the table.
std::string tier_words(const RunPlan& plan, Tier tier) {
  std::string words;
  bool any = false;
  for (const RankClass& one : rank_classes(plan)) {
    const std::int64_t peak = one.worst->peak(tier);
    any = any || peak > 0;
    words += (words.empty() ? "" : ", ") + one.name + " " + format_bytes(peak);
  }
  return any ? "  " + std::string(name_of(tier)) + ": " + words + "\n" : "";
}

}  // namespace

bool is_mesh(const RunPlan& plan) { return plan.mesh.tensor * plan.mesh.pipeline > 1; }

std::string mesh_words(const RunPlan& plan) {
  const ParallelOptions& mesh = plan.mesh;
  std::string words = "tensor " + std::to_string(mesh.tensor);
  if (mesh.sequence && mesh.tensor > 1) words += " with sequence";
  words += ", pipeline " + std::to_string(mesh.pipeline);
  if (mesh.pipeline > 1) {
    words += " (" + std::string(name_of(mesh.schedule));
    if (mesh.virtual_stages > 1) {
      words += ", " + std::to_string(mesh.virtual_stages) + " chunks a stage";
    }
    words += ")";
  }
  if (!mesh.stage_layers.empty()) {
    words += " of";
    for (std::size_t i = 0; i < mesh.stage_layers.size(); ++i) {
      words += (i == 0 ? " " : " + ") + std::to_string(mesh.stage_layers[i]);
    }
    words += " layers";
  }
  return words + ", data " + std::to_string(mesh.data);
}

std::string stages_text(const RunPlan& plan) {
  if (plan.stages.size() < 2) return "";
  std::string text =
      "stage        units   params     device  in flight  activations  computes  bubble\n";
  for (const auto& [label, stage] : rows_of(plan)) text += stage_row(label, *stage);
  text += tier_words(plan, Tier::kHost) + tier_words(plan, Tier::kNvme);
  std::array<char, 128> last{};
  std::snprintf(last.data(), last.size(),
                "bubble %.1f %% of all ranks' time; the longest stage is %.1f %% above the mean\n",
                100 * plan.bubble_share(), 100 * plan.imbalance());
  return text + last.data();
}

std::string wires_text(const RunPlan& plan) {
  if (!is_mesh(plan)) return "";
  std::string text;
  for (const AxisBytes& axis : bytes_by_axis(plan, plan.wires)) {
    if (axis.bytes == 0) continue;
    const bool between = axis.between_nodes > 0;
    std::array<char, 128> row{};
    std::snprintf(row.data(), row.size(), "  %-10s%11s, %s, %.3g GB/s a rank\n", axis.name,
                  format_bytes(axis.bytes).c_str(),
                  !between ? "within a node"
                  : axis.between_nodes == axis.bytes
                      ? "between nodes"
                      : ("between nodes " + format_bytes(axis.between_nodes)).c_str(),
                  axis.bps * 1e-9);
    text += row.data();
  }
  if (text.empty()) return "";
  return "sent by a rank in a step, by axis of the mesh\n" + text + list_exchanges(plan.program);
}

}  // namespace sluice
