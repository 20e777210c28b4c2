#include <utility>

#include "base/error.hpp"
#include "base/failpoint.hpp"
#include "parallel/comm/communicator.hpp"
#include "parallel/comm/local_group.hpp"

namespace sluice {
namespace {

class LocalTicket final : public TicketState {
 public:
  LocalTicket(std::shared_ptr<LocalGroup> group, int rank,
              std::shared_ptr<LocalGroup::Operation> operation)
      : group_(std::move(group)), rank_(rank), operation_(std::move(operation)) {}
  void wait() override { group_->wait(rank_, *operation_); }
  [[nodiscard]] bool done() override { return group_->done(*operation_); }

 private:
  const std::shared_ptr<LocalGroup> group_;
  const int rank_;
  const std::shared_ptr<LocalGroup::Operation> operation_;
};

class LocalCommunicator final : public Communicator {
 public:
  LocalCommunicator(std::shared_ptr<LocalGroup> group, int rank)
      : group_(std::move(group)), rank_(rank) {}
  ~LocalCommunicator() override { group_->leave(rank_); }

  [[nodiscard]] int rank() const override { return rank_; }
  [[nodiscard]] int size() const override { return group_->size(); }
  [[nodiscard]] std::int64_t reduce_scatter_staging_bytes(std::int64_t,
                                                          ReduceDtype) const override {
    return 0;  // shares are read in place
  }

  [[nodiscard]] Ticket reduce_scatter(std::vector<ReduceScatterPiece> pieces, ReduceDtype dtype,
                                      void*) override {
    failpoint("comm.reduce_scatter");
    return start({.name = "reduce_scatter", .dtype = dtype, .reduce_scatter = std::move(pieces)});
  }
  [[nodiscard]] Ticket all_gather(std::vector<AllGatherPiece> pieces, DType dtype) override {
    failpoint("comm.all_gather");
    return start({.name = "all_gather", .dtype = dtype, .all_gather = std::move(pieces)});
  }

  [[nodiscard]] Ticket send(int peer, const void* data, std::int64_t bytes) override {
    check_transfer(group_->name_for(rank_), "send", peer, bytes);
    failpoint("comm.send");
    return start(
        {.name = "send", .transfer = TransferCall{.receives = 0, .bytes = bytes}, .sent = data});
  }
  [[nodiscard]] Ticket receive(int peer, void* data, std::int64_t bytes) override {
    check_transfer(group_->name_for(rank_), "receive", peer, bytes);
    failpoint("comm.receive");
    return start({.name = "receive",
                  .transfer = TransferCall{.receives = 1, .bytes = bytes},
                  .received = data});
  }

  [[nodiscard]] std::vector<std::byte> all_gather_bytes(std::span<const std::byte> bytes) override {
    failpoint("comm.all_gather_bytes");
    return exchange("all_gather_bytes", bytes);
  }
  void barrier() override {
    failpoint("comm.barrier");
    exchange("barrier", {});
  }
  void abort() noexcept override { group_->abort(rank_); }

 private:
  Ticket start(LocalGroup::Post post) {
    return Ticket(
        std::make_shared<LocalTicket>(group_, rank_, group_->post(rank_, std::move(post))));
  }

  std::vector<std::byte> exchange(const char* name, std::span<const std::byte> bytes) {
    const auto operation =
        group_->post(rank_, {.name = name, .bytes = {bytes.begin(), bytes.end()}});
    group_->wait(rank_, *operation);
    std::vector<std::byte> all;
    for (const auto& post : operation->posts) {
      all.insert(all.end(), post->bytes.begin(), post->bytes.end());
    }
    return all;
  }

  const std::shared_ptr<LocalGroup> group_;
  const int rank_;
};

}  // namespace

std::vector<std::unique_ptr<Communicator>> make_local_communicators(
    int size, std::chrono::milliseconds timeout, const std::string& name) {
  check(size >= 1, "a group has at least one rank");
  auto group = std::make_shared<LocalGroup>(name, size, timeout);
  std::vector<std::unique_ptr<Communicator>> communicators;
  for (int rank = 0; rank < size; ++rank) {
    communicators.push_back(std::make_unique<LocalCommunicator>(group, rank));
  }
  return communicators;
}

}  // namespace sluice
