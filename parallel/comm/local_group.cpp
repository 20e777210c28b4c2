#include "parallel/comm/local_group.hpp"

#include <cstring>
#include <utility>

#include "base/error.hpp"
#include "base/index.hpp"
#include "parallel/comm/ordered_add.hpp"

namespace sluice {
namespace {

// Returns the difference between the call `a` of another rank and the call `b` of this rank; empty
// if they form one operation.
std::string difference(const LocalGroup::Post& a, const LocalGroup::Post& b) {
  if (a.transfer && b.transfer) {
    if (match(*a.transfer, *b.transfer)) return "";
    return "the other calls " + describe(*a.transfer) + ", this rank " + describe(*b.transfer);
  }
  if (a.name != b.name) return "one calls " + a.name + ", the other " + b.name;
  if (a.dtype != b.dtype) {
    return name_of(a.dtype) + " on one, " + name_of(b.dtype) + " on the other";
  }
  if (a.bytes.size() != b.bytes.size()) return "the numbers of bytes differ";
  if (a.reduce_scatter.size() != b.reduce_scatter.size() ||
      a.all_gather.size() != b.all_gather.size()) {
    return "the numbers of pieces differ";
  }
  for (std::size_t p = 0; p < a.reduce_scatter.size(); ++p) {
    if (a.reduce_scatter[p].elems != b.reduce_scatter[p].elems) {
      return "the sizes of piece " + std::to_string(p) + " differ";
    }
  }
  for (std::size_t p = 0; p < a.all_gather.size(); ++p) {
    if (a.all_gather[p].elems != b.all_gather[p].elems) {
      return "the sizes of piece " + std::to_string(p) + " differ";
    }
  }
  return "";
}

void receive_reduced(const LocalGroup::Operation& operation, int rank) {
  const LocalGroup::Post& own = *nth(operation.posts, rank);
  std::vector<const void*> shares(operation.posts.size());
  for (std::size_t p = 0; p < own.reduce_scatter.size(); ++p) {
    for (std::size_t r = 0; r < shares.size(); ++r) {
      const ReduceScatterPiece& piece = operation.posts[r]->reduce_scatter[p];
      shares[r] =
          static_cast<const char*>(piece.input) + rank * piece.stride * size_of(own.dtype.input);
    }
    const ReduceScatterPiece& piece = own.reduce_scatter[p];
    ordered_add(shares, own.dtype.in_group_of(static_cast<int>(shares.size())), piece.elems,
                piece.output, piece.accumulate);
  }
}

void receive_gathered(const LocalGroup::Operation& operation, int rank) {
  const LocalGroup::Post& own = *nth(operation.posts, rank);
  for (std::size_t p = 0; p < own.all_gather.size(); ++p) {
    const AllGatherPiece& piece = own.all_gather[p];
    const auto bytes = static_cast<std::size_t>(piece.elems * size_of(own.dtype.input));
    char* to = static_cast<char*>(piece.output);
    for (const std::unique_ptr<LocalGroup::Post>& post : operation.posts) {
      const void* from = post->all_gather[p].input;
      if (bytes > 0 && from != to) std::memcpy(to, from, bytes);
      to += piece.stride * size_of(own.dtype.input);
    }
  }
}

void receive_sent(const LocalGroup::Operation& operation, int rank) {
  const LocalGroup::Post& own = *nth(operation.posts, rank);
  if (!own.transfer || own.transfer->receives == 0 || own.transfer->bytes == 0) return;
  const LocalGroup::Post& sender = *nth(operation.posts, 1 - rank);
  std::memcpy(own.received, sender.sent, static_cast<std::size_t>(own.transfer->bytes));
}

}  // namespace

LocalGroup::LocalGroup(std::string name, int size, std::chrono::milliseconds timeout)
    : name_(std::move(name)),
      size_(size),
      timeout_(timeout),
      next_seq_(static_cast<std::size_t>(size), 1),
      left_(static_cast<std::size_t>(size), false) {}

bool LocalGroup::ended(const Operation& operation) const {
  return operation.done() || (failure_ && operation.running == 0);
}

const Failure& LocalGroup::fail(const std::string& text, bool secondary) noexcept {
  if (!failure_) failure_ = Failure{text, secondary};
  changed_.notify_all();
  return *failure_;
}

std::shared_ptr<LocalGroup::Operation> LocalGroup::post(int rank, Post post) {
  const auto r = static_cast<std::size_t>(rank);
  std::unique_lock lock(mutex_);
  if (failure_) failure_->raise();
  const std::uint64_t seq = next_seq_[r]++;
  if (pending_.empty() || pending_.back()->seq < seq) {
    auto fresh = std::make_shared<Operation>();
    fresh->seq = seq;
    fresh->posts.resize(static_cast<std::size_t>(size_));
    pending_.push_back(std::move(fresh));
  }
  // An operation cannot be done before this rank posts, so it is still in the queue.
  std::shared_ptr<Operation> operation = pending_[seq - pending_.front()->seq];
  for (std::size_t other = 0; other < operation->posts.size(); ++other) {
    if (!operation->posts[other]) continue;
    const std::string differs = difference(*operation->posts[other], post);
    if (differs.empty()) continue;
    fail(describe_failure(name_for(rank), post.name, seq,
                          "its call differs from rank " + std::to_string(other) + "'s: " + differs),
         /*secondary=*/false)
        .raise();
  }
  operation->posts[r] = std::make_unique<Post>(std::move(post));
  if (++operation->posted == size_) {
    changed_.notify_all();
    run_shares(lock);
  }
  return operation;
}

void LocalGroup::run_shares(std::unique_lock<std::mutex>& lock) {
  while (!failure_ && !pending_.empty()) {
    const std::shared_ptr<Operation> head = pending_.front();
    if (head->posted < size_ || head->next_share == size_) return;
    run_share(lock, head);
  }
}

void LocalGroup::run_share(std::unique_lock<std::mutex>& lock,
                           const std::shared_ptr<Operation>& operation) {
  const int rank = operation->next_share++;
  ++operation->running;
  lock.unlock();
  std::string error;
  try {
    // The posts do not change after the last rank has posted, so reading them needs no lock.
    receive_reduced(*operation, rank);
    receive_gathered(*operation, rank);
    receive_sent(*operation, rank);
  } catch (const std::exception& thrown) {  // no memory for the list of shares
    error = thrown.what();
  }
  lock.lock();
  --operation->running;
  if (!error.empty()) {
    fail(describe_failure(name_for(rank), nth(operation->posts, rank)->name, operation->seq, error),
         /*secondary=*/false);
    return;
  }
  ++operation->ran;
  if (operation->done()) pending_.pop_front();  // only shares of the first operation run
  changed_.notify_all();
}

void LocalGroup::check_arrivals(int rank, const Operation& operation, bool timed_out) {
  std::vector<int> missing;
  std::vector<int> gone;
  for (int r = 0; r < size_; ++r) {
    if (nth(operation.posts, r)) continue;
    missing.push_back(r);
    if (nth(left_, r)) gone.push_back(r);
  }
  const std::string name = nth(operation.posts, rank)->name;
  const auto text = [&](const std::string& why) {
    return describe_failure(name_for(rank), name, operation.seq, why);
  };
  if (!gone.empty()) {
    fail(text(describe_ranks(gone) + " left the group before this operation"), /*secondary=*/true);
  } else if (timed_out) {
    fail(text("no answer from " + describe_ranks(missing) + " within " +
              std::to_string(timeout_.count()) + " ms"),
         /*secondary=*/true);
  }
}

void LocalGroup::wait(int rank, Operation& operation) {
  const Clock::time_point deadline = Clock::now() + timeout_;
  std::unique_lock lock(mutex_);
  while (true) {
    run_shares(lock);
    if (ended(operation)) break;
    if (operation.posted < size_ && !failure_) {
      check_arrivals(rank, operation, Clock::now() >= deadline);
      if (failure_) continue;
      changed_.wait_until(lock, deadline);
    } else {
      changed_.wait(lock);  // no timeout: a share on another thread ends by itself
    }
  }
  if (!operation.done() && failure_) failure_->raise();  // it ended: done or failed
}

bool LocalGroup::done(const Operation& operation) {
  const std::lock_guard lock(mutex_);
  return ended(operation);
}

void LocalGroup::abort(int rank) noexcept {
  std::unique_lock lock(mutex_);
  fail("group " + name_ + " was aborted on rank " + std::to_string(rank), /*secondary=*/true);
  // No further share starts. A running one is a sum or a copy in memory, and ends by itself.
  changed_.wait(lock, [this] { return pending_.empty() || pending_.front()->running == 0; });
}

void LocalGroup::leave(int rank) noexcept {
  const auto r = static_cast<std::size_t>(rank);
  std::unique_lock lock(mutex_);
  const auto idle = [&] {
    for (const auto& operation : pending_) {
      if (!operation->posts[r]) continue;
      // If a rank left before it posted this operation, waiting would not end the operation.
      if (!failure_) check_arrivals(rank, *operation, /*timed_out=*/false);
      if (!ended(*operation)) return false;
    }
    return true;
  };
  if (!changed_.wait_for(lock, kDrainGrace, idle)) {
    fail("group " + name_ + " was aborted: rank " + std::to_string(rank) +
             " left with operations in flight",
         /*secondary=*/true);
    changed_.wait(lock, idle);
  }
  left_[r] = true;
  changed_.notify_all();
}

}  // namespace sluice
