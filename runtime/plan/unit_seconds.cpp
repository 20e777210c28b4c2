#include "runtime/plan/unit_seconds.hpp"

#include <algorithm>
#include <initializer_list>
#include <optional>
#include <string>

#include "base/index.hpp"
#include "runtime/program/write/use_order.hpp"

namespace sluice {
namespace {

// Seconds per FLOP on one core, and the efficiency of one rank with all cores.
struct Cost {
  double forward = 0, backward = 0, attention_forward = 0, attention_backward = 0;
  double threads_efficiency = 1;
};

Cost cost_of(const UnitRates& rates) {
  return {1 / rates.forward_flops, 1 / rates.backward_flops, 1 / rates.attention_forward_flops,
          1 / rates.attention_backward_flops, rates.threads_efficiency};
}

Cost between(const Cost& a, const Cost& b, double share) {
  const auto mix = [&](double from, double to) { return from + share * (to - from); };
  return {mix(a.forward, b.forward), mix(a.backward, b.backward),
          mix(a.attention_forward, b.attention_forward),
          mix(a.attention_backward, b.attention_backward),
          mix(a.threads_efficiency, b.threads_efficiency)};
}

class Costs {
 public:
  Costs(const MachineProfile& machine, DType dtype)
      : units_(machine.units), dtype_(dtype == DType::kFloat32 ? "fp32" : "bf16") {}

  // Costs are linear in 1/hidden: work outside products is a smaller part of larger units.
  [[nodiscard]] std::optional<Cost> of(const std::string& unit, std::int64_t hidden) const {
    const UnitRates* below = nullptr;
    const UnitRates* above = nullptr;
    for (const UnitRates& rates : units_) {
      if (rates.unit != unit || rates.dtype != dtype_) continue;
      if (rates.hidden <= hidden && (below == nullptr || rates.hidden > below->hidden)) {
        below = &rates;
      }
      if (rates.hidden >= hidden && (above == nullptr || rates.hidden < above->hidden)) {
        above = &rates;
      }
    }
    if (below == nullptr && above == nullptr) return std::nullopt;
    if (below == nullptr || above == nullptr || below == above) {
      return cost_of(below == nullptr ? *above : *below);
    }
    const auto inverse = [](std::int64_t size) { return 1 / static_cast<double>(size); };
    const double share = (inverse(hidden) - inverse(below->hidden)) /
                         (inverse(above->hidden) - inverse(below->hidden));
    return between(cost_of(*below), cost_of(*above), share);
  }

