#include "runtime/bench/adam_bench.hpp"

#include <chrono>
#include <memory>
#include <vector>

#include "base/bytes.hpp"
#include "base/counted.hpp"
#include "base/error.hpp"
#include "base/index.hpp"
#include "kernels/cpu/cast.hpp"
#include "kernels/cpu/cpu_features.hpp"
#include "kernels/cpu/parallel.hpp"
#include "kernels/cpu/update/adamw.hpp"
#include "runtime/bench/machine_memory.hpp"
#include "runtime/bench/table.hpp"

namespace sluice {
namespace {

// A round works through at least so many elements: 10 ms and more on one thread of any machine.
constexpr std::int64_t kRoundElems = std::int64_t{4} * 1024 * 1024;
constexpr int kWarmUpRounds = 2;
// Share of the limit's rate from which memory limits the update.
constexpr double kMemoryBound = 0.85;

const char* name_of(Isa isa) {
  return isa == Isa::kAvx512 ? "avx512" : isa == Isa::kAvx2 ? "avx2" : "scalar";
}

// Written first by the threads that will work on it, as a trainer's arrays are.
template <class T>
std::unique_ptr<T[]> make_array(std::int64_t n, T value) {
  auto array = std::make_unique_for_overwrite<T[]>(static_cast<std::size_t>(n));
  parallel_for(n, grain_elements(sizeof(T)), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) nth(array, i) = value;
  });
  return array;
}

class Arrays {
 public:
  explicit Arrays(const AdamBenchOptions& options)
      : n_(options.elems),
        dtype_(options.dtype),
        master_(make_array(n_, 0.02F)),
        m_(make_array(n_, 1e-4F)),
        v_(make_array(n_, 1e-6F)),
        grad_(make_array(n_ * size_of(dtype_), char{0x11})),  // a small number in every dtype
        weights_(dtype_ == DType::kFloat32 ? nullptr : make_array(n_ * size_of(dtype_), char{0})) {}

  void update() {
    UpdateSpan args;
    args.master = master_.get();
    args.moments[0] = m_.get();
    args.moments[1] = v_.get();
    args.grad = grad_.get();
    args.grad_dtype = dtype_;
    args.weights_out = weights_.get();
    args.weights_dtype = dtype_;
    args.n = n_;
    args.lr = 1e-4;
    args.weight_decay = 0.1;
    args.step = ++step_;
    adamw(args);
  }

  void read_modify_write() {
    for (float* array : {master_.get(), m_.get(), v_.get()}) scale(array, n_, 1.0F);
  }

 private:
  const std::int64_t n_;
  const DType dtype_;
  std::unique_ptr<float[]> master_, m_, v_;
  std::unique_ptr<char[]> grad_, weights_;
  std::int64_t step_ = 0;
};

template <class Body>
double seconds_of(std::int64_t repeats, Body&& body) {
  const auto begin = std::chrono::steady_clock::now();
  for (std::int64_t i = 0; i < repeats; ++i) body();
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
  return took.count() / static_cast<double>(repeats);
}

std::string limit_of(const AdamBenchResult& result) {
  const std::string rate = format_percent(result.of_limit) +
                           " of the read-modify-write rate of this memory with " +
                           counted(result.options.threads, "thread");
  if (result.of_limit >= kMemoryBound) return "memory: an update runs at " + rate;
  return "arithmetic: an update runs at only " + rate;
}

}  // namespace

AdamBenchResult run_adam_bench(const AdamBenchOptions& options) {
  check(options.elems > 0 && options.threads > 0 && options.rounds > 0,
        "sizes of a benchmark are positive");
  const std::int64_t wide = 4 * 3;  // master and two moments
  const std::int64_t narrow = size_of(options.dtype);
  const std::int64_t weights = options.dtype == DType::kFloat32 ? 0 : narrow;
  check_machine_memory(options.elems, wide + narrow + weights, "--elems");
  set_compute_threads(options.threads);
  Arrays arrays(options);
  const std::int64_t repeats = (kRoundElems + options.elems - 1) / options.elems;
  const std::int64_t bytes_per_param = 2 * wide + narrow + weights;
  const auto elems = static_cast<double>(options.elems);
  std::vector<double> adam;
  std::vector<double> limit;
  std::vector<double> ratios;
  for (int round = -kWarmUpRounds; round < options.rounds; ++round) {
    const double update = seconds_of(repeats, [&] { arrays.update(); });
    const double rewrite = seconds_of(repeats, [&] { arrays.read_modify_write(); });
    if (round < 0) continue;
    adam.push_back(update);
    limit.push_back(rewrite);
    ratios.push_back(static_cast<double>(bytes_per_param) / update /
                     (static_cast<double>(2 * wide) / rewrite));
  }
  AdamBenchResult result;
  result.options = options;
  result.isa = name_of(detect_isa());
  result.bytes_per_param = bytes_per_param;
  result.adam = summarize(adam);
  result.read_modify_write = summarize(limit);
  result.params_per_s = elems / result.adam.median;
  result.bytes_per_s = result.params_per_s * static_cast<double>(bytes_per_param);
  result.limit_bytes_per_s =
      elems * static_cast<double>(2 * wide) / result.read_modify_write.median;
  result.of_limit = summarize(ratios).median;
  result.limit = limit_of(result);
  return result;
}

std::string describe(const AdamBenchResult& result) {
  const auto row = [&](const char* name, const Summary& seconds, double bytes_per_s) {
    return std::vector<std::string>{
        name, format_seconds(seconds.median), format_seconds(seconds.mad),
        format_count(static_cast<double>(result.options.elems) / seconds.median) + "/s",
        format_byte_rate(bytes_per_s)};
  };
  std::string text =
      wrap("AdamW on the host: " + format_count(static_cast<double>(result.options.elems)) +
           " parameters, " + std::string(name_of(result.options.dtype)) + ", " +
           counted(result.options.threads, "thread") + ", " + result.isa + ", " +
           std::to_string(result.adam.count) + " rounds") +
      "\n";
  text +=
      format_table({{"", "median", "mad", "parameters", "memory"},
                    row("adamw", result.adam, result.bytes_per_s),
                    row("read-modify-write", result.read_modify_write, result.limit_bytes_per_s)});
  return text + "\n" + wrap("limit: " + result.limit);
}

}  // namespace sluice
