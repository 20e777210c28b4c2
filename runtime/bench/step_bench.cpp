#include "runtime/bench/step_bench.hpp"

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>

#include "base/bytes.hpp"
#include "base/counted.hpp"
#include "base/error.hpp"
#include "runtime/bench/table.hpp"

namespace sluice {
namespace {

using Json = nlohmann::json;

// Share of the product rate from which products limit the step.
constexpr double kComputeBound = 0.7;

std::vector<Json> read_steps(const StepBenchRun& run) {
  const std::string path = run.run_dir + "/metrics.jsonl";
  std::ifstream file(path);
  std::vector<Json> steps;
  for (std::string line; std::getline(file, line);) {
    Json step = Json::parse(line, nullptr, false);
    if (step.is_discarded()) {
      throw IoError(path + " has a line that is not JSON; run the benchmark again", path);
    }
    if (step.at("step").get<std::int64_t>() > run.warmup) steps.push_back(std::move(step));
  }
  if (steps.empty()) {
    throw IoError(path + " has no step after the warm-up; give more --steps", path);
  }
  return steps;
}

// The loss head's share of the time that metrics.jsonl calls forward, in the traced step.
double loss_head_share_of_forward(const StepBenchRun& run) {
  const std::string path = run.run_dir + "/trace.json";
  std::ifstream file(path);
  const Json trace = Json::parse(file, nullptr, false);
  if (trace.is_discarded() || !trace.contains("traceEvents")) {
    throw IoError("cannot read " + path + " of the last step; run the benchmark again", path);
  }
  double head = 0;
  double blocks = 0;
  for (const Json& event : trace["traceEvents"]) {
    const std::string name = event.value("name", "");
    if (name.starts_with("LossHead ")) head += event.value("dur", 0.0);
    if (name.starts_with("Forward ")) blocks += event.value("dur", 0.0);
  }
  return head + blocks > 0 ? head / (head + blocks) : 0;
}

struct LaneOfStep {
  const char* name;
  double flops = 0;  // share of the model's
  std::vector<double> ms;
};

std::vector<LaneOfStep> split(const std::vector<Json>& steps, double head_of_forward,
                              double head_of_flops) {
  // Backward is two thirds of the FLOP without the loss head, which computes its own gradients.
  std::vector<LaneOfStep> lanes{{"forward", (1 - head_of_flops) / 3, {}},
                                {"backward", (1 - head_of_flops) * 2 / 3, {}},
                                {"loss_head", head_of_flops, {}},
                                {"comm_waited", 0, {}},
                                {"optimizer", 0, {}},
                                {"data", 0, {}},
                                {"other", 0, {}}};
  for (const Json& step : steps) {
    const Json& timers = step.at("timers_ms");
    const double forward = timers.at("forward");
    const double known[] = {forward * (1 - head_of_forward), timers.at("backward"),
                            forward * head_of_forward,       timers.at("comm"),
                            timers.at("optimizer"),          timers.at("data")};
    double rest = step.at("step_ms");
    for (std::size_t i = 0; i < std::size(known); ++i) {
      lanes[i].ms.push_back(known[i]);
      rest -= known[i];
    }
    lanes.back().ms.push_back(std::max(0.0, rest));
  }
  return lanes;
}

std::vector<double> column(const std::vector<Json>& steps, const char* key) {
  std::vector<double> values;
  for (const Json& step : steps) values.push_back(step.at(key));
  return values;
}

std::string shown(const std::string& lane) {
  std::string name = lane;
  std::replace(name.begin(), name.end(), '_', ' ');
  return name;
}

std::string limit_of(const StepBenchResult& result) {
  const auto most =
      std::max_element(result.lanes.begin(), result.lanes.end(),
                       [](const StepLane& a, const StepLane& b) { return a.left_ms < b.left_ms; });
  const std::string text = "at this machine's rate they take " + format_percent(result.of_gemm) +
                           " of the step; the largest part of the rest, " +
                           format_seconds(1e-3 * most->left_ms) + ", is in the lane '" +
                           shown(most->name) + "'";
  if (result.of_gemm > 1) {
    return "unknown: the step ran faster than the products that were measured beside it, so the "
           "machine was busy then; run it again";
  }
  if (result.of_gemm >= kComputeBound) return "matrix products: " + text;
  return shown(most->name) + ", rather than matrix products: " + text;
}

}  // namespace

StepBenchResult read_step_bench(const StepBenchRun& run) {
  const std::vector<Json> steps = read_steps(run);
  StepBenchResult result;
  result.run = run;
  result.step_ms = summarize(column(steps, "step_ms"));
  const double tokens = steps[0].at("tokens_per_s").get<double>() *
                        steps[0].at("step_ms").get<double>();  // of a step, x 1e3
  result.tokens_per_s = tokens / result.step_ms.median;
  result.flops_per_step =
      1e9 * steps[0].at("tflops").get<double>() * steps[0].at("step_ms").get<double>();
  result.gemm_flops_per_s = run.gemm_flops_per_s;
  for (const Json& step : steps) {  // a run's own peak rises where a step reaches more
    const double mfu = step.at("mfu");
    const double peak = mfu > 0 ? 1e12 * step.at("tflops").get<double>() / mfu : 0;
    result.gemm_flops_per_s = std::max(result.gemm_flops_per_s, peak);
  }
  result.flops_per_s = 1e3 * result.flops_per_step / result.step_ms.median;
  if (result.gemm_flops_per_s > 0) {
    result.of_gemm = result.flops_per_s / result.gemm_flops_per_s;
    result.floor_ms = 1e3 * result.flops_per_step / result.gemm_flops_per_s;
  }
  for (const Json& step : steps) {
    const Json& memory = step.at("memory");
    result.device_peak_bytes =
        std::max(result.device_peak_bytes, memory.at("device_peak").get<std::int64_t>());
    result.resident_peak_bytes =
        std::max(result.resident_peak_bytes, memory.at("resident_peak").get<std::int64_t>());
  }
  for (LaneOfStep& lane : split(steps, loss_head_share_of_forward(run), run.loss_head_share)) {
    StepLane row{lane.name, summarize(std::move(lane.ms)), lane.flops * result.floor_ms, 0};
    row.left_ms = row.ms.median - row.floor_ms;
    result.lanes.push_back(std::move(row));
  }
  result.limit = limit_of(result);
  return result;
}

std::string describe(const StepBenchResult& result) {
  const StepBenchRun& run = result.run;
  std::string text = wrap(run.config + ": " + counted(run.ranks, "rank") + ", " + run.dtype + ", " +
                          counted(static_cast<std::int64_t>(result.step_ms.count), "step") +
                          " after " + std::to_string(run.warmup) + " of warm-up");
  text += wrap(format_count(result.tokens_per_s) + " tokens/s; a rank " +
               format_flop_rate(result.flops_per_s) + ", " + format_percent(result.of_gemm) +
               " of the " + format_flop_rate(result.gemm_flops_per_s) +
               " of its matrix products; peak memory: device " +
               (result.device_peak_bytes > 0 ? format_bytes(result.device_peak_bytes)
                                             : std::string("not counted")) +
               ", resident " + format_bytes(result.resident_peak_bytes));
  std::vector<std::vector<std::string>> rows{{"lane", "median", "mad", "of step", "floor", "left"}};
  const auto ms = [](double value) { return format_seconds(1e-3 * value); };
  const auto add = [&](const std::string& name, const Summary& time, double floor) {
    rows.push_back({name, ms(time.median), ms(time.mad),
                    format_percent(time.median / result.step_ms.median), ms(floor),
                    ms(time.median - floor)});
  };
  for (const StepLane& lane : result.lanes) add(shown(lane.name), lane.ms, lane.floor_ms);
  add("step", result.step_ms, result.floor_ms);
  text += "\n" + format_table(rows) + "\n";
  return text +
         wrap(
             "floor: the model's FLOPs at the rate of its matrix products; left: what a "
             "lane takes beyond") +
         wrap("limit: " + result.limit);
}

}  // namespace sluice
