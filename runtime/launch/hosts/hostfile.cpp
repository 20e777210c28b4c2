#include "runtime/launch/hosts/hostfile.hpp"

#include <fcntl.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <charconv>
#include <optional>
#include <sstream>
#include <system_error>

#include "base/error.hpp"
#include "base/format.hpp"
#include "base/posix/descriptor.hpp"
#include "base/posix/host_name.hpp"

namespace sluice {
namespace {

constexpr int kMostSlots = 1 << 16;  // only to catch nonsense

struct Entry {
  HostSlots host;
  int line = 0;
};

// A name that ssh would take for an option, or that a shell could misread, is none.
bool is_host_name(std::string_view text) {
  const auto allowed = [](unsigned char c) {
    return std::isalnum(c) != 0 || c == '.' || c == '-' || c == '_' || c == ':' || c == '@';
  };
  return !text.empty() && text.front() != '-' && std::all_of(text.begin(), text.end(), allowed);
}

std::optional<int> slots_of(std::string_view word) {
  constexpr std::string_view kKey = "slots=";
  if (!word.starts_with(kKey)) return std::nullopt;
  word.remove_prefix(kKey.size());
  int value = 0;
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), value);
  if (error != std::errc() || end != word.data() + word.size()) return std::nullopt;
  if (value < 1 || value > kMostSlots) return std::nullopt;
  return value;
}

// The line's mistake; empty if it has none.
std::string read_line(const std::string& line, Entry& entry) {
  std::istringstream words(line.substr(0, line.find('#')));
  if (!(words >> entry.host.host)) return {};
  if (!is_host_name(entry.host.host)) {
    return "'" + entry.host.host + "' is not a host's name or address";
  }
  for (std::string word; words >> word;) {
    const std::optional<int> slots = slots_of(word);
    if (!slots) return "'" + word + "' is not understood; a line is: host slots=N, N >= 1";
    if (entry.host.slots != 0) return "slots is given twice";
    entry.host.slots = *slots;
  }
  return {};
}

std::string short_name(const std::string& host) {
  const bool numeric = host.find_first_not_of("0123456789.:") == std::string::npos;
  return numeric ? host : host.substr(0, host.find('.'));
}

}  // namespace

std::vector<HostSlots> parse_hostfile(std::string_view text, const std::string& name) {
  std::vector<Entry> entries;
  std::string problems;
  const auto complain = [&](int line, const std::string& what) {
    problems += format_text("{}{}:{}: {}", problems.empty() ? "" : "\n", name, line, what);
  };
  std::istringstream lines{std::string(text)};
  int number = 0;
  for (std::string line; std::getline(lines, line);) {
    Entry entry{.host = {}, .line = ++number};
    const std::string problem = read_line(line, entry);
    if (!problem.empty()) complain(number, problem);
    if (!problem.empty() || entry.host.host.empty()) continue;
    const auto same = std::find_if(entries.begin(), entries.end(), [&](const Entry& other) {
      return other.host.host == entry.host.host;
    });
    if (same != entries.end()) {
      complain(number,
               format_text("host {} is in line {} already; give it one line with all its slots",
                           entry.host.host, same->line));
    } else {
      entries.push_back(entry);
    }
  }
  if (entries.empty() && problems.empty()) {
    problems = name + ": names no host; write one host a line, e.g. node1 slots=8";
  }
  if (!problems.empty()) throw ConfigError(problems);
  std::vector<HostSlots> hosts;
  for (const Entry& entry : entries) hosts.push_back(entry.host);
  return hosts;
}

std::vector<HostSlots> read_hostfile(const std::string& path, int default_slots) {
  const Descriptor file = open_descriptor(path, O_RDONLY);
  std::string text;
  const int error = file ? read_to_end(file.get(), text) : errno;
  if (error != 0) {
    throw ConfigError("launch.hostfile: cannot read " + path + ": " +
                      std::generic_category().message(error) + "; give the hosts' file");
  }
  std::vector<HostSlots> hosts = parse_hostfile(text, path);
  for (HostSlots& host : hosts) {
    if (host.slots == 0) host.slots = default_slots;
  }
  return hosts;
}

bool is_this_host(const std::string& host) {
  if (host == "localhost" || host == "127.0.0.1" || host == "::1") return true;
  return host == host_name() || short_name(host) == short_name(host_name());
}

bool all_are_elsewhere(const std::vector<HostSlots>& hosts) {
  return !hosts.empty() && std::none_of(hosts.begin(), hosts.end(), [](const HostSlots& host) {
    return is_this_host(host.host);
  });
}

}  // namespace sluice
