#include "runtime/doctor/gpu_rates.hpp"

#include <algorithm>
#include <barrier>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <functional>
#include <thread>
#include <utility>
#include <vector>

#include "base/bytes.hpp"
#include "base/error.hpp"
#include "runtime/bench/summary.hpp"

namespace sluice {
namespace {

// Of the GPU's free memory, for one of three arrays.
constexpr std::int64_t kShareOfGpuMemory = 8;
constexpr std::int64_t kSmallestSide = 1024;
constexpr double kStillGains = 1.02;  // a larger product that is this much faster is worth a larger
constexpr int kMostRepeats = 1000;
constexpr int kAttentionCapability = 80;  // of both operators

using Stamp = GpuDevice::Stamp;

struct Rate {
  double rate = 0, spread = 0;
};
Rate rate_of(double work, std::vector<double> seconds) {
  const Summary summary = summarize(std::move(seconds));
  check(summary.median > 0, "the device's clock stood still");
  return {work / summary.median, summary.mad / summary.median};
}

// Registered memory on the host and as much on the device.
struct Twin {
  Twin(HostPool& pool, GpuDevice& gpu, std::int64_t bytes)
      : host(pool.allocate("doctor", bytes)), device(gpu.allocate(bytes)) {}
  HostBlock host;
  std::shared_ptr<void> device;
};

class CopyTimes {
 public:
  CopyTimes(GpuDevice& gpu, std::int64_t bytes)
      : gpu_(gpu),
        copies_(gpu.copies()),
        pool_(0, gpu.pages()),
        up_(pool_, gpu, bytes),
        down_(pool_, gpu, bytes),
        bytes_(bytes) {
    auto* words = reinterpret_cast<std::uint32_t*>(up_.host.data());
    for (std::int64_t i = 0; i < bytes / 4; ++i) {
      words[i] = static_cast<std::uint32_t>(i) * 2654435761U;
    }
  }
  ~CopyTimes() {
    if (!copies_->lost()) return;
    up_.host.leak();
    down_.host.leak();
  }
  CopyTimes(const CopyTimes&) = delete;
  CopyTimes& operator=(const CopyTimes&) = delete;

  std::vector<double> to_device(int rounds) { return run({&CopyTimes::send}, rounds); }
  std::vector<double> to_host(int rounds) { return run({&CopyTimes::bring}, rounds); }
  std::vector<double> both(int rounds) {
    return run({&CopyTimes::send, &CopyTimes::bring}, rounds);
  }
  // The device memory was written only by the copy, so the returned data must equal the sent data.
  void compare() {
    std::memset(down_.host.data(), 0, static_cast<std::size_t>(bytes_));
    down_.device.swap(up_.device);
    (void)to_host(1);
    down_.device.swap(up_.device);
    if (std::memcmp(up_.host.data(), down_.host.data(), static_cast<std::size_t>(bytes_)) == 0) {
      return;
    }
    throw Error(
        "a copy to the device and back changed the data: the card, its bus or its driver "
        "is faulty; do not train on it");
  }

 private:
  using Way = void (CopyTimes::*)();
  struct Span {
    Stamp begin, end;
  };

  void send() { copies_->to_device(copies_->address(up_.device.get()), up_.host.data(), bytes_); }
  void bring() {
    copies_->to_host(down_.host.data(), copies_->address(down_.device.get()), bytes_);
  }

  // A thread for each way; all begin a round together. The first round is not timed.
  std::vector<double> run(const std::vector<Way>& ways, int rounds) {
    const DeviceCopies::Mark mark = copies_->mark();
    std::vector<std::vector<Span>> spans(ways.size());
    std::vector<std::exception_ptr> failed(ways.size());
    std::barrier together(static_cast<std::ptrdiff_t>(ways.size()));
    std::vector<std::thread> threads;
    for (std::size_t w = 0; w < ways.size(); ++w) {
      threads.emplace_back([&, w] {
        try {
          copies_->begin_thread();
          for (int round = 0; round <= rounds; ++round) {
            together.arrive_and_wait();
            spans[w].push_back(one_round(mark, ways[w]));
          }
        } catch (...) {
          failed[w] = std::current_exception();
        }
        together.arrive_and_drop();
      });
    }
    for (std::thread& thread : threads) thread.join();
    for (const std::exception_ptr& error : failed) {
      if (error) std::rethrow_exception(error);
    }
    return durations(spans);
  }
  Span one_round(const DeviceCopies::Mark& mark, Way way) {
    CopyScope scope(*copies_, mark);
    Span span{gpu_.stamp(), {}};
    (this->*way)();
    span.end = gpu_.stamp();
    scope.finish();
    return span;
  }
  // From the first begin to the last end of each round but the first.
  std::vector<double> durations(const std::vector<std::vector<Span>>& spans) {
    std::vector<double> seconds;
    for (std::size_t round = 1; round < spans.front().size(); ++round) {
      double longest = 0;
      for (const auto& from : spans) {
        for (const auto& to : spans) {
          longest = std::max(longest, gpu_.seconds(from[round].begin, to[round].end));
        }
      }
      seconds.push_back(longest);
    }
    return seconds;
  }

