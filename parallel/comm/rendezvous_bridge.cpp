#include "parallel/comm/rendezvous_bridge.hpp"

#include <algorithm>
#include <system_error>
#include <thread>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>
#include <vector>

#include "base/error.hpp"
#include "base/host_faults.hpp"
#include "base/index.hpp"
#include "base/job_secret.hpp"
#include "base/log.hpp"
#include "parallel/comm/op_queue.hpp"
#include "parallel/comm/signed_store.hpp"
#include "parallel/comm/sigpipe.hpp"
#include "parallel/comm/socket.hpp"

namespace sluice {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::string_view kControlSuffix = ".control";  // of cuda_module.cpp

std::chrono::milliseconds left_until(Clock::time_point deadline) {
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now());
  return std::max(left, std::chrono::milliseconds{1});  // c10d takes 0 for "no timeout"
}

std::string describe(const CommOptions& options) {
  return "group " + options.group + ", rank " + std::to_string(options.rank) + " of " +
         std::to_string(options.size);
}

std::string place(const CommOptions& options) {
  return options.master_addr + ":" + std::to_string(options.master_port);
}

std::string waited(const CommOptions& options) {
  return "within " + std::to_string(options.timeout.count()) + " ms";
}

// Logged once per job, by the rank that serves.
void warn_of_strangers(const CommOptions& options) {
  log_warning("the rendezvous at " + place(options) +
              " has no secret: whoever reaches this port can take a rank's place; set " +
              kJobSecretVariable + " to the same random text for all ranks of the job");
}

c10::intrusive_ptr<c10d::Store> connect_tcp(const CommOptions& options,
                                            Clock::time_point deadline) {
  c10d::TCPStoreOptions store;
  store.port = static_cast<std::uint16_t>(options.master_port);
  store.waitWorkers = false;
  store.timeout = left_until(deadline);
  store.isServer = options.serves_rendezvous.value_or(options.rank == 0);
  if (store.isServer) {
    Descriptor socket = bind_port(options.master_addr, options.master_port);
    store.masterListenFd = socket.get();
    auto server = c10::make_intrusive<c10d::TCPStore>(options.master_addr, store);
    (void)socket.release();  // the server owns it now
    return server;
  }
  if (!wait_for_listener(options.master_addr, options.master_port, deadline)) {
    throw CommError(
        describe(options) + ": nobody serves the rendezvous at " + place(options) + " " +
            waited(options) +
            "; check that rank 0 runs, and that MASTER_ADDR and MASTER_PORT are rank 0's "
            "address and port",
        /*secondary=*/true);
  }
  store.timeout = left_until(deadline);
  return c10::make_intrusive<c10d::TCPStore>(options.master_addr, store);
}

c10::intrusive_ptr<c10d::Store> connect_store(const CommOptions& options,
                                              Clock::time_point deadline) {
  if (is_loopback(options.master_addr)) check_loopback_is_up();
  std::string secret = job_secret();
  const bool serves = options.serves_rendezvous.value_or(options.rank == 0);
  if (serves && secret.empty() && !is_loopback(options.master_addr)) warn_of_strangers(options);
  return c10::make_intrusive<SignedStore>(connect_tcp(options, deadline), std::move(secret));
}

// Rank 0 reads the entry of every rank, all others read rank 0's entry. A rank with another secret
// is named before any address is exchanged.
void check_secret(c10d::Store& store, const CommOptions& options,
                  const std::vector<std::string>& keys) {
  for (std::size_t r = 0; r < (options.rank == 0 ? keys.size() : 1); ++r) (void)store.get(keys[r]);
}

std::string here(int rank) { return "here/" + std::to_string(rank); }

// A rank with a GPU comes to NCCL's control group before it comes to the group itself. A rank
// without one comes to the group alone. Each would wait in vain for the other kind.
class OtherDevices {
 public:
  OtherDevices(c10::intrusive_ptr<c10d::Store> root, const CommOptions& options)
      : options_(options),
        is_control_(options.group.ends_with(kControlSuffix)),
        other_(c10::make_intrusive<c10d::PrefixStore>(other_group(), std::move(root))) {}

