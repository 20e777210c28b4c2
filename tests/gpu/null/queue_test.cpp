// The schedules of a null GPU that computes: what each shows, and what none may change.
#include "tests/gpu/null/queue.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <set>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "tests/gpu/null/computing_fixture.hpp"

namespace null_gpu {
namespace {

using Queue = ComputingGpu;

// What a reader on a stream of its own sees of a writer, with or without a wait.
int handed_over(bool waits) {
  const Stream writer, reader;
  const Event written;
  const DeviceMemory source, target;
  write(source, 7, writer);
  record(written, writer);
  if (waits) wait(reader, written);
  copy(target.get(), source.get(), reader);
  return read(target, reader);
}

TEST_F(Queue, AMissingWaitIsSeenOnlyWhereTheWriterIsLate) {
  set_schedule("early");
  EXPECT_EQ(handed_over(true), 7);
  EXPECT_EQ(handed_over(false), 7);
  set_schedule("late");
  EXPECT_EQ(handed_over(true), 7);
  EXPECT_EQ(handed_over(false), -1) << "fresh memory of the device is poisoned";
}

TEST_F(Queue, EveryNumberIsAScheduleThatKeepsWaits) {
  std::set<int> without;
  for (int seed = 0; seed < 32; ++seed) {
    set_schedule(std::to_string(seed));
    EXPECT_EQ(handed_over(true), 7) << seed;
    without.insert(handed_over(false));
  }
  EXPECT_EQ(without, (std::set<int>{-1, 7})) << "some seeds show the missing wait";
}

TEST_F(Queue, ANumberChoosesOneOrder) {
  const std::array<Stream, 3> streams;
  const auto order = [&](int seed) {
    set_schedule(std::to_string(seed));
    std::vector<int> ran;
    for (int i = 0; i < 30; ++i) {
      enqueue(streams[static_cast<std::size_t>(i) % streams.size()].get(), [&ran, i] {
        ran.push_back(i);
        return true;
      });
    }
    EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
    return ran;
  };
  const std::vector<int> first = order(1);
  EXPECT_EQ(first.size(), 30);
  EXPECT_EQ(order(1), first);
  EXPECT_NE(order(2), first);
  for (int stream = 0; stream < 3; ++stream) {
    std::vector<int> own;
    std::copy_if(first.begin(), first.end(), std::back_inserter(own),
                 [&](int i) { return i % 3 == stream; });
    EXPECT_TRUE(std::is_sorted(own.begin(), own.end()));
  }
}

TEST_F(Queue, AWaitIsForTheRecordOfItsTime) {
  set_schedule("late");
  const Stream writer, reader;
  const Event event;
  const DeviceMemory source, target;
  write(source, 1, writer);
  record(event, writer);
  wait(reader, event);
  write(source, 2, writer);
  record(event, writer);
  copy(target.get(), source.get(), reader);
  EXPECT_EQ(read(target, reader), 1) << "the second record came after the wait";
  wait(reader, event);
  copy(target.get(), source.get(), reader);
  EXPECT_EQ(read(target, reader), 2);
}

TEST_F(Queue, AnEventWithoutRecordHoldsNobodyUp) {
  set_schedule("late");
  const Stream stream;
  const Event event;
  wait(stream, event);
  EXPECT_EQ(cudaEventQuery(event.get()), cudaSuccess);
  EXPECT_EQ(cudaEventSynchronize(event.get()), cudaSuccess);
  EXPECT_EQ(cudaStreamSynchronize(stream.get()), cudaSuccess);
}

TEST_F(Queue, ALateHostRunsOnlyWhatItWaitsFor) {
  set_schedule("late");
  const Stream needed, other;
  const Event event;
  const DeviceMemory one, two, three;
  write(one, 1, needed);
  record(event, needed);
  write(two, 2, needed);
  write(three, 3, other);
  ASSERT_EQ(cudaEventSynchronize(event.get()), cudaSuccess);
  EXPECT_EQ(*at(one), 1);
  EXPECT_EQ(*at(two), -1);
  ASSERT_EQ(cudaStreamSynchronize(needed.get()), cudaSuccess);
  EXPECT_EQ(*at(two), 2);
  EXPECT_EQ(*at(three), -1);
}

TEST_F(Queue, PollingEnds) {
  set_schedule("late");
  const Stream stream;
  const Event event;
  const DeviceMemory memory;
  write(memory, 1, stream);
  record(event, stream);
  write(memory, 2, stream);
  EXPECT_EQ(cudaEventQuery(event.get()), cudaErrorNotReady);
  EXPECT_EQ(cudaStreamQuery(stream.get()), cudaErrorNotReady);
  EXPECT_EQ(cudaGetLastError(), cudaErrorNotReady);
  EXPECT_EQ(cudaGetLastError(), cudaSuccess);
  constexpr int kTries = 100;
  const auto polled = [&](const auto& query) {
    int tries = 0;
    while (query() == cudaErrorNotReady && tries < kTries) ++tries;
    return tries;
  };
  EXPECT_LT(polled([&] { return cudaEventQuery(event.get()); }), kTries);
  EXPECT_EQ(*at(memory), 1);
  EXPECT_LT(polled([&] { return cudaStreamQuery(stream.get()); }), kTries);
  EXPECT_EQ(*at(memory), 2);
  EXPECT_EQ(grown("/fault_count"), 0);
}

// Two ranks in one process: a stream of each.
TEST_F(Queue, ATaskThatWaitsForAnotherRankHoldsUpItsStreamAlone) {
  for (const char* schedule : {"early", "late", "3"}) {
    set_schedule(schedule);
    const Stream receiver, sender;
    const DeviceMemory memory;
    bool sent = false;
    enqueue(receiver.get(), [&] { return sent; });
    write(memory, 4, receiver);
    enqueue(sender.get(), [&] { return sent = true; });
    EXPECT_EQ(read(memory, receiver), 4) << schedule;
  }
}

TEST_F(Queue, AHostThatWaitsLetsOtherThreadsEnqueue) {
  set_schedule("late");
  const Stream receiver, sender;
  std::atomic<bool> asked = false, sent = false;
  enqueue(receiver.get(), [&] {
    asked = true;
    return sent.load();
  });
  std::thread other([&] {
    while (!asked) std::this_thread::yield();
    enqueue(sender.get(), [&] { return sent = true; });
  });
  EXPECT_EQ(cudaStreamSynchronize(receiver.get()), cudaSuccess);
  other.join();
  EXPECT_TRUE(sent);
}

// In a process of its own, for the thread that serves stays.
TEST_F(Queue, OtherRanksAreServedWhileTheHostIsElsewhere) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto serve = [] {
    set_schedule("late");
    serve_other_ranks();
    std::atomic<bool> sent = false;
    enqueue(cudaStreamPerThread, [&] { return sent = true; });
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (!sent && std::chrono::steady_clock::now() < end) std::this_thread::yield();
    std::_Exit(sent ? 0 : 1);
  };
  EXPECT_EXIT(serve(), testing::ExitedWithCode(0), "");
}

TEST_F(Queue, AWaitCanBeSkipped) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto second_wait_of_a_process = [] {
    set_schedule("late");
    const int first = handed_over(true), second = handed_over(true), third = handed_over(true);
    std::exit(first == 7 && second == -1 && third == 7 ? 0 : 1);
  };
  ::setenv("NULL_GPU_SKIP_WAIT", "1", 1);
  EXPECT_EXIT(second_wait_of_a_process(), testing::ExitedWithCode(0), "");
  ::unsetenv("NULL_GPU_SKIP_WAIT");
}

TEST_F(Queue, AScheduleMustBeOne) {
  for (const char* text : {"", "eager", "1x", "-1"}) {
    EXPECT_THROW(set_schedule(text), std::invalid_argument) << text;
  }
}

}  // namespace
}  // namespace null_gpu
