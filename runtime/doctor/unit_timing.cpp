#include "runtime/doctor/unit_timing.hpp"

#include <algorithm>
#include <barrier>
#include <chrono>
#include <cmath>
#include <ctime>
#include <exception>
#include <limits>
#include <mutex>
#include <thread>

#include "base/index.hpp"
#include "kernels/cpu/cpu_features.hpp"
#include "runtime/model/empty_tensor.hpp"
#include "runtime/model/tensor_view.hpp"
#include "runtime/model/units.hpp"

namespace sluice {
namespace {

constexpr std::int64_t kTokens = 512;
constexpr std::int64_t kShortSeq = 64;  // two lengths tell attention from the rest
constexpr std::int64_t kLongSeq = 512;
constexpr std::int64_t kVocab = 4096;
constexpr std::int64_t kHeadDim = 64;

double thread_seconds() {
  timespec now{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

double wall_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

using ReadClock = double (*)();

at::Tensor filled(const std::vector<std::int64_t>& shape, c10::ScalarType type, double value) {
  return empty_tensor(shape, type).fill_(value);
}

class Sink final : public GradSink {
 public:
  void add(const std::vector<std::int64_t>& shape) {
    grads_.push_back(filled(shape, c10::ScalarType::Float, 0));
  }
  GradTarget target(int index) override { return {nth(grads_, index), false}; }

 private:
  std::vector<at::Tensor> grads_;
};

struct Seconds {
  double forward = std::numeric_limits<double>::infinity();
  double backward = std::numeric_limits<double>::infinity();  // the head: all that it does
};

ModelOptions one_block(ModelType type, std::int64_t hidden, std::int64_t seq, MatmulType matmul) {
  ModelOptions options;
  options.type = type;
  options.layers = 1;
  options.hidden = hidden;
  options.heads = hidden / kHeadDim;
  options.vocab = kVocab;
  options.seq = seq;
  options.matmul = matmul;
  return options;
}

// A block, or the loss head, on memory of its own.
class TimedUnit {
 public:
  TimedUnit(const ModelOptions& options, DType dtype, std::size_t index)
      : model_(make_model(options)), type_(scalar_type(dtype)), index_(index) {
    const std::int64_t rows = kTokens / options.seq;
    for (const ParamRef& ref : model_.spec.units[index].params) {
      const ParamGroup& group = nth(model_.spec.groups, ref.group);
      const auto& shape = nth(group.params, ref.index).tensor.shape;
      // No zeros and no ones: their products may be faster.
      params_.push_back(filled(shape, type_, shape.size() == 1 ? 0.9 : 0.013));
      sink_.add(shape);
    }
    const std::vector<std::int64_t> shape{rows, options.seq, options.hidden};
    input_ = empty_tensor(shape, type_).normal_();
    gradient_ = empty_tensor(shape, type_).normal_();
    targets_ = filled({rows, options.seq}, c10::ScalarType::Long, 7);
    if (is_head()) {
      scratch_ = empty_tensor({model_.head->scratch_bytes(kTokens, dtype)}, c10::ScalarType::Byte);
    }
  }

  // FLOP of a forward.
  [[nodiscard]] double flops() const {
    return model_.spec.forward_flops_per_sample(model_.spec.units[index_]) *
           static_cast<double>(input_.size(0));
  }

  void run(Seconds& best, ReadClock now) {
    const double begin = now();
    if (is_head()) {
      at::Tensor grad_input;
      (void)model_.head->loss(params_, input_, targets_, 1.0, scratch_, &sink_, &grad_input);
      best.backward = std::min(best.backward, now() - begin);
      return;
    }
    const UnitCall call{.training = true};
    std::unique_ptr<Saved> saved;
    const at::Tensor output = model_.units[index_]->forward(call, params_, input_, &saved);
    const double middle = now();
    (void)model_.units[index_]->backward(call, params_, input_, std::move(saved), gradient_, sink_);
    best.forward = std::min(best.forward, middle - begin);
    best.backward = std::min(best.backward, now() - middle);
  }

 private:
  [[nodiscard]] bool is_head() const { return index_ == model_.units.size(); }

  Model model_;
  c10::ScalarType type_;
  std::size_t index_;
  std::vector<at::Tensor> params_;
  Sink sink_;
  at::Tensor input_, gradient_, targets_, scratch_;
};

struct Timing {
  Seconds seconds;
  double flops = 0;
};

// On all cores at once; their mean.
Timing time_unit(const UnitTimingOptions& options, const ModelOptions& model, DType dtype,
                 std::size_t index) {
  const auto cores = static_cast<std::size_t>(options.cores);
  std::vector<Timing> each(cores);
  std::exception_ptr failed;
  std::mutex failing;
  std::barrier together(options.cores);
  const auto on_core = [&](std::size_t core) {
    bool arrived = false;
    try {
      enable_flush_to_zero();
      TimedUnit unit(model, dtype, index);
      Seconds first;
      unit.run(first, thread_seconds);  // the libraries make their kernels
      together.arrive_and_wait();
      arrived = true;
      for (int round = 0; round < options.rounds; ++round) {
        unit.run(each[core].seconds, thread_seconds);
      }
      each[core].flops = unit.flops();
    } catch (...) {
      if (!arrived) together.arrive_and_drop();
      const std::lock_guard lock(failing);
      failed = std::current_exception();
    }
  };
  std::vector<std::thread> others;
  for (std::size_t core = 1; core < cores; ++core) others.emplace_back(on_core, core);
  on_core(0);
  for (std::thread& other : others) other.join();
  if (failed) std::rethrow_exception(failed);
  Timing mean{{0, 0}, each.front().flops};
  for (const Timing& one : each) {
    mean.seconds.forward += one.seconds.forward / options.cores;
    mean.seconds.backward += one.seconds.backward / options.cores;
  }
  return mean;
}

// Of one rank with a thread on each core, compared with `apart`: as many ranks as cores.
double threads_efficiency(const UnitTimingOptions& options, const ModelOptions& model, DType dtype,
                          std::size_t index, const Timing& apart) {
  if (options.cores == 1) return 1;
  options.use_threads(options.cores);
  TimedUnit unit(model, dtype, index);
  Seconds together;
  // Threads synchronise at every loop: a neighbour process slows every round.
  for (int round = 0; round < 3 * options.rounds; ++round) unit.run(together, wall_seconds);
  options.use_threads(1);
  const auto sum = [](const Seconds& s) {
    return s.backward + (std::isfinite(s.forward) ? s.forward : 0);
  };
  return std::min(1.0, sum(apart.seconds) / (options.cores * sum(together)));
}

constexpr double kHeadFlops = 1 + kBackwardFlops;

// From two sequence lengths: the part that grows with the length is attention's. If noise hides the
// difference, both parts get one rate.
void add_block(const Timing& brief, const Timing& lengthy, UnitRates rates,
               std::vector<UnitRates>& all) {
  const double attention_long =
      (lengthy.flops - brief.flops) / (1 - static_cast<double>(kShortSeq) / kLongSeq);
  const double attention_brief = attention_long * kShortSeq / kLongSeq;
  const auto split = [&](double brief_s, double lengthy_s, double flops_factor, double& linear,
                         double& attention) {
    const double more = lengthy_s - brief_s;
    const double attention_rate = flops_factor * (attention_long - attention_brief) / more;
    const double rest = brief_s - flops_factor * attention_brief / attention_rate;
    const bool usable = more > 0 && rest > 0;
    linear = flops_factor * (usable ? brief.flops - attention_brief : lengthy.flops) /
             (usable ? rest : lengthy_s);
    attention = usable ? attention_rate : linear;
  };
  split(brief.seconds.forward, lengthy.seconds.forward, 1, rates.forward_flops,
        rates.attention_forward_flops);
  split(brief.seconds.backward, lengthy.seconds.backward, kBackwardFlops, rates.backward_flops,
        rates.attention_backward_flops);
  all.push_back(rates);
}

}  // namespace

std::vector<UnitRates> measure_unit_rates(const UnitTimingOptions& options) {
  std::vector<UnitRates> all;
  for (const DType dtype : {DType::kFloat32, DType::kBFloat16}) {
    const bool narrow = dtype != DType::kFloat32;
    const MatmulType matmul = narrow ? options.narrow_matmul : MatmulType::kNative;
    const std::string type = narrow ? "bf16" : "fp32";
    for (const std::int64_t hidden : options.hidden) {
      for (const ModelType family : {ModelType::kGpt2, ModelType::kLlama}) {
        const auto block = [&](std::int64_t seq) { return one_block(family, hidden, seq, matmul); };
        const Timing brief = time_unit(options, block(kShortSeq), dtype, 1);
        const Timing lengthy = time_unit(options, block(kLongSeq), dtype, 1);
        UnitRates rates{.unit = family == ModelType::kGpt2 ? "gpt2" : "llama", .dtype = type};
        rates.hidden = hidden;
        rates.threads_efficiency = threads_efficiency(options, block(kLongSeq), dtype, 1, lengthy);
        add_block(brief, lengthy, std::move(rates), all);
      }
      const ModelOptions model = one_block(ModelType::kGpt2, hidden, kLongSeq, matmul);
      const Timing head = time_unit(options, model, dtype, 2);
      const double rate = kHeadFlops * head.flops / head.seconds.backward;
      const double together = threads_efficiency(options, model, dtype, 2, head);
      all.push_back({"head", type, hidden, rate, rate, rate, rate, together});
    }
  }
  return all;
}

}  // namespace sluice
