#include "runtime/observe/run_events.hpp"

#include <fcntl.h>

#include <chrono>
#include <exception>
#include <fstream>
#include <nlohmann/json.hpp>

#include "base/error.hpp"

namespace sluice {
namespace {

double unix_now() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return static_cast<double>(std::chrono::duration_cast<std::chrono::milliseconds>(now).count()) /
         1e3;
}

// The last whole line of a file; empty: there is none.
std::string last_line(const std::string& path) {
  constexpr std::streamoff kTail = 65536;
  std::ifstream in(path, std::ios::binary | std::ios::ate);
  const std::streamoff size = in ? static_cast<std::streamoff>(in.tellg()) : 0;
  if (size <= 0) return "";
  std::string tail(static_cast<std::size_t>(std::min(size, kTail)), '\0');
  in.seekg(size - static_cast<std::streamoff>(tail.size()));
  in.read(tail.data(), static_cast<std::streamsize>(tail.size()));
  const std::size_t end = tail.find_last_of('\n');
  if (end == std::string::npos) return "";
  const std::size_t begin = end == 0 ? std::string::npos : tail.find_last_of('\n', end - 1);
  return tail.substr(begin + 1, end - begin - 1);  // npos + 1 is 0
}

bool ends_with_restart(const std::string& path) {
  const auto event = nlohmann::json::parse(last_line(path), nullptr, false);
  return event.is_object() && event.value("event", "") == "restart";
}

// A crash may have cut the last line short: the next event begins a line of its own.
bool lacks_line_break(const std::string& path) {
  std::ifstream in(path, std::ios::binary | std::ios::ate);
  if (!in || in.tellg() <= 0) return false;
  in.seekg(-1, std::ios::end);
  return in.get() != '\n';
}

}  // namespace

std::string event_line(const RunEvent& event, double unix_seconds) {
  nlohmann::ordered_json object{{"time", unix_seconds}, {"event", event.kind}};
  if (event.step) object["step"] = *event.step;
  object["text"] = event.text;
  for (const auto& [key, value] : event.more) {
    std::visit([&, &key = key](const auto& v) { object[key] = v; }, value);
  }
  // A message may quote a file that is not UTF-8.
  return object.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

void append_event(const std::string& path, const RunEvent& event) noexcept {
  try {
    const std::string start = lacks_line_break(path) ? "\n" : "";
    append_whole(open_for_append(path).get(), start + event_line(event, unix_now()) + "\n", path);
  } catch (const std::exception& error) {
    log_warning(std::string(error.what()) + ". The run goes on");
  }
}

void RunEvents::open(const std::string& path, bool fresh) noexcept {
  std::string problem;
  try {
    const std::lock_guard lock(mutex_);
    path_ = path;
    if (fresh && !ends_with_restart(path)) keep_former_file(path);
    if (lacks_line_break(path)) kept_.insert(0, "\n");
    flush();
    problem = std::exchange(problem_, {});
  } catch (const std::exception& error) {
    problem = error.what();
  }
  if (!problem.empty()) log_warning(problem + ". The run goes on without this file");
}

void RunEvents::set_step(std::int64_t step) noexcept {
  const std::lock_guard lock(mutex_);
  step_ = step;
}

void RunEvents::add(RunEvent event) noexcept {
  std::string problem;
  try {
    const std::lock_guard lock(mutex_);
    keep(std::move(event));
    problem = std::exchange(problem_, {});
  } catch (const std::exception&) {  // out of memory: the event is lost
    return;
  }
  if (!problem.empty()) {
    log_warning(problem + ". The run goes on; its events are kept until they can be written");
  }
}

void RunEvents::on_log(LogLevel level, std::string_view line) noexcept {
  if (level != LogLevel::kWarning && level != LogLevel::kError) return;
  try {
    const std::lock_guard lock(mutex_);
    if (line == last_text_) return;
    keep({.kind = level == LogLevel::kError ? "error" : "warning", .text = std::string(line)});
  } catch (const std::exception&) {  // out of memory: the log has the line
  }
}

void RunEvents::keep(RunEvent event) {
  if (!event.step) event.step = step_;
  if (kept_.size() < kMostKept) kept_ += event_line(event, unix_now()) + "\n";
  last_text_ = std::move(event.text);
  flush();
}

void RunEvents::flush() {
  if (path_.empty()) return;
  try {
    if (!file_) file_ = open_for_append(path_);
    append_whole(file_.get(), kept_, path_);
    kept_.clear();
    failed_ = false;
  } catch (const IoError& error) {
    if (!failed_) problem_ = error.what();
    failed_ = true;
  }
}

}  // namespace sluice
