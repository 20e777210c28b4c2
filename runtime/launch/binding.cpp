#include "runtime/launch/binding.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <memory>
#include <optional>

#include "base/counted.hpp"
#include "base/error.hpp"
#include "base/format.hpp"
#include "offload/topology.hpp"
#include "runtime/launch/cpu_quota.hpp"

namespace sluice {
namespace {

// Null if the system tells nothing about its cores.
std::unique_ptr<const Topology> read_topology() {
  try {
    return std::make_unique<const Topology>();
  } catch (const std::exception&) {
    return nullptr;
  }
}

// "0-3,8" of sorted or unsorted numbers.
std::string ranges_text(std::vector<int> numbers) {
  std::sort(numbers.begin(), numbers.end());
  std::string text;
  for (std::size_t i = 0; i < numbers.size();) {
    std::size_t j = i;
    while (j + 1 < numbers.size() && numbers[j + 1] == numbers[j] + 1) ++j;
    if (!text.empty()) text += ",";
    text += std::to_string(numbers[i]);
    if (j > i) text.append("-").append(std::to_string(numbers[j]));
    i = j + 1;
  }
  return text;
}

// A fair part of the processor time if only that is limited; nullopt if the cores are the limit.
std::optional<int> threads_of_quota(std::size_t cores, int ranks) {
  const std::optional<double> quota = cpu_quota();
  if (!quota || *quota >= static_cast<double>(cores)) return std::nullopt;
  return std::max(1, static_cast<int>(std::floor(*quota / ranks + 1e-9)));
}

// The threads each rank gets of these cores, by count alone.
int even_share(std::size_t cores, int ranks) {
  return std::max(1, static_cast<int>(cores) / ranks);
}

void check_request(const BindingRequest& request) {
  if (request.local_world_size >= 1 && request.local_rank >= 0 &&
      request.local_rank < request.local_world_size && request.threads >= 0) {
    return;
  }
  throw ConfigError(
      format_text("cannot divide the cores: local rank {} of {} with launch.threads {}; threads "
                  "must be 0 or more",
                  request.local_rank, request.local_world_size, request.threads));
}

Binding unbound(int threads, const std::string& why) {
  Binding binding;
  binding.threads = threads;
  binding.summary = counted(threads, "compute thread") + ", not bound: " + why;
  return binding;
}

std::string nodes_text(std::span<const CpuCore> cores) {
  std::vector<int> nodes;
  for (const CpuCore& core : cores) nodes.push_back(core.node);
  std::sort(nodes.begin(), nodes.end());
  nodes.erase(std::unique(nodes.begin(), nodes.end()), nodes.end());
  const std::string noun = nodes.size() == 1 ? "NUMA node " : "NUMA nodes ";
  return noun + ranges_text(nodes);
}

Binding bind_to_share(const Topology& topology, const std::vector<CpuCore>& cores,
                      const BindingRequest& request) {
  std::vector<int> nodes;
  for (const CpuCore& core : cores) nodes.push_back(core.node);
  const CoreShare share = share_of_cores(nodes, request.local_rank, request.local_world_size);
  const auto own = std::span(cores).subspan(share.first, share.count);
  Binding binding;
  binding.threads = request.threads > 0 ? request.threads : static_cast<int>(share.count);
  for (const CpuCore& core : own) {
    binding.cpus.insert(binding.cpus.end(), core.threads.begin(), core.threads.end());
  }
  if (!topology.bind_process(binding.cpus)) {
    return unbound(binding.threads,
                   "the system refused to bind to cpus " + ranges_text(binding.cpus));
  }
  binding.bound = true;
  binding.summary = format_text("{} on {} of {}, bound to cpus {} ({})",
                                counted(binding.threads, "compute thread"),
                                counted(static_cast<int>(share.count), "core"), cores.size(),
                                ranges_text(binding.cpus), nodes_text(own));
  return binding;
}

// Whole nodes, or equal parts of one, for each rank; nullopt if they do not divide evenly.
std::optional<CoreShare> share_by_node(std::span<const std::size_t> node_sizes, std::size_t rank,
                                       std::size_t ranks) {
  const std::size_t nodes = node_sizes.size();
  CoreShare share;
  if (ranks % nodes == 0) {
    const std::size_t per_node = ranks / nodes;
    const std::size_t node = rank / per_node;
    for (std::size_t i = 0; i < node; ++i) share.first += node_sizes[i];
    share.count = node_sizes[node] / per_node;
    share.first += rank % per_node * share.count;
    return share;
  }
  if (nodes % ranks != 0) return std::nullopt;
  const std::size_t per_rank = nodes / ranks;
  for (std::size_t i = 0; i < (rank + 1) * per_rank; ++i) {
    (i < rank * per_rank ? share.first : share.count) += node_sizes[i];
  }
  return share;
}

}  // namespace

CoreShare share_of_cores(std::span<const int> node_of_core, int local_rank, int local_world_size) {
  const auto rank = static_cast<std::size_t>(local_rank);
  const auto ranks = static_cast<std::size_t>(local_world_size);
  const std::size_t even = node_of_core.size() / ranks;
  std::vector<std::size_t> node_sizes;
  for (std::size_t i = 0; i < node_of_core.size(); ++i) {
    if (i == 0 || node_of_core[i] != node_of_core[i - 1]) node_sizes.push_back(0);
    ++node_sizes.back();
  }
  // The slowest rank sets the pace: nodes are respected only if no rank gets less than the even
  // share.
  bool by_node = true;
  for (std::size_t r = 0; r < ranks && by_node; ++r) {
    const auto share = share_by_node(node_sizes, r, ranks);
    by_node = share && share->count >= even;
  }
  // All ranks take the same number, so that none waits for one with fewer.
  const auto share = by_node ? share_by_node(node_sizes, rank, ranks) : std::nullopt;
  if (share) return {share->first, even};
  return {rank * even, even};
}

int threads_per_rank(int local_world_size) {
  const int ranks = std::max(local_world_size, 1);
  const std::unique_ptr<const Topology> topology = read_topology();
  if (!topology) return 1;
  const std::size_t cores = topology->usable_cores().size();
  return threads_of_quota(cores, ranks).value_or(even_share(cores, ranks));
}

Binding bind_local_rank(const BindingRequest& request) {
  check_request(request);
  const int ranks = request.local_world_size;
  const auto wished_or = [&request](int threads) {
    return request.threads > 0 ? request.threads : threads;
  };
  const std::unique_ptr<const Topology> topology = read_topology();
  const std::vector<CpuCore> cores = topology ? topology->usable_cores() : std::vector<CpuCore>();
  if (cores.empty()) return unbound(wished_or(1), "the system tells nothing about its cores");
  if (const std::optional<int> threads = threads_of_quota(cores.size(), ranks)) {
    return unbound(wished_or(*threads), "the control group limits processor time below the " +
                                            counted(static_cast<int>(cores.size()), "core"));
  }
  if (cores.size() < static_cast<std::size_t>(ranks)) {
    return unbound(wished_or(1), counted(static_cast<int>(cores.size()), "core") + " for " +
                                     counted(ranks, "rank"));
  }
  if (request.threads > even_share(cores.size(), ranks)) {
    return unbound(request.threads, "launch.threads asks for more than the share of " +
                                        counted(even_share(cores.size(), ranks), "core"));
  }
  return bind_to_share(*topology, cores, request);
}

}  // namespace sluice
