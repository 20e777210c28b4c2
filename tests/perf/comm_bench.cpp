// Gloo and shared memory between two ranks of one host (two processes), fp32. The transports take
// turns, so that what else the machine does meets all of them: medians of GB/s of input and of the
// rounds' ratios to Gloo, as a line of JSON for each size and transport.
//
//   sluice_comm_bench [MB ...]        25 (a bucket), 100 and 1 unless told
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "parallel/comm/communicator.hpp"
#include "parallel/comm/host/host_memory.hpp"

namespace {

using Clock = std::chrono::steady_clock;
constexpr std::size_t kRounds = 21;

// Buffers of one transport and size. The gather's output is its input's block, as a model's is.
class Exchange {
 public:
  Exchange(sluice::Communicator& communicator, std::int64_t elems, bool mapped)
      : communicator_(communicator),
        share_(elems / 2),
        shared_(mapped ? elems * 4 : 1),
        private_(static_cast<std::size_t>(mapped ? 0 : elems)),
        output_(static_cast<std::size_t>(share_)),
        staging_(static_cast<std::size_t>(
            communicator.reduce_scatter_staging_bytes(share_, sluice::DType::kFloat32))),
        input_(mapped ? reinterpret_cast<float*>(shared_.data()) : private_.data()) {
    std::fill_n(input_, elems, 1.0F);
  }
  void reduce() {
    communicator_
        .reduce_scatter(
            {{.input = input_, .output = output_.data(), .elems = share_, .stride = share_}},
            sluice::DType::kFloat32, staging_.data())
        .wait();
  }
  void gather() {
    communicator_
        .all_gather({{input_ + communicator_.rank() * share_, input_, share_, share_}},
                    sluice::DType::kFloat32)
        .wait();
  }
  void barrier() { communicator_.barrier(); }

 private:
  sluice::Communicator& communicator_;
  std::int64_t share_;
  sluice::HostMemory shared_;
  std::vector<float> private_;
  std::vector<float> output_;
  std::vector<char> staging_;
  float* input_;
};

struct Transport {
  const char* name;
  bool gloo;
  bool mapped;  // the input lies in memory that the other rank maps
};
constexpr std::array<Transport, 3> kTransports{
    {{"gloo", true, false}, {"host", false, false}, {"host, mapped", false, true}}};

using Seconds = std::array<double, kRounds>;
using Rounds = std::array<Seconds, kTransports.size()>;

Rounds rounds_of(std::vector<Exchange>& exchanges, void (Exchange::*operation)()) {
  Rounds rounds{};
  for (std::size_t round = 0; round < kRounds; ++round) {
    for (std::size_t t = 0; t < exchanges.size(); ++t) {
      exchanges[t].barrier();
      const auto start = Clock::now();
      (exchanges[t].*operation)();
      rounds[t][round] = std::chrono::duration<double>(Clock::now() - start).count();
    }
  }
  return rounds;
}

double median(Seconds values) {
  std::sort(values.begin(), values.end());
  return values[kRounds / 2];
}

double median_ratio(const Seconds& slow, const Seconds& fast) {
  Seconds ratios{};
  for (std::size_t i = 0; i < kRounds; ++i) ratios[i] = slow[i] / fast[i];
  return median(ratios);
}

void measure(sluice::Communicator& gloo, sluice::Communicator& host, std::int64_t megabytes) {
  const std::int64_t elems = megabytes * 1'000'000 / 4;
  std::vector<Exchange> exchanges;
  exchanges.reserve(kTransports.size());
  for (const Transport& transport : kTransports) {
    exchanges.emplace_back(transport.gloo ? gloo : host, elems, transport.mapped);
  }
  const Rounds reduce = rounds_of(exchanges, &Exchange::reduce);
  const Rounds gather = rounds_of(exchanges, &Exchange::gather);
  const Rounds barrier = rounds_of(exchanges, &Exchange::barrier);
  if (gloo.rank() != 0) return;
  const double gigabytes = static_cast<double>(elems) * 4e-9;
  for (std::size_t t = 0; t < kTransports.size(); ++t) {
    std::printf(
        "{\"transport\": \"%s\", \"ranks\": 2, \"mb\": %lld, \"reduce_scatter_gb_s\": %.2f, "
        "\"all_gather_gb_s\": %.2f, \"barrier_us\": %.0f, \"reduce_scatter_to_gloo\": %.2f, "
        "\"all_gather_to_gloo\": %.2f}\n",
        kTransports[t].name, static_cast<long long>(megabytes), gigabytes / median(reduce[t]),
        gigabytes / median(gather[t]), median(barrier[t]) * 1e6, median_ratio(reduce[0], reduce[t]),
        median_ratio(gather[0], gather[t]));
  }
}

void measure_all(int rank, int port, const std::vector<std::int64_t>& sizes) {
  sluice::CommOptions options{.rank = rank, .size = 2, .master_port = port};
  const auto gloo = sluice::make_gloo_communicator(options);
  options.group = "host";
  options.serves_rendezvous = false;
  const auto host = sluice::make_host_communicator(options);
  for (const std::int64_t megabytes : sizes) measure(*gloo, *host, megabytes);
}

}  // namespace

int main(int argc, char** argv) {
  std::vector<std::int64_t> sizes;
  for (int i = 1; i < argc; ++i) sizes.push_back(std::max(1LL, std::atoll(argv[i])));
  if (sizes.empty()) sizes = {25, 100, 1};
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
