#include <nlohmann/json.hpp>

#include "runtime/plan/plan_text.hpp"

namespace sluice {

std::string plan_json(const StepPlan& plan, const Program& program, const MemoryPlan& memory,
                      const TimeReport* time) {
  using Json = nlohmann::ordered_json;
  Json json;
  json["fits"] = memory.fits();
  for (const Tier tier : {Tier::kDevice, Tier::kHost, Tier::kNvme}) {
    const TierPlan& of = memory.of(tier);
    Json& row = json["tiers"][std::string(name_of(tier))];
    row["peak"] = of.peak;
    row["budget"] = of.budget;
    if (of.nccl > 0) row["nccl_estimate"] = of.nccl;
    row["by_tag"] = Json::object();
    for (const auto& [tag, bytes] : of.by_tag) row["by_tag"][tag] = bytes;
  }
  const auto traffic = traffic_of(program);
  if (time != nullptr) {
    json["step_ms"] = time->step_s * 1e3;
    json["limiting_lane"] = name_of(time->limiting);
  }
  json["stage"] = plan.shape.stage;
  json["dp"] = plan.shape.dp;
  json["micro_batches"] = plan.shape.micro_batches;
  json["operations"] = program.ops.size();
  json["comm_bytes"] = traffic.sent();
  json["nvme_read_bytes_per_step"] = traffic.disk_read;
  json["nvme_write_bytes_per_step"] = traffic.disk_written;
  json["model_flops"] = plan.model_flops_per_step;
  return json.dump(2) + "\n";
}

}  // namespace sluice
