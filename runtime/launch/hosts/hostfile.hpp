// The hosts of a job and the ranks of each: the file that launch.hostfile names.
//
//   # a comment
//   node1 slots=4
//   node2 slots=4
//   10.0.0.7            # launch.nproc ranks
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

// Pure. `name` is the file's name in messages. Throws ConfigError with one line per mistake,
// "hosts.txt:3: ...": an unknown word, slots below 1, a host named twice, no host.
[[nodiscard]] std::vector<HostSlots> parse_hostfile(std::string_view text, const std::string& name);

// Also throws ConfigError if the file cannot be read. Hosts without slots get `default_slots`.
[[nodiscard]] std::vector<HostSlots> read_hostfile(const std::string& path, int default_slots);

// Whether the name is this machine's own, so that no network connection is needed: localhost, a
// usual loopback address, or the machine's name with or without domain.
[[nodiscard]] bool is_this_host(const std::string& host);

// Whether there are hosts and none of them is this machine.
[[nodiscard]] bool all_are_elsewhere(const std::vector<HostSlots>& hosts);

}  // namespace sluice