 private:
  const std::vector<UnitRates>& units_;
  const std::string dtype_;
};

UnitSeconds price(const ModelSpec& spec, const UnitSpec& unit, const Cost& cost, double samples) {
  const double all = spec.forward_flops_per_sample(unit) * samples;
  const double weights = spec.weight_flops_per_sample(unit) * samples;
  if (unit.kind == UnitKind::kLossHead) {
    return {.forward = all * cost.forward, .backward = (2 * all + weights) * cost.forward};
  }
  const double attention = spec.attention_flops_per_sample(unit) * samples;
  UnitSeconds seconds;
  const double again = attention * cost.attention_forward;
  seconds.forward = (all - attention) * cost.forward + again;
  seconds.backward =
      (all + weights - 2 * attention) * cost.backward + 2 * attention * cost.attention_backward;
  if (spec.options.recompute_attention) seconds.backward += again;
  return seconds;
}

// Bytes that rounding an operand to 8 bits moves, an element: read and written. dy is read once for
// both gradients and written for each.
constexpr double kRoundedBytes = 2 + 1;
constexpr double kGradientBytes = 2 + 1 + 1;
// Read before, for the largest magnitude, unless the kernel that wrote the operand has left it.
constexpr double kScannedBytes = 2;

bool ends_in(const std::string& name, std::initializer_list<const char*> ends) {
  return std::any_of(ends.begin(), ends.end(),
                     [&](const char* end) { return name.ends_with(end); });
}

// Whether the input of a block's linear layer is scanned: attention's output, and norms' outputs
// that sequence parallelism has gathered.
bool scans_input(const ModelSpec& spec, const std::string& weight) {
  if (ends_in(weight, {"attn.c_proj.weight", "self_attn.o_proj.weight"})) return true;
  return spec.part.sequence && !ends_in(weight, {"mlp.c_proj.weight", "mlp.down_proj.weight"});
}

// Whether the gradient of its output is scanned: the activation's backward alone leaves maxima.
bool scans_gradient(const std::string& weight) {
  return !ends_in(weight, {"mlp.c_fc.weight", "mlp.gate_proj.weight", "mlp.up_proj.weight"});
}

// A block of a GPU whose linear layers multiply in 8 bits: products by the profile's rates, and
// the two operands of each product rounded at the rate of device memory.
UnitSeconds fp8_block(const MachineProfile& machine, const ModelSpec& spec, const UnitSpec& unit,
                      double samples) {
  const double narrow = 1 / (machine.gemm_flops.fp8 * machine.gemm_efficiency);
  const double attention = 1 / (machine.gemm_flops.bf16 * machine.gemm_efficiency);
  UnitSeconds seconds = price(spec, unit, {narrow, narrow, attention, attention}, samples);
  const double tokens = samples * static_cast<double>(spec.options.seq);
  for (const ParamRef& ref : unit.params) {
    const TensorSpec& weight = nth(nth(spec.groups, ref.group).params, ref.index).tensor;
    if (weight.shape.size() != 2) continue;
    const auto out = static_cast<double>(weight.shape[0]);
    const auto in = static_cast<double>(weight.shape[1]);
    const auto bytes = [](double rounded, bool scans) {
      return rounded + (scans ? kScannedBytes : 0);
    };
    const double operands = bytes(kRoundedBytes, scans_input(spec, weight.name)) * tokens * in +
                            bytes(kRoundedBytes, true) * out * in;
    const double gradient = bytes(kGradientBytes, scans_gradient(weight.name)) * tokens * out;
    seconds.forward += operands / machine.device_memory_bps;
    seconds.backward += (operands + gradient) / machine.device_memory_bps;
  }
  seconds.known = true;
  return seconds;
}

std::vector<UnitSeconds> fp8_seconds(const MachineProfile& machine, const ModelSpec& spec,
                                     double samples) {
  std::vector<UnitSeconds> seconds;
  for (const UnitSpec& unit : spec.units) {
    const bool block = unit.kind == UnitKind::kBlock;
    seconds.push_back(block ? fp8_block(machine, spec, unit, samples) : UnitSeconds{});
  }
  return seconds;
}

}  // namespace

std::vector<UnitSeconds> unit_seconds(const MachineProfile& machine, const EngineOptions& options,
                                      const ModelSpec& spec) {
  const auto samples = static_cast<double>(options.train.micro_batch);
  const bool fp8 = options.model.matmul == MatmulType::kFp8;
  if (fp8 && machine.gpu && machine.gemm_flops.fp8 > 0) return fp8_seconds(machine, spec, samples);
  if (machine.units.empty()) return {};
  const Costs costs(machine, options.train.dtype);
  const int ranks = options.dp * spec.part.tensor * spec.part.stages;
  const char* family = spec.options.type == ModelType::kGpt2 ? "gpt2" : "llama";
  std::vector<UnitSeconds> seconds;
  for (const UnitSpec& unit : spec.units) {
    UnitSeconds of_unit;
    if (unit.kind != UnitKind::kEmbedding) {
      const bool block = unit.kind == UnitKind::kBlock;
      if (const auto cost = costs.of(block ? family : "head", spec.options.hidden)) {
        const double cores = cores_of_rank(machine, ranks, cost->threads_efficiency);
        of_unit = price(spec, unit, *cost, samples / cores);
        of_unit.known = true;
      }
    }
    seconds.push_back(of_unit);
  }
  return seconds;
}

double compute_floor(const StepShape& shape, const Rates& rates) {
  double seconds = forward_floor(shape, rates) / rates.compute_factor;
  for (std::size_t u = 0; u < shape.units.size(); ++u) {
    if (!has_backward(shape, static_cast<int>(u))) continue;
    const bool head = is_loss_head(shape, static_cast<int>(u));
    const bool again = shape.recompute && !head;
    if (u < rates.units.size() && rates.units[u].known) {
      const UnitSeconds& unit = rates.units[u];
      seconds += unit.backward + (again ? unit.forward : 0);
    } else if (rates.flops > 0) {
      const UnitShape& unit = shape.units[u];
      const int forwards = head || again ? 2 : 1;
      seconds +=
          (unit.forward_flops * forwards + unit.weight_flops + unit.recomputed_flops) / rates.flops;
    }
  }
  return seconds * rates.compute_factor;
}

double forward_floor(const StepShape& shape, const Rates& rates) {
  double seconds = 0;
  for (std::size_t u = 0; u < shape.units.size(); ++u) {
    if (is_loss_head(shape, static_cast<int>(u))) continue;
    if (u < rates.units.size() && rates.units[u].known) {
      seconds += rates.units[u].forward;
    } else if (rates.flops > 0) {
      seconds += shape.units[u].forward_flops / rates.flops;
    }
  }
  return seconds * rates.compute_factor;
}

}  // namespace sluice
