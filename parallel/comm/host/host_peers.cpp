#include "parallel/comm/host/host_peers.hpp"

#include <sched.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstring>
#include <random>
#include <thread>
#include <utility>

#include "base/error.hpp"
#include "base/log.hpp"
#include "parallel/comm/op_queue.hpp"
#include "parallel/comm/stream_store.hpp"

namespace sluice {
namespace {

constexpr std::chrono::milliseconds kLivenessInterval{
    100};  // between two checks whether the peers are alive
// About the cost of a sleep and a wake-up. The bound is a time, not a number of yields: a yield
// gives another process on the core a whole time slice.
constexpr std::chrono::microseconds kSpin{20};

// A spinning rank may occupy the core that a late rank needs. Ranks spin only if there are more
// cores than ranks.
std::chrono::microseconds spin_for(int size) {
  cpu_set_t cores;
  CPU_ZERO(&cores);
  if (sched_getaffinity(0, sizeof cores, &cores) != 0) return {};
  return CPU_COUNT(&cores) > size ? kSpin : std::chrono::microseconds{};
}

std::uint64_t random_value() {
  std::random_device device;
  return std::uint64_t{device()} << 32 | device();
}

std::string name_of_rank(int rank) { return "rank " + std::to_string(rank); }

}  // namespace

HostPeers::HostPeers(const CommOptions& options, HostRendezvous rendezvous, HostCopy copy)
    : options_(options),
      rendezvous_(std::move(rendezvous)),
      probe_(random_value()),
      spin_(spin_for(options.size)),
      segment_(meet(options_, rendezvous_)) {
  begin_operation();
  try {
    introduce();
    advance();
    segment_.close_fd();
    own().reads_all = copy != HostCopy::kBounce && can_read_all();
    advance();
    direct_ = true;
    for (int r = 0; r < options_.size; ++r) direct_ = direct_ && segment_.slot(r).reads_all;
  } catch (const std::exception& error) {
    fail(error.what());
    throw;
  }
  if (!direct_ && options_.rank == 0) {
    log_info("group " + options_.group +
             ": ranks cannot read each other's memory (process_vm_readv is refused or was switched "
             "off); they exchange over buffers, at an extra copy");
  }
}

HostPeers::~HostPeers() { close(); }

HostSegment HostPeers::meet(const CommOptions& options, HostRendezvous& rendezvous) {
  if (options.rank == 0) {
    HostSegment made = HostSegment::create(options.size);
    rendezvous.set("segment", std::to_string(getpid()) + " " + std::to_string(made.fd()));
    return made;
  }
  const std::string place = rendezvous.get("segment");
  const std::size_t space = place.find(' ');
  check(space != std::string::npos, "the place of the segment has two numbers");
  return HostSegment::attach(std::stoi(place.substr(0, space)), std::stoi(place.substr(space + 1)),
                             options.size);
}

void HostPeers::introduce() {
  // Under Yama only ancestors may read a process, unless the process permits more. Without Yama the
  // call fails and is not needed.
  prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY, 0, 0, 0);
  HostSlot& slot = own();
  slot.process_start = process_start(getpid());
  slot.process = getpid();
  slot.probe = &probe_;
  slot.probe_value = probe_;
}

bool HostPeers::can_read_all() {
  for (int r = 0; r < options_.size; ++r) {
    std::uint64_t value = 0;
    iovec to{&value, sizeof value};
    iovec from{const_cast<std::uint64_t*>(segment_.slot(r).probe), sizeof value};
    if (process_vm_readv(segment_.slot(r).process, &to, 1, &from, 1, 0) != sizeof value ||
        value != segment_.slot(r).probe_value) {
      return false;
    }
  }
  return true;
}

HostRecord& HostPeers::next_record() { return own().records[++records_ % 2]; }

const HostRecord& HostPeers::record_of(int rank) const {
  return segment_.slot(rank).records[records_ % 2];
}

const std::vector<HostPiece>& HostPeers::publish(HostRecord& record, std::vector<HostPiece> table) {
  table_ = std::move(table);
  record.table = table_.data();
  return table_;
}

std::vector<HostPiece> HostPeers::table_of(int rank, std::size_t pieces) {
  std::vector<HostPiece> table(pieces);
  read(rank, reinterpret_cast<char*>(table.data()), record_of(rank).table,
       static_cast<std::int64_t>(pieces * sizeof(HostPiece)));
  // After the read: a rank leaves the group before it frees its table.
  check_member(rank);
  return table;
}

// Both sides use sequential consistency: either the sleeper sees the new counter (futex_sleep reads
// the counter again), or this rank sees the sleeper.
void HostPeers::arrive() {
  own().arrived.store(++phase_);
  if (own().sleepers.load() != 0) futex_wake_all(own().arrived);
}

bool HostPeers::has_reached(int rank) const {
  // Compares by difference, because the counters wrap.
  return static_cast<std::int32_t>(segment_.slot(rank).arrived.load() - phase_) >= 0;
}

void HostPeers::await_all() {
  for (int step = 1; step < options_.size; ++step) await((options_.rank + step) % options_.size);
  check_interrupted();
}

