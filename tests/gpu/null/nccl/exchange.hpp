// Bytes between the ranks of a communicator, over Unix datagram sockets. No call blocks.
//
// Each rank has a socket with an abstract name, which the kernel removes when the process ends. A
// message is cut into chunks; the receiver collects them. A socket holds few chunks, so a large
// send completes only while its receiver takes chunks, as NCCL's sends do. Thread-safe.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace null_gpu {

// A message on its way out. Its bytes are read when they are sent.
struct Outgoing {
  std::string kind;
  int peer = 0;
  std::uint64_t number = 0;  // Exchange::next_to()
  const std::byte* data = nullptr;
  std::size_t bytes = 0;
  std::size_t sent = 0;
  bool begun = false;
};

// A message that has arrived.
struct Arrived {
  std::string kind;
  std::vector<std::byte> bytes;
};

// A card that a rank of a communicator has. Throws std::system_error where another rank of the same
// host has it: as in NCCL, NCCL_HOSTID makes a rank a host of its own.
class CardClaim {
 public:
  CardClaim(const std::string& id, int device);
  ~CardClaim();
  CardClaim(const CardClaim&) = delete;
  CardClaim& operator=(const CardClaim&) = delete;

 private:
  int socket_ = -1;
};

// One rank's end of a communicator.
class Exchange {
 public:
  // Throws std::system_error if the system refuses the socket, and where the rank exists already.
  Exchange(std::string id, int rank);
  ~Exchange();
  Exchange(const Exchange&) = delete;
  Exchange& operator=(const Exchange&) = delete;

  // The first message to a peer, and the first from a peer, connects the two ranks: true once both
  // have called. Not thread-safe, as NCCL's calls are not.
  [[nodiscard]] bool connect(int peer, bool sends);

  // Messages from one rank to another have numbers in the order of both ranks' calls.
  [[nodiscard]] std::uint64_t next_to(int peer);
  [[nodiscard]] std::uint64_t next_from(int peer);

  // Sends as many chunks as the peer's socket takes. True if the message has been sent.
  [[nodiscard]] bool push(Outgoing& message);
  // Takes the peer's message if all of it has arrived.
  [[nodiscard]] std::optional<Arrived> pull(int peer, std::uint64_t number);

  // Of the communicator: its operations end without their data.
  void abort() noexcept { aborted_ = true; }
  [[nodiscard]] bool aborted() const noexcept { return aborted_; }

 private:
  using Key = std::pair<int, std::uint64_t>;  // the sender and its number
  struct Partial {
    Arrived message;
    std::size_t missing = 0;
  };

  struct Connection {
    bool greeted = false, answered = false;
  };

  void drain();  // REQUIRES: mutex_

  const std::string id_;
  const int rank_;
  int socket_ = -1;
  std::atomic<bool> aborted_{false};
  std::map<std::pair<int, bool>, Connection> connections_;  // by peer, and whether this rank sends
  std::mutex mutex_;
  std::map<int, std::uint64_t> sent_, received_;  // numbers given so far
  std::map<Key, Partial> inbox_;
};

}  // namespace null_gpu
