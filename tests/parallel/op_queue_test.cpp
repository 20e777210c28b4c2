#include "parallel/comm/op_queue.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <thread>
#include <vector>

#include "base/error.hpp"

namespace sluice {
namespace {

OpQueue::Hooks no_hooks() {
  return {.interrupt = [] {}, .broken = [] {}};
}

TEST(OpQueue, RunsInOrder) {
  std::vector<int> order;
  {
    OpQueue queue({"g", 0, 1}, no_hooks());
    std::vector<Ticket> tickets;
    for (int i = 0; i < 100; ++i) {
      tickets.push_back(queue.submit([&order, i] { order.push_back(i); }));
    }
    for (int i = 99; i >= 0; --i) tickets[static_cast<std::size_t>(i)].wait();
    EXPECT_TRUE(tickets[0].done());
  }
  ASSERT_EQ(order.size(), 100U);
  for (int i = 0; i < 100; ++i) EXPECT_EQ(order[static_cast<std::size_t>(i)], i);
}

TEST(OpQueue, TheFirstFailureEndsEverythingBehindIt) {
  std::atomic<int> broken{0};
  std::promise<void> go;
  OpQueue queue({"g", 0, 1}, {.interrupt = [] {}, .broken = [&broken] { ++broken; }});
  const Ticket first = queue.submit([&go] {
    go.get_future().wait();
    throw CommError("first", true);
  });
  bool ran = false;
  const Ticket second = queue.submit([&ran] { ran = true; });
  go.set_value();
  for (int again = 0; again < 2; ++again) {
    EXPECT_THROW(first.wait(), CommError);
    EXPECT_THROW(second.wait(), CommError);
  }
  EXPECT_THROW((void)queue.submit([] {}), CommError);
  EXPECT_FALSE(ran);
}

TEST(OpQueue, DestructionDrainsAndBreaksNothing) {
  bool ran = false;
  bool broken = false;
  {
    OpQueue queue({"g", 0, 1}, {.interrupt = [] {}, .broken = [&broken] { broken = true; }});
    (void)queue.submit([&ran] { ran = true; });
  }
  EXPECT_TRUE(ran);
  EXPECT_FALSE(broken);
}

TEST(OpQueue, DestructionAbortsWhatDoesNotEnd) {
  std::promise<void> interrupted;
  bool broken = false;
  Ticket stuck;
  Ticket behind;
  {
    OpQueue queue(
        {"g", 3, 4},
        {.interrupt = [&] { interrupted.set_value(); }, .broken = [&broken] { broken = true; }},
        std::chrono::milliseconds{100});
    stuck = queue.submit([&] {
      interrupted.get_future().wait();
      throw std::runtime_error("woken");
    });
    behind = queue.submit([] {});
  }
  EXPECT_TRUE(broken);
  try {
    stuck.wait();
    FAIL();
  } catch (const CommError& error) {
    EXPECT_STREQ(error.what(), "group g was aborted on rank 3");
    EXPECT_TRUE(error.is_secondary());
  }
  EXPECT_THROW(behind.wait(), CommError);
}

// Its caller frees the memory next that the body uses.
TEST(OpQueue, AbortWaitsForTheRunningBody) {
  std::promise<void> begun;
  std::promise<void> interrupted;
  bool ended = false;
  OpQueue queue({"g", 3, 4}, {.interrupt = [&] { interrupted.set_value(); }, .broken = [] {}});
  const Ticket running = queue.submit([&] {
    begun.set_value();
    interrupted.get_future().wait();
    std::this_thread::sleep_for(std::chrono::milliseconds{50});
    ended = true;
  });
  begun.get_future().wait();
  queue.abort();
  EXPECT_TRUE(ended);
}

}  // namespace
}  // namespace sluice
