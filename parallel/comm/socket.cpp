#include "parallel/comm/socket.hpp"

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
#include <system_error>
#include <thread>
#include <utility>

#include "base/error.hpp"

namespace sluice {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::chrono::milliseconds kRetry{50};
constexpr std::chrono::milliseconds kConnectPatience{2000};  // for one attempt

struct AddressesDeleter {
  void operator()(addrinfo* list) const { freeaddrinfo(list); }
};
using Addresses = std::unique_ptr<addrinfo, AddressesDeleter>;

std::string place(const std::string& host, int port) {
  return "port " + std::to_string(port) + " on " + host;
}

std::string error_text(int error_number) { return std::generic_category().message(error_number); }

Addresses resolve(const std::string& host, int port, int type) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = type;
  addrinfo* list = nullptr;
  const int rc = getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &list);
  if (rc != 0) {
    throw CommError("the rendezvous host " + host + " is not known (" + gai_strerror(rc) +
                        "); set MASTER_ADDR to a host that every rank can reach",
                    /*secondary=*/false);
  }
  return Addresses(list);
}

bool is_loopback(const sockaddr& address) {
  if (address.sa_family == AF_INET) {
    sockaddr_in in{};
    std::memcpy(&in, &address, sizeof in);
    return ntohl(in.sin_addr.s_addr) >> 24 == 127;
  }
  sockaddr_in6 in6{};
  std::memcpy(&in6, &address, sizeof in6);
  return IN6_IS_ADDR_LOOPBACK(&in6.sin6_addr);
}

// Replaces the address by "every interface"; keeps the port.
void widen_to_any(sockaddr_storage& address) {
  if (address.ss_family == AF_INET) {
    reinterpret_cast<sockaddr_in&>(address).sin_addr.s_addr = htonl(INADDR_ANY);
  } else {
    reinterpret_cast<sockaddr_in6&>(address).sin6_addr = in6addr_any;
  }
}

bool try_connect(const addrinfo& to) {
  const Descriptor socket(::socket(to.ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!socket) return false;
  if (connect(socket.get(), to.ai_addr, to.ai_addrlen) == 0) return true;
  if (errno != EINPROGRESS) return false;
  pollfd ready{socket.get(), POLLOUT, 0};
  if (poll(&ready, 1, static_cast<int>(kConnectPatience.count())) != 1) return false;
  int error = 0;
  socklen_t length = sizeof error;
  return getsockopt(socket.get(), SOL_SOCKET, SO_ERROR, &error, &length) == 0 && error == 0;
}

}  // namespace

Descriptor bind_port(const std::string& host, int port) {
  const Addresses found = resolve(host, port, SOCK_STREAM);
  sockaddr_storage address{};
  std::memcpy(&address, found->ai_addr, found->ai_addrlen);
  const bool loopback = is_loopback(*found->ai_addr);
  if (!loopback && found->ai_next != nullptr) widen_to_any(address);
  Descriptor socket(::socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const int on = 1;
  // A port counts as free once its last user has ended.
  if (socket) setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  const auto bind_it = [&] {
    return bind(socket.get(), reinterpret_cast<sockaddr*>(&address), found->ai_addrlen) == 0;
  };
  bool bound = socket && bind_it();
  if (!bound && errno == EADDRNOTAVAIL && !loopback) {
    widen_to_any(address);
    bound = bind_it();
  }
  if (!bound) {
    const int error = errno;
    std::string why =
        " cannot be served: " + error_text(error) + "; set MASTER_PORT or MASTER_ADDR";
    if (error == EADDRINUSE) why = " is in use; set MASTER_PORT or free it";
    throw CommError(place(host, port) + why, /*secondary=*/false);
  }
  return socket;
}

bool is_loopback(const std::string& host) {
  try {
    return is_loopback(*resolve(host, 0, SOCK_STREAM)->ai_addr);
  } catch (const CommError&) {
    return false;
  }
}

bool wait_for_listener(const std::string& host, int port, Clock::time_point deadline) {
  // The first pauses are short, because the ranks of a job start together.
  for (std::chrono::milliseconds pause{1};; pause = std::min(2 * pause, kRetry)) {
    const bool last = Clock::now() >= deadline;
    try {
      const Addresses found = resolve(host, port, SOCK_STREAM);
      for (const addrinfo* to = found.get(); to != nullptr; to = to->ai_next) {
        if (try_connect(*to)) return true;
      }
    } catch (const CommError&) {
      if (last) throw;  // before the deadline: the name service may start after this rank
    }
    if (last) return false;
    std::this_thread::sleep_until(std::min(deadline, Clock::now() + pause));
  }
}

std::string local_address_towards(const std::string& host, int port) {
  const Addresses found = resolve(host, port, SOCK_DGRAM);
  const Descriptor socket(::socket(found->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  sockaddr_storage own{};
  socklen_t length = sizeof own;
  char text[NI_MAXHOST] = {};
  // connect() on a datagram socket sends nothing; it only selects the route.
  if (!socket || connect(socket.get(), found->ai_addr, found->ai_addrlen) != 0 ||
      getsockname(socket.get(), reinterpret_cast<sockaddr*>(&own), &length) != 0 ||
      getnameinfo(reinterpret_cast<sockaddr*>(&own), length, text, sizeof text, nullptr, 0,
                  NI_NUMERICHOST) != 0) {
    throw CommError("no network interface leads to the rendezvous host " + host + ": " +
                        error_text(errno) + "; check MASTER_ADDR or set GLOO_SOCKET_IFNAME",
                    /*secondary=*/false);
  }
  return text;
}

}  // namespace sluice
