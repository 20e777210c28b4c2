#include "base/failpoint.hpp"

#include <unistd.h>

#include <atomic>
#include <charconv>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "base/error.hpp"
#include "base/thread_rank.hpp"

namespace sluice {
namespace {

struct Armed {
  std::string name;
  long at = 0;     // which pass, from 1; 0 = every one
  long rank = -1;  // -1 = every rank
  std::string action;
  long value = 0;
  long passes = 0;
};

std::atomic<bool> any_armed{false};
std::mutex mutex;
std::vector<Armed>& armed() {
  static std::vector<Armed> list;
  return list;
}

long to_number(std::string_view text, std::string_view whole) {
  long value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) {
    throw ConfigError("SLUICE_FAILPOINTS: not a number in '" + std::string(whole) + "'");
  }
  return value;
}

Armed parse_one(std::string_view text) {
  Armed result;
  std::size_t begin = 0;
  bool first = true;
  while (begin <= text.size()) {
    const std::size_t end = std::min(text.find(':', begin), text.size());
    const std::string_view part = text.substr(begin, end - begin);
    begin = end + 1;
    if (first) {
      const std::size_t at = part.find('@');
      result.name = part.substr(0, at);
      if (at != std::string_view::npos) result.at = to_number(part.substr(at + 1), text);
      first = false;
    } else if (part.starts_with("rank=")) {
      result.rank = to_number(part.substr(5), text);
    } else {
      const std::size_t equals = part.find('=');
      result.action = part.substr(0, equals);
      if (equals != std::string_view::npos) result.value = to_number(part.substr(equals + 1), text);
    }
  }
  static constexpr std::string_view kActions[] = {"abort", "kill",  "exit", "hang",
                                                  "error", "delay", "nan"};
  for (const std::string_view action : kActions) {
    if (result.action == action) return result;
  }
  throw ConfigError("SLUICE_FAILPOINTS: unknown action in '" + std::string(text) + "'");
}

}  // namespace

void arm_failpoints(std::string_view text) {
  std::vector<Armed> list;
  std::size_t begin = 0;
  while (begin < text.size()) {
    const std::size_t end = std::min(text.find(';', begin), text.size());
    if (end > begin) list.push_back(parse_one(text.substr(begin, end - begin)));
    begin = end + 1;
  }
  const std::lock_guard lock(mutex);
  armed() = std::move(list);
  any_armed.store(!armed().empty());
}

void arm_failpoints_from_environment() {
  if (const char* text = std::getenv("SLUICE_FAILPOINTS")) arm_failpoints(text);
}

FailpointOutcome failpoint(std::string_view name) {
  // Relaxed: arming happens before the threads that pass here start.
  if (!any_armed.load(std::memory_order_relaxed)) return FailpointOutcome::kNone;
  Armed hit;
  {
    const std::lock_guard lock(mutex);
    for (Armed& entry : armed()) {
      if (entry.name != name || (entry.rank >= 0 && entry.rank != thread_rank())) continue;
      ++entry.passes;
      if (entry.at == 0 || entry.passes == entry.at) hit = entry;
    }
  }
  if (hit.action.empty()) return FailpointOutcome::kNone;
  if (hit.action == "abort") std::abort();
  if (hit.action == "kill") std::raise(SIGKILL);
  if (hit.action == "exit") ::_exit(static_cast<int>(hit.value));
  if (hit.action == "error") throw Error("failpoint " + std::string(name));
  if (hit.action == "delay") std::this_thread::sleep_for(std::chrono::milliseconds(hit.value));
  while (hit.action == "hang") std::this_thread::sleep_for(std::chrono::hours(1));
  return hit.action == "nan" ? FailpointOutcome::kPoison : FailpointOutcome::kNone;
}

}  // namespace sluice
