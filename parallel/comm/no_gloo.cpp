// The program was built without libtorch (-DSLUICE_TORCH=OFF): groups of one rank only.
#include <utility>

#include "kernels/base/error.hpp"
#include "parallel/comm/communicator.hpp"

namespace sluice {

std::unique_ptr<Communicator> make_gloo_communicator(const CommOptions& options) {
  if (options.size == 1) return std::move(make_local_communicators(1, options.timeout).front());
  throw ConfigError(
      "group " + options.group + " has " + std::to_string(options.size) +
      " ranks, but this program was built without libtorch, whose Gloo connects them; "
      "build with -DSLUICE_TORCH=ON");
}

}  // namespace sluice
