// The rendezvous of ranks of one host, and make_cpu_communicator's choice. Bridge: c10d headers.
#include <cstdlib>
#include <utility>

#include "base/error.hpp"
#include "parallel/comm/host/host_communicator.hpp"
#include "parallel/comm/op_queue.hpp"
#include "parallel/comm/rendezvous_bridge.hpp"
#include "parallel/comm/sigpipe.hpp"

namespace sluice {
namespace {

using Store = c10::intrusive_ptr<c10d::Store>;

Store join(const CommOptions& options) {
  return join_rendezvous(options, std::chrono::steady_clock::now() + options.timeout);
}

CommError rendezvous_error(const CommOptions& options, const std::exception& error) {
  return CommError("group " + options.group + ", rank " + std::to_string(options.rank) + " of " +
                       std::to_string(options.size) +
                       ": the rendezvous failed: " + first_line(error),
                   /*secondary=*/true);
}

// The result keeps the store alive, and with it rank 0's server.
HostRendezvous rendezvous_over(const CommOptions& options, Store store) {
  store->setTimeout(options.timeout);
  return {.set =
              [options, store](const std::string& key, const std::string& text) {
                try {
                  store->set(key, text);
                } catch (const Error&) {
                  throw;
                } catch (const std::exception& error) {
                  throw rendezvous_error(options, error);
                }
              },
          .get = [options, store](const std::string& key) -> std::string {
            try {
              return store->get_to_str(key);
            } catch (const Error&) {
              throw;
            } catch (const std::exception& error) {
              throw rendezvous_error(options, error);
            }
          }};
}

// Ranks on another host than rank 0. Equal on all ranks.
std::vector<int> ranks_on_other_hosts(const CommOptions& options,
                                      const HostRendezvous& rendezvous) {
  const auto key = [](int rank) { return "host/" + std::to_string(rank); };
  rendezvous.set(key(options.rank), host_identity());
  const std::string first = rendezvous.get(key(0));
  std::vector<int> remote;
  for (int r = 1; r < options.size; ++r) {
    if (rendezvous.get(key(r)) != first) remote.push_back(r);
  }
  return remote;
}

std::string choice_from_environment() {
  const char* text = std::getenv("SLUICE_COMM");
  const std::string choice = text == nullptr ? "" : text;
  if (choice.empty() || choice == "host" || choice == "gloo") return choice;
  throw ConfigError("SLUICE_COMM is " + choice + "; it can be host or gloo");
}

}  // namespace

std::unique_ptr<Communicator> make_host_communicator(const CommOptions& options) {
  check(options.size >= 1 && options.rank >= 0 && options.rank < options.size,
        "rank outside of its group");
  const HostCopy copy = host_copy_from_environment();
  if (options.size == 1) return std::move(make_local_communicators(1, options.timeout).front());
  const SigpipeBlock no_sigpipe;  // inherited by the threads of the store
  HostRendezvous rendezvous = rendezvous_over(options, join(options));
  const std::vector<int> remote = ranks_on_other_hosts(options, rendezvous);
  if (!remote.empty()) {
    throw CommError("group " + options.group + ": " + describe_ranks(remote) +
                        " cannot share memory with rank 0 (another host, or another process "
                        "namespace of it); use SLUICE_COMM=gloo",
                    /*secondary=*/false);
  }
  return make_host_communicator(options, std::move(rendezvous), copy);
}

std::unique_ptr<Communicator> make_cpu_communicator(const CommOptions& options) {
  const std::string choice = choice_from_environment();
  if (options.size == 1 || choice == "gloo") return make_gloo_communicator(options);
  if (choice == "host") return make_host_communicator(options);
  const HostCopy copy = host_copy_from_environment();
  const SigpipeBlock no_sigpipe;  // inherited by the threads of Gloo and of the store
  Store store = join(options);
  HostRendezvous rendezvous = rendezvous_over(options, store);
  if (!ranks_on_other_hosts(options, rendezvous).empty()) {
    return make_gloo_communicator(options, std::move(store));
  }
  return make_host_communicator(options, std::move(rendezvous), copy);
}

}  // namespace sluice
