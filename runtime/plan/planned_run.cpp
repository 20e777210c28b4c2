#include "runtime/plan/planned_run.hpp"

namespace sluice {
namespace {

bool needs_more(const StagePlan& a, const StagePlan& b) {
  if (a.missing() != b.missing()) return a.missing() > b.missing();
  return a.peak(Tier::kDevice) > b.peak(Tier::kDevice);
}

// The axis whose messages leave a node most often.
MeshAxis widest(const MeshWires& wires) {
  return *std::max_element(std::begin(kMeshAxes), std::end(kMeshAxes), [&](MeshAxis a, MeshAxis b) {
    return wire_of(wires, a).crossing < wire_of(wires, b).crossing;
  });
}

}  // namespace

std::size_t largest_stage(const std::vector<StagePlan>& stages, std::size_t begin,
                          std::size_t end) {
  std::size_t worst = begin;
  for (std::size_t s = begin + 1; s < end; ++s) {
    if (needs_more(stages[s], stages[worst])) worst = s;
  }
  return worst;
}

std::vector<RankClass> rank_classes(const RunPlan& plan) {
  const std::size_t count = plan.stages.size();
  const int ranks = plan.ranks / static_cast<int>(std::max<std::size_t>(1, count));
  std::vector<RankClass> classes;
  const auto add = [&](const char* name, std::size_t begin, std::size_t end) {
    if (begin >= end) return;
    const int stages = static_cast<int>(end - begin);
    const StagePlan& worst = plan.stages[largest_stage(plan.stages, begin, end)];
    classes.push_back({name, stages, stages * ranks, &worst});
  };
  if (count == 1) {
    add("all", 0, 1);
  } else if (count > 1) {
    add("first", 0, 1);
    add("middle", 1, count - 1);
    add("last", count - 1, count);
  }
  return classes;
}

std::vector<AxisBytes> bytes_by_axis(const StagePlan& stage, const MeshWires& wires) {
  std::vector<AxisBytes> axes;
  const auto add = [&](const char* name, std::int64_t bytes, MeshAxis axis) {
    const AxisWire& wire = wire_of(wires, axis);
    const auto between = static_cast<std::int64_t>(static_cast<double>(bytes) * wire.crossing);
    axes.push_back({name, bytes, between, wire.bps});
  };
  const Traffic& traffic = stage.traffic;
  add("tensor", traffic.tensor, MeshAxis::kTensor);
  add("data", traffic.wire, MeshAxis::kData);
  add("pipeline", traffic.pipe, MeshAxis::kPipeline);
  add("replicas", traffic.replicas, MeshAxis::kTensor);
  add("ends", traffic.ends, MeshAxis::kPipeline);
  add("world", traffic.world, widest(wires));
  return axes;
}

}  // namespace sluice
