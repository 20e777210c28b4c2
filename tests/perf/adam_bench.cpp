// AdamW on the host beside what the memory of the machine can do: the bytes per second of adamw()
// and of the best of three loops that read and write the same streams and compute next to nothing.
//
//   sluice_adam_bench [--case fp32|bf16|bf16-states] [--elements 33554432] [--threads 0]
//                     [--rounds 15] [--stdin]
//
// fp32: gradients and weights in fp32; bf16: gradients and weights in bf16; bf16-states: so are the
// moments. Rounds alternate between adamw and the loops. Prints a line of JSON; with --stdin
// instead one line for each line read, of one round, for a script that measures others in between.
#include <emmintrin.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "kernels/cpu/cast.hpp"
#include "kernels/cpu/dispatch.hpp"
#include "kernels/cpu/parallel.hpp"
#include "kernels/cpu/update/adamw.hpp"

namespace {

using sluice::DType;
using sluice::size_of;
using Words = std::uint32_t __attribute__((vector_size(64), may_alias));

struct Options {
  std::string name = "bf16";
  std::int64_t elements = 1 << 25;
  int threads = 0;  // 0: the CPUs of this process
  int rounds = 15;
  bool from_stdin = false;
};

struct Free {
  void operator()(char* p) const { std::free(p); }
};
using Memory = std::unique_ptr<char, Free>;

Memory filled(std::int64_t n, DType dtype, float value) {
  const auto bytes = static_cast<std::size_t>((n * size_of(dtype) + 4095) / 4096 * 4096);
  Memory memory(static_cast<char*>(std::aligned_alloc(4096, bytes)));
  sluice::check(memory != nullptr, "adam_bench: out of memory; ask for fewer --elements");
  const std::vector<float> some(1 << 14, value);
  for (std::int64_t i = 0; i < n; i += std::ssize(some)) {
    sluice::convert(memory.get() + i * size_of(dtype), dtype, some.data(), DType::kFloat32,
                    std::min<std::int64_t>(std::ssize(some), n - i));
  }
  return memory;
}

struct Work {
  DType moments = DType::kFloat32;
  DType grads = DType::kFloat32;
  bool separate_weights = false;  // in the gradients' dtype; else the master is the weights
  std::int64_t n = 0;
  Memory p, m, v, g, w;

