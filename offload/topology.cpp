#include "offload/topology.hpp"

#include <hwloc.h>

#include <algorithm>

#include "base/error.hpp"

namespace sluice {
namespace {

struct Bitmap {
  explicit Bitmap(const std::vector<int>& indices) : set(hwloc_bitmap_alloc()) {
    for (const int index : indices) hwloc_bitmap_set(set, static_cast<unsigned>(index));
  }
  ~Bitmap() { hwloc_bitmap_free(set); }
  Bitmap(const Bitmap&) = delete;
  Bitmap& operator=(const Bitmap&) = delete;
  hwloc_bitmap_t set;
};

}  // namespace

struct Topology::Impl {
  // An empty `synthetic` means this machine.
  explicit Impl(const std::string& synthetic) {
    if (hwloc_topology_init(&topology) != 0) throw Error("hwloc cannot be initialised");
    if ((!synthetic.empty() && hwloc_topology_set_synthetic(topology, synthetic.c_str()) != 0) ||
        hwloc_topology_load(topology) != 0) {
      hwloc_topology_destroy(topology);
      throw Error("hwloc cannot read the machine's topology");
    }
    threads = hwloc_get_nbobjs_by_type(topology, HWLOC_OBJ_PU);
    add_nodes();
    add_cores();
  }
  ~Impl() { hwloc_topology_destroy(topology); }
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  void add_nodes() {
    for (hwloc_obj_t node = nullptr;
         (node = hwloc_get_next_obj_by_type(topology, HWLOC_OBJ_NUMANODE, node)) != nullptr;) {
      nodes.push_back({.os_index = static_cast<int>(node->os_index),
                       .memory_bytes = static_cast<std::int64_t>(node->attr->numanode.local_memory),
                       .cores = {},
                       .threads = {}});
      node_objects.push_back(node);
    }
    check(!nodes.empty(), "hwloc knows at least one memory node");
  }

  // If memory nodes overlap (high-bandwidth memory beside DRAM), a core belongs to the first node.
  void add_cores() {
    // Some virtual machines report hardware threads but no cores.
    const bool has_cores = hwloc_get_nbobjs_by_type(topology, HWLOC_OBJ_CORE) > 0;
    const hwloc_obj_type_t type = has_cores ? HWLOC_OBJ_CORE : HWLOC_OBJ_PU;
    for (hwloc_obj_t core = nullptr;
         (core = hwloc_get_next_obj_by_type(topology, type, core)) != nullptr;) {
      const int first = hwloc_bitmap_first(core->cpuset);
      if (first < 0) continue;
      MemoryNode& home = nodes[node_of(first)];
      home.cores.push_back(first);
      CpuCore& own = cores.emplace_back();
      own.node = home.os_index;
      for (int thread = first; thread >= 0; thread = hwloc_bitmap_next(core->cpuset, thread)) {
        own.threads.push_back(thread);
      }
      home.threads.insert(home.threads.end(), own.threads.begin(), own.threads.end());
    }
    check(!cores.empty(), "hwloc knows at least one core");
  }

  [[nodiscard]] std::size_t node_of(int thread) const {
    std::size_t home = 0;
    for (std::size_t i = nodes.size(); i-- > 0;) {
      if (hwloc_bitmap_isset(node_objects[i]->cpuset, static_cast<unsigned>(thread)) != 0) home = i;
    }
    return home;
  }

  hwloc_topology_t topology = nullptr;
  std::vector<MemoryNode> nodes;
  std::vector<hwloc_obj_t> node_objects;  // in the order of `nodes`
  std::vector<CpuCore> cores;             // in hwloc's order, which keeps a node's cores together
  int threads = 0;
};

Topology::Topology() : impl_(std::make_unique<Impl>("")) {}
Topology::Topology(const std::string& synthetic) : impl_(std::make_unique<Impl>(synthetic)) {}
Topology::~Topology() = default;

const std::vector<MemoryNode>& Topology::nodes() const { return impl_->nodes; }
int Topology::cores() const { return static_cast<int>(impl_->cores.size()); }
int Topology::hardware_threads() const { return impl_->threads; }

std::vector<int> Topology::usable_threads() const {
  const Bitmap mask({});
  if (hwloc_get_cpubind(impl_->topology, mask.set, HWLOC_CPUBIND_THREAD) != 0) {
    hwloc_bitmap_copy(mask.set, hwloc_topology_get_allowed_cpuset(impl_->topology));
  }
  hwloc_bitmap_and(mask.set, mask.set, hwloc_topology_get_topology_cpuset(impl_->topology));
  std::vector<int> threads;
  for (int i = hwloc_bitmap_first(mask.set); i >= 0; i = hwloc_bitmap_next(mask.set, i)) {
    threads.push_back(i);
  }
  return threads;
}

std::vector<CpuCore> Topology::usable_cores() const {
  const std::vector<int> usable = usable_threads();
  std::vector<CpuCore> result = impl_->cores;
  for (CpuCore& core : result) {
    std::erase_if(core.threads, [&](int thread) {
      return !std::binary_search(usable.begin(), usable.end(), thread);
    });
  }
  std::erase_if(result, [](const CpuCore& core) { return core.threads.empty(); });
  return result;
}

bool Topology::bind_thread(const std::vector<int>& threads) const {
  const Bitmap bitmap(threads);
  return hwloc_set_cpubind(impl_->topology, bitmap.set, HWLOC_CPUBIND_THREAD) == 0;
}

bool Topology::bind_process(const std::vector<int>& threads) const {
  const Bitmap bitmap(threads);
  return hwloc_set_cpubind(impl_->topology, bitmap.set, HWLOC_CPUBIND_PROCESS) == 0;
}

bool Topology::prefer_memory(void* memory, std::int64_t bytes,
                             const std::vector<int>& nodes) const {
  const Bitmap bitmap({});
  for (const int node : nodes) {
    const int index = impl_->nodes.at(static_cast<std::size_t>(node)).os_index;
    hwloc_bitmap_set(bitmap.set, static_cast<unsigned>(index));
  }
  const auto policy = nodes.size() > 1 ? HWLOC_MEMBIND_INTERLEAVE : HWLOC_MEMBIND_BIND;
  return hwloc_set_area_membind(impl_->topology, memory, static_cast<std::size_t>(bytes),
                                bitmap.set, policy, HWLOC_MEMBIND_BYNODESET) == 0;
}

}  // namespace sluice
