// The program was built without libtorch (-DSLUICE_TORCH=OFF): groups of one rank only.
#include <utility>

#include "base/error.hpp"
#include "parallel/comm/communicator.hpp"

namespace sluice {

namespace {

std::unique_ptr<Communicator> only_one_rank(const CommOptions& options) {
  if (options.size == 1) return std::move(make_local_communicators(1, options.timeout).front());
  throw ConfigError("group " + options.group + " has " + std::to_string(options.size) +
                    " ranks, but this program was built without libtorch, which connects them; "
                    "build with -DSLUICE_TORCH=ON");
}

}  // namespace

class Rendezvous {};

std::shared_ptr<Rendezvous> connect_rendezvous(const CommOptions& options) {
  (void)only_one_rank(options);
  return std::make_shared<Rendezvous>();
}
std::unique_ptr<Communicator> make_gloo_communicator(const CommOptions& options) {
  return only_one_rank(options);
}
std::unique_ptr<Communicator> make_host_communicator(const CommOptions& options) {
  return only_one_rank(options);
}
std::unique_ptr<Communicator> make_cpu_communicator(const CommOptions& options) {
  return only_one_rank(options);
}

}  // namespace sluice
