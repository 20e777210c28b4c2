#include "offload/host_placement.hpp"

#include <algorithm>
#include <atomic>
#include <exception>
#include <utility>

#include "base/error.hpp"
#include "base/log.hpp"
#include "kernels/cpu/parallel.hpp"

namespace sluice {
namespace {

// The hardware threads of one memory node that the process may use.
struct Part {
  int node = 0;
  std::vector<int> threads;
};

std::vector<Part> usable_parts(const Topology& topology, const std::vector<int>& usable) {
  std::vector<Part> parts;
  for (std::size_t n = 0; n < topology.nodes().size(); ++n) {
    Part part{static_cast<int>(n), {}};
    for (const int thread : topology.nodes()[n].threads) {
      if (std::find(usable.begin(), usable.end(), thread) != usable.end()) {
        part.threads.push_back(thread);
      }
    }
    if (!part.threads.empty()) parts.push_back(std::move(part));
  }
  return parts;
}

// The parts of one sharer. Each sharer gets whole nodes; if there are more sharers than nodes,
// several sharers get the same node.
std::vector<Part> share_of(std::vector<Part> parts, std::size_t sharer, std::size_t sharers) {
  const std::size_t count = parts.size();
  const std::size_t first = sharer * count / sharers;
  const std::size_t end = std::max(first + 1, (sharer + 1) * count / sharers);
  return {std::make_move_iterator(parts.begin() + static_cast<std::ptrdiff_t>(first)),
          std::make_move_iterator(parts.begin() + static_cast<std::ptrdiff_t>(end))};
}

// Distributes the threads of a pool over the parts in proportion to the sizes of the parts.
// Neighbouring threads run on the same part.
std::vector<std::vector<int>> spread(const std::vector<Part>& parts, int threads) {
  std::size_t all = 0;
  for (const Part& part : parts) all += part.threads.size();
  std::vector<std::vector<int>> of_thread;
  for (std::size_t i = 0; i < static_cast<std::size_t>(threads); ++i) {
    std::size_t at = i * all / static_cast<std::size_t>(threads);
    std::size_t p = 0;
    while (at >= parts[p].threads.size()) at -= parts[p++].threads.size();
    of_thread.push_back(parts[p].threads);
  }
  return of_thread;
}

class PlacedPages final : public PageSource {
 public:
  PlacedPages(std::shared_ptr<const Topology> topology, std::vector<int> nodes)
      : topology_(std::move(topology)), nodes_(std::move(nodes)), pages_(make_page_source()) {}

  [[nodiscard]] void* map(std::int64_t bytes) override {
    void* memory = pages_->map(bytes);
    if (!topology_->prefer_memory(memory, bytes, nodes_) && !refused_.exchange(true)) {
      log_info("the system refuses to place memory: host pages lie where they are first touched");
    }
    return memory;
  }
  void unmap(void* memory, std::int64_t bytes) noexcept override { pages_->unmap(memory, bytes); }
  [[nodiscard]] const char* name() const override { return pages_->name(); }

 private:
  const std::shared_ptr<const Topology> topology_;
  const std::vector<int> nodes_;
  const std::shared_ptr<PageSource> pages_;
  std::atomic<bool> refused_{false};
};

}  // namespace

HostPlacement place_host(const Topology& topology, const PlacementRequest& request) {
  check(request.sharers > 0 && request.sharer >= 0 && request.sharer < request.sharers &&
            request.threads >= 1,
        "a rank among those of its host, with threads");
  HostPlacement placement;
  std::vector<Part> parts = usable_parts(topology, request.usable);
  if (topology.nodes().size() < 2 || parts.empty()) return placement;
  const std::size_t before = parts.size();
  parts = share_of(std::move(parts), static_cast<std::size_t>(request.sharer),
                   static_cast<std::size_t>(request.sharers));
  for (const Part& part : parts) placement.nodes.push_back(part.node);
  if (before == 1) return placement;  // the process is bound to one node already
  std::size_t room = 0;
  for (const Part& part : parts) room += part.threads.size();
  // More compute threads than CPUs of these nodes would compete for the CPUs.
  if (static_cast<std::size_t>(request.threads) > room) return placement;
  placement.threads = spread(parts, request.threads);
  return placement;
}

std::shared_ptr<PageSource> apply_placement(std::shared_ptr<const Topology> topology,
                                            const HostPlacement& placement) {
  if (placement.threads.empty()) {
    on_compute_thread({});
  } else {
    auto refused = std::make_shared<std::atomic<bool>>(false);
    on_compute_thread([topology, refused, threads = placement.threads](int index) {
      const auto i = static_cast<std::size_t>(index) % threads.size();
      if (!topology->bind_thread(threads[i]) && !refused->exchange(true)) {
        log_info("the system refuses to bind compute threads: they run where the process may");
      }
    });
  }
  if (placement.nodes.empty()) return make_page_source();
  return std::make_shared<PlacedPages>(std::move(topology), placement.nodes);
}

std::shared_ptr<PageSource> place_rank_on_host(int local_rank, int local_ranks, int threads,
                                               bool own) {
  try {
    auto topology = std::make_shared<const Topology>();
    const HostPlacement placement = place_host(*topology, {.usable = topology->usable_threads(),
                                                           .threads = threads,
                                                           .sharer = own ? 0 : local_rank,
                                                           .sharers = own ? 1 : local_ranks});
    const std::string text = describe(*topology, placement);
    if (!text.empty() && local_rank == 0) log_info(text);
    return apply_placement(std::move(topology), placement);
  } catch (const std::exception& error) {
    log_info(std::string("threads and memory are not placed: ") + error.what());
    return make_page_source();
  }
}

std::string describe(const Topology& topology, const HostPlacement& placement) {
  if (placement.nodes.empty()) return "";
  std::string nodes = placement.nodes.size() == 1 ? "memory node " : "memory nodes ";
  for (std::size_t i = 0; i < placement.nodes.size(); ++i) {
    const auto node = static_cast<std::size_t>(placement.nodes[i]);
    nodes += (i == 0 ? "" : ", ") + std::to_string(topology.nodes()[node].os_index);
  }
  const std::string pages = "host pages on " + nodes;
  const std::string turns = placement.nodes.size() > 1 ? " in turns" : "";
  return placement.threads.empty() ? pages + turns : "compute threads and " + pages + turns;
}

}  // namespace sluice
