// Communicator over c10d's ProcessGroupGloo. Uses only point-to-point calls, for two reasons: they
// work on the caller's memory in place, and a sum in fixed order needs every share separately.
#include <ATen/ops/from_blob.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>
#include <utility>

#include "base/error.hpp"
#include "base/failpoint.hpp"
#include "base/index.hpp"
#include "parallel/comm/communicator.hpp"
#include "parallel/comm/exchange_plan.hpp"
#include "parallel/comm/exchange_shares.hpp"
#include "parallel/comm/op_queue.hpp"
#include "parallel/comm/ordered_add.hpp"
#include "parallel/comm/rendezvous_bridge.hpp"
#include "parallel/comm/sigpipe.hpp"
#include "parallel/comm/socket.hpp"
#include "parallel/comm/transfer.hpp"

namespace sluice {
namespace {

using Clock = std::chrono::steady_clock;

// The failure of one transfer. The communicator adds operation, group, sequence number and rank.
struct TransferError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

struct Transfer {
  c10::intrusive_ptr<c10d::Work> work;
  int peer = 0;
  bool receives = false;
};

std::shared_ptr<gloo::transport::Device> make_device(const CommOptions& options) {
  const char* interface = std::getenv("GLOO_SOCKET_IFNAME");
  if (interface != nullptr && *interface != '\0') {
    const std::string names = interface;
    return c10d::ProcessGroupGloo::createDeviceForInterface(names.substr(0, names.find(',')));
  }
  return c10d::ProcessGroupGloo::createDeviceForHostname(
      local_address_towards(options.master_addr, options.master_port));
}

// The connections to the peers. One thread calls post and wait; any thread may call interrupt.
class Peers {
 public:
  Peers(const CommOptions& options, c10::intrusive_ptr<c10d::Store> store)
      : timeout_(options.timeout), store_(std::move(store)) {
    auto gloo = c10d::ProcessGroupGloo::Options::create(options.timeout);
    gloo->threads = 1;  // for c10d's own collectives, which are not used
    gloo->devices.push_back(make_device(options));
    group_ = c10::make_intrusive<c10d::ProcessGroupGloo>(store_, options.rank, options.size, gloo);
  }

  void begin_operation() { deadline_ = Clock::now() + timeout_; }

  [[nodiscard]] Transfer send(int peer, const void* data, std::int64_t bytes, int tag) {
    return post(peer, const_cast<void*>(data), bytes, tag, /*receives=*/false);
  }
  [[nodiscard]] Transfer receive(int peer, void* data, std::int64_t bytes, int tag) {
    return post(peer, data, bytes, tag, /*receives=*/true);
  }

  void wait(const Transfer& transfer) {
    {
      const std::lock_guard lock(mutex_);
      if (interrupted_) throw TransferError("this rank aborted the group");
      current_ = transfer.work;
    }
    bool complete = false;
    try {
      // Rounded up: a wait that ends before the deadline would look like a broken connection.
      const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline_ - Clock::now());
      // At least 1 ms: c10d takes 0 for "no timeout".
      complete = transfer.work->wait(std::max(left, std::chrono::milliseconds{1}));
    } catch (const std::exception& error) {
      forget_current();
      throw TransferError(explain(transfer.peer, transfer.receives, error));
    }
    forget_current();
    if (!complete) throw TransferError("this rank aborted the group");
  }

  void interrupt() noexcept {
    const std::lock_guard lock(mutex_);
    interrupted_ = true;
    if (current_) current_->abort();
  }

  // Breaks the connections, so that the peers fail too.
  void close() { group_.reset(); }

 private:
  Transfer post(int peer, void* data, std::int64_t bytes, int tag, bool receives) {
    std::vector<at::Tensor> tensors{at::from_blob(data, {bytes}, at::kByte)};
    try {
      return {receives ? group_->recv(tensors, peer, tag) : group_->send(tensors, peer, tag), peer,
              receives};
    } catch (const std::exception& error) {
      throw TransferError(explain(peer, receives, error));
    }
  }

  [[nodiscard]] std::string explain(int peer, bool receives, const std::exception& error) const {
    const std::string name = "rank " + std::to_string(peer);
    if (Clock::now() >= deadline_) {
      return (receives ? "no answer from " + name : name + " did not take the data") + " within " +
             std::to_string(timeout_.count()) + " ms";
    }
    return "the connection to " + name + " broke: " + first_line(error) +
           "; the output of that rank of the group has the cause";
  }

  void forget_current() {
    const std::lock_guard lock(mutex_);
    current_.reset();
  }

  const std::chrono::milliseconds timeout_;
  const c10::intrusive_ptr<c10d::Store> store_;  // on rank 0 this keeps the server alive
  c10::intrusive_ptr<c10d::ProcessGroupGloo> group_;
  Clock::time_point deadline_{};

