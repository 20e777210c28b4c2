#include "runtime/plan/unit_seconds.hpp"

#include <algorithm>
#include <initializer_list>
#include <optional>
#include <string>

#include "base/index.hpp"
#include "runtime/model/attention_choice.hpp"
#include "runtime/model/model_slices.hpp"
#include "runtime/plan/attention_flops.hpp"
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

// What rounding the operands of a block's products to 8 bits moves, in bytes.
struct RoundedBytes {
  double forward = 0, backward = 0;
};

RoundedBytes rounded_bytes(const ModelSpec& spec, const UnitSpec& unit, double tokens) {
  RoundedBytes moved;
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
    moved.forward += operands;
    moved.backward += operands + bytes(kGradientBytes, scans_gradient(weight.name)) * tokens * out;
  }
  return moved;
}

// Units of a GPU: products and attention by FLOP, other kernels by bytes at the rate of the
// device's memory.
class GpuSeconds {
 public:
  GpuSeconds(const MachineProfile& machine, const EngineOptions& options, const ModelSpec& spec)
      : machine_(machine),
        spec_(spec),
        slices_(model_slices(spec.options, spec.part)),
        samples_(static_cast<double>(options.train.micro_batch)),
        tokens_(samples_ * static_cast<double>(spec.options.seq)),
        fp8_(options.model.matmul == MatmulType::kFp8 && machine.gemm_flops.fp8 > 0),
        attention_(attention_flops(machine.attention_flops, spec.options)),
        apart_(attention_ > 0 && options.train.dtype != DType::kFloat32 &&
               spec.options.explicit_units && !trains_by_products(spec.options)) {}

  [[nodiscard]] std::vector<UnitSeconds> all() const {
    if (!fp8_ && !apart_) return {};
    std::vector<UnitSeconds> seconds;
    for (const UnitSpec& unit : spec_.units) {
      if (unit.kind == UnitKind::kBlock) {
        seconds.push_back(block(unit));
      } else if (apart_ && unit.kind == UnitKind::kLossHead) {
        seconds.push_back(head(unit));
      } else {
        seconds.push_back({});
      }
    }
    return seconds;
  }

 private:
  // The share of the rate of a copy in the device's memory that kernels of rows reach: 0.75 to 0.96
  // on an H100, the largest of them 0.8 (docs/benchmarks-gpu.md, "Kernels of a step": shares of the
  // data sheet's rate, of which a copy reaches 0.9).
  static constexpr double kKernelShare = 0.8;
  static constexpr double kElem = 2;  // bytes

  [[nodiscard]] double kernel_bps() const {
    return machine_.device_memory_bps * (apart_ ? kKernelShare : 1);
  }
  [[nodiscard]] double efficiency() const { return apart_ ? 1 : machine_.gemm_efficiency; }

  // With products of this rate.
  [[nodiscard]] Cost cost(double flops) const {
    const double products = 1 / (flops * efficiency());
    if (!apart_) {
      const double wide = 1 / (machine_.gemm_flops.bf16 * efficiency());
      return {products, products, wide, wide};
    }
    constexpr double kBackwardProducts = 5.0 / 4;
    const double attention = 1 / attention_;
    return {products, products, attention, kBackwardProducts * attention};
  }

  [[nodiscard]] UnitSeconds block(const UnitSpec& unit) const {
    const double flops = fp8_ ? machine_.gemm_flops.fp8 : machine_.gemm_flops.bf16;
    UnitSeconds seconds = price(spec_, unit, cost(flops), samples_);
    if (fp8_) {
      const RoundedBytes rounded = rounded_bytes(spec_, unit, tokens_);
      seconds.forward += rounded.forward / kernel_bps();
      seconds.backward += rounded.backward / kernel_bps();
    }
    if (apart_) {
      seconds.forward += kernels(forward_elems());
      seconds.backward += kernels(backward_elems());
    }
    seconds.known = true;
    return seconds;
  }

  // Three products of 16 bits, of which one makes the logits again. Cross entropy reads fp32 logits
  // and writes their gradient in 16 bits.
  [[nodiscard]] UnitSeconds head(const UnitSpec& unit) const {
    UnitSeconds seconds = price(spec_, unit, cost(machine_.gemm_flops.bf16), samples_);
    constexpr double kNormElems = 10, kLogitBytes = 4 + 2;
    const auto vocab = static_cast<double>(slices_.vocab.count);
    seconds.backward += kernels(kNormElems * static_cast<double>(spec_.options.hidden)) +
                        tokens_ * vocab * kLogitBytes / kernel_bps();
    seconds.known = true;
    return seconds;
  }

  // Of kernels that move so many elements a token.
  [[nodiscard]] double kernels(double elems) const {
    return tokens_ * elems * kElem / kernel_bps();
  }

  // Between units a rank has a part of the tokens with sequence parallelism.
  [[nodiscard]] double hidden() const {
    const auto all = static_cast<double>(spec_.options.hidden);
    return spec_.part.sequence ? all / spec_.part.tensor : all;
  }
  [[nodiscard]] double ffn() const { return static_cast<double>(slices_.ffn.count); }
  [[nodiscard]] bool gated() const { return spec_.options.type != ModelType::kGpt2; }
  [[nodiscard]] double up() const { return gated() ? 2 * ffn() : ffn(); }
  [[nodiscard]] double heads(std::int64_t of_keys) const {
    return static_cast<double>((slices_.heads.count + of_keys * slices_.kv_heads.count) *
                               spec_.options.head_dim);
  }
  // q and k, read and written.
  [[nodiscard]] double turned() const { return gated() ? 2 * heads(1) : 0; }

  // Read and written: a norm, the end of the attention half with the other norm, the end of the
  // MLP; the activation.
  [[nodiscard]] double forward_elems() const {
    return (2 + 4 + 3) * hidden() + turned() + up() + ffn();
  }
  // Elements read and written. For each of two norms: the norm again, the sums of its weights, the
  // gradient of its input. Then the biases' sums, the activation with its output again, dq, dk and
  // dv side by side, and dq and dk turned back.
  [[nodiscard]] double backward_elems() const {
    const double norms = 2 * (2 + 2 + 4) * hidden();
    const double biases = gated() ? 0 : 2 * hidden();
    const double activation = 2 * (up() + ffn()) + (fp8_ ? up() : 0);
    return norms + biases + activation + 2 * heads(2) + turned();
  }

  const MachineProfile& machine_;
  const ModelSpec& spec_;
  const ModelSlices slices_;
  const double samples_, tokens_;
  const bool fp8_;
  const double attention_;  // FLOP/s
  const bool apart_;        // attention and the kernels of rows have times of their own
};

}  // namespace

std::vector<UnitSeconds> unit_seconds(const MachineProfile& machine, const EngineOptions& options,
                                      const ModelSpec& spec) {
  if (machine.gpu) return GpuSeconds(machine, options, spec).all();
  if (machine.units.empty()) return {};
  const auto samples = static_cast<double>(options.train.micro_batch);
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
