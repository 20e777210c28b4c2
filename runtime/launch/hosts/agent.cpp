#include "runtime/launch/hosts/agent.hpp"

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstdlib>

#include "base/error.hpp"
#include "base/format.hpp"

namespace sluice {
namespace {

// Output may hold the first byte by itself (sampled text of a byte tokenizer can).
constexpr std::string_view kRecordBegins = "\x1esluice ";
constexpr std::size_t kLongestRecord = std::size_t{1} << 20;
constexpr std::string_view kSecretBegins = "secret ";
constexpr std::size_t kLongestSecret = 4096;

struct Field {
  const char* name;
  int AgentPlace::*value;
};
constexpr std::array<Field, 5> kFields{{{"node", &AgentPlace::node},
                                        {"nodes", &AgentPlace::nodes},
                                        {"first", &AgentPlace::first_rank},
                                        {"nproc", &AgentPlace::nproc},
                                        {"world", &AgentPlace::world}}};

[[noreturn]] void refuse(std::string_view text) {
  throw ConfigError(std::string(kAgentVariable) + "='" + std::string(text) +
                    "' is not what a launcher sets; unset it");
}

}  // namespace

std::string secret_word(std::string_view secret) {
  return std::string(kSecretBegins).append(secret) + "\n";
}

std::string read_secret_word(int fd, std::chrono::milliseconds patience) {
  const auto until = std::chrono::steady_clock::now() + patience;
  std::string word;
  // Byte by byte: later bytes belong to the supervisor.
  while (!word.ends_with('\n') && word.size() < kLongestSecret) {
    const auto left =
        std::chrono::ceil<std::chrono::milliseconds>(until - std::chrono::steady_clock::now());
    pollfd ready{fd, POLLIN, 0};
    const int polled = ::poll(&ready, 1, static_cast<int>(std::max<std::int64_t>(left.count(), 0)));
    if (polled < 0 && errno == EINTR) continue;
    char c = 0;
    if (polled <= 0 || ::read(fd, &c, 1) != 1) break;
    word += c;
  }
  if (!word.starts_with(kSecretBegins) || !word.ends_with('\n')) {
    throw Error(
        "an agent did not get the job's secret from its launcher on standard input; check "
        "that SLUICE_SSH passes standard input on");
  }
  return word.substr(kSecretBegins.size(), word.size() - kSecretBegins.size() - 1);
}

std::string agent_text(const AgentPlace& place) {
  std::string text;
  for (const Field& field : kFields) {
    text += format_text("{}{}={}", text.empty() ? "" : ",", field.name, place.*field.value);
  }
  return text;
}

AgentPlace parse_agent(std::string_view text) {
  AgentPlace place;
  std::string_view rest = text;
  for (const Field& field : kFields) {
    const std::string_view item = rest.substr(0, rest.find(','));
    const std::string key = std::string(field.name) + "=";
    if (!item.starts_with(key)) refuse(text);
    const auto [end, error] =
        std::from_chars(item.data() + key.size(), item.data() + item.size(), place.*field.value);
    if (error != std::errc() || end != item.data() + item.size()) refuse(text);
    rest.remove_prefix(std::min(item.size() + 1, rest.size()));
  }
  const bool holds = place.node >= 0 && place.node < place.nodes && place.first_rank >= 0 &&
                     place.nproc >= 1 && place.first_rank <= place.world - place.nproc;
  if (!holds || !rest.empty()) refuse(text);
  return place;
}

std::optional<AgentPlace> agent_place() {
  const char* text = std::getenv(std::string(kAgentVariable).c_str());
  if (text == nullptr) return std::nullopt;
  return parse_agent(text);
}

std::string agent_record(const ErrorReport& report) {
  return std::string(kRecordBegins) + error_report_text(report) + "\n";
}

std::string RecordFilter::feed(std::string_view bytes) {
  held_ += bytes;
  std::string passed;
  while (!held_.empty()) {
    const std::size_t begins = std::min(held_.find(kRecordBegins.front()), held_.size());
    passed.append(held_, 0, begins);
    held_.erase(0, begins);
    const std::size_t known = std::min(held_.size(), kRecordBegins.size());
    if (held_.compare(0, known, kRecordBegins.substr(0, known)) != 0) {
      passed += held_.front();
      held_.erase(0, 1);
      continue;
    }
    const std::size_t ends = held_.find('\n');
    if (ends == std::string::npos && held_.size() < kLongestRecord) return passed;
    const std::size_t size = ends == std::string::npos ? held_.size() : ends + 1;
    if (known == kRecordBegins.size()) {
      if (auto report = parse_error_report(std::string_view(held_).substr(known, size - known))) {
        report_ = std::move(report);
        held_.erase(0, size);
        continue;
      }
    }
    passed.append(held_, 0, size);
    held_.erase(0, size);
  }
  return passed;
}

std::string RecordFilter::finish() { return std::exchange(held_, {}); }

std::string shell_quoted(std::string_view word) {
  std::string quoted = "'";
  for (const char c : word) {
    if (c == '\'') {
      quoted += "'\\''";
    } else {
      quoted += c;
    }
  }
  return quoted + "'";
}

std::string remote_command(const std::string& folder,
                           const std::vector<std::pair<std::string, std::string>>& environment,
                           const std::string& executable,
                           const std::vector<std::string>& arguments) {
  std::string command =
      "cd " + shell_quoted(folder) + " || exit " + std::to_string(kNotThere) + "; exec env";
  for (const auto& [name, value] : environment) command += " " + shell_quoted(name + "=" + value);
  command += " " + shell_quoted(executable);
  for (const std::string& argument : arguments) command += " " + shell_quoted(argument);
  return command;
}

}  // namespace sluice
