// The null GPU's graphs, streams and events find what they say: each check has a bad sample.
#include <array>
#include <thread>
#include <vector>

#include "tests/gpu/null/fixture.hpp"

namespace null_gpu {
namespace {

// A kernel and a fill, of one launch.
void enqueue(cudaStream_t stream, const DeviceMemory& memory) {
  static const char kernel = 0;
  EXPECT_EQ(cudaLaunchKernel(&kernel, 8, 256, nullptr, 0, stream), cudaSuccess);
  EXPECT_EQ(cudaMemsetAsync(memory.get(), 7, 16, stream), cudaSuccess);
}

TEST_F(NullGpu, AGraphDoesNothingUntilItIsLaunched) {
  const DeviceMemory memory;
  const Stream stream;
  ASSERT_EQ(cudaStreamBeginCapture(stream.get(), cudaStreamCaptureModeRelaxed), cudaSuccess);
  enqueue(stream.get(), memory);
  cudaGraph_t graph = nullptr;
  ASSERT_EQ(cudaStreamEndCapture(stream.get(), &graph), cudaSuccess);
  EXPECT_EQ(grown("/work/launches") + grown("/work/memsets"), 0);
  cudaGraphExec_t executable = nullptr;
  ASSERT_EQ(cudaGraphInstantiateWithFlags(&executable, graph, 0), cudaSuccess);
  ASSERT_EQ(cudaGraphDestroy(graph), cudaSuccess);
  for (int i = 0; i < 2; ++i) EXPECT_EQ(cudaGraphLaunch(executable, stream.get()), cudaSuccess);
  EXPECT_EQ(grown("/work/launches"), 0) << "the host launched none of its kernels";
  EXPECT_EQ(grown("/graph_launches"), 2);
  EXPECT_EQ(grown("/graph_kernels/(not registered)"), 2);
  EXPECT_EQ(grown("/work/memsets"), 2);
  EXPECT_EQ(grown("/fault_count"), 0);
  ASSERT_EQ(cudaGraphExecDestroy(executable), cudaSuccess);
  EXPECT_EQ(cudaGraphLaunch(executable, stream.get()), cudaErrorInvalidValue);
  expect_fault("no graph");
}

TEST_F(NullGpu, AGraphsMemoryMustStay) {
  const Stream stream;
  void* memory = nullptr;
  ASSERT_EQ(cudaMalloc(&memory, kBytes), cudaSuccess);
  ASSERT_EQ(cudaStreamBeginCapture(stream.get(), cudaStreamCaptureModeRelaxed), cudaSuccess);
  count_product({.m = 8, .n = 8, .k = 8, .a = memory, .b = memory, .c = memory}, stream.get());
  cudaGraph_t graph = nullptr;
  ASSERT_EQ(cudaStreamEndCapture(stream.get(), &graph), cudaSuccess);
  cudaGraphExec_t executable = nullptr;
  ASSERT_EQ(cudaGraphInstantiateWithFlags(&executable, graph, 0), cudaSuccess);
  EXPECT_EQ(cudaGraphLaunch(executable, stream.get()), cudaSuccess);
  EXPECT_EQ(grown("/work/products"), 1);
  ASSERT_EQ(cudaFree(memory), cudaSuccess);
  EXPECT_EQ(cudaGraphLaunch(executable, stream.get()), cudaSuccess);
  EXPECT_THAT(last_fault(), HasSubstr("memory that was freed"));
  EXPECT_EQ(cudaGraphExecDestroy(executable), cudaSuccess);
  EXPECT_EQ(cudaGraphDestroy(graph), cudaSuccess);
}

TEST_F(NullGpu, NoHostWaitsForAStreamThatCaptures) {
  const DeviceMemory memory;
  const Stream stream, other;
  EXPECT_EQ(cudaStreamBeginCapture(nullptr, cudaStreamCaptureModeRelaxed), cudaErrorInvalidValue);
  cudaEvent_t inside = nullptr, outside = nullptr;
  ASSERT_EQ(cudaEventCreate(&inside), cudaSuccess);
  ASSERT_EQ(cudaEventCreate(&outside), cudaSuccess);
  ASSERT_EQ(cudaEventRecord(outside, other.get()), cudaSuccess);
  ASSERT_EQ(cudaStreamBeginCapture(stream.get(), cudaStreamCaptureModeRelaxed), cudaSuccess);
  ASSERT_EQ(cudaEventRecord(inside, stream.get()), cudaSuccess);
  int number = 0;
  const std::array refused{
      cudaStreamBeginCapture(stream.get(), cudaStreamCaptureModeRelaxed),
      cudaStreamSynchronize(stream.get()),
      cudaStreamQuery(stream.get()),
      cudaEventSynchronize(inside),
      cudaEventQuery(inside),
      cudaStreamWaitEvent(stream.get(), outside, 0),
      cudaStreamWaitEvent(other.get(), inside, 0),
      cudaMemcpyAsync(&number, memory.get(), sizeof number, cudaMemcpyDeviceToHost, stream.get()),
      cudaDeviceSynchronize()};
  for (std::size_t i = 0; i < refused.size(); ++i) {
    EXPECT_EQ(refused[i], cudaErrorInvalidValue) << "call " << i;
  }
  EXPECT_EQ(cudaStreamSynchronize(other.get()), cudaSuccess);
  EXPECT_EQ(cudaEventQuery(outside), cudaSuccess);
  EXPECT_EQ(grown("/fault_count"), 1 + std::ssize(refused));
  cudaGraph_t graph = nullptr;
  ASSERT_EQ(cudaStreamEndCapture(stream.get(), &graph), cudaSuccess);
  EXPECT_EQ(cudaGraphDestroy(graph), cudaSuccess);
  EXPECT_EQ(cudaStreamEndCapture(stream.get(), &graph), cudaErrorInvalidValue);
  EXPECT_EQ(cudaEventDestroy(inside), cudaSuccess);
  EXPECT_EQ(cudaEventDestroy(outside), cudaSuccess);
}

TEST_F(NullGpu, StaleStreamsAndEventsAreFaults) {
  cudaEvent_t event = nullptr;
  ASSERT_EQ(cudaEventCreate(&event), cudaSuccess);
  ASSERT_EQ(cudaEventRecord(event, nullptr), cudaSuccess);
  ASSERT_EQ(cudaEventSynchronize(event), cudaSuccess);
  ASSERT_EQ(cudaEventDestroy(event), cudaSuccess);
  EXPECT_EQ(grown("/host_waits/event"), 1);
  EXPECT_EQ(cudaStreamWaitEvent(nullptr, event, 0), cudaErrorInvalidValue);
  expect_fault("no live event");
}

TEST_F(NullGpu, AKernelAndAnEventBelongToTheCardOfTheirStream) {
  static const char kernel = 0;
  ::setenv("NULL_GPU_COUNT", "2", 1);
  const Stream stream;
  const Event event;
  std::thread([&] {
    EXPECT_EQ(cudaSetDevice(1), cudaSuccess);
    EXPECT_EQ(cudaLaunchKernel(&kernel, 8, 256, nullptr, 0, stream.get()),
              cudaErrorInvalidResourceHandle);
    expect_fault("another card than the thread's");
    const Event other;
    EXPECT_EQ(cudaEventRecord(other.get(), stream.get()), cudaErrorInvalidValue);
    EXPECT_THAT(last_fault(), HasSubstr("another card than the event's"));
    EXPECT_EQ(cudaEventRecord(event.get(), stream.get()), cudaSuccess);
    EXPECT_EQ(cudaStreamWaitEvent(nullptr, event.get(), 0), cudaSuccess);
  }).join();
  EXPECT_EQ(cudaLaunchKernel(&kernel, 8, 256, nullptr, 0, stream.get()), cudaSuccess);
  EXPECT_EQ(grown("/fault_count"), 2);
  ::unsetenv("NULL_GPU_COUNT");
}

TEST_F(NullGpu, TimesOfEventsAreInTheOrderOfTheirRecords) {
  const Stream stream;
  const std::array<Event, 3> events;
  for (const Event& event : events) {
    ASSERT_EQ(cudaEventRecord(event.get(), stream.get()), cudaSuccess);
  }
  float first = 0, back = 0, whole = 0;
  ASSERT_EQ(cudaEventElapsedTime(&first, events[0].get(), events[1].get()), cudaSuccess);
  ASSERT_EQ(cudaEventElapsedTime(&back, events[2].get(), events[0].get()), cudaSuccess);
  ASSERT_EQ(cudaEventElapsedTime(&whole, events[0].get(), events[2].get()), cudaSuccess);
  EXPECT_GT(first, 0);
  EXPECT_GT(whole, first);
  EXPECT_EQ(back, -whole);
}

TEST_F(NullGpu, AnEventWithoutATimeHasNone) {
  const Event never, timed, untimed(cudaEventDisableTiming);
  float ms = 0;
  ASSERT_EQ(cudaEventRecord(timed.get(), nullptr), cudaSuccess);
  ASSERT_EQ(cudaEventRecord(untimed.get(), nullptr), cudaSuccess);
  EXPECT_EQ(cudaEventElapsedTime(&ms, timed.get(), never.get()), cudaErrorInvalidResourceHandle);
  EXPECT_EQ(grown("/fault_count"), 0);
  EXPECT_EQ(cudaEventElapsedTime(&ms, timed.get(), untimed.get()), cudaErrorInvalidValue);
  expect_fault("without times");
}

TEST_F(NullGpu, AnExternalEventOfAGraphIsRecordedAtEachLaunch) {
  const Stream stream;
  const Event before, inside, external;
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t executable = nullptr;
  ASSERT_EQ(cudaEventRecord(before.get(), stream.get()), cudaSuccess);
  ASSERT_EQ(cudaStreamBeginCapture(stream.get(), cudaStreamCaptureModeRelaxed), cudaSuccess);
  ASSERT_EQ(cudaEventRecord(inside.get(), stream.get()), cudaSuccess);
  ASSERT_EQ(cudaEventRecordWithFlags(external.get(), stream.get(), cudaEventRecordExternal),
            cudaSuccess);
  ASSERT_EQ(cudaStreamEndCapture(stream.get(), &graph), cudaSuccess);
  ASSERT_EQ(cudaGraphInstantiateWithFlags(&executable, graph, 0), cudaSuccess);
  float first = 0, second = 0;
  EXPECT_EQ(cudaEventElapsedTime(&first, before.get(), external.get()),
            cudaErrorInvalidResourceHandle);
  for (float* ms : {&first, &second}) {
    ASSERT_EQ(cudaGraphLaunch(executable, stream.get()), cudaSuccess);
    ASSERT_EQ(cudaEventElapsedTime(ms, before.get(), external.get()), cudaSuccess);
  }
  EXPECT_GT(first, 0);
  EXPECT_GT(second, first);
  EXPECT_EQ(grown("/fault_count"), 0);
  EXPECT_EQ(cudaEventElapsedTime(&first, before.get(), inside.get()), cudaErrorInvalidValue);
  expect_fault("inside a graph");
  EXPECT_EQ(cudaEventRecordWithFlags(external.get(), stream.get(), cudaEventRecordExternal),
            cudaErrorInvalidValue);
  EXPECT_EQ(cudaGraphExecDestroy(executable), cudaSuccess);
  EXPECT_EQ(cudaGraphDestroy(graph), cudaSuccess);
}

}  // namespace
}  // namespace null_gpu
