#include "runtime/launch/rank_env.hpp"

#include <netinet/in.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <string_view>

#include "base/error.hpp"
#include "base/format.hpp"
#include "runtime/launch/slurm_env.hpp"

namespace sluice {
namespace {

std::optional<int> to_int(std::string_view text) {
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (text.empty() || error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

// Reads variables and collects their mistakes.
class Reader {
 public:
  explicit Reader(const GetEnvironment& get) : get_(get) {}

  int integer(const char* name, int low, int high, const std::string& expected) {
    const char* text = get_(name);
    if (text == nullptr) return missing(name), low;
    const std::optional<int> value = to_int(text);
    if (!value || *value < low || *value > high) {
      complain(std::string(name) + "='" + text + "' must be " + expected);
      return low;
    }
    return *value;
  }

  std::string text(const char* name) {
    const char* value = get_(name);
    if (value == nullptr) return missing(name), "";
    if (*value == '\0')
      complain(std::string(name) + " is set but empty; it must name rank 0's host");
    return value;
  }

  void complain(const std::string& line) {
    complaints_ += (complaints_.empty() ? "" : "\n") + line;
  }
  // Call it after the reads.
  void complain_of_missing() {
    if (missing_.empty()) return;
    const bool several = missing_.find(',') != std::string::npos;
    complain(missing_ + (several ? " are" : " is") +
             " not set, but other variables of a started rank are; set RANK, WORLD_SIZE, "
             "LOCAL_RANK, LOCAL_WORLD_SIZE, MASTER_ADDR and MASTER_PORT, or unset the first four");
  }
  [[nodiscard]] const std::string& complaints() const { return complaints_; }

 private:
  void missing(const char* name) { missing_ += (missing_.empty() ? "" : ", ") + std::string(name); }

  const GetEnvironment& get_;
  std::string missing_;
  std::string complaints_;
};

constexpr int kMostRanks = 1 << 24;  // only to catch nonsense
constexpr int kLastPort = 65535;

Descriptor bind_socket(const sockaddr* address, socklen_t size, int& error) {
  Descriptor fd(::socket(address->sa_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  error = fd ? 0 : errno;
  if (!fd) return fd;
  const int on = 1;
  const int off = 0;
  // With SO_REUSEADDR, lingering connections of an earlier run do not count, and a store that also
  // sets it (c10d does) can listen on the reserved port.
  ::setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (address->sa_family == AF_INET6) {
    ::setsockopt(fd.get(), IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
  }
  if (::bind(fd.get(), address, size) != 0) error = errno;
  return fd;
}

// All local addresses; IPv4 if the host has no IPv6. `error` is 0, or bind's errno.
Descriptor bind_everywhere(int port, int& error) {
  sockaddr_in6 six{};
  six.sin6_family = AF_INET6;
  six.sin6_port = htons(static_cast<std::uint16_t>(port));
  six.sin6_addr = in6addr_any;
  Descriptor fd = bind_socket(reinterpret_cast<const sockaddr*>(&six), sizeof six, error);
  if (error != EAFNOSUPPORT && error != EADDRNOTAVAIL) return fd;
  sockaddr_in four{};
  four.sin_family = AF_INET;
  four.sin_port = htons(static_cast<std::uint16_t>(port));
  four.sin_addr.s_addr = htonl(INADDR_ANY);
  return bind_socket(reinterpret_cast<const sockaddr*>(&four), sizeof four, error);
}

int bound_port(int fd) {
  sockaddr_storage address{};
  socklen_t size = sizeof address;
  if (::getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size) != 0) return 0;
  return ntohs(address.ss_family == AF_INET6 ? reinterpret_cast<sockaddr_in6*>(&address)->sin6_port
                                             : reinterpret_cast<sockaddr_in*>(&address)->sin_port);
}

int wished_port(int port) {
  const char* text = std::getenv("MASTER_PORT");
  if (port != 0 || text == nullptr) return port;
  const std::optional<int> value = to_int(text);
  if (!value || *value < 1 || *value > kLastPort) {
    throw ConfigError("MASTER_PORT='" + std::string(text) + "' must be a port, 1 to 65535");
  }
  return *value;
}

}  // namespace

std::optional<RankEnvironment> rank_environment() {
  return rank_environment([](const char* name) -> const char* { return std::getenv(name); });
}

std::optional<RankEnvironment> rank_environment(const GetEnvironment& get) {
  constexpr std::array kOwn{"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"};
  bool any = false;
  for (const char* name : kOwn) any = any || get(name) != nullptr;
  if (!any) return slurm_rank_environment(get);

  Reader reader(get);
  RankEnvironment result;
  result.world_size =
      reader.integer("WORLD_SIZE", 1, kMostRanks, "the number of ranks, at least 1");
  result.rank = reader.integer("RANK", 0, kMostRanks, "a rank, 0 or more");
  result.local_world_size = reader.integer("LOCAL_WORLD_SIZE", 1, kMostRanks,
                                           "the number of ranks on this host, at least 1");
  result.local_rank = reader.integer("LOCAL_RANK", 0, kMostRanks, "a rank on this host, 0 or more");
  result.master_addr = reader.text("MASTER_ADDR");
  result.master_port = reader.integer("MASTER_PORT", 1, kLastPort, "a port, 1 to 65535");
  reader.complain_of_missing();
  if (reader.complaints().empty()) {
    const auto below = [&reader](const char* a, int x, const char* b, int y, bool holds) {
      if (holds) return;
      reader.complain(format_text("{}={} must be {}{}={}", a, x,
                                  std::string_view(a) == "LOCAL_WORLD_SIZE" ? "at most " : "below ",
                                  b, y));
    };
    const RankEnvironment& r = result;
    below("RANK", r.rank, "WORLD_SIZE", r.world_size, r.rank < r.world_size);
    below("LOCAL_RANK", r.local_rank, "LOCAL_WORLD_SIZE", r.local_world_size,
          r.local_rank < r.local_world_size);
    below("LOCAL_WORLD_SIZE", r.local_world_size, "WORLD_SIZE", r.world_size,
          r.local_world_size <= r.world_size);
  }
  if (!reader.complaints().empty()) throw ConfigError(reader.complaints());
  return result;
}

bool has_launcher() { return std::getenv("SLUICE_ERROR_FILE") != nullptr; }

void announce_rank(const RankEnvironment& rank) {
  const auto say = [](const char* name, const std::string& value) {
    ::setenv(name, value.c_str(), /*overwrite=*/1);
  };
  say("RANK", std::to_string(rank.rank));
  say("WORLD_SIZE", std::to_string(rank.world_size));
  say("LOCAL_RANK", std::to_string(rank.local_rank));
  say("LOCAL_WORLD_SIZE", std::to_string(rank.local_world_size));
  say("MASTER_ADDR", rank.master_addr);
  say("MASTER_PORT", std::to_string(rank.master_port));
}

PortReservation::PortReservation(int port) {
  port_ = wished_port(port);
  int error = 0;
  socket_ = bind_everywhere(port_, error);
  if (error == EADDRINUSE) {
    throw ConfigError(
        format_text("port {} (MASTER_PORT) is in use by another process on this host; choose "
                    "another one or leave it unset, and a free one is taken",
                    port_));
  }
  if (error != 0) {
    throw ConfigError(
        format_text("port {} (MASTER_PORT) cannot be opened: {}", port_, std::strerror(error)));
  }
  if (port_ == 0) port_ = bound_port(socket_.get());
}

}  // namespace sluice
