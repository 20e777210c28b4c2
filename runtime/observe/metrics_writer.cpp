#include "runtime/observe/metrics_writer.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <fstream>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/error.hpp"
#include "base/log.hpp"
#include "base/posix/atomic_file.hpp"

namespace sluice {
namespace {

// The whole lines of steps before `first_step`.
std::string lines_before(const std::string& path, std::int64_t first_step) {
  std::ifstream in(path, std::ios::binary);
  std::string kept;
  std::string line;
  while (std::getline(in, line)) {
    if (in.eof()) break;  // no line break: cut short
    const auto object = nlohmann::json::parse(line, nullptr, false);
    if (!object.is_object()) continue;
    const auto step = object.find("step");
    if (step == object.end() || !step->is_number_integer()) continue;
    if (step->get<std::int64_t>() < first_step) kept += line + "\n";
  }
  return kept;
}

nlohmann::ordered_json plan_error_json(const PlanError& error) {
  auto object = nlohmann::ordered_json::object();
  if (error.device) object["device"] = *error.device;
  if (error.host) object["host"] = *error.host;
  if (error.nvme) object["nvme"] = *error.nvme;
  if (error.step_ms) object["step_ms"] = *error.step_ms;
  return object;
}

}  // namespace

std::string to_json_line(const StepRecord& record) {
  nlohmann::ordered_json object{{"step", record.step},
                                {"loss", record.loss},
                                {"grad_norm", record.grad_norm},
                                {"lr", record.lr},
                                {"loss_scale", record.loss_scale},
                                {"skipped", record.skipped},
                                {"tokens", record.tokens},
                                {"step_ms", record.step_ms},
                                {"tokens_per_s", record.tokens_per_s},
                                {"tflops", record.tflops},
                                {"mfu", record.mfu}};
  if (record.mfu_of_card) object["mfu_of_card"] = *record.mfu_of_card;
  const StepMemory& memory = record.memory;
  object["memory"] = {{"device_peak", memory.device_peak},
                      {"host_peak", memory.host_peak},
                      {"pinned", memory.pinned},
                      {"nvme", memory.nvme},
                      {"resident_peak", memory.resident_peak}};
  const StepTimers& timers = record.timers_ms;
  object["timers_ms"] = {{"forward", timers.forward}, {"backward", timers.backward},
                         {"comm", timers.comm},       {"optimizer", timers.optimizer},
                         {"io", timers.io},           {"data", timers.data}};
  if (record.plan_error) object["plan_error"] = plan_error_json(*record.plan_error);
  if (record.checkpoint_ms) object["checkpoint_ms"] = *record.checkpoint_ms;
  if (record.eval_loss) object["eval_loss"] = *record.eval_loss;
  if (record.eval_ppl) object["eval_ppl"] = *record.eval_ppl;
  for (const auto& [name, loss] : record.eval_losses) object["eval_losses"][name] = loss;
  return object.dump();
}

MetricsWriter::MetricsWriter(std::string path, std::int64_t first_step) : path_(std::move(path)) {
  if (first_step <= 1) {
    keep_former_file(path_);
  } else if (::access(path_.c_str(), F_OK) == 0) {
    write_file_atomically(path_, lines_before(path_, first_step));
  }
  file_ = open_for_append(path_);
}

MetricsWriter::~MetricsWriter() {
  if (kept_.empty()) return;
  flush();
  if (kept_.empty()) return;
  const auto lines = std::count(kept_.begin(), kept_.end(), '\n');
  log_warning(path_ + " lacks its last " + std::to_string(lines) + " lines");
}

void MetricsWriter::write(const StepRecord& record) {
  look_for_file();
  kept_ += to_json_line(record) + "\n";
  flush();
  if (kept_.size() <= kMostKept) return;
  kept_.erase(0, kept_.find('\n', kept_.size() - kMostKept) + 1);
}

// Only a name that is gone, or that another file has, counts: another error may pass.
void MetricsWriter::look_for_file() {
  if (gone_) return;
  struct stat opened {};
  struct stat named {};
  if (::fstat(file_.get(), &opened) != 0) return;
  const bool found = ::stat(path_.c_str(), &named) == 0;
  if (!found && errno != ENOENT && errno != ENOTDIR) return;
  if (found && opened.st_ino == named.st_ino && opened.st_dev == named.st_dev) return;
  gone_ = true;
  log_warning(path_ +
              " was removed or moved while the run writes it: the metrics of later steps are lost "
              "with it, or in the moved file. The run goes on");
}

// A run outlives a disk that is full for a while, as it does a checkpoint that cannot be saved.
void MetricsWriter::flush() {
  try {
    append_whole(file_.get(), kept_, path_);
    kept_.clear();
    failed_ = false;
  } catch (const IoError& error) {
    if (!failed_) {
      log_warning(std::string(error.what()) +
                  ". The run goes on; its lines are kept until they can be written");
    }
    failed_ = true;
  }
}

}  // namespace sluice