  GpuDevice& gpu_;
  const std::shared_ptr<DeviceCopies> copies_;
  HostPool pool_;
  Twin up_, down_;
  const std::int64_t bytes_;
};

class GpuExamination {
 public:
  GpuExamination(GpuDevice& gpu, const GpuEffort& effort, const AttentionProbe& probe,
                 MachineRates& rates)
      : gpu_(gpu), effort_(effort), probe_(probe), rates_(rates), facts_(gpu.facts()) {}

  GpuFacts run(const std::string& pci_devices) {
    GpuRates& mine = rates_.gpu.emplace();
    mine.name = facts_.name;
    mine.compute_capability = static_cast<int>(std::lround(10 * std::atof(facts_.compute.c_str())));
    mine.multiprocessors = facts_.multiprocessors;
    mine.memory_bytes = facts_.memory_bytes;
    attempt({"h2d_bps", "d2h_bps", "h2d_d2h_bps"}, [&] { copies(mine); });
    facts_.link = read_pci_link(pci_devices, facts_.bus_id);
    attempt({"device_memory_bps", "device_triad_bps"}, [&] { memory(mine); });
    product("gemm_flops.fp32", ProductType::kFp32, mine.gemm_flops.fp32);
    product("gemm_flops.bf16", ProductType::kBf16, mine.gemm_flops.bf16);
    product("gemm_flops.fp16", ProductType::kFp16, mine.gemm_fp16_flops);
    product("gemm_flops.fp8", ProductType::kFp8, mine.gemm_fp8_flops);
    attention("attention_flops.flash", false, mine.attention_flops.flash);
    attention("attention_flops.cudnn", true, mine.attention_flops.cudnn);
    return facts_;
  }

 private:
  void attempt(const std::vector<std::string>& fields, const std::function<void()>& body) {
    try {
      body();
    } catch (const std::exception& failed) {
      for (const std::string& field : fields) {
        rates_.not_measured["gpu." + field] = error_chain(failed);
      }
    }
  }
  void note(const std::string& field, const Rate& rate, std::optional<double>& value) {
    value = rate.rate;
    rates_.spread["gpu." + field] = rate.spread;
  }
  [[nodiscard]] std::int64_t affordable(std::int64_t bytes) const {
    return std::max(std::min(bytes, facts_.free_bytes / kShareOfGpuMemory), kMiB) / 4096 * 4096;
  }

  void copies(GpuRates& mine) {
    const std::int64_t bytes = affordable(effort_.copy_bytes);
    const auto work = static_cast<double>(bytes);
    CopyTimes times(gpu_, bytes);
    const Rate up = rate_of(work, times.to_device(effort_.rounds));
    times.compare();
    const Rate down = rate_of(work, times.to_host(effort_.rounds));
    const Rate both = rate_of(2 * work, times.both(effort_.rounds));
    note("h2d_bps", up, mine.h2d_bps);
    note("d2h_bps", down, mine.d2h_bps);
    note("h2d_d2h_bps", both, mine.h2d_d2h_bps);
  }

  void memory(GpuRates& mine) {
    const std::int64_t bytes = affordable(effort_.memory_bytes);
    const auto to = gpu_.allocate(bytes);
    const auto a = gpu_.allocate(bytes);
    const auto b = gpu_.allocate(bytes);
    const auto work = static_cast<double>(bytes);
    note("device_memory_bps",
         rate_of(2 * work, timed(1, [&] { gpu_.copy_within(to.get(), a.get(), bytes); })),
         mine.device_memory_bps);
    note("device_triad_bps",
         rate_of(3 * work, timed(1, [&] { gpu_.triad(to.get(), a.get(), b.get(), bytes / 4); })),
         mine.device_triad_bps);
  }

