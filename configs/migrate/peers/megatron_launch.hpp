// The words before Megatron-LM's script: environment, torchrun or python, its options. Pure;
// thread-safe.
#pragma once

#include <vector>

#include "configs/migrate/peers/peer_map.hpp"
#include "configs/migrate/shell_words.hpp"

namespace sluice::migrate {

struct MegatronCommand {
  std::vector<ShellWord> arguments;  // of the script
  int world = 0;                     // nodes x processes of torchrun; 0: not known
};

// Adds a key for each option before the script; mistakes become errors.
[[nodiscard]] MegatronCommand split_megatron_command(const std::vector<ShellWord>& words,
                                                     PeerMap& map);

}  // namespace sluice::migrate