  // Throws ConfigError if the first rank that is missing came to the other group. Ranks before
  // `first_missing_` have come: an entry stays.
  void refuse(c10d::Store& store) {
    while (first_missing_ < options_.size && store.check({here(first_missing_)})) ++first_missing_;
    if (first_missing_ == options_.size || !other_->check({here(first_missing_)})) return;
    if (other_->check({here(options_.rank)})) return;  // this rank has a GPU and came to both
    // Who serves leaves last, so that the other ranks read this as well.
    if (options_.rank == 0) std::this_thread::sleep_for(2 * kLook);
    const std::string with = "communicates over NCCL", without = "communicates without a GPU";
    throw ConfigError("rank " + std::to_string(first_missing_) + " " +
                      (is_control_ ? without : with) + ", and rank " +
                      std::to_string(options_.rank) + " " + (is_control_ ? with : without) +
                      ": launch.backend must be equal on all ranks, and with auto either all hosts "
                      "show a GPU or none does (nvidia-smi, CUDA_VISIBLE_DEVICES)");
  }

  static constexpr std::chrono::milliseconds kLook{1000};

 private:
  [[nodiscard]] std::string other_group() const {
    return is_control_ ? options_.group.substr(0, options_.group.size() - kControlSuffix.size())
                       : options_.group + std::string(kControlSuffix);
  }

  const CommOptions& options_;
  const bool is_control_;
  const c10::intrusive_ptr<c10d::Store> other_;
  int first_missing_ = 0;
};

// Waits for all keys. Throws the store's exception at the deadline.
void wait_for_all(c10d::Store& store, const std::vector<std::string>& keys, OtherDevices& others,
                  Clock::time_point deadline) {
  while (true) {
    const auto left = left_until(deadline);
    try {
      return store.wait(keys, std::min(left, OtherDevices::kLook));
    } catch (const Error&) {
      throw;
    } catch (const std::exception&) {
      if (Clock::now() >= deadline) throw;
      others.refuse(store);  // throws if the server has ended
    }
  }
}

void meet(c10d::Store& store, OtherDevices others, const CommOptions& options,
          Clock::time_point deadline) {
  store.set(here(options.rank), std::vector<std::uint8_t>{1});
  std::vector<std::string> keys;
  for (int r = 0; r < options.size; ++r) keys.push_back(here(r));
  try {
    wait_for_all(store, keys, others, deadline);
    check_secret(store, options, keys);
    return;
  } catch (const Error&) {
    throw;
  } catch (const std::exception&) {
    if (Clock::now() < deadline) throw;  // no timeout, so the server has ended
  }
  std::vector<int> missing;
  for (int r = 0; r < options.size; ++r) {
    if (!store.check({nth(keys, r)})) missing.push_back(r);
  }
  if (missing.empty()) return;
  throw CommError(describe(options) + ": " + describe_ranks(missing) +
                      " did not come to the rendezvous at " + place(options) + " " +
                      waited(options),
                  /*secondary=*/true);
}

// Turns an exception of the store into a CommError that names group, rank and address.
template <typename Body>
auto in_words(const CommOptions& options, const Body& body) {
  try {
    return body();
  } catch (const Error&) {
    throw;
  } catch (const std::exception& error) {
    // A system_error (a thread of the store cannot start) is this rank's own failure.
    const bool own = dynamic_cast<const std::system_error*>(&error) != nullptr;
    throw CommError(describe(options) + ": the rendezvous at " + place(options) +
                        " failed: " + first_line(error),
                    /*secondary=*/!own);
  }
}

}  // namespace

std::string first_line(const std::exception& error) {
  const std::string text = error.what();
  return text.substr(0, text.find('\n'));
}

std::shared_ptr<Rendezvous> connect_rendezvous(const CommOptions& options) {
  const SigpipeBlock no_sigpipe;  // inherited by the threads of the store
  CommOptions other = options;
  other.serves_rendezvous = false;
  return in_words(options, [&] {
    return std::make_shared<Rendezvous>(connect_store(other, Clock::now() + options.timeout));
  });
}

c10::intrusive_ptr<c10d::Store> join_rendezvous(const CommOptions& options,
                                                Clock::time_point deadline) {
  return in_words(options, [&] {
    c10::intrusive_ptr<c10d::Store> root =
        options.rendezvous ? options.rendezvous->store() : connect_store(options, deadline);
    auto store = c10::make_intrusive<c10d::PrefixStore>(options.group, root);
    meet(*store, OtherDevices(std::move(root), options), options, deadline);
    return store;
  });
}

}  // namespace sluice
