// Recomputation of activations and offload to the host.
#include <string>

#include "configs/migrate/peers/megatron_map.hpp"
#include "configs/value.hpp"

namespace sluice::migrate {
namespace {

void map_full(MegatronRun& run) {
  const MegatronArgs& args = run.args;
  const std::string method = args.text("--recompute-method");
  if (method.empty()) {
    run.map.error("--recompute-granularity",
                  "full needs --recompute-method, Megatron-LM stops; give uniform or block");
    return;
  }
  const std::string number = args.text("--recompute-num-layers");
  if (number.empty()) return;
  if (method == "uniform" && number != "1") {
    run.map.changed("--recompute-num-layers",
                    "the input of every " + number + " layers is kept there, of every layer here");
  } else if (method == "block") {
    run.map.changed("--recompute-num-layers",
                    number + " layers of each stage are computed again there, all layers here");
  }
}

void map_recompute(MegatronRun& run) {
  const MegatronArgs& args = run.args;
  std::string mode = args.text("--recompute-granularity");
  std::string_view from = "--recompute-granularity";
  if (args.has("--recompute-activations")) {
    mode = "selective";
    from = "--recompute-activations";
  }
  if (mode.empty()) {
    for (const std::string_view name :
         {"--recompute-method", "--recompute-num-layers", "--recompute-modules"}) {
      if (args.has(name)) {
        run.map.reclass(name, KeyClass::kIgnored, "no effect without --recompute-granularity");
      }
    }
    return;
  }
  run.map.set(from, "recompute.mode", mode);
  if (mode == "full") return map_full(run);
  if (args.has("--recompute-method")) {
    run.map.error("--recompute-method",
                  "selective has no method, Megatron-LM stops; leave the argument out");
  }
  const auto& modules = args.list("--recompute-modules");
  if (modules.empty() || (modules.size() == 1 && modules[0] == "core_attn")) return;
  run.map.changed("--recompute-modules",
                  "these modules are computed again there, attention alone here");
}

void map_moment_types(MegatronRun& run) {
  const MegatronArgs& args = run.args;
  const std::string first = args.text("--exp-avg-dtype");
  const std::string second = args.text("--exp-avg-sq-dtype");
  for (const std::string_view name : {"--exp-avg-dtype", "--exp-avg-sq-dtype"}) {
    if (args.text(name) == "fp32") continue;
    if (!args.has("--use-precision-aware-optimizer")) {
      run.map.error(name, "needs --use-precision-aware-optimizer, Megatron-LM stops; give both");
    } else if (first != "bf16" || second != "bf16") {
      run.map.stop(name, "both moments are fp32, or both are bf16");
    } else {
      run.map.set(name, "offload.states_dtype", "bf16");
      run.map.changed(name, "bf16 moments are rounded stochastically here");
    }
  }
}

void map_optimizer_offload(MegatronRun& run) {
  const MegatronArgs& args = run.args;
  const bool offloads = args.has("--optimizer-cpu-offload");
  if (offloads) {
    run.map.set("--optimizer-cpu-offload", "offload.optimizer", "host");
    const double share = args.number("--optimizer-offload-fraction");
    if (share < 0 || share > 1) {
      run.map.error("--optimizer-offload-fraction", "no share; give a number from 0 to 1");
    } else {
      run.map.set("--optimizer-offload-fraction", "offload.device_fraction",
                  format_number(1 - share));
    }
    if (!args.has("--use-precision-aware-optimizer")) {
      run.map.error("--optimizer-cpu-offload",
                    "needs --use-precision-aware-optimizer, Megatron-LM stops; give both");
    }
  } else if (args.has("--optimizer-offload-fraction")) {
    run.map.reclass("--optimizer-offload-fraction", KeyClass::kIgnored,
                    "no effect without --optimizer-cpu-offload");
  }
}

void map_activation_offload(MegatronRun& run) {
  const MegatronArgs& args = run.args;
  const std::int64_t layers = args.count("--cpu-offloading-num-layers");
  if (layers > 0) {
    run.map.set("--cpu-offloading-num-layers", "offload.activations", "host");
    run.map.changed("--cpu-offloading-num-layers",
                    "activations of " + std::to_string(layers) +
                        " layers are offloaded there, of all units here");
  }
  if (args.has("--fine-grained-activation-offloading")) {
    run.map.set("--fine-grained-activation-offloading", "offload.activations", "host");
    run.map.changed("--fine-grained-activation-offloading",
                    "inputs of the --offload-modules are offloaded there, kept tensors of all "
                    "units here");
  }
}

}  // namespace

void map_megatron_memory(MegatronRun& run) {
  map_recompute(run);
  map_optimizer_offload(run);
  map_moment_types(run);
  map_activation_offload(run);
}

}  // namespace sluice::migrate