  // Seconds of `repeats` bodies one behind the other; once before, untimed.
  std::vector<double> timed(int repeats, const std::function<void()>& body) {
    body();
    std::vector<double> seconds;
    for (int round = 0; round < effort_.rounds; ++round) {
      const Stamp begin = gpu_.stamp();
      for (int i = 0; i < repeats; ++i) body();
      seconds.push_back(gpu_.seconds(begin, gpu_.stamp()));
    }
    return seconds;
  }

  void product(const std::string& field, ProductType type, std::optional<double>& value) {
    attempt({field}, [&] {
      if (type == ProductType::kFp8 && rates_.gpu->compute_capability < kFp8Capability) {
        throw Error("the GPU's compute capability is below 8.9");
      }
      Rate best;
      // Three matrices. Of 8 bits: the operands, the result in bf16, and what the operands are
      // rounded from.
      const std::int64_t elem_bytes = type == ProductType::kFp32 ? 4 : 2;
      const auto fits = [&](std::int64_t side) {
        return side <= effort_.largest_side &&
               3 * side * side * elem_bytes <= facts_.free_bytes / 2;
      };
      for (std::int64_t side = kSmallestSide; fits(side); side *= 2) {
        const Rate rate = square(type, side);
        const bool gains = rate.rate > kStillGains * best.rate;
        if (rate.rate > best.rate) best = rate;
        const double next_flop = 16 * static_cast<double>(side * side * side);
        if (!gains || next_flop > effort_.product_s * rate.rate) break;
      }
      gpu_.prepare_product(type, 0);
      if (best.rate == 0) throw Error("the GPU has no room for three matrices of 1024 x 1024");
      note(field, best, value);
    });
  }
  Rate square(ProductType type, std::int64_t side) {
    const double flop = 2 * static_cast<double>(side * side * side);
    gpu_.prepare_product(type, side);
    return repeated(flop, [&] { gpu_.multiply(); });
  }
  // Of work so short that a round has several of it.
  Rate repeated(double flop, const std::function<void()>& body) {
    body();  // libraries choose and load their kernels
    const Stamp begin = gpu_.stamp();
    body();
    const double once = gpu_.seconds(begin, gpu_.stamp());
    const int repeats =
        std::clamp(static_cast<int>(effort_.product_s / std::max(once, 1e-9)), 1, kMostRepeats);
    return rate_of(flop * repeats, timed(repeats, body));
  }

  void attention(const std::string& field, bool cudnn, std::optional<AttentionRates>& value) {
    attempt({field}, [&] {
      if (!probe_) throw Error("nothing was given that computes attention");
      if (rates_.gpu->compute_capability < kAttentionCapability) {
        throw Error("the GPU's compute capability is below 8.0");
      }
      const Rate head_64 = attention_rate(cudnn, 64, 1024);
      const Rate head_128 = attention_rate(cudnn, 128, 1024);
      const Rate head_128_long = attention_rate(cudnn, 128, 4096);
      value = {head_64.rate, head_128.rate, head_128_long.rate};
      rates_.spread["gpu." + field] =
          std::max({head_64.spread, head_128.spread, head_128_long.spread});
    });
  }
  Rate attention_rate(bool cudnn, std::int64_t head_dim, std::int64_t tokens) {
    constexpr std::int64_t kTokens = 16384, kWidth = 2048;  // of all samples, of all heads
    constexpr double kProducts = 2 + 5;                     // forward and backward
    const AttentionShape shape{.cudnn = cudnn,
                               .samples = kTokens / tokens,
                               .heads = kWidth / head_dim,
                               .tokens = tokens,
                               .head_dim = head_dim};
    // A query sees half of a row's keys in the mean; a multiplication and an addition are two.
    const auto pairs = static_cast<double>(kTokens * tokens) / 2;
    return repeated(kProducts * 2 * pairs * static_cast<double>(kWidth), probe_(shape));
  }

  GpuDevice& gpu_;
  const GpuEffort effort_;
  const AttentionProbe& probe_;
  MachineRates& rates_;
  GpuFacts facts_;
};

}  // namespace

GpuEffort gpu_effort(bool quick) {
  // A GPU's caches (50 to 100 MiB) are small beside the arrays.
  if (quick) return {64 * kMiB, 512 * kMiB, 8192, 0.02, 5};
  return {256 * kMiB, 1024 * kMiB, 16384, 0.05, 11};
}

GpuFacts measure_gpu(GpuDevice& gpu, const GpuEffort& effort, const std::string& pci_devices,
                     const AttentionProbe& attention, MachineRates& rates) {
  return GpuExamination(gpu, effort, attention, rates).run(pci_devices);
}

}  // namespace sluice
