// What send and receive have to do: the same tests for threads of one process, for Gloo, and for
// ranks of one host, with and without reading each other's memory.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <memory>
#include <numeric>
#include <thread>

#include "base/error.hpp"
#include "base/failpoint.hpp"
#include "parallel/comm/host/host_memory.hpp"
#include "tests/parallel/backends.hpp"

namespace sluice {
namespace {

using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

class Transfer : public ::testing::TestWithParam<std::string> {
 protected:
  [[nodiscard]] static Group group(int size = 2, milliseconds timeout = kPatience) {
    for (const Backend& backend : all_backends()) {
      if (backend.name == GetParam()) return backend.make(size, timeout);
    }
    ADD_FAILURE() << "no such backend";
    return {};
  }
};

std::vector<char> message(std::int64_t bytes, int salt) {
  std::vector<char> text(static_cast<std::size_t>(bytes));
  for (std::size_t i = 0; i < text.size(); ++i) {
    text[i] = static_cast<char>((i * 2654435761U >> 7) + static_cast<std::size_t>(salt));
  }
  return text;
}

// Odd sizes around those of the bounce buffers' halves (1 MiB) and of a stretch (8 MiB).
constexpr std::int64_t kSizes[] = {
    1, 0, 3, 4099, (1 << 20) - 1, 1 << 20, (3 << 20) + 7, (8 << 20) + 5, 0};

TEST_P(Transfer, BytesArriveInBothDirections) {
  run_ranks_ok(group(), [](Communicator& communicator) {
    const int rank = communicator.rank();
    for (const std::int64_t bytes : kSizes) {
      for (const int sender : {0, 1}) {
        if (rank == sender) {
          const std::vector<char> sent = message(bytes, sender);
          communicator.send(1 - rank, sent.data(), bytes).wait();
        } else {
          // Pages not touched yet: the receiver is slower than the sender, which may not overtake.
          const auto got =
              std::make_unique_for_overwrite<char[]>(static_cast<std::size_t>(bytes) + 1);
          got[static_cast<std::size_t>(bytes)] = 'x';
          communicator.receive(1 - rank, got.get(), bytes).wait();
          EXPECT_EQ(got[static_cast<std::size_t>(bytes)], 'x') << "wrote past the end";
          const std::vector<char> expected = message(bytes, sender);
          EXPECT_TRUE(std::equal(expected.begin(), expected.end(), got.get()))
              << bytes << " from " << sender;
        }
      }
    }
  });
}

// What lies in memory that the peer can map arrives as well.
TEST_P(Transfer, OutOfHostMemory) {
  run_ranks_ok(group(), [](Communicator& communicator) {
    constexpr std::int64_t kBytes = (8 << 20) + 77;
    const std::vector<char> expected = message(kBytes, 5);
    if (communicator.rank() == 0) {
      const HostMemory block(kBytes + 3);
      std::copy(expected.begin(), expected.end(), block.data() + 3);
      communicator.send(1, block.data() + 3, kBytes).wait();
      communicator.barrier();
      return;
    }
    std::vector<char> got(expected.size());
    communicator.receive(0, got.data(), kBytes).wait();
    EXPECT_TRUE(got == expected);
    communicator.barrier();
  });
}

TEST_P(Transfer, ManyInFlightArriveInOrder) {
  run_ranks_ok(group(), [](Communicator& communicator) {
    constexpr int kMany = 100;
    std::array<std::int64_t, kMany> values{};
    std::vector<Ticket> tickets;
    const bool sends = communicator.rank() == 0;
    if (sends) std::iota(values.begin(), values.end(), 1000);
    for (int i = 0; i < kMany; ++i) {
      // Sizes that follow from the place: an overtaking would be a mismatch.
      auto* at = &values[static_cast<std::size_t>(i)];
      const std::int64_t bytes = 1 + i % 8;
      tickets.push_back(sends ? communicator.send(1, at, bytes)
                              : communicator.receive(0, at, bytes));
    }
    for (std::size_t i = kMany; i-- > 0;) tickets[i].wait();
    for (std::size_t i = 0; i < kMany; ++i) {
      EXPECT_TRUE(tickets[i].done());
      const std::int64_t bits = 8 * (1 + static_cast<std::int64_t>(i) % 8);
      const std::int64_t mask = bits == 64 ? -1 : (std::int64_t{1} << bits) - 1;
      EXPECT_EQ(values[i] & mask, (1000 + static_cast<std::int64_t>(i)) & mask) << i;
    }
  });
}

TEST_P(Transfer, BetweenOtherOperations) {
  run_ranks_ok(group(), [](Communicator& communicator) {
    const int rank = communicator.rank();
    for (int round = 0; round < 5; ++round) {
      float own = static_cast<float>(10 * round + rank);
      std::array<float, 2> all{};
      const Ticket gathered = communicator.all_gather({{&own, all.data(), 1, 1}}, DType::kFloat32);
      // Sends what the operation before it brings.
      float got = -1;
      const Ticket moved = rank == 1 ? communicator.send(0, &all[0], sizeof(float))
                                     : communicator.receive(1, &got, sizeof(float));
      moved.wait();
      EXPECT_EQ(communicator.all_gather_values(std::array{double(all[1])}),
                (std::vector<double>{10.0 * round + 1, 10.0 * round + 1}));
      if (rank == 0) {
        EXPECT_EQ(got, static_cast<float>(10 * round));
      }
    }
  });
}

TEST_P(Transfer, AnySendWhileThePeerIsLateReturnsAtOnce) {
  std::atomic<bool> sent{false};
  run_ranks_ok(group(), [&](Communicator& communicator) {
    const std::vector<char> text = message(1 << 20, 3);
    if (communicator.rank() == 0) {
      std::vector<Ticket> tickets;
      for (int i = 0; i < 8; ++i) tickets.push_back(communicator.send(1, text.data(), 1 << 20));
      EXPECT_FALSE(tickets[0].done()) << "nobody has asked for it";
      sent = true;
      for (const Ticket& ticket : tickets) ticket.wait();
      return;
    }
    // Were a call to wait for this rank, it would never come.
    while (!sent) std::this_thread::sleep_for(milliseconds{1});
    std::vector<char> got(text.size());
    for (int i = 0; i < 8; ++i) communicator.receive(0, got.data(), 1 << 20).wait();
    EXPECT_TRUE(got == text);
  });
}

TEST_P(Transfer, CallsThatDifferAreNamed) {
  struct Case {
    bool both_send;
    std::int64_t second_bytes;
    std::array<const char*, 2> words;
  };
  for (const Case& c : {Case{false, 12, {"send of 8 bytes", "receive of 12 bytes"}},
                        Case{false, 3, {"send of 8 bytes", "receive of 3 bytes"}},
                        Case{false, 0, {"send of 8 bytes", "receive of 0 bytes"}},
                        Case{true, 9, {"send of 8 bytes", "send of 9 bytes"}}}) {
    const auto errors = run_ranks(group(), [&](Communicator& communicator) {
      std::array<char, 16> memory{};
      if (communicator.rank() == 0) return communicator.send(1, memory.data(), 8).wait();
      (c.both_send ? communicator.send(0, memory.data(), c.second_bytes)
                   : communicator.receive(0, memory.data(), c.second_bytes))
          .wait();
    });
    bool named = false;
    for (const std::string& error : errors) {
      EXPECT_NE(error, "");
      named = named || (error.find(c.words[0]) != std::string::npos &&
                        error.find(c.words[1]) != std::string::npos);
    }
    EXPECT_TRUE(named) << errors[0] << "\n" << errors[1];
  }
}

// `late`: the rank that does not come, 0 to send or 1 to receive.
void expect_timeout(Group ranks, int late, const std::string& patience) {
  std::atomic<bool> failed{false};
  const auto errors = run_ranks(std::move(ranks), [&](Communicator& communicator) {
    if (communicator.rank() == late) {
      for (int i = 0; i < 2000 && !failed; ++i) std::this_thread::sleep_for(milliseconds{5});
      return;
    }
    char byte = 0;
    try {
      (late == 1 ? communicator.send(1, &byte, 1) : communicator.receive(0, &byte, 1)).wait();
    } catch (...) {
      failed = true;
      throw;
    }
  });
  const std::string& error = errors[static_cast<std::size_t>(1 - late)];
  EXPECT_TRUE(error.starts_with(late == 1 ? "[secondary] send #" : "[secondary] receive #"))
      << error;
  EXPECT_NE(error.find("no answer from rank " + std::to_string(late) + " within " + patience),
            std::string::npos)
      << error;
}

TEST_P(Transfer, APeerThatDoesNotComeIsATimeoutThatNamesIt) {
  // Local groups do not join, so they can be impatient.
  const int patience_ms = GetParam() == "local" ? 200 : 1000;
  const std::string patience = std::to_string(patience_ms) + " ms";
  Group without_sender = group(2, milliseconds{patience_ms});
  Group without_receiver = group(2, milliseconds{patience_ms});
  std::thread other([&] { expect_timeout(std::move(without_sender), 0, patience); });
  expect_timeout(std::move(without_receiver), 1, patience);
  other.join();
}

TEST_P(Transfer, APeerThatThrowsFailsBothEndsSoon) {
  for (const int thrower : {0, 1}) {
    const auto started = Clock::now();
    const auto errors = run_ranks(group(), [&](Communicator& communicator) {
      communicator.barrier();
      if (communicator.rank() == thrower) throw Error("the cause");
      std::vector<char> memory(5 << 20);
      const auto bytes = static_cast<std::int64_t>(memory.size());
      (thrower == 1 ? communicator.send(1, memory.data(), bytes)
                    : communicator.receive(0, memory.data(), bytes))
          .wait();
    });
    EXPECT_EQ(errors[static_cast<std::size_t>(thrower)], "the cause");
    const std::string& other = errors[static_cast<std::size_t>(1 - thrower)];
    EXPECT_TRUE(other.starts_with(thrower == 1 ? "[secondary] send #" : "[secondary] receive #"))
        << other;
    EXPECT_LT(Clock::now() - started, milliseconds{10'000});
  }
}

TEST_P(Transfer, AbortEndsAReceiveWithNobodyToSend) {
  const auto started = Clock::now();
  const auto errors = run_ranks(group(), [](Communicator& communicator) {
    char byte = 0;
    communicator.barrier();
    if (communicator.rank() == 1) return communicator.receive(0, &byte, 1).wait();
    std::this_thread::sleep_for(milliseconds{50});
    communicator.abort();
    EXPECT_THROW((void)communicator.send(1, &byte, 1), CommError);
  });
  EXPECT_EQ(errors[0], "");
  EXPECT_TRUE(errors[1].starts_with("[secondary] ")) << errors[1];
  EXPECT_LT(Clock::now() - started, milliseconds{10'000});
}

TEST_P(Transfer, AbortByAnotherThreadEndsTheOwnWait) {
  std::atomic<bool> ended{false};
  const auto errors = run_ranks(group(), [&](Communicator& communicator) {
    if (communicator.rank() == 0) {
      for (int i = 0; i < 2000 && !ended; ++i) std::this_thread::sleep_for(milliseconds{5});
      return;
    }
    std::thread killer([&communicator] {
      std::this_thread::sleep_for(milliseconds{50});
      communicator.abort();
    });
    char byte = 0;
    try {
      communicator.receive(0, &byte, 1).wait();
    } catch (const CommError& error) {
      EXPECT_NE(std::string(error.what()).find("aborted on rank 1"), std::string::npos)
          << error.what();
      ended = true;
    }
    killer.join();
  });
  EXPECT_EQ(errors, (std::vector<std::string>{"", ""}));
  EXPECT_TRUE(ended);
}

// The caller frees its memory next. In most runs the abort comes in the middle of the copy; a rank
// that calls later finds the group lost.
TEST_P(Transfer, AfterAnAbortNoOperationRuns) {
  constexpr std::int64_t kElems = 4 << 20;
  std::vector<std::vector<float>> memory(2, std::vector<float>(2 * kElems));
  (void)run_ranks(group(), [&](Communicator& communicator) {
    float* own = memory[static_cast<std::size_t>(communicator.rank())].data();
    const Ticket ticket = communicator.all_gather({{own, own, kElems, kElems}}, DType::kFloat32);
    std::this_thread::sleep_for(milliseconds{2});
    communicator.abort();
    EXPECT_TRUE(ticket.done());
  });
}

TEST_P(Transfer, FailpointsArePassed) {
  for (const std::string name : {"send", "receive"}) {
    arm_failpoints("comm." + name + "@1:error");
    const auto errors = run_ranks(group(), [](Communicator& communicator) {
      char byte = 0;
      (communicator.rank() == 0 ? communicator.send(1, &byte, 1)
                                : communicator.receive(0, &byte, 1))
          .wait();
    });
    arm_failpoints("");
    EXPECT_NE(errors[name == "send" ? 0 : 1].find("comm." + name), std::string::npos)
        << errors[0] << "\n"
        << errors[1];
    EXPECT_TRUE(errors[name == "send" ? 1 : 0].starts_with("[secondary] "));
  }
}

TEST_P(Transfer, GroupsOfTwoOnly) {
  for (const int size : {1, 3}) {
    run_ranks_ok(group(size), [size](Communicator& communicator) {
      char byte = 0;
      try {
        (void)communicator.send((communicator.rank() + 1) % size, &byte, 1);
        ADD_FAILURE() << "a group of " << size;
      } catch (const Error& error) {
        EXPECT_NE(std::string(error.what()).find("a group of two"), std::string::npos);
      }
      communicator.barrier();  // nothing is lost by it
    });
  }
  run_ranks_ok(group(), [](Communicator& communicator) {
    char byte = 0;
    EXPECT_THROW((void)communicator.receive(communicator.rank(), &byte, 1), Error);
    EXPECT_THROW((void)communicator.receive(1 - communicator.rank(), &byte, -1), Error);
    communicator.barrier();
  });
}

INSTANTIATE_TEST_SUITE_P(Backends, Transfer, ::testing::ValuesIn(backend_names()),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace sluice
