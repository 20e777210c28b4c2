// Gloo between two ranks of one host: GB/s of input, median of several rounds, as JSON.
//
//   sluice_comm_bench [MB]
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>
#include <vector>

#include "kernels/base/error.hpp"
#include "parallel/comm/communicator.hpp"

namespace {

using Clock = std::chrono::steady_clock;
constexpr int kRounds = 7;

double median_seconds(sluice::Communicator& communicator, const std::function<void()>& body) {
  std::vector<double> seconds;
  for (int round = 0; round < kRounds; ++round) {
    communicator.barrier();
    const auto start = Clock::now();
    body();
    seconds.push_back(std::chrono::duration<double>(Clock::now() - start).count());
  }
  std::sort(seconds.begin(), seconds.end());
  return seconds[kRounds / 2];
}

void measure(int rank, int port, std::int64_t megabytes) {
  const auto communicator =
      sluice::make_gloo_communicator({.rank = rank, .size = 2, .master_port = port});
  const std::int64_t elems = megabytes * 1'000'000 / 4;
  const std::int64_t share = elems / 2;
  std::vector<float> input(static_cast<std::size_t>(elems), 1.0F);
  std::vector<float> output(static_cast<std::size_t>(share));
  std::vector<char> staging(static_cast<std::size_t>(
      communicator->reduce_scatter_staging_bytes(share, sluice::DType::kFloat32)));
  const double reduce = median_seconds(*communicator, [&] {
    communicator
        ->reduce_scatter(
            {{.input = input.data(), .output = output.data(), .elems = share, .stride = share}},
            sluice::DType::kFloat32, staging.data())
        .wait();
  });
  const double gather = median_seconds(*communicator, [&] {
    communicator
        ->all_gather({{input.data() + rank * share, input.data(), share, share}},
                     sluice::DType::kFloat32)
        .wait();
  });
  const double barrier = median_seconds(*communicator, [&] { communicator->barrier(); });
  if (rank != 0) return;
  const double gigabytes = static_cast<double>(elems) * 4e-9;
  std::printf(
      "{\"ranks\": 2, \"mb\": %lld, \"reduce_scatter_gb_s\": %.2f, \"all_gather_gb_s\": %.2f, "
      "\"barrier_us\": %.0f}\n",
      static_cast<long long>(megabytes), gigabytes / reduce, gigabytes / gather, barrier * 1e6);
}

}  // namespace

int main(int argc, char** argv) {
  const std::int64_t megabytes = argc > 1 ? std::atoll(argv[1]) : 100;
  const int port = 20'000 + static_cast<int>(getpid() % 20'000);
  const pid_t child = fork();  // before libtorch has threads
  try {
    measure(child == 0 ? 1 : 0, port, megabytes);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", sluice::error_chain(error).c_str());
    return 1;
  }
  if (child != 0) waitpid(child, nullptr, 0);
  return 0;
}
