// Serves pages on 127.0.0.1 to browsers of this machine. One thread and poll(); a slow or silent
// client holds up nobody, and is dropped after kPatience.
#pragma once

#include <chrono>
#include <functional>

#include "base/posix/descriptor.hpp"
#include "runtime/report/server/connection.hpp"

namespace sluice {

class PageServer {
 public:
  // Binds and listens. `port` 0: a free one. Throws IoError.
  explicit PageServer(int port);

  [[nodiscard]] int port() const { return port_; }

  struct Work {
    PageOf page;
    std::function<void()> refresh;  // called every `every`
    std::chrono::milliseconds every{2000};
  };
  // Serves until `stop_fd` is readable. Exceptions of the work leave run().
  void run(const Work& work, int stop_fd);

  static constexpr std::chrono::seconds kPatience{20};  // for a request, and for taking its answer
  static constexpr std::size_t kMostConnections = 64;

 private:
  Descriptor socket_;
  int port_ = 0;
};

}  // namespace sluice