  std::mutex mutex_;
  c10::intrusive_ptr<c10d::Work> current_;  // guarded by mutex_
  bool interrupted_ = false;                // guarded by mutex_
};

class GlooCommunicator final : public Communicator {
 public:
  GlooCommunicator(const CommOptions& options, c10::intrusive_ptr<c10d::Store> store)
      : name_{options.group, options.rank, options.size},
        peers_(connect(options, std::move(store))),
        queue_(std::make_unique<OpQueue>(
            name_, OpQueue::Hooks{.interrupt = [this] { peers_->interrupt(); },
                                  .broken = [this] { peers_->close(); }})) {
    // No constructor returns before all ranks are connected. Afterwards the store is not needed.
    const std::byte nothing{0};
    exchange("connect", {&nothing, 1});
  }
  ~GlooCommunicator() override {
    const SigpipeBlock no_sigpipe;
    queue_.reset();  // first, because its thread uses the connections
    peers_.reset();
  }

  [[nodiscard]] int rank() const override { return name_.rank; }
  [[nodiscard]] int size() const override { return name_.size; }
  [[nodiscard]] std::int64_t reduce_scatter_staging_bytes(std::int64_t total_elems,
                                                          ReduceDtype dtype) const override {
    return exchange_staging_bytes(size(), total_elems, dtype);
  }

  [[nodiscard]] Ticket reduce_scatter(std::vector<ReduceScatterPiece> pieces, ReduceDtype dtype,
                                      void* staging) override {
    return start("reduce_scatter", [this, pieces = std::move(pieces), dtype, staging] {
      run_reduce_scatter(pieces, dtype.in_group_of(size()), static_cast<char*>(staging));
    });
  }
  [[nodiscard]] Ticket all_gather(std::vector<AllGatherPiece> pieces, DType dtype) override {
    return start("all_gather",
                 [this, pieces = std::move(pieces), dtype] { run_all_gather(pieces, dtype); });
  }
  [[nodiscard]] Ticket send(int peer, const void* data, std::int64_t bytes) override {
    check_transfer(name_, "send", peer, bytes);
    return start("send", [this, peer, data, bytes] {
      run_transfer(peer, const_cast<void*>(data), {.receives = 0, .bytes = bytes});
    });
  }
  [[nodiscard]] Ticket receive(int peer, void* data, std::int64_t bytes) override {
    check_transfer(name_, "receive", peer, bytes);
    return start("receive", [this, peer, data, bytes] {
      run_transfer(peer, data, {.receives = 1, .bytes = bytes});
    });
  }
  [[nodiscard]] std::vector<std::byte> all_gather_bytes(std::span<const std::byte> bytes) override {
    return exchange("all_gather_bytes", bytes);
  }
  void barrier() override {
    const std::byte nothing{0};
    exchange("barrier", {&nothing, 1});
  }
  void abort() noexcept override { queue_->abort(); }

 private:
  static std::unique_ptr<Peers> connect(const CommOptions& options,
                                        c10::intrusive_ptr<c10d::Store> store) {
    try {
      return std::make_unique<Peers>(options, std::move(store));
    } catch (const Error&) {
      throw;
    } catch (const std::exception& error) {
      throw CommError("group " + options.group + ", rank " + std::to_string(options.rank) + " of " +
                          std::to_string(options.size) +
                          ": connecting to the other ranks failed: " + first_line(error),
                      /*secondary=*/true);
    }
  }

  Ticket start(const std::string& op, std::function<void()> body) {
    failpoint("comm." + op);
    const std::uint64_t seq = ++seq_;
    return queue_->submit([this, op, seq, body = std::move(body)] {
      try {
        peers_->begin_operation();
        body();
      } catch (const std::exception& error) {
        throw CommError(describe_failure(name_, op, seq, error.what()), /*secondary=*/true);
      }
    });
  }

  // Messages between two ranks arrive in order. The tag turns a mismatch of calls into an error.
  int next_tag() { return tag_ = (tag_ + 1) & 0x3fffffff; }

  [[nodiscard]] int slot_of(int peer) const { return peer < rank() ? peer : peer - 1; }

  // Rounds the shares of all ranks into the rings that they are sent from.
  static void round(const ExchangeShares& shares, const ExchangeSegment& segment) {
    for (int r = 0; r < shares.size; ++r) {
      round_share(shares.given(segment, r), segment.elems, shares.rounded(segment, r));
    }
  }

  std::vector<Transfer> post_batch(const ExchangeShares& shares, const ExchangeBatch& batch) {
    std::vector<Transfer> transfers;
    for (const ExchangeSegment& segment : batch) {
      const int tag = next_tag();
      if (shares.dtype.rounds()) round(shares, segment);
      const std::int64_t bytes = segment.elems * size_of(shares.dtype.sent);
      for (int step = 1; step < size(); ++step) {
        const int to = (rank() + step) % size();
        const int from = (rank() + size() - step) % size();
        transfers.push_back(
            peers_->receive(from, shares.staged(segment, slot_of(from)), bytes, tag));
        transfers.push_back(peers_->send(to, shares.of(segment, to), bytes, tag));
      }
    }
    return transfers;
  }