void HostPeers::await(int rank) {
  if (has_reached(rank)) return;
  for (const auto until = Clock::now() + spin_; Clock::now() < until;) {
    std::this_thread::yield();
    if (has_reached(rank)) return;
  }
  HostSlot& slot = segment_.slot(rank);
  Clock::time_point look = Clock::now() + kLivenessInterval;
  while (!has_reached(rank)) {
    check_open();
    const Clock::time_point now = Clock::now();
    if (now >= look) {
      check_alive();
      look = now + kLivenessInterval;
    }
    if (now >= deadline_) time_out();
    slot.sleepers.fetch_add(1);
    const std::uint32_t seen = slot.arrived.load();
    if (static_cast<std::int32_t>(seen - phase_) < 0 && !interrupted_) {
      futex_sleep(slot.arrived, seen, std::min(look, deadline_) - now);
    }
    slot.sleepers.fetch_sub(1);
  }
}

void HostPeers::check_open() const {
  check_interrupted();
  for (int r = 0; r < options_.size; ++r) {
    const HostSlot& slot = segment_.slot(r);
    // The state is read before the counter: a rank may reach this phase and then close.
    if (slot.state.load() != HostState::kOpen && !has_reached(r)) check_member(r);
  }
}

void HostPeers::check_member(int rank) const {
  const HostSlot& slot = segment_.slot(rank);
  const HostState state = slot.state.load();
  if (state == HostState::kClosed) throw HostError(name_of_rank(rank) + " has left the group");
  if (state == HostState::kFailed) throw HostError(name_of_rank(rank) + " failed: " + slot.why);
}

void HostPeers::check_alive() const {
  for (int r = 0; r < options_.size; ++r) {
    const HostSlot& slot = segment_.slot(r);
    if (r == options_.rank || slot.process == 0 || has_reached(r)) continue;
    if (process_start(slot.process) == slot.process_start) continue;
    throw HostError(name_of_rank(r) + " (process " + std::to_string(slot.process) + ") has died");
  }
}

void HostPeers::time_out() const {
  std::vector<int> missing;
  for (int r = 0; r < options_.size; ++r) {
    if (!has_reached(r)) missing.push_back(r);
  }
  throw HostError("no answer from " + describe_ranks(missing) + " within " +
                  std::to_string(options_.timeout.count()) + " ms");
}

void HostPeers::read(int rank, char* to, std::span<iovec> remote) {
  const std::int32_t process = segment_.slot(rank).process;
  while (!remote.empty()) {
    check_interrupted();
    const std::size_t pieces = std::min<std::size_t>(remote.size(), IOV_MAX);
    std::size_t bytes = 0;
    for (const iovec& piece : remote.first(pieces)) bytes += piece.iov_len;
    iovec local{to, bytes};
    ssize_t got = process_vm_readv(process, &local, 1, remote.data(), pieces, 0);
    if (got <= 0) {
      check_member(rank);  // its memory may be gone with it
      throw HostError("reading the memory of " + name_of_rank(rank) + " (process " +
                      std::to_string(process) +
                      ") failed: " + (got < 0 ? std::strerror(errno) : "nothing came"));
    }
    to += got;
    // A read may end early, inside a range.
    for (; !remote.empty() && static_cast<std::size_t>(got) >= remote.front().iov_len;
         remote = remote.subspan(1)) {
      got -= static_cast<ssize_t>(remote.front().iov_len);
    }
    if (got > 0) {
      remote.front().iov_base = static_cast<char*>(remote.front().iov_base) + got;
      remote.front().iov_len -= static_cast<std::size_t>(got);
    }
  }
}

void HostPeers::read(int rank, char* to, const void* from, std::int64_t bytes) {
  for (std::int64_t at = 0; at < bytes; at += kHostStretchBytes) {
    iovec remote{static_cast<char*>(const_cast<void*>(from)) + at,
                 static_cast<std::size_t>(std::min(kHostStretchBytes, bytes - at))};
    read(rank, to + at, {&remote, 1});
  }
}

void HostPeers::copy_mapped(char* to, const char* from, std::int64_t bytes) {
  for (std::int64_t at = 0; at < bytes; at += kHostStretchBytes) {
    check_interrupted();
    stream_copy(to + at, from + at, std::min(kHostStretchBytes, bytes - at));
  }
}

void HostPeers::check_interrupted() const {
  if (interrupted_) throw HostError("this rank aborted the group");
}

bool HostPeers::map(int rank, std::vector<HostPiece>& table) {
  std::vector<const char*> inputs;
  for (const HostPiece& piece : table) {
    const HostRegion& region = piece.region;
    if (piece.input != nullptr && region.id == 0) return false;
    const char* base =
        region.id == 0 ? nullptr : mappings_.map(segment_.slot(rank).process, region);
    if (region.id != 0 && base == nullptr) return false;
    inputs.push_back(base == nullptr ? nullptr : base + (piece.input - region.begin));
  }
  for (std::size_t i = 0; i < table.size(); ++i) table[i].input = inputs[i];
  return true;
}

void HostPeers::interrupt() noexcept {
  interrupted_ = true;
  fail("it aborted the group");
}

void HostPeers::leave(HostState state, const std::string& why) noexcept {
  const std::lock_guard lock(leaving_);
  if (own().state.load() != HostState::kOpen) return;
  const std::size_t length = std::min(why.size(), sizeof HostSlot::why - 1);
  std::memcpy(own().why, why.data(), length);
  own().why[length] = '\0';
  own().state.store(state);
  // Wakes every waiting rank, whichever rank it waits for, so that it sees the new state.
  for (int r = 0; r < options_.size; ++r) futex_wake_all(segment_.slot(r).arrived);
}

}  // namespace sluice
