// One point of the NVMe store, as a line of JSON: what tests/perf/nvme_vs_fio.py holds against fio.
//
//   sluice_nvme_bench DIRECTORY MB BLOCK_KIB DEPTH read|write|both [plain]     plain: no checksums
//   sluice_nvme_bench DIRECTORY MB BLOCK_KIB DEPTH checksums [ROUNDS]          what checksums cost
//   sluice_nvme_bench DIRECTORY [MB]                                           the whole sweep
#include "offload/nvme_bench.hpp"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <string>

#include "base/error.hpp"
#include "tests/perf/checksum_cost.hpp"

namespace {

sluice::IoDirection direction_of(const std::string& name) {
  using enum sluice::IoDirection;
  for (const sluice::IoDirection direction : {kRead, kWrite, kBoth}) {
    if (name == sluice::name_of(direction)) return direction;
  }
  throw sluice::ConfigError("direction '" + name + "' is not read, write or both");
}

int run(int argc, char** argv) {
  if (argc != 2 && argc != 3 && argc != 6 && argc != 7) {
    std::fprintf(stderr,
                 "usage: sluice_nvme_bench DIRECTORY [MB [BLOCK_KIB DEPTH DIRECTION|checksums "
                 "[plain|ROUNDS]]]\n");
    return 2;
  }
  sluice::NvmeBenchOptions options;
  options.paths = {argv[1]};
  if (argc > 2) options.bytes = std::atoll(argv[2]) * sluice::kMiB;
  if (argc > 5) {
    options.block_bytes = {std::atoll(argv[3]) * sluice::kKiB};
    options.depths = {std::atoi(argv[4])};
    if (std::string(argv[5]) == "checksums") {
      const int rounds = argc > 6 ? std::max(std::atoi(argv[6]), 1) : 3;
      std::fputs(describe(sluice::measure_checksum_cost(options, rounds)).c_str(), stdout);
      return 0;
    }
    options.directions = {direction_of(argv[5])};
    options.checksums = argc == 6;
  }
  const sluice::NvmeBenchResult result = sluice::bench_nvme(options);
  if (argc <= 3) {
    std::fputs(sluice::table_of(result).c_str(), stdout);
    return 0;
  }
  std::printf("{\"bytes_per_s\": %.0f, \"store\": \"%s\"}\n", result.points.front().bytes_per_s,
              result.description.c_str());
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run(argc, argv);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", sluice::error_chain(error).c_str());
    return sluice::exit_code_of(error);
  }
}