  void add_batch(const ExchangeShares& shares, const ExchangeBatch& batch) {
    std::vector<const void*> added(static_cast<std::size_t>(size()));
    for (const ExchangeSegment& segment : batch) {
      for (int r = 0; r < size(); ++r) {
        nth(added, r) = r == rank() ? shares.of(segment, r) : shares.staged(segment, slot_of(r));
      }
      const ReduceScatterPiece& piece = shares.pieces[segment.piece];
      ordered_add(added, shares.dtype.sent, segment.elems, piece.output + segment.offset,
                  piece.accumulate);
    }
  }

  // Two batches are under way: one is added while the next is received.
  void run_reduce_scatter(const std::vector<ReduceScatterPiece>& pieces, ReduceDtype dtype,
                          char* staging) {
    std::vector<std::int64_t> elems;
    for (const ReduceScatterPiece& piece : pieces) elems.push_back(piece.elems);
    const ExchangePlan plan = plan_exchange(elems, exchange_batch_elems(size(), dtype));
    const ExchangeShares shares{pieces, dtype, staging, plan.ring_elems, size()};
    const std::vector<ExchangeBatch>& batches = plan.batches;
    std::vector<Transfer> current;
    if (!batches.empty()) current = post_batch(shares, batches[0]);
    for (std::size_t b = 0; b < batches.size(); ++b) {
      std::vector<Transfer> next;
      if (b + 1 < batches.size()) next = post_batch(shares, batches[b + 1]);
      for (const Transfer& transfer : current) peers_->wait(transfer);
      add_batch(shares, batches[b]);
      current = std::move(next);
    }
  }

  void run_all_gather(const std::vector<AllGatherPiece>& pieces, DType dtype) {
    std::vector<Transfer> transfers;
    for (const AllGatherPiece& piece : pieces) {
      const std::int64_t bytes = piece.elems * size_of(dtype);
      if (bytes == 0) continue;
      gather_bytes(piece.input, static_cast<char*>(piece.output), bytes,
                   piece.stride * size_of(dtype), transfers);
    }
    for (const Transfer& transfer : transfers) peers_->wait(transfer);
  }

  void gather_bytes(const void* input, char* output, std::int64_t bytes, std::int64_t stride_bytes,
                    std::vector<Transfer>& transfers) {
    const int tag = next_tag();
    for (int step = 1; step < size(); ++step) {
      const int to = (rank() + step) % size();
      const int from = (rank() + size() - step) % size();
      transfers.push_back(peers_->receive(from, output + from * stride_bytes, bytes, tag));
      transfers.push_back(peers_->send(to, input, bytes, tag));
    }
    char* own = output + rank() * stride_bytes;
    if (own != input) std::memcpy(own, input, static_cast<std::size_t>(bytes));
  }

  // The two ranks exchange their calls first, because Gloo accepts a message that is too short. The
  // sender posts its data at once; Gloo sends the data when the receiver has posted.
  void run_transfer(int peer, void* data, const TransferCall& own) {
    TransferCall other;
    const int call_tag = next_tag();
    const int data_tag = next_tag();
    const Transfer hears = peers_->receive(peer, &other, sizeof other, call_tag);
    const Transfer tells = peers_->send(peer, &own, sizeof own, call_tag);
    std::optional<Transfer> moves;
    if (own.receives == 0 && own.bytes > 0) {
      moves = peers_->send(peer, data, own.bytes, data_tag);
    }
    peers_->wait(hears);
    peers_->wait(tells);
    if (!match(own, other)) {
      throw TransferError("rank " + std::to_string(peer) + " called " + describe(other) +
                          ", this rank " + describe(own));
    }
    if (own.receives != 0 && own.bytes > 0) {
      moves = peers_->receive(peer, data, own.bytes, data_tag);
    }
    if (moves) peers_->wait(*moves);
  }

  std::vector<std::byte> exchange(const char* op, std::span<const std::byte> bytes) {
    std::vector<std::byte> all(bytes.size() * static_cast<std::size_t>(size()));
    const auto share = static_cast<std::int64_t>(bytes.size());
    start(op, [&] {
      std::vector<Transfer> transfers;
      if (share > 0) {
        gather_bytes(bytes.data(), reinterpret_cast<char*>(all.data()), share, share, transfers);
      }
      for (const Transfer& transfer : transfers) peers_->wait(transfer);
    }).wait();
    return all;
  }

  const GroupName name_;
  std::uint64_t seq_ = 0;  // used by the caller's thread
  int tag_ = 0;            // used by the queue's thread
  std::unique_ptr<Peers> peers_;
  std::unique_ptr<OpQueue> queue_;
};

}  // namespace

std::unique_ptr<Communicator> make_gloo_communicator(const CommOptions& options) {
  check(options.size >= 1 && options.rank >= 0 && options.rank < options.size,
        "rank outside of its group");
  if (options.size == 1) return std::move(make_local_communicators(1, options.timeout).front());
  const SigpipeBlock no_sigpipe;  // inherited by the threads of Gloo and of the store
  return make_gloo_communicator(options, join_rendezvous(options, Clock::now() + options.timeout));
}

std::unique_ptr<Communicator> make_gloo_communicator(const CommOptions& options,
                                                     c10::intrusive_ptr<c10d::Store> store) {
  return std::make_unique<GlooCommunicator>(options, std::move(store));
}

}  // namespace sluice
