#include <gtest/gtest.h>

#include <cstdlib>
#include <thread>

#include "base/error.hpp"
#include "tests/free_port.hpp"
#include "tests/parallel/backends.hpp"

namespace sluice {
namespace {

using Make = std::unique_ptr<Communicator> (*)(const CommOptions&);

Group make_group(int size, std::chrono::milliseconds timeout, Make make) {
  const int port = free_port();
  Group group(static_cast<std::size_t>(size));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank) {
    threads.emplace_back([&group, rank, size, port, timeout, make] {
      try {
        auto made = make({.rank = rank, .size = size, .master_port = port, .timeout = timeout});
        group[static_cast<std::size_t>(rank)] = std::move(made);
      } catch (const std::exception& error) {
        ADD_FAILURE() << error_chain(error);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  return group;
}

Group make_gloo_group(int size, std::chrono::milliseconds timeout) {
  return make_group(size, timeout, make_gloo_communicator);
}

Group make_host_group(int size, std::chrono::milliseconds timeout) {
  return make_group(size, timeout, make_host_communicator);
}

Group make_bounced_group(int size, std::chrono::milliseconds timeout) {
  setenv("SLUICE_HOST_COPY", "bounce", 1);  // no other thread is there to read it meanwhile
  Group group = make_group(size, timeout, make_host_communicator);
  unsetenv("SLUICE_HOST_COPY");
  return group;
}

}  // namespace

std::vector<Backend> network_backends() {
  return {{"gloo", make_gloo_group}, {"host", make_host_group}, {"bounce", make_bounced_group}};
}

}  // namespace sluice
