// The emulation itself: places of threads, operations of warps, orders of threads, and faults.
#include <algorithm>
#include <numeric>
#include <vector>

#include "tests/gpu/emulated/sample_kernels.hpp"
#include "tests/gpu/null/computing_fixture.hpp"

namespace emulated_gpu {
namespace {

using null_gpu::DeviceMemory;
using null_gpu::Stream;

class Emulation : public null_gpu::ComputingGpu {
 public:
  ~Emulation() override { order("early"); }

 protected:
  // The order of threads; the schedule of streams stays.
  static void order(const char* text) { ::setenv("NULL_GPU_COMPUTES", text, 1); }

  // What a kernel leaves in `count` numbers that are zero before.
  template <class Launch>
  std::vector<int> result(std::size_t count, Launch launch) const {
    cudaMemsetAsync(memory_.get(), 0, null_gpu::kBytes, stream_.get());
    launch(null_gpu::at(memory_), stream_.get());
    std::vector<int> values(count);
    cudaMemcpyAsync(values.data(), memory_.get(), count * sizeof(int), cudaMemcpyDefault,
                    stream_.get());
    cudaStreamSynchronize(stream_.get());
    return values;
  }

  static std::vector<int> rising(std::size_t count, int first = 0) {
    std::vector<int> values(count);
    std::iota(values.begin(), values.end(), first);
    return values;
  }

 private:
  const DeviceMemory memory_;
  const Stream stream_;
};

constexpr const char* kOrders[] = {"early", "late", "1", "2"};

TEST_F(Emulation, EveryThreadOfAGridRunsOnce) {
  for (const char* each : kOrders) {
    order(each);
    EXPECT_EQ(result(kPlaces, launch_places), rising(kPlaces)) << each;
  }
}

TEST_F(Emulation, LanesOfAWarpExchangeValues) {
  for (const char* each : kOrders) {
    order(each);
    const std::vector<int> got = result(96, [](int* out, cudaStream_t stream) {
      launch_warp(out, reinterpret_cast<unsigned*>(out + 32), out + 64, stream);
    });
    EXPECT_EQ(std::vector<int>(got.begin(), got.begin() + 32), std::vector<int>(32, 496)) << each;
    EXPECT_EQ(std::vector<int>(got.begin() + 32, got.begin() + 64), std::vector<int>(32, 31));
    std::vector<int> above = rising(32, 1);
    above.back() = 31;
    EXPECT_EQ(std::vector<int>(got.begin() + 64, got.end()), above);
  }
}

TEST_F(Emulation, AMissingBarrierChangesNumbers) {
  std::vector<int> want = rising(kSampleThreads);
  std::reverse(want.begin(), want.end());
  for (const char* each : kOrders) {
    order(each);
    const auto reversed = [&](bool with_barrier) {
      return result(kSampleThreads, [&](int* out, cudaStream_t stream) {
        launch_reverse(out, with_barrier, stream);
      });
    };
    EXPECT_EQ(reversed(true), want) << each;
    EXPECT_NE(reversed(false), want) << each;
  }
}

TEST_F(Emulation, AMissingBarrierOfAWarpChangesNumbers) {
  std::vector<int> want = rising(32, 1);
  want.back() = 0;
  for (const char* each : kOrders) {
    order(each);
    const auto neighbours = [&](bool with_barrier) {
      return result(
          32, [&](int* out, cudaStream_t stream) { launch_neighbour(out, with_barrier, stream); });
    };
    EXPECT_EQ(neighbours(true), want) << each;
    EXPECT_NE(neighbours(false), want) << each;
  }
}

TEST_F(Emulation, BlocksRunInTheOrderOfTheSchedule) {
  constexpr int kBlocks = 1000;
  const auto last = [&](const char* each) {
    order(each);
    return result(
        1, [](int* out, cudaStream_t stream) { launch_last_block(out, kBlocks, stream); })[0];
  };
  EXPECT_EQ(last("early"), kBlocks - 1);
  EXPECT_EQ(last("late"), 0);
  EXPECT_EQ(last("7"), last("7"));
  EXPECT_NE(last("7"), last("8"));
}

TEST_F(Emulation, SharedMemoryIsNotZero) { EXPECT_EQ(result(1, launch_unwritten)[0], -1); }

TEST_F(Emulation, ThreadsThatDoNotMeetAreAFault) {
  struct Sample {
    Fault fault;
    const char* words;
  };
  for (const auto& [fault, words] : {
           Sample{Fault::kEndedLane,
                  "kernel ended_lane, block (0, 0, 0): thread (0, 0, 0) at "
                  "__shfl_xor_sync (sample_kernels.cu:50) waits for thread "
                  "(31, 0, 0), which has ended"},
           Sample{Fault::kOtherOperation, "waits for thread (16, 0, 0) at __shfl_xor_sync"},
           Sample{Fault::kMissingLane, "waits for lane 31, which the last warp lacks"},
           Sample{Fault::kBarrierInWarp, "waits for thread (5, 0, 0) at __syncthreads"},
           Sample{Fault::kBarrier, "waits for thread (64, 0, 0), which has ended"},
       }) {
    const std::int64_t before = grown("/fault_count");
    (void)result(1, [f = fault](int* out, cudaStream_t stream) { launch_fault(out, f, stream); });
    EXPECT_EQ(grown("/fault_count"), before + 1) << words;
    EXPECT_THAT(last_fault(), testing::HasSubstr(words));
  }
}

TEST_F(Emulation, LaunchesAreCountedAndChecked) {
  (void)result(1, [](int* out, cudaStream_t stream) { launch_last_block(out, 3, stream); });
  EXPECT_EQ(grown("/kernels/last_block"), 1);
  (void)result(1, [](int* out, cudaStream_t stream) { launch_last_block(out, 0, stream); });
  expect_fault("last_block is launched beyond the hardware's limits");
  EXPECT_EQ(cudaGetLastError(), cudaErrorInvalidConfiguration);
}

TEST_F(Emulation, AGraphRunsItsKernelsAgain) {
  const DeviceMemory memory;
  const Stream stream;
  ASSERT_EQ(cudaStreamBeginCapture(stream.get(), cudaStreamCaptureModeGlobal), cudaSuccess);
  launch_places(null_gpu::at(memory), stream.get());
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t executable = nullptr;
  ASSERT_EQ(cudaStreamEndCapture(stream.get(), &graph), cudaSuccess);
  ASSERT_EQ(cudaGraphInstantiateWithFlags(&executable, graph, 0), cudaSuccess);
  cudaMemsetAsync(memory.get(), 0, null_gpu::kBytes, stream.get());
  for (int i = 0; i < 3; ++i) ASSERT_EQ(cudaGraphLaunch(executable, stream.get()), cudaSuccess);
  std::vector<int> values(kPlaces);
  cudaMemcpyAsync(values.data(), memory.get(), kPlaces * sizeof(int), cudaMemcpyDefault,
                  stream.get());
  cudaStreamSynchronize(stream.get());
  for (int i = 0; i < kPlaces; ++i) ASSERT_EQ(values[static_cast<std::size_t>(i)], 3 * i);
  cudaGraphExecDestroy(executable);
  cudaGraphDestroy(graph);
}

}  // namespace
}  // namespace emulated_gpu
