// Reduce-scatter and all-gather between the ranks of one host, over every transport, by size.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "parallel/comm/communicator.hpp"
#include "runtime/bench/summary.hpp"

namespace sluice {

enum class Transport {
  kGloo,    // loopback TCP
  kHost,    // a peer's private memory, read by a system call
  kMapped,  // a peer's memory that all map (HostMemory)
  kLocal,   // ranks are threads of one process
};
[[nodiscard]] const char* name_of(Transport transport);
// Throws ConfigError that names the known transports.
[[nodiscard]] Transport transport_of(const std::string& name);

struct CommBenchOptions {
  int ranks = 2;
  std::vector<std::int64_t> bytes{std::int64_t{1} << 20, std::int64_t{1} << 24,
                                  std::int64_t{1} << 26};  // of the whole buffer, fp32
  std::vector<Transport> transports{Transport::kGloo, Transport::kHost, Transport::kMapped,
                                    Transport::kLocal};
  int rounds = 11;

  // 1 if all ranks are threads of one process.
  [[nodiscard]] int processes() const;
};

// Rounds sizes to whole shares of every rank. Throws ConfigError for sizes beyond this machine's
// memory.
[[nodiscard]] CommBenchOptions checked(CommBenchOptions options);

struct CommRow {
  std::string operation;  // reduce_scatter, all_gather
  std::string transport;
  std::int64_t bytes = 0;
  Summary seconds;            // of the slowest rank
  double bytes_per_s = 0;     // bytes / median
  double received_per_s = 0;  // bytes x (ranks - 1) / ranks / median: what a rank gets from others
  double of_copy = 0;         // received_per_s / the copy rate
  double to_gloo = 0;         // Gloo's time / this one's, median over the rounds; 0: no Gloo
};

struct CopyRow {
  std::int64_t bytes = 0;
  Summary seconds;         // of the slowest rank; all copy at once
  double bytes_per_s = 0;  // of one rank
};

struct CommBenchResult {
  CommBenchOptions options;
  std::vector<CommRow> rows;
  std::vector<CopyRow> copies;
  std::string limit;  // what limits it, one sentence
};

// Collective over options.processes() processes that meet by `rendezvous` (rank, size, master_*;
// this function sets the rest). The result is rank 0's. Transports alternate within a round. Throws
// ConfigError for sizes beyond the machine's memory, CommError.
[[nodiscard]] CommBenchResult run_comm_bench(const CommBenchOptions& options,
                                             const CommOptions& rendezvous);

[[nodiscard]] std::string describe(const CommBenchResult& result);  // a table
[[nodiscard]] std::string to_json(const CommBenchResult& result);

}  // namespace sluice
