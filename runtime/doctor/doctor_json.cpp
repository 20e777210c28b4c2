// The report as JSON: the content of the rates file, facts and findings.
#include <nlohmann/json.hpp>

#include "runtime/doctor/doctor.hpp"
#include "runtime/doctor/nvme_bench_json.hpp"

namespace sluice {
namespace {

using Json = nlohmann::ordered_json;

template <class T>
Json or_null(const std::optional<T>& value) {
  return value ? Json(*value) : Json(nullptr);
}
Json word(const std::string& text) { return text.empty() ? Json(nullptr) : Json(text); }

const char* name_of(Isa isa) {
  return isa == Isa::kAvx512 ? "avx512" : isa == Isa::kAvx2 ? "avx2" : "scalar";
}

Json processor(const MachineFacts& facts) {
  return {{"model", word(facts.cpu_model)},
          {"isa", name_of(facts.isa)},
          {"amx_reported", facts.amx_reported},
          {"amx_usable", facts.amx_usable},
          {"clock_hz", or_null(facts.clock_hz)},
          {"clock_source", word(facts.clock_source)},
          {"cores", facts.cores},
          {"hardware_threads", facts.hardware_threads},
          {"quota_cores", or_null(facts.cpu_quota)},
          {"load", or_null(facts.load)},
          {"spin_count", word(facts.spin_count)},
          {"wait_policy", word(facts.wait_policy)},
          {"last_cache_bytes", facts.cache_bytes > 0 ? Json(facts.cache_bytes) : Json(nullptr)}};
}

Json memory(const MachineFacts& facts) {
  return {
      {"total_bytes", or_null(facts.memory_bytes)},
      {"available_bytes", or_null(facts.available_bytes)},
      {"swap_bytes", or_null(facts.swap_bytes)},
      {"swap_used_bytes", or_null(facts.swap_used_bytes)},
      {"memlock_bytes", facts.memlock_unlimited ? Json("unlimited") : or_null(facts.memlock_bytes)},
      {"memlock_exempt", facts.memlock_exempt},
      {"huge_pages", word(facts.huge_pages)},
      {"shared_huge_pages", word(facts.shared_huge_pages)},
      {"shm_bytes", or_null(facts.shm_bytes)},
      {"shm_free_bytes", or_null(facts.shm_free_bytes)}};
}

Json gpu_json(const std::optional<GpuFacts>& gpu) {
  if (!gpu) return nullptr;
  return {{"index", gpu->index},
          {"name", word(gpu->name)},
          {"compute_capability", word(gpu->compute)},
          {"multiprocessors", gpu->multiprocessors},
          {"copy_engines", gpu->copy_engines},
          {"memory_bytes", gpu->memory_bytes},
          {"free_bytes", gpu->free_bytes},
          {"cuda_driver", word(gpu->driver)},
          {"cuda_runtime", word(gpu->runtime)},
          {"tf32", gpu->tf32},
          {"pci",
           {{"address", word(gpu->bus_id)},
            {"gt_per_s", or_null(gpu->link.gt_per_s)},
            {"lanes", or_null(gpu->link.lanes)},
            {"most_gt_per_s", or_null(gpu->link.most_gt_per_s)},
            {"most_lanes", or_null(gpu->link.most_lanes)},
            {"bps", or_null(link_bps(gpu->link.gt_per_s, gpu->link.lanes))}}},
          {"numa_node", or_null(gpu->link.numa_node)}};
}

Json disk_json(const DiskFacts& disk) {
  return {{"path", disk.path},
          {"file_system", word(disk.file_system)},
          {"device", word(disk.device)},
          {"free_bytes", or_null(disk.free_bytes)},
          {"o_direct", or_null(disk.direct)},
          {"o_direct_error", word(disk.direct_error)},
          {"io_uring", disk.uring},
          {"io_uring_error", word(disk.uring_error)}};
}

// Paths need not be UTF-8; they must not cost the result.
std::string text_of(const Json& json) {
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace

std::string to_json(const DoctorReport& report) {
  Json nodes = Json::array();
  for (const NodeFact& node : report.facts.nodes) {
    nodes.push_back(
        {{"node", node.os_index},
         {"cores", node.cores},
         {"memory_bytes", node.memory_bytes > 0 ? Json(node.memory_bytes) : Json(nullptr)}});
  }
  Json findings = Json::array();
  for (const Finding& finding : report.findings) {
    findings.push_back({{"kind", name_of(finding.kind)},
                        {"what", finding.what},
                        {"why", finding.why},
                        {"do", word(finding.do_)}});
  }
  Json json = Json::parse(machine_rates_json(report.rates));
  json["facts"] = {{"processor", processor(report.facts)},
                   {"memory", memory(report.facts)},
                   {"nodes", nodes},
                   {"disk", disk_json(report.disk)},
                   {"gpus", report.facts.gpus},
                   {"gpu", gpu_json(report.facts.gpu)}};
  json["findings"] = findings;
  json["seconds"] = report.seconds;
  return text_of(json);
}

std::string to_json(const NvmeBenchResult& result) {
  Json points = Json::array();
  for (const NvmeBenchPoint& point : result.points) {
    points.push_back({{"direction", name_of(point.direction)},
                      {"block_bytes", point.block_bytes},
                      {"depth", point.depth},
                      {"bytes_per_s", point.bytes_per_s}});
  }
  const auto rate = [](double value) { return value > 0 ? Json(value) : Json(nullptr); };
  return text_of({{"bench", "nvme"},
                  {"store", result.description},
                  {"points", points},
                  {"best",
                   {{"block_bytes", result.best_block_bytes},
                    {"depth", result.best_depth},
                    {"read_bytes_per_s", rate(result.read_bytes_per_s)},
                    {"write_bytes_per_s", rate(result.write_bytes_per_s)}}}});
}

}  // namespace sluice
