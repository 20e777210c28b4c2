// events.jsonl: what happened to a run, one JSON object a line (docs: runtime/observe/README.md).
//
//   {"time": 1763730000.125, "event": "save", "step": 500, "text": "...", "bytes": 1048576}
//
// The file is for people and for `sluice report`. A failure to write the file never ends a run. The
// lines of a file that cannot be written wait, up to kMostKept bytes, and the log says so once.
#pragma once

#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "base/log.hpp"
#include "runtime/observe/file_io.hpp"

namespace sluice {

using EventValue = std::variant<std::int64_t, double, std::string>;

struct RunEvent {
  std::string kind;                       // "start", "save", ...: the table of the README
  std::string text;                       // a sentence for people
  std::optional<std::int64_t> step = {};  // after which the event happened
  std::vector<std::pair<std::string, EventValue>> more = {};  // figures, behind the text
};

// One line without its line break; `unix_seconds`: the time of the event. Pure.
[[nodiscard]] std::string event_line(const RunEvent& event, double unix_seconds);

// Appends one event, for a process that has no RunEvents: the launcher. Never throws.
void append_event(const std::string& path, const RunEvent& event) noexcept;

// The events of one process. Before open() lines wait. Thread-safe.
class RunEvents {
 public:
  RunEvents() = default;
  RunEvents(const RunEvents&) = delete;
  RunEvents& operator=(const RunEvents&) = delete;

  // Begins to write. `fresh`: a run that resumes from nothing. Its former file becomes PATH.1,
  // except when the file's last event is a restart: the launcher then goes on with the same run.
  void open(const std::string& path, bool fresh) noexcept;
  // The step of later events that name none.
  void set_step(std::int64_t step) noexcept;
  void add(RunEvent event) noexcept;
  // Takes warnings and errors of the log, except a line that equals the last event's text. Called
  // by the log's sink, so this function does not log.
  void on_log(LogLevel level, std::string_view line) noexcept;

  static constexpr std::size_t kMostKept = std::size_t{1} << 18;

 private:
  void keep(RunEvent event);  // REQUIRES: mutex_ is held
  void flush();               // REQUIRES: mutex_ is held

  std::mutex mutex_;  // guards all members
  std::string path_;
  Descriptor file_;
  std::string kept_;  // whole lines, not written yet
  std::string last_text_;
  std::optional<std::int64_t> step_;
  std::string problem_;  // why the file cannot be written, until the log has it
  bool failed_ = false;
};

}  // namespace sluice
