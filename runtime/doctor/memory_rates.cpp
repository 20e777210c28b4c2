#include "runtime/doctor/memory_rates.hpp"

#include <chrono>
#include <cstring>
#include <thread>
#include <vector>

#include "kernels/cpu/parallel.hpp"
#include "offload/host_pool.hpp"
#include "runtime/bench/summary.hpp"

namespace sluice {
namespace {

template <class Body>
double seconds_of(Body&& body) {
  const auto begin = std::chrono::steady_clock::now();
  body();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

struct Rate {
  double bps, spread;
};

// The body once untimed, then `rounds` times.
template <class Body>
Rate rate_of(double bytes, int rounds, Body&& body) {
  body();
  std::vector<double> seconds;
  for (int round = 0; round < rounds; ++round) seconds.push_back(seconds_of(body));
  const Summary summary = summarize(std::move(seconds));
  return {bytes / summary.median, summary.mad / summary.median};
}

struct FloatArray {
  FloatArray(HostPool& pool, std::int64_t elems)
      : block(pool.allocate("doctor", elems * 4)), data(reinterpret_cast<float*>(block.data())) {
    // First written by the threads that will work on it.
    parallel_for(elems, grain_elements(4), [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) data[i] = 1.0F;
    });
  }
  HostBlock block;
  float* data;
};

void triad(float* __restrict to, const float* __restrict a, const float* __restrict b,
           std::int64_t n, float factor) {
  for (std::int64_t i = 0; i < n; ++i) to[i] = a[i] + factor * b[i];
}

}  // namespace

MemoryRates measure_memory(std::int64_t bytes, int rounds) {
  const std::int64_t elems = bytes / 4;
  HostPool pool;
  const FloatArray to(pool, elems), a(pool, elems), b(pool, elems);
  const auto work = static_cast<double>(elems * 4);
  const Rate copy = rate_of(work, rounds, [&] {
    parallel_for(elems, grain_elements(4), [&](std::int64_t begin, std::int64_t end) {
      std::memcpy(to.data + begin, a.data + begin, static_cast<std::size_t>(end - begin) * 4);
    });
  });
  const Rate sum = rate_of(3 * work, rounds, [&] {
    parallel_for(elems, grain_elements(4), [&](std::int64_t begin, std::int64_t end) {
      triad(to.data + begin, a.data + begin, b.data + begin, end - begin, 0.5F);
    });
  });
  return {copy.bps, sum.bps, copy.spread, sum.spread};
}

ArenaCopyRates measure_arena_copies(std::int64_t bytes, int rounds) {
  const std::int64_t elems = bytes / 4;
  HostPool pool;
  const FloatArray host(pool, elems), device(pool, elems);
  const auto size = static_cast<std::size_t>(elems) * 4;
  const auto work = static_cast<double>(size);
  const Rate h2d = rate_of(work, rounds, [&] { std::memcpy(device.data, host.data, size); });
  const Rate d2h = rate_of(work, rounds, [&] { std::memcpy(host.data, device.data, size); });
  // Two halves, so that neither direction writes memory that the other reads.
  const std::size_t half = size / 2 / 64 * 64;
  const auto at = [](const FloatArray& array, std::size_t offset) {
    return reinterpret_cast<char*>(array.data) + offset;
  };
  const Rate both = rate_of(2 * static_cast<double>(half), rounds, [&] {
    std::thread up([&] { std::memcpy(at(device, 0), at(host, 0), half); });
    std::memcpy(at(host, half), at(device, half), half);
    up.join();
  });
  return {h2d.bps, d2h.bps, both.bps, h2d.spread, d2h.spread, both.spread};
}

}  // namespace sluice
