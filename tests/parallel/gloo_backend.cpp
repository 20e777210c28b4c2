#include <gtest/gtest.h>

#include <thread>

#include "kernels/base/error.hpp"
#include "tests/parallel/backends.hpp"

namespace sluice {
namespace {

Group make_gloo_group(int size, std::chrono::milliseconds timeout) {
  const int port = free_port();
  Group group(static_cast<std::size_t>(size));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank) {
    threads.emplace_back([&group, rank, size, port, timeout] {
      try {
        auto made = make_gloo_communicator(
            {.rank = rank, .size = size, .master_port = port, .timeout = timeout});
        group[static_cast<std::size_t>(rank)] = std::move(made);
      } catch (const std::exception& error) {
        ADD_FAILURE() << error_chain(error);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  return group;
}

}  // namespace

std::vector<Backend> network_backends() { return {{"gloo", make_gloo_group}}; }

}  // namespace sluice