  std::int64_t bytes() const {
    const std::int64_t weights = separate_weights ? size_of(grads) : 0;
    return n * (2 * 4 + 2 * 2 * size_of(moments) + size_of(grads) + weights);
  }
};

Work make_work(const std::string& name, std::int64_t n) {
  Work work;
  work.n = n;
  if (name != "fp32") {
    work.grads = DType::kBFloat16;
    work.separate_weights = true;
    work.w = filled(n, work.grads, 0.0F);
  }
  if (name == "bf16-states") work.moments = DType::kBFloat16;
  work.p = filled(n, DType::kFloat32, 1.0F);
  work.m = filled(n, work.moments, 0.01F);
  work.v = filled(n, work.moments, 1e-4F);
  work.g = filled(n, work.grads, 0.01F);
  return work;
}

enum class Loop { kPlain, kPrefetch, kStream };
constexpr int kLoops = 3;
constexpr std::int64_t kAhead = 2048;  // bytes, as adamw() prefetches

void stream_line(void* to, const Words& values) {
  for (int i = 0; i < 4; ++i) {
    _mm_stream_si128(static_cast<__m128i*>(to) + i, reinterpret_cast<const __m128i*>(&values)[i]);
  }
}

// Adds one in the last place: the states nearly stay what they are.
template <Loop kLoop>
void modify_line(char* at) {
  if (kLoop != Loop::kPlain) __builtin_prefetch(at + kAhead);
  const Words changed = *reinterpret_cast<const Words*>(at) + 1;
  if (kLoop == Loop::kStream) {
    stream_line(at, changed);
  } else {
    *reinterpret_cast<Words*>(at) = changed;
  }
}

// Reads the gradient, changes master and moments in place, writes the separate weights past the
// caches. Blocks of 32 elements: whole lines of 16-bit streams.
template <Loop kLoop>
void read_modify_write(const Work& work, std::int64_t begin, std::int64_t end) {
  char* p = work.p.get();
  char* m = work.m.get();
  char* v = work.v.get();
  const char* g = work.g.get();
  char* w = work.w.get();
  const std::int64_t moment = size_of(work.moments);
  const std::int64_t grad = size_of(work.grads);
  Words sum{};
  for (std::int64_t i = begin; i + 32 <= end; i += 32) {
    for (std::int64_t b = 0; b < 128; b += 64) modify_line<kLoop>(p + 4 * i + b);
    for (std::int64_t b = 0; b < 32 * moment; b += 64) modify_line<kLoop>(m + moment * i + b);
    for (std::int64_t b = 0; b < 32 * moment; b += 64) modify_line<kLoop>(v + moment * i + b);
    for (std::int64_t b = 0; b < 32 * grad; b += 64) {
      if (kLoop != Loop::kPlain) __builtin_prefetch(g + grad * i + b + kAhead);
      sum += *reinterpret_cast<const Words*>(g + grad * i + b);
    }
    if (work.separate_weights) stream_line(w + grad * i, sum);
  }
  asm volatile("" : : "m"(sum) : "memory");
  _mm_sfence();
}

double seconds_of(const auto& body) {
  const auto start = std::chrono::steady_clock::now();
  body();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

template <Loop kLoop>
double loop_seconds(const Work& work) {
  return seconds_of([&] {
    sluice::parallel_for(work.n, sluice::grain_elements(4), [&](std::int64_t b, std::int64_t e) {
      read_modify_write<kLoop>(work, b, e);
    });
  });
}

struct Round {
  double adam;
  double loops[kLoops];
};

Round run_round(const Work& work, std::int64_t step) {
  const sluice::UpdateSpan args{.master = reinterpret_cast<float*>(work.p.get()),
                                .moments = {work.m.get(), work.v.get()},
                                .grad = work.g.get(),
                                .grad_dtype = work.grads,
                                .weights_out = work.w.get(),
                                .weights_dtype = work.grads,
                                .n = work.n,
                                .lr = 1e-4,
                                .weight_decay = 0.01,
                                .step = step,
                                .grad_scale = 0.5,
                                .moments_dtype = work.moments,
                                .rounding_seed = 1};
  const double adam = seconds_of([&] { sluice::adamw(args); });
  return {adam,
          {loop_seconds<Loop::kPlain>(work), loop_seconds<Loop::kPrefetch>(work),
           loop_seconds<Loop::kStream>(work)}};
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

// Against the loop with the best median: its rounds, not the best of every round, which would
// compare with luck.
void print_summary(const Options& options, const Work& work, const std::vector<Round>& rounds) {
  std::vector<double> adam;
  std::vector<double> loop[kLoops];
  for (const Round& round : rounds) {
    adam.push_back(round.adam);
    for (int k = 0; k < kLoops; ++k) loop[k].push_back(round.loops[k]);
  }
  const std::vector<double>& best = *std::min_element(
      loop, loop + kLoops, [](const auto& a, const auto& b) { return median(a) < median(b); });
  std::vector<double> ratio;
  for (std::size_t i = 0; i < rounds.size(); ++i) ratio.push_back(best[i] / adam[i]);
  const double gigabytes = static_cast<double>(work.bytes()) * 1e-9;
  std::printf(
      "{\"case\": \"%s\", \"isa\": \"%s\", \"elements\": %lld, \"threads\": %d, \"rounds\": %zu, "
      "\"adam_gb_s\": %.2f, \"adam_best_gb_s\": %.2f, \"adam_ns_per_element\": %.4f, "
      "\"read_modify_write_gb_s\": %.2f, \"read_modify_write_best_gb_s\": %.2f, "
      "\"share_of_read_modify_write\": %.3f}\n",
      options.name.c_str(), sluice::kernels().name, static_cast<long long>(work.n),
      sluice::compute_threads(), rounds.size(), gigabytes / median(adam),
      gigabytes / *std::min_element(adam.begin(), adam.end()),
      median(adam) * 1e9 / static_cast<double>(work.n), gigabytes / median(best),
      gigabytes / *std::min_element(best.begin(), best.end()), median(ratio));
}

Options options_from(int argc, char** argv) {
  Options options;
  for (int i = 1; i < argc; ++i) {
    const std::string key = argv[i];
    if (key == "--stdin") {
      options.from_stdin = true;
      continue;
    }
    sluice::check(i + 1 < argc, "adam_bench: " + key + " needs a value");
    const std::string value = argv[++i];
    if (key == "--case") {
      options.name = value;
    } else if (key == "--elements") {
      options.elements = std::stoll(value);
    } else if (key == "--threads") {
      options.threads = std::stoi(value);
    } else if (key == "--rounds") {
      options.rounds = std::stoi(value);
    } else {
      sluice::check(false, "adam_bench: unknown option " + key);
    }
  }
  sluice::check(options.name == "fp32" || options.name == "bf16" || options.name == "bf16-states",
                "adam_bench: --case is fp32, bf16 or bf16-states, not " + options.name);
  sluice::check(options.elements >= 32 && options.rounds >= 1,
                "adam_bench: --elements below 32, or no --rounds");
  return options;
}

void run(const Options& options) {
  if (options.threads > 0) sluice::set_compute_threads(options.threads);
  const Work work = make_work(options.name, options.elements);
  std::int64_t step = 1;
  run_round(work, step++);  // warms up: pages, threads
  if (options.from_stdin) {
    for (std::string line; std::getline(std::cin, line);) {
      const Round round = run_round(work, step++);
      std::printf(
          "{\"adam_s\": %.9f, \"read_modify_write_s\": [%.9f, %.9f, %.9f], \"bytes\": %lld}\n",
          round.adam, round.loops[0], round.loops[1], round.loops[2],
          static_cast<long long>(work.bytes()));
      std::fflush(stdout);
    }
    return;
  }
  std::vector<Round> rounds;
  for (int i = 0; i < options.rounds; ++i) rounds.push_back(run_round(work, step++));
  print_summary(options, work, rounds);
}

}  // namespace

int main(int argc, char** argv) {
  try {
    run(options_from(argc, argv));
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", sluice::error_chain(error).c_str());
    return 1;
  }
  return 0;
}
