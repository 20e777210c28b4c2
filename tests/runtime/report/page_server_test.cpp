#include "runtime/report/server/page_server.hpp"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <thread>

#include "base/error.hpp"

namespace sluice {
namespace {

Descriptor connect_to(int port) {
  Descriptor fd(::socket(AF_INET, SOCK_STREAM, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(static_cast<std::uint16_t>(port));
  if (::connect(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) != 0) fd.reset();
  return fd;
}

void put(const Descriptor& fd, const std::string& text) {
  EXPECT_EQ(::send(fd.get(), text.data(), text.size(), MSG_NOSIGNAL),
            static_cast<ssize_t>(text.size()));
}

// All bytes until the server closes.
std::string take(const Descriptor& fd) {
  std::string all;
  std::array<char, 65536> bytes;
  for (ssize_t got = 0; (got = ::recv(fd.get(), bytes.data(), bytes.size(), 0)) > 0;) {
    all.append(bytes.data(), static_cast<std::size_t>(got));
  }
  return all;
}

class Served : public ::testing::Test {
 protected:
  Served() {
    int ends[2];
    EXPECT_EQ(::pipe(ends), 0);
    stop_read_.reset(ends[0]);
    stop_write_.reset(ends[1]);
    thread_ = std::thread([this] {
      server_.run({.page = [this](const std::string& path) -> std::shared_ptr<const HttpAnswer> {
                     if (path != "/") return nullptr;
                     return std::make_shared<const HttpAnswer>(HttpAnswer{.body = body_});
                   },
                   .refresh = [this] { ++refreshed_; },
                   .every = std::chrono::milliseconds(5)},
                  stop_read_.get());
    });
  }
  ~Served() override {
    EXPECT_EQ(::write(stop_write_.get(), "x", 1), 1);
    thread_.join();
  }
  std::string ask(const std::string& request) {
    const Descriptor fd = connect_to(server_.port());
    put(fd, request);
    return take(fd);
  }
  [[nodiscard]] std::string get() { return ask("GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"); }

  PageServer server_{0};
  // More than a socket's buffer takes at once.
  std::shared_ptr<const std::string> body_ = std::make_shared<const std::string>(16 << 20, 'x');
  std::atomic<int> refreshed_{0};

 private:
  Descriptor stop_read_, stop_write_;
  std::thread thread_;
};

TEST_F(Served, APageOfManyPieces) {
  const std::string answer = get();
  EXPECT_TRUE(answer.starts_with("HTTP/1.1 200 OK\r\n"));
  EXPECT_EQ(answer.substr(answer.size() - body_->size()), *body_);
  const std::string head = ask("HEAD / HTTP/1.1\r\nHost: localhost\r\n\r\n");
  EXPECT_NE(head.find("Content-Length: 16777216"), std::string::npos);
  EXPECT_TRUE(head.ends_with("\r\n\r\n"));
}

TEST_F(Served, MalformedRequestsAreRefused) {
  EXPECT_TRUE(ask("nonsense\r\n\r\n").starts_with("HTTP/1.1 400 "));
  EXPECT_TRUE(ask("GET /x HTTP/1.1\r\nHost: localhost\r\n\r\n").starts_with("HTTP/1.1 404 "));
  EXPECT_TRUE(ask(std::string(kMostRequestBytes + 1, 'a')).starts_with("HTTP/1.1 431 "));
  EXPECT_TRUE(get().starts_with("HTTP/1.1 200 "));
}

// Clients that say nothing, stop in the middle, or do not take their answer hold up nobody.
TEST_F(Served, SlowClientsHoldUpNobody) {
  std::vector<Descriptor> silent;
  for (int i = 0; i < 20; ++i) silent.push_back(connect_to(server_.port()));
  const Descriptor half = connect_to(server_.port());
  put(half, "GET / HT");
  const Descriptor lazy = connect_to(server_.port());
  put(lazy, "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n");
  EXPECT_TRUE(get().starts_with("HTTP/1.1 200 "));
  put(half, "TP/1.1\r\nHost: localhost\r\n\r\n");
  EXPECT_TRUE(take(half).starts_with("HTTP/1.1 200 "));
  { const Descriptor gone = connect_to(server_.port()); }  // and one that leaves at once
  EXPECT_TRUE(get().starts_with("HTTP/1.1 200 "));
}

TEST_F(Served, RefreshesMeanwhile) {
  const int before = refreshed_;
  while (refreshed_ < before + 3) (void)get();
}

TEST(PageServer, APortInUseIsAnError) {
  const PageServer first(0);
  try {
    const PageServer second(first.port());
    FAIL();
  } catch (const IoError& error) {
    EXPECT_NE(std::string(error.what()).find("give another --port"), std::string::npos);
  }
}

}  // namespace
}  // namespace sluice
