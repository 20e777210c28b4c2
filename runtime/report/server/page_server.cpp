#include "runtime/report/server/page_server.hpp"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <list>
#include <vector>

#include "base/error.hpp"
#include "base/posix/io_error.hpp"

namespace sluice {
namespace {

using Clock = std::chrono::steady_clock;

// A client: its request comes in, then its answer goes out.
struct Client {
  Descriptor fd;
  Clock::time_point until;
  std::string got = {};
  std::string head = {};  // of the answer; empty: the request is not complete
  std::shared_ptr<const std::string> body = {};
  std::size_t sent = 0;
  bool done = false;

  [[nodiscard]] bool answers() const { return !head.empty(); }
};

void begin_answer(Client& client, const HttpAnswer& answer, bool with_body) {
  client.head = answer_head(answer);
  if (with_body) client.body = answer.body;
  client.until = Clock::now() + PageServer::kPatience;
}

void take_request(Client& client, const PageOf& page) {
  HttpRequest request;
  switch (parse_request(client.got, request)) {
    case RequestState::kIncomplete:
      return;
    case RequestState::kMalformed:
      return begin_answer(client, {.status = 400}, false);
    case RequestState::kTooLong:
      return begin_answer(client, {.status = 431}, false);
    case RequestState::kComplete:
      begin_answer(client, answer_to(request, page), request.method != "HEAD");
  }
}

void receive(Client& client, const PageOf& page) {
  std::array<char, 4096> bytes;
  const ssize_t got = ::recv(client.fd.get(), bytes.data(), bytes.size(), 0);
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (got <= 0) {
    client.done = true;
    return;
  }
  client.got.append(bytes.data(), static_cast<std::size_t>(got));
  take_request(client, page);
}

void send(Client& client) {
  const std::size_t head = client.head.size();
  const std::size_t body = client.body ? client.body->size() : 0;
  const char* from = client.sent < head ? client.head.data() + client.sent
                                        : client.body->data() + (client.sent - head);
  const std::size_t left = client.sent < head ? head - client.sent : head + body - client.sent;
  const ssize_t put = ::send(client.fd.get(), from, left, MSG_NOSIGNAL);
  if (put < 0) {
    client.done = errno != EAGAIN && errno != EINTR;
    return;
  }
  client.sent += static_cast<std::size_t>(put);
  if (client.sent < head + body) return;
  ::shutdown(client.fd.get(), SHUT_WR);
  client.done = true;
}

void accept_clients(int listener, std::list<Client>& clients) {
  while (true) {
    Descriptor fd(::accept4(listener, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (!fd) return;  // none waits, or the process has no descriptor left: the client waits
    if (clients.size() >= PageServer::kMostConnections) continue;
    clients.push_back({.fd = std::move(fd), .until = Clock::now() + PageServer::kPatience});
  }
}

int milliseconds_until(Clock::time_point when) {
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(when - Clock::now());
  return static_cast<int>(std::clamp<std::int64_t>(left.count(), 0, 60'000));
}

}  // namespace

PageServer::PageServer(int port) {
  socket_.reset(::socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  const std::string place = "port " + std::to_string(port) + " of 127.0.0.1";
  if (!socket_) throw_io_error("open a socket for", place, errno);
  const int yes = 1;
  ::setsockopt(socket_.get(), SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(static_cast<std::uint16_t>(port));
  socklen_t size = sizeof address;
  // NOLINTNEXTLINE(cppcoreguidelines-pro-type-reinterpret-cast)
  auto* const any = reinterpret_cast<sockaddr*>(&address);
  if (::bind(socket_.get(), any, size) != 0 || ::listen(socket_.get(), 64) != 0) {
    throw_io_error("listen on", place, errno, "; give another --port, or none for a free one");
  }
  if (::getsockname(socket_.get(), any, &size) != 0) throw_io_error("name", place, errno);
  port_ = ntohs(address.sin_port);
}

void PageServer::run(const Work& work, int stop_fd) {
  std::list<Client> clients;
  Clock::time_point refresh_at = Clock::now() + work.every;
  while (true) {
    std::vector<pollfd> polls{{stop_fd, POLLIN, 0}, {socket_.get(), POLLIN, 0}};
    Clock::time_point next = refresh_at;
    for (const Client& client : clients) {
      polls.push_back(
          {client.fd.get(), static_cast<short>(client.answers() ? POLLOUT : POLLIN), 0});
      next = std::min(next, client.until);
    }
    if (::poll(polls.data(), polls.size(), milliseconds_until(next)) < 0 && errno != EINTR) {
      throw_io_error("wait for requests on", "127.0.0.1", errno);
    }
    if (polls[0].revents != 0) return;
    std::size_t i = 2;
    for (Client& client : clients) {
      if (polls[i++].revents == 0) continue;
      if (client.answers()) {
        send(client);
      } else {
        receive(client, work.page);
      }
    }
    const Clock::time_point now = Clock::now();
    clients.remove_if([now](const Client& client) { return client.done || client.until < now; });
    if (polls[1].revents != 0) accept_clients(socket_.get(), clients);
    if (now < refresh_at) continue;
    work.refresh();
    refresh_at = Clock::now() + work.every;
  }
}

}  // namespace sluice
