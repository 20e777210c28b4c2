#include "runtime/plan/search/settings.hpp"

#include <algorithm>
#include <cstdio>

#include "runtime/plan/mesh_text.hpp"
#include "runtime/plan/planner.hpp"

namespace sluice {
namespace {

constexpr Rung kLadder[] = {
    {"none", Tier::kDevice, Tier::kDevice, Tier::kDevice},
    {"host: o", Tier::kHost, Tier::kDevice, Tier::kDevice},
    {"host: o g", Tier::kHost, Tier::kHost, Tier::kDevice},
    {"host: o g p", Tier::kHost, Tier::kHost, Tier::kHost},
    {"nvme: o", Tier::kNvme, Tier::kDevice, Tier::kDevice},
    {"nvme: o, host: g", Tier::kNvme, Tier::kHost, Tier::kDevice},
    {"nvme: o, host: g p", Tier::kNvme, Tier::kHost, Tier::kHost},
    {"nvme: o g p", Tier::kNvme, Tier::kNvme, Tier::kNvme},
};

bool uses_nvme(const OffloadOptions& o) {
  return o.optimizer == Tier::kNvme || o.gradients == Tier::kNvme || o.parameters == Tier::kNvme ||
         o.activations == Tier::kNvme;
}

std::string number_text(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%g", value);
  return text;
}

void add_mesh(const EngineOptions& from, const EngineOptions& to, std::vector<Setting>& set) {
  const ParallelOptions& a = from.parallel;
  const ParallelOptions& b = to.parallel;
  const auto add = [&](const char* key, bool differs, std::string text) {
    if (differs) set.push_back({key, std::move(text)});
  };
  add("parallel.tensor", a.tensor != b.tensor, std::to_string(b.tensor));
  add("parallel.sequence", a.sequence != b.sequence, b.sequence ? "true" : "false");
  add("parallel.pipeline", a.pipeline != b.pipeline, std::to_string(b.pipeline));
  add("parallel.schedule", a.schedule != b.schedule, std::string(name_of(b.schedule)));
  add("parallel.virtual_stages", a.virtual_stages != b.virtual_stages,
      std::to_string(b.virtual_stages));
  add("parallel.data", a.data > 0 && from.dp != to.dp, "auto");
}

bool same(const ParallelOptions& a, const ParallelOptions& b) {
  return a.tensor == b.tensor && a.sequence == b.sequence && a.pipeline == b.pipeline &&
         a.virtual_stages == b.virtual_stages && a.schedule == b.schedule;
}

std::vector<ParallelOptions> schedules_of(const ParallelOptions& mesh, std::int64_t units) {
  std::vector<ParallelOptions> all;
  const auto add = [&](PipelineSchedule schedule, int virtual_stages) {
    all.push_back(mesh);
    all.back().schedule = schedule;
    all.back().virtual_stages = virtual_stages;
  };
  add(PipelineSchedule::k1f1b, 1);
  if (mesh.pipeline == 1) return all;
  add(PipelineSchedule::kZeroBubble, 1);
  for (const int chunks : {2, 4}) {
    if (mesh.pipeline * chunks <= units) add(PipelineSchedule::kInterleaved, chunks);
  }
  return all;
}

}  // namespace

std::span<const Rung> placement_ladder() { return kLadder; }

bool has_meaning(const Rung& rung, int stage) {
  return (rung.gradients == Tier::kDevice || stage >= 2) &&
         (rung.parameters == Tier::kDevice || stage == 3);
}

bool keeps_what_it_sums(const EngineOptions& options) {
  return options.zero.reduce_every == ReduceEvery::kMicroBatch || options.zero.stage < 2 ||
         options.train.accumulation_order == AccumulationOrder::kLayer ||
         micro_batches_of(options) == 1;
}

bool stores_complete_gradients(const EngineOptions& options) {
  const OffloadOptions& offload = options.offload;
  const bool on_device = offload.gradients == Tier::kDevice;
  if (offload.gradients_dtype == DType::kFloat32) return true;
  if (on_device && offload.optimizer != Tier::kDevice) return true;  // idle_keys.hpp
  if (on_device && options.dp > 1) return false;
  return micro_batches_of(options) == 1 ||
         options.train.accumulation_order == AccumulationOrder::kLayer;
}

void place(EngineOptions& options, const Rung& rung) {
  options.offload.optimizer = rung.optimizer;
  options.offload.gradients = rung.gradients;
  options.offload.parameters = rung.parameters;
  if (rung.optimizer == Tier::kDevice) options.offload.speculate = Speculation::kNever;
  options.offload.host_fraction = 0;  // the search fills what the host has left
  if (rung.optimizer == Tier::kDevice || rung.gradients != Tier::kDevice ||
      rung.parameters != Tier::kDevice) {
    options.offload.device_fraction = 0;
  }
}

std::vector<Setting> differences(const EngineOptions& from, const EngineOptions& to) {
  std::vector<Setting> set;
  const auto add = [&](const char* key, auto before, auto after, std::string text) {
    if (before != after) set.push_back({key, std::move(text)});
  };
  const auto tier = [&](const char* key, Tier before, Tier after) {
    add(key, before, after, std::string(name_of(after)));
  };
  add_mesh(from, to, set);
  add("zero.stage", from.zero.stage, to.zero.stage, std::to_string(to.zero.stage));
  add("zero.reduce_dtype", from.zero.reduce_dtype, to.zero.reduce_dtype,
      std::string(name_of(to.zero.reduce_dtype)));
  add("zero.prefetch_units", from.zero.prefetch_units, to.zero.prefetch_units,
      std::to_string(to.zero.prefetch_units));
  add("train.micro_batch", from.train.micro_batch, to.train.micro_batch,
      std::to_string(to.train.micro_batch));
  const bool other_pass = from.train.micro_batch != to.train.micro_batch || from.dp != to.dp;
  if (other_pass && from.train.global_batch == 0) {
    add("train.global_batch", from.train.global_batch, to.train.global_batch,
        std::to_string(to.train.global_batch));
  }
  add("train.dtype", from.train.dtype, to.train.dtype, std::string(name_of(to.train.dtype)));
  add("train.clip", from.train.clip, to.train.clip, number_text(to.train.clip));
  add("train.accumulation_order", from.train.accumulation_order, to.train.accumulation_order,
      to.train.accumulation_order == AccumulationOrder::kLayer ? "layer" : "micro");
  add("recompute.mode", from.recompute.mode, to.recompute.mode,
      std::string(name_of(to.recompute.mode)));
  tier("offload.optimizer", from.offload.optimizer, to.offload.optimizer);
  tier("offload.gradients", from.offload.gradients, to.offload.gradients);
  tier("offload.parameters", from.offload.parameters, to.offload.parameters);
  tier("offload.activations", from.offload.activations, to.offload.activations);
  add("offload.device_fraction", from.offload.device_fraction, to.offload.device_fraction,
      number_text(to.offload.device_fraction));
  add("offload.host_fraction", from.offload.host_fraction, to.offload.host_fraction,
      number_text(to.offload.host_fraction));
  add("offload.states_dtype", from.offload.states_dtype, to.offload.states_dtype,
      std::string(name_of(to.offload.states_dtype)));
  add("offload.gradients_dtype", from.offload.gradients_dtype, to.offload.gradients_dtype,
      std::string(name_of(to.offload.gradients_dtype)));
  add("offload.speculate", from.offload.speculate, to.offload.speculate,
      to.offload.speculate == Speculation::kAuto ? "auto" : "never");
  if (uses_nvme(to.offload) && from.offload.nvme_path.empty()) {
    set.push_back({"offload.nvme_path", kNvmePlaceholder});
  }
  return set;
}

std::int64_t samples_of_step(const EngineOptions& options) {
  return options.train.micro_batch * options.dp * micro_batches_of(options);
}

void set_mesh(EngineOptions& options, const ParallelOptions& mesh) {
  const int world = world_of(options);
  options.parallel = mesh;
  options.dp = world / (mesh.tensor * mesh.pipeline);
}

std::vector<ParallelOptions> list_meshes(const MeshQuestion& question) {
  const int world = world_of(question.options);
  const std::int64_t units = question.options.model.layers + 2;
  std::vector<ParallelOptions> meshes{question.options.parallel};
  const auto allowed = [&](const ParallelOptions& mesh) {
    const auto pieces =
        static_cast<std::size_t>(mesh.pipeline) * static_cast<std::size_t>(mesh.virtual_stages);
    if (!mesh.stage_layers.empty() && mesh.stage_layers.size() != pieces) return false;
    EngineOptions options = question.options;
    set_mesh(options, mesh);
    if (mesh.pipeline > 1) options.train.accumulation_order = AccumulationOrder::kMicro;
    if (question.samples % options.dp != 0) return false;
    return !question.allowed || question.allowed(options);
  };
  for (int tensor = 1; tensor <= std::min(world, question.ranks_of_node); ++tensor) {
    if (world % tensor != 0 || question.ranks_of_node % tensor != 0) continue;
    for (int pipeline = 1; pipeline <= std::min<std::int64_t>(world / tensor, units); ++pipeline) {
      if (world % (tensor * pipeline) != 0) continue;
      const ParallelOptions cut{.tensor = tensor,
                                .sequence = false,
                                .pipeline = pipeline,
                                .stage_layers = question.options.parallel.stage_layers};
      for (ParallelOptions mesh : schedules_of(cut, units)) {
        mesh.sequence = tensor > 1;
        if (mesh.sequence && !allowed(mesh)) mesh.sequence = false;
        if (!same(mesh, meshes.front()) && allowed(mesh)) meshes.push_back(mesh);
      }
    }
  }
  return meshes;
}

std::vector<std::int64_t> list_micro_batches(std::int64_t samples_of_rank, std::int64_t configured,
                                             std::int64_t most) {
  std::vector<std::int64_t> sizes;
  if (samples_of_rank % configured == 0) sizes.push_back(configured);
  for (std::int64_t size = 1; size <= std::min(samples_of_rank, most); size *= 2) {
    if (samples_of_rank % size == 0 && size != configured) sizes.push_back(size);
  }
  std::sort(sizes.begin(), sizes.end());
  return sizes;
}

std::string set_line(const std::vector<Setting>& set) {
  std::string text;
  for (const Setting& s : set) {
    const std::string assignment = s.key + "=" + s.value;
    const bool quoted = assignment.find_first_of(" []{}*?'\"") != std::string::npos;
    text += (text.empty() ? "--set " : " --set ") + (quoted ? "'" + assignment + "'" : assignment);
  }
  return text;
}

}  // namespace sluice
