// Gloo and shared memory between two ranks of one host (two processes): GB/s of input, median and
// best of several rounds, as a line of JSON for each transport and size.
//
//   sluice_comm_bench [MB ...]        100 and 1 unless told
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "kernels/base/error.hpp"
#include "parallel/comm/communicator.hpp"
#include "parallel/comm/host_memory.hpp"

namespace {

using Clock = std::chrono::steady_clock;
constexpr int kRounds = 21;

// On a machine that others use as well, the best round says more of the transport.
struct Seconds {
  double median;
  double best;
};

Seconds seconds_of(sluice::Communicator& communicator, const std::function<void()>& body) {
  std::vector<double> seconds;
  for (int round = 0; round < kRounds; ++round) {
    communicator.barrier();
    const auto start = Clock::now();
    body();
    seconds.push_back(std::chrono::duration<double>(Clock::now() - start).count());
  }
  std::sort(seconds.begin(), seconds.end());
  return {seconds[kRounds / 2], seconds[0]};
}

struct Transport {
  const char* name;
  std::unique_ptr<sluice::Communicator> (*make)(const sluice::CommOptions&);
  bool mapped;  // the input lies in memory that the other rank maps
};
constexpr Transport kTransports[] = {{"gloo", sluice::make_gloo_communicator, false},
                                     {"host", sluice::make_host_communicator, false},
                                     {"host, mapped", sluice::make_host_communicator, true}};

void measure(sluice::Communicator& communicator, const char* transport, bool mapped,
             std::int64_t megabytes) {
  const std::int64_t elems = megabytes * 1'000'000 / 4;
  const std::int64_t share = elems / 2;
  std::vector<float> private_memory(static_cast<std::size_t>(mapped ? 0 : elems));
  const sluice::HostMemory shared_memory(mapped ? elems * 4 : 1);
  float* input = mapped ? reinterpret_cast<float*>(shared_memory.data()) : private_memory.data();
  std::fill_n(input, elems, 1.0F);
  std::vector<float> output(static_cast<std::size_t>(share));
  std::vector<char> staging(static_cast<std::size_t>(
      communicator.reduce_scatter_staging_bytes(share, sluice::DType::kFloat32)));
  const Seconds reduce = seconds_of(communicator, [&] {
    communicator
        .reduce_scatter(
            {{.input = input, .output = output.data(), .elems = share, .stride = share}},
            sluice::DType::kFloat32, staging.data())
        .wait();
  });
  const Seconds gather = seconds_of(communicator, [&] {
    communicator
        .all_gather({{input + communicator.rank() * share, input, share, share}},
                    sluice::DType::kFloat32)
        .wait();
  });
  const Seconds barrier = seconds_of(communicator, [&] { communicator.barrier(); });
  if (communicator.rank() != 0) return;
  const double gigabytes = static_cast<double>(elems) * 4e-9;
  std::printf(
      "{\"transport\": \"%s\", \"ranks\": 2, \"mb\": %lld, \"reduce_scatter_gb_s\": %.2f, "
      "\"reduce_scatter_best_gb_s\": %.2f, \"all_gather_gb_s\": %.2f, "
      "\"all_gather_best_gb_s\": %.2f, \"barrier_us\": %.0f, \"barrier_best_us\": %.0f}\n",
      transport, static_cast<long long>(megabytes), gigabytes / reduce.median,
      gigabytes / reduce.best, gigabytes / gather.median, gigabytes / gather.best,
      barrier.median * 1e6, barrier.best * 1e6);
}

void measure_all(int rank, int port, const std::vector<std::int64_t>& sizes) {
  for (const Transport& transport : kTransports) {
    const auto communicator = transport.make({.rank = rank, .size = 2, .master_port = port++});
    for (const std::int64_t megabytes : sizes) {
      measure(*communicator, transport.name, transport.mapped, megabytes);
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  std::vector<std::int64_t> sizes;
  for (int i = 1; i < argc; ++i) sizes.push_back(std::max(1LL, std::atoll(argv[i])));
  if (sizes.empty()) sizes = {100, 1};
  const int port = 20'000 + static_cast<int>(getpid() % 20'000);
  const pid_t child = fork();  // before libtorch has threads
  try {
    measure_all(child == 0 ? 1 : 0, port, sizes);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", sluice::error_chain(error).c_str());
    return 1;
  }
  if (child != 0) waitpid(child, nullptr, 0);
  return 0;
}
