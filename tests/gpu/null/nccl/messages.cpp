#include "tests/gpu/null/nccl/messages.hpp"

#include <unistd.h>

#include <atomic>
#include <cstring>
#include <functional>
#include <limits>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "tests/gpu/null/nccl/reduction.hpp"
#include "tests/gpu/null/queue.hpp"
#include "tests/gpu/null/record.hpp"

namespace null_gpu {
namespace {

// Whether NULL_GPU_LOSE_SEND leaves out this send.
bool is_lost(const End& end, Kind kind) {
  static const std::uint64_t lost =
      setting("NULL_GPU_LOSE_SEND", std::numeric_limits<std::uint64_t>::max());
  static std::atomic<std::uint64_t> sends{0};
  return end.rank == 0 && kind == Kind::kSend && sends++ == lost;
}

struct Incoming {
  std::string kind;
  int peer = 0;
  std::uint64_t number = 0;  // Exchange::next_from()
  std::byte* to = nullptr;
  std::size_t bytes = 0;
  bool arrived = false;
};

// The messages of one task.
class Transfer {
 public:
  explicit Transfer(std::shared_ptr<Exchange> exchange) : exchange_(std::move(exchange)) {}

  void send(Kind kind, int peer, const std::byte* data, std::size_t bytes) {
    out_.push_back({name_of(kind), peer, exchange_->next_to(peer), data, bytes});
  }
  // A send that its peer never gets.
  void lose(int peer) { (void)exchange_->next_to(peer); }
  // `kind`: of the peer's call.
  void receive(Kind kind, int peer, std::byte* to, std::size_t bytes) {
    in_.push_back({name_of(kind), peer, exchange_->next_from(peer), to, bytes});
  }
  // Tries to connect with all peers of the task. True once that is done.
  bool connect() {
    if (exchange_->aborted()) return true;
    bool done = true;
    for (const Outgoing& message : out_) done = exchange_->connect(message.peer, true) && done;
    for (const Incoming& message : in_) done = exchange_->connect(message.peer, false) && done;
    return done;
  }
  // Runs once all messages of the task have passed.
  void then(std::function<void()> finish) { finish_.push_back(std::move(finish)); }

  // True once all is done. An aborted communicator has nothing to do.
  bool progress() {
    if (exchange_->aborted()) return true;
    bool done = true;
    for (Outgoing& message : out_) done = exchange_->push(message) && done;
    for (Incoming& message : in_) done = arrived(message) && done;
    if (!done) return false;
    for (const auto& finish : finish_) finish();
    return true;
  }

 private:
  bool arrived(Incoming& message) {
    if (message.arrived) return true;
    const std::optional<Arrived> found = exchange_->pull(message.peer, message.number);
    if (!found) return false;
    message.arrived = true;
    if (found->kind != message.kind || found->bytes.size() != message.bytes) {
      fault("NCCL: " + std::to_string(message.bytes) + " bytes of a " + message.kind +
            " are expected from rank " + std::to_string(message.peer) + ", which made a " +
            found->kind + " of " + std::to_string(found->bytes.size()) + " bytes");
      return true;
    }
    if (message.bytes > 0) std::memcpy(message.to, found->bytes.data(), message.bytes);
    return true;
  }

  const std::shared_ptr<Exchange> exchange_;
  std::vector<Outgoing> out_;
  std::vector<Incoming> in_;
  std::vector<std::function<void()>> finish_;
};

// The messages of one operation.
class Posting {
 public:
  Posting(Transfer& transfer, const End& end, const Operation& operation)
      : transfer_(transfer),
        end_(end),
        operation_(operation),
        in_(static_cast<const std::byte*>(operation.in)),
        out_(static_cast<std::byte*>(operation.out)),
        bytes_(operation.count * bytes_of(operation.type)) {}

