// Hosts and their GPUs: DeepSpeed's hostfile, and the filters --include and --exclude. Pure
// functions; thread-safe.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace sluice::migrate {

struct Host {
  std::string name;
  std::vector<int> slots;  // GPU numbers

  // True if the slots are 0, 1, ... n - 1.
  [[nodiscard]] bool has_first_slots() const;
  // "0,2"
  [[nodiscard]] std::string devices() const;
};

struct HostPool {
  std::vector<Host> hosts;
  std::string error;  // "hosts:3: cause; remedy", or ""

  [[nodiscard]] int ranks() const;
  // "worker-0 slots=4\nworker-1 slots=2\n"
  [[nodiscard]] std::string lines() const;
};

// Reads lines "name slots=N". `file` is the name for messages.
[[nodiscard]] HostPool read_hostfile(std::string_view text, std::string_view file);

// Keeps the hosts and slots of "worker-0@worker-1:0,2"; a host without slots keeps all of its own.
// Errors name no argument.
[[nodiscard]] HostPool include_hosts(const HostPool& pool, std::string_view filter);
// Removes the hosts and slots of the filter.
[[nodiscard]] HostPool exclude_hosts(const HostPool& pool, std::string_view filter);

// The hosts of a filter; a host without slots has none here.
[[nodiscard]] HostPool read_filter(std::string_view filter);

}  // namespace sluice::migrate
