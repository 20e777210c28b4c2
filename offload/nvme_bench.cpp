#include "offload/nvme_bench.hpp"

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "base/error.hpp"
#include "base/index.hpp"
#include "offload/host_pool.hpp"
#include "offload/io_clock.hpp"

namespace sluice {
namespace {

// A smaller block or depth is worth 3 % of the rate: it needs less memory and has less latency.
constexpr double kCloseEnough = 0.97;
constexpr int kRequestsOut = 4;  // enough that the queue never drains between two requests

// One store with one extent, and the memory of kRequestsOut requests.
class Rig {
 public:
  Rig(const NvmeBenchOptions& options, std::int64_t block_bytes, int depth)
      : request_bytes_(std::min(round_up(options.request_bytes, block_bytes),
                                round_up(options.bytes, kIoAlignment))),
        requests_(std::max<std::int64_t>(options.bytes / request_bytes_, 1)),
        store_(store_options(options, block_bytes, depth)) {
    extent_ = store_.add("bench", "bench", request_bytes_ * requests_);
    HostPool pool;
    memory_ = pool.allocate("bench", request_bytes_ * kRequestsOut);
    fill();
    store_.register_buffer(memory_.data(), memory_.bytes());
    store_.open();
    (void)run(IoDirection::kWrite);
  }
  Rig(const Rig&) = delete;
  Rig& operator=(const Rig&) = delete;

  // Moves the whole extent once and returns bytes per second.
  [[nodiscard]] double run(IoDirection direction) {
    std::vector<Ticket> out(kRequestsOut);
    const std::int64_t start = now_ns();
    for (std::int64_t i = 0; i < requests_; ++i) {
      Ticket& ticket = nth(out, i % kRequestsOut);
      ticket.wait();  // the next request reuses the memory
      std::byte* memory = memory_.data() + i % kRequestsOut * request_bytes_;
      const bool write =
          direction == IoDirection::kWrite || (direction == IoDirection::kBoth && i % 2 == 1);
      ticket = write ? store_.write(extent_, i * request_bytes_, memory, request_bytes_)
                     : store_.read(extent_, i * request_bytes_, memory, request_bytes_);
    }
    for (const Ticket& ticket : out) ticket.wait();
    const double seconds = static_cast<double>(now_ns() - start) / 1e9;
    return static_cast<double>(request_bytes_ * requests_) / seconds;
  }
  [[nodiscard]] std::string description() const { return store_.description(); }

 private:
  static NvmeOptions store_options(const NvmeBenchOptions& options, std::int64_t block_bytes,
                                   int depth) {
    NvmeOptions result;
    result.paths = options.paths;
    result.run_id = "bench of pid " + std::to_string(::getpid());
    result.block_bytes = block_bytes;
    result.queue_depth = depth;
    result.checksums = options.checksums;
    result.cache = options.cache;
    result.engine = options.engine;
    return result;
  }

  // Fills the memory with bytes that a drive cannot compress.
  void fill() {
    std::uint64_t state = 0x9e3779b97f4a7c15U;
    auto* words = reinterpret_cast<std::uint64_t*>(memory_.data());
    for (std::int64_t i = 0; i < memory_.bytes() / 8; ++i) {
      state ^= state << 13U;
      state ^= state >> 7U;
      state ^= state << 17U;
      words[i] = state;
    }
  }

  const std::int64_t request_bytes_, requests_;
  HostBlock memory_;  // declared before the store, so that it outlives the store
  NvmeStore store_;
  ExtentId extent_;
};

bool at(const NvmeBenchPoint& point, std::int64_t block_bytes, int depth) {
  return point.block_bytes == block_bytes && point.depth == depth;
}

// Geometric mean of the rates over all measured directions.
double score(const NvmeBenchResult& result, std::int64_t block_bytes, int depth) {
  double logs = 0, count = 0;
  for (const NvmeBenchPoint& point : result.points) {
    if (!at(point, block_bytes, depth)) continue;
    logs += std::log(point.bytes_per_s);
    count += 1;
  }
  return std::exp(logs / count);
}

void recommend(NvmeBenchResult& result) {
  double best = 0;
  for (const NvmeBenchPoint& p : result.points) {
    best = std::max(best, score(result, p.block_bytes, p.depth));
  }
  std::int64_t least = 0;  // bytes in flight
  for (const NvmeBenchPoint& p : result.points) {
    const std::int64_t in_flight = p.block_bytes * p.depth;
    if (score(result, p.block_bytes, p.depth) < kCloseEnough * best) continue;
    if (least != 0 && in_flight >= least) continue;
    least = in_flight;
    result.best_block_bytes = p.block_bytes;
    result.best_depth = p.depth;
  }
  for (const NvmeBenchPoint& p : result.points) {
    if (!at(p, result.best_block_bytes, result.best_depth)) continue;
    if (p.direction == IoDirection::kRead) result.read_bytes_per_s = p.bytes_per_s;
    if (p.direction == IoDirection::kWrite) result.write_bytes_per_s = p.bytes_per_s;
  }
}

std::string row(const std::string& block, const std::string& depth, const std::string& rates) {
  char text[128];
  std::snprintf(text, sizeof(text), "%10s %6s", block.c_str(), depth.c_str());
  return std::string(text) + rates + "\n";
}

}  // namespace

const char* name_of(IoDirection direction) {
  return direction == IoDirection::kRead    ? "read"
         : direction == IoDirection::kWrite ? "write"
                                            : "both";
}

NvmeBenchResult bench_nvme(const NvmeBenchOptions& options) {
  if (options.block_bytes.empty() || options.depths.empty() || options.directions.empty() ||
      options.bytes < 1 || options.request_bytes < 1) {
    throw ConfigError("bench nvme: give at least one block size, depth, direction and byte");
  }
  NvmeBenchResult result;
  for (const std::int64_t block : options.block_bytes) {
    for (const int depth : options.depths) {
      Rig rig(options, block, depth);
      result.description = rig.description();
      for (const IoDirection direction : options.directions) {
        result.points.push_back({direction, block, depth, rig.run(direction)});
      }
    }
  }
  recommend(result);
  return result;
}

std::string table_of(const NvmeBenchResult& result) {
  std::string text;
  std::vector<IoDirection> directions;
  for (const NvmeBenchPoint& p : result.points) {
    if (std::find(directions.begin(), directions.end(), p.direction) == directions.end()) {
      directions.push_back(p.direction);
    }
  }
  std::string head;
  for (const IoDirection d : directions) head += "  " + std::string(name_of(d)) + " GB/s";
  text += row("block", "depth", head);
  for (std::size_t i = 0; i + directions.size() <= result.points.size(); i += directions.size()) {
    std::string rates;
    for (std::size_t d = 0; d < directions.size(); ++d) {
      char rate[32];
      const int width = static_cast<int>(std::string(name_of(directions[d])).size()) + 7;
      std::snprintf(rate, sizeof(rate), "%*.2f", width, result.points[i + d].bytes_per_s / 1e9);
      rates += rate;
    }
    text += row(format_bytes(result.points[i].block_bytes), std::to_string(result.points[i].depth),
                rates);
  }
  return text + "best: block " + format_bytes(result.best_block_bytes) + ", depth " +
         std::to_string(result.best_depth) +
         ": --set offload.block_bytes=" + std::to_string(result.best_block_bytes) +
         " --set offload.queue_depth=" + std::to_string(result.best_depth) + "\n";
}

}  // namespace sluice