  void post() {
    switch (operation_.kind) {
      case Kind::kSend:
        return send(operation_.peer, in_);
      case Kind::kReceive:
        return transfer_.receive(Kind::kSend, operation_.peer, out_, bytes_);
      case Kind::kAllGather:
        for_others([&](int r) { send(r, in_); });
        for_others([&](int r) { receive(r, out_ + offset(r)); });
        return copy_in_to(out_ + offset(end_.rank));
      case Kind::kBroadcast:
        if (!is_root()) return receive(operation_.peer, out_);
        for_others([&](int r) { send(r, in_); });
        return copy_in_to(out_);
      case Kind::kAllReduce:
        for_others([&](int r) { send(r, in_); });
        return reduce_all(in_);
      case Kind::kReduce:
        return is_root() ? reduce_all(in_) : send(operation_.peer, in_);
      case Kind::kReduceScatter:
        for_others([&](int r) { send(r, in_ + offset(r)); });
        return reduce_all(in_ + offset(end_.rank));
    }
  }

 private:
  template <typename Body>
  void for_others(const Body& body) {
    for (int r = 0; r < end_.size; ++r) {
      if (r != end_.rank) body(r);
    }
  }
  [[nodiscard]] std::size_t offset(int r) const { return static_cast<std::size_t>(r) * bytes_; }
  [[nodiscard]] bool is_root() const { return operation_.peer == end_.rank; }

  void send(int r, const std::byte* data) {
    if (is_lost(end_, operation_.kind)) return transfer_.lose(r);
    transfer_.send(operation_.kind, r, data, bytes_);
  }
  void receive(int r, std::byte* to) { transfer_.receive(operation_.kind, r, to, bytes_); }
  void copy_in_to(std::byte* to) {
    transfer_.then([in = in_, to, bytes = bytes_] {
      if (in != to) std::memmove(to, in, bytes);
    });
  }
  // Combines the other ranks' parts with this rank's own.
  void reduce_all(const std::byte* own) {
    const auto parts = std::make_shared<std::vector<std::byte>>(offset(end_.size));
    std::vector<const std::byte*> pointers;
    for (int r = 0; r < end_.size; ++r) pointers.push_back(parts->data() + offset(r));
    pointers[static_cast<std::size_t>(end_.rank)] = own;
    for_others([&](int r) { receive(r, parts->data() + offset(r)); });
    transfer_.then([parts, pointers, operation = operation_, out = out_] {
      reduce(pointers, operation.count, operation.type, operation.op, out);
    });
  }

  Transfer& transfer_;
  const End& end_;
  const Operation operation_;
  const std::byte* const in_;
  std::byte* const out_;
  const std::size_t bytes_;
};

// The group that a thread has open: a task for each communicator and stream.
using Group = std::map<std::pair<const void*, const Exchange*>, std::shared_ptr<Transfer>>;

Group& group_of_thread() {
  thread_local Group group;
  return group;
}

// As NCCL does, the host waits in the first message of two ranks until the peer is there too.
void connect(const Group& group) {
  constexpr unsigned kAgainUs = 50;
  for (;;) {
    bool done = true;
    for (const auto& [key, transfer] : group) done = transfer->connect() && done;
    if (done) return;
    ::usleep(kAgainUs);
  }
}

}  // namespace

const char* name_of(Kind kind) {
  constexpr const char* kNames[] = {"send",      "receive", "all_gather",    "all_reduce",
                                    "broadcast", "reduce",  "reduce_scatter"};
  return kNames[static_cast<int>(kind)];
}

void post(const End& end, const Operation& operation, const void* stream) {
  auto& transfer = group_of_thread()[{stream, end.exchange.get()}];
  if (!transfer) transfer = std::make_shared<Transfer>(end.exchange);
  Posting(*transfer, end, operation).post();
}

void enqueue_group() {
  Group& group = group_of_thread();
  connect(group);
  for (auto& [key, transfer] : group) {
    enqueue(key.first, [transfer = transfer] { return transfer->progress(); });
  }
  group.clear();
}

}  // namespace null_gpu
