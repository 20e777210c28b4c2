// The results for machines. Field names are a contract: docs/benchmarks.md's tables are made from
// them.
#include <nlohmann/json.hpp>

#include "runtime/bench/adam_bench.hpp"
#include "runtime/bench/comm_bench.hpp"
#include "runtime/bench/step_bench.hpp"

namespace sluice {
namespace {

using Json = nlohmann::ordered_json;

Json summary(const Summary& values) {
  return {{"median", values.median},
          {"mad", values.mad},
          {"best", values.best},
          {"count", values.count}};
}

std::string text_of(const Json& json) {
  // Paths need not be UTF-8; they must not cost the result.
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace

std::string to_json(const AdamBenchResult& result) {
  return text_of({{"bench", "adam"},
                  {"elems", result.options.elems},
                  {"threads", result.options.threads},
                  {"dtype", name_of(result.options.dtype)},
                  {"isa", result.isa},
                  {"bytes_per_param", result.bytes_per_param},
                  {"seconds", summary(result.adam)},
                  {"params_per_s", result.params_per_s},
                  {"bytes_per_s", result.bytes_per_s},
                  {"read_modify_write",
                   {{"seconds", summary(result.read_modify_write)},
                    {"bytes_per_s", result.limit_bytes_per_s}}},
                  {"of_limit", result.of_limit},
                  {"limit", result.limit}});
}

std::string to_json(const CommBenchResult& result) {
  Json rows = Json::array();
  for (const CommRow& row : result.rows) {
    Json entry{{"operation", row.operation},
               {"transport", row.transport},
               {"bytes", row.bytes},
               {"seconds", summary(row.seconds)},
               {"bytes_per_s", row.bytes_per_s},
               {"received_bytes_per_s", row.received_per_s},
               {"of_copy", row.of_copy}};
    entry["to_gloo"] = row.to_gloo > 0 ? Json(row.to_gloo) : Json(nullptr);
    rows.push_back(std::move(entry));
  }
  Json copies = Json::array();
  for (const CopyRow& copy : result.copies) {
    copies.push_back({{"bytes", copy.bytes},
                      {"seconds", summary(copy.seconds)},
                      {"bytes_per_s", copy.bytes_per_s}});
  }
  return text_of({{"bench", "comm"},
                  {"ranks", result.options.ranks},
                  {"dtype", "fp32"},
                  {"collectives", rows},
                  {"copies", copies},
                  {"limit", result.limit}});
}

std::string to_json(const StepBenchResult& result) {
  Json lanes;
  for (const StepLane& lane : result.lanes) {
    lanes[lane.name] = {
        {"ms", summary(lane.ms)}, {"floor_ms", lane.floor_ms}, {"left_ms", lane.left_ms}};
  }
  return text_of(
      {{"bench", "step"},
       {"config", result.run.config},
       {"ranks", result.run.ranks},
       {"dtype", result.run.dtype},
       {"warmup", result.run.warmup},
       {"step_ms", summary(result.step_ms)},
       {"tokens_per_s", result.tokens_per_s},
       {"flops_per_step", result.flops_per_step},
       {"flops_per_s", result.flops_per_s},
       {"gemm_flops_per_s", result.gemm_flops_per_s},
       {"of_gemm", result.of_gemm},
       {"floor_ms", result.floor_ms},
       {"left_ms", result.step_ms.median - result.floor_ms},
       {"memory",
        {{"device_peak", result.device_peak_bytes}, {"resident_peak", result.resident_peak_bytes}}},
       {"lanes", lanes},
       {"limit", result.limit}});
}

}  // namespace sluice
