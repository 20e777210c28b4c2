// The hosts of a job and how many ranks each runs: the file that launch.hostfile names.
//
//   # a comment
//   node1 slots=4
//   node2 slots=4
//   10.0.0.7            # as many as launch.nproc says
//
// One host a line, in the order of the ranks: the first host has rank 0.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace sluice {

struct HostSlots {
  std::string host;
  int slots = 0;  // ranks there; 0: not given
};

// Pure. `name` stands for the file in messages. Throws ConfigError with one line per mistake,
// "hosts.txt:3: ...": a word that is not understood, slots below 1, a host named twice, no host.
[[nodiscard]] std::vector<HostSlots> parse_hostfile(std::string_view text, const std::string& name);

// Throws ConfigError also where the file cannot be read. Hosts without slots get `default_slots`.
[[nodiscard]] std::vector<HostSlots> read_hostfile(const std::string& path, int default_slots);

// Whether the name is this machine's own, so that nothing has to be started over the network:
// localhost, a loopback address of the usual form, or the machine's name, with or without domain.
[[nodiscard]] bool is_this_host(const std::string& host);

}  // namespace sluice
