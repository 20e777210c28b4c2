#include "configs/migrate/launcher/host_pool.hpp"

#include <algorithm>
#include <charconv>
#include <optional>

#include "base/format.hpp"
#include "configs/yaml_tree.hpp"

namespace sluice::migrate {
namespace {

constexpr int kMostSlots = 1024;
constexpr std::size_t kMostHosts = 100'000;

std::optional<int> whole(std::string_view text) {
  int value = 0;
  const char* const end = text.data() + text.size();
  const auto read = std::from_chars(text.data(), end, value);
  if (read.ec != std::errc() || read.ptr != end || value < 0) return std::nullopt;
  return value;
}

std::vector<std::string_view> split(std::string_view text, char at) {
  std::vector<std::string_view> parts;
  while (true) {
    const std::size_t end = text.find(at);
    parts.push_back(text.substr(0, end));
    if (end == std::string_view::npos) return parts;
    text.remove_prefix(end + 1);
  }
}

std::string_view trimmed(std::string_view text) {
  constexpr std::string_view kBlanks = " \t\r";
  const std::size_t first = text.find_first_not_of(kBlanks);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(kBlanks) - first + 1);
}

Host* find_host(HostPool& pool, std::string_view name) {
  const auto found = std::find_if(pool.hosts.begin(), pool.hosts.end(),
                                  [name](const Host& host) { return host.name == name; });
  return found == pool.hosts.end() ? nullptr : &*found;
}

std::vector<int> first_slots(int count) {
  std::vector<int> slots;
  for (int slot = 0; slot < count; ++slot) slots.push_back(slot);
  return slots;
}

// One line "name slots=N ..."; "" or the mistake.
std::string read_line(std::string_view line, HostPool& pool) {
  const std::size_t blank = line.find_first_of(" \t");
  const std::string_view name = line.substr(0, blank);
  const std::string_view rest =
      blank == std::string_view::npos ? std::string_view() : trimmed(line.substr(blank));
  constexpr std::string_view kSlots = "slots=";
  const std::string_view digits = rest.starts_with(kSlots) ? rest.substr(kSlots.size()) : "";
  const auto slots = whole(digits.substr(0, digits.find_first_not_of("0123456789")));
  if (!slots) {
    return format_text("{} is no host; write 'name slots=N'", in_quotes(line));
  }
  if (*slots < 1 || *slots > kMostSlots) {
    return format_text("host {} has {} slots; give 1 to {}", name, *slots, kMostSlots);
  }
  if (find_host(pool, name) != nullptr) {
    return format_text("host {} stands here a second time; keep one of the lines", name);
  }
  if (pool.hosts.size() == kMostHosts) return "more than 100,000 hosts; this is no hostfile";
  pool.hosts.push_back({std::string(name), first_slots(*slots)});
  return {};
}

std::string check_part(HostPool& pool, const Host& part) {
  Host* host = find_host(pool, part.name);
  if (host == nullptr) {
    return format_text("host {} is not in the hostfile; add its line, or take it away",
                       in_quotes(part.name));
  }
  for (const int slot : part.slots) {
    if (std::find(host->slots.begin(), host->slots.end(), slot) == host->slots.end()) {
      return format_text("host {} has no slot {}; its slots are {}", part.name, slot,
                         host->devices());
    }
  }
  return {};
}

HostPool failed(std::string what) {
  HostPool pool;
  pool.error = std::move(what);
  return pool;
}

}  // namespace

bool Host::has_first_slots() const { return slots == first_slots(static_cast<int>(slots.size())); }

std::string Host::devices() const {
  std::string text;
  for (const int slot : slots) text += (text.empty() ? "" : ",") + std::to_string(slot);
  return text;
}

int HostPool::ranks() const {
  int count = 0;
  for (const Host& host : hosts) count += static_cast<int>(host.slots.size());
  return count;
}

std::string HostPool::lines() const {
  std::string text;
  for (const Host& host : hosts) text += format_text("{} slots={}\n", host.name, host.slots.size());
  return text;
}

HostPool read_hostfile(std::string_view text, std::string_view file) {
  HostPool pool;
  int number = 0;
  for (const std::string_view raw : split(text, '\n')) {
    ++number;
    const std::string_view line = trimmed(raw);
    if (line.empty() || line.starts_with('#')) continue;
    const std::string mistake = read_line(line, pool);
    if (!mistake.empty()) return failed(format_text("{}:{}: {}", file, number, mistake));
  }
  if (pool.hosts.empty()) {
    return failed(format_text("{}: the file has no host; write lines 'name slots=N'", file));
  }
  return pool;
}

HostPool read_filter(std::string_view filter) {
  HostPool parts;
  for (const std::string_view part : split(filter, '@')) {
    const auto words = split(part, ':');
    const bool has_slots = words.size() == 2;
    if (words.size() > 2 || words[0].empty()) {
      return failed(format_text("{} is no host; write host, or host:0,1", in_quotes(part)));
    }
    Host* host = find_host(parts, words[0]);
    if (host == nullptr) {
      parts.hosts.push_back({std::string(words[0]), {}});
      host = &parts.hosts.back();
    }
    if (!has_slots) continue;
    for (const std::string_view word : split(words[1], ',')) {
      const auto slot = whole(trimmed(word));
      if (!slot || *slot >= kMostSlots) {
        return failed(format_text("{} is no slot number; write numbers such as {}:0,1",
                                  in_quotes(word), words[0]));
      }
      host->slots.push_back(*slot);
    }
    std::sort(host->slots.begin(), host->slots.end());
    host->slots.erase(std::unique(host->slots.begin(), host->slots.end()), host->slots.end());
  }
  return parts;
}

HostPool include_hosts(const HostPool& pool, std::string_view filter) {
  HostPool parts = read_filter(filter);
  if (!parts.error.empty()) return parts;
  HostPool known = pool;
  for (const Host& part : parts.hosts) {
    if (std::string what = check_part(known, part); !what.empty()) return failed(std::move(what));
  }
  HostPool kept;
  for (const Host& host : pool.hosts) {
    const Host* part = find_host(parts, host.name);
    if (part == nullptr) continue;
    kept.hosts.push_back(part->slots.empty() ? host : *part);
  }
  return kept;
}

HostPool exclude_hosts(const HostPool& pool, std::string_view filter) {
  HostPool parts = read_filter(filter);
  if (!parts.error.empty()) return parts;
  HostPool known = pool;
  for (const Host& part : parts.hosts) {
    if (std::string what = check_part(known, part); !what.empty()) return failed(std::move(what));
  }
  HostPool kept;
  for (Host host : pool.hosts) {
    if (const Host* part = find_host(parts, host.name)) {
      const auto gone = [part](int slot) {
        return part->slots.empty() ||
               std::find(part->slots.begin(), part->slots.end(), slot) != part->slots.end();
      };
      std::erase_if(host.slots, gone);
    }
    if (!host.slots.empty()) kept.hosts.push_back(std::move(host));
  }
  if (kept.hosts.empty()) return failed("no host is left; exclude fewer");
  return kept;
}

}  // namespace sluice::migrate
