#include "tests/parallel/backends.hpp"

#include <gtest/gtest.h>

#include <thread>
#include <utility>

#include "base/error.hpp"

namespace sluice {

std::vector<Backend> all_backends() {
  std::vector<Backend> all{{"local", [](int size, std::chrono::milliseconds timeout) {
                              return make_local_communicators(size, timeout);
                            }}};
  for (Backend& backend : network_backends()) all.push_back(std::move(backend));
  return all;
}

std::vector<std::string> backend_names() {
  std::vector<std::string> names;
  for (const Backend& backend : all_backends()) names.push_back(backend.name);
  return names;
}

std::vector<std::string> run_ranks(Group group, const std::function<void(Communicator&)>& body) {
  std::vector<std::string> errors(group.size());
  std::vector<std::thread> threads;
  for (std::size_t r = 0; r < group.size(); ++r) {
    threads.emplace_back([&errors, &body, r, own = std::move(group[r])]() mutable {
      try {
        // Moved again: the communicator goes when the rank does, also by an exception.
        const std::unique_ptr<Communicator> communicator = std::move(own);
        body(*communicator);
      } catch (const std::exception& error) {
        errors[r] = (is_secondary(error) ? "[secondary] " : "") + error_chain(error);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  return errors;
}

void run_ranks_ok(Group group, const std::function<void(Communicator&)>& body) {
  const std::vector<std::string> errors = run_ranks(std::move(group), body);
  for (std::size_t r = 0; r < errors.size(); ++r) {
    EXPECT_EQ(errors[r], "") << "rank " << r;
  }
}

}  // namespace sluice
