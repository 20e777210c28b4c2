#include "tests/gpu/null/nccl/exchange.hpp"

#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <system_error>

namespace null_gpu {
namespace {

constexpr std::size_t kChunk = 64 << 10;  // a socket's default buffer holds three

// Numbers that no message has: of the greetings by which two ranks connect.
constexpr std::uint64_t kGreetingOfSender = ~std::uint64_t{0};
constexpr std::uint64_t kGreetingOfReceiver = kGreetingOfSender - 1;

// Before the bytes of each chunk.
struct Head {
  std::array<char, 20> kind{};
  int from = 0;
  std::uint64_t number = 0, total = 0, offset = 0;
};

struct Name {
  sockaddr_un address{};
  socklen_t bytes = 0;
};

Name abstract(const std::string& label) {
  Name name;
  name.address.sun_family = AF_UNIX;
  // The leading zero makes the name abstract: no file exists.
  std::string text = std::string(1, '\0') + "null-gpu." + label;
  text.resize(std::min(text.size(), sizeof name.address.sun_path));
  std::memcpy(name.address.sun_path, text.data(), text.size());
  name.bytes = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + text.size());
  return name;
}

Name name_of(const std::string& id, int rank) { return abstract(id + "." + std::to_string(rank)); }

// Throws std::system_error with `what` where the name is taken.
int bound_socket(const Name& name, const std::string& what) {
  const int socket = ::socket(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (socket >= 0 &&
      ::bind(socket, reinterpret_cast<const sockaddr*>(&name.address), name.bytes) == 0) {
    return socket;
  }
  const int error = errno;
  if (socket >= 0) ::close(socket);
  throw std::system_error(error, std::generic_category(), what);
}

std::string host_id() {
  const char* const id = std::getenv("NCCL_HOSTID");
  return id == nullptr ? "" : id;
}

// Whether the peer took the chunk. A peer that has no socket yet, or a full one, takes it later.
bool sent(int socket, const Name& to, Head& head, const std::byte* data, std::size_t bytes) {
  std::array<iovec, 2> parts{iovec{&head, sizeof head}, iovec{const_cast<std::byte*>(data), bytes}};
  msghdr message{};
  message.msg_name = const_cast<sockaddr_un*>(&to.address);
  message.msg_namelen = to.bytes;
  message.msg_iov = parts.data();
  message.msg_iovlen = parts.size();
  return ::sendmsg(socket, &message, MSG_NOSIGNAL) >= 0;
}

}  // namespace

CardClaim::CardClaim(const std::string& id, int device)
    : socket_(bound_socket(abstract(id + ".card." + host_id() + "." + std::to_string(device)),
                           "Duplicate GPU detected: another rank of this host is on CUDA device " +
                               std::to_string(device))) {}

CardClaim::~CardClaim() { ::close(socket_); }

Exchange::Exchange(std::string id, int rank)
    : id_(std::move(id)),
      rank_(rank),
      socket_(bound_socket(name_of(id_, rank_),
                           "rank " + std::to_string(rank_) + " of communicator " + id_)) {}

Exchange::~Exchange() { ::close(socket_); }

bool Exchange::connect(int peer, bool sends) {
  Connection& connection = connections_[{peer, sends}];
  const auto number_of = [](bool sender) {
    return sender ? kGreetingOfSender : kGreetingOfReceiver;
  };
  if (!connection.greeted) {
    Outgoing greeting{.kind = "connect", .peer = peer, .number = number_of(sends)};
    connection.greeted = push(greeting);
  }
  if (!connection.answered) connection.answered = pull(peer, number_of(!sends)).has_value();
  return connection.greeted && connection.answered;
}

std::uint64_t Exchange::next_to(int peer) {
  const std::lock_guard lock(mutex_);
  return sent_[peer]++;
}

std::uint64_t Exchange::next_from(int peer) {
  const std::lock_guard lock(mutex_);
  return received_[peer]++;
}

bool Exchange::push(Outgoing& message) {
  const Name to = name_of(id_, message.peer);
  while (!message.begun || message.sent < message.bytes) {
    Head head{
        .from = rank_, .number = message.number, .total = message.bytes, .offset = message.sent};
    message.kind.copy(head.kind.data(), head.kind.size() - 1);
    const std::size_t bytes = std::min(kChunk, message.bytes - message.sent);
    if (!sent(socket_, to, head, message.data + message.sent, bytes)) return false;
    message.begun = true;
    message.sent += bytes;
  }
  return true;
}

std::optional<Arrived> Exchange::pull(int peer, std::uint64_t number) {
  const std::lock_guard lock(mutex_);
  drain();
  const auto found = inbox_.find({peer, number});
  if (found == inbox_.end() || found->second.missing > 0) return std::nullopt;
  Arrived message = std::move(found->second.message);
  inbox_.erase(found);
  return message;
}

void Exchange::drain() {
  std::vector<std::byte> chunk(kChunk);
  while (true) {
    Head head;
    std::array<iovec, 2> parts{iovec{&head, sizeof head}, iovec{chunk.data(), chunk.size()}};
    msghdr message{};
    message.msg_iov = parts.data();
    message.msg_iovlen = parts.size();
    const ssize_t got = ::recvmsg(socket_, &message, 0);
    if (got < static_cast<ssize_t>(sizeof head)) return;
    const std::size_t bytes = static_cast<std::size_t>(got) - sizeof head;
    Partial& partial = inbox_[{head.from, head.number}];
    if (head.offset == 0) {
      partial.message.kind = head.kind.data();
      partial.message.bytes.resize(head.total);
      partial.missing = head.total;
    }
    std::copy_n(chunk.begin(), bytes,
                partial.message.bytes.begin() + static_cast<std::ptrdiff_t>(head.offset));
    partial.missing -= bytes;
  }
}

}  // namespace null_gpu
