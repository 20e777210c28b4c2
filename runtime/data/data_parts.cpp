#include "runtime/data/data_parts.hpp"

namespace sluice {

SplitShares shares_of(const DataOptions& options) {
  SplitShares shares{.train = options.split[0], .valid = options.split[1], .test = 0};
  if (options.split.size() > 2) shares.test = options.split[2];
  if (!options.valid.empty()) shares.valid = 0;
  if (!options.test.empty()) shares.test = 0;
  if (shares.train + shares.valid + shares.test == 0) shares.train = 1;
  return shares;
}

std::string cache_dir_of(const DataOptions& options) {
  return options.cache_dir.empty() ? ".cache/tokens" : options.cache_dir;
}

}  // namespace sluice
