// The CUDA runtime of a null GPU that computes: copies, graphs, host functions and kernels are work
// of their streams.
#include <stdexcept>
#include <vector>

#include "tests/gpu/null/computing_fixture.hpp"
#include "tests/gpu/null/launches.hpp"
#include "tests/gpu/null/queue.hpp"

namespace null_gpu {
namespace {

class Pinned {
 public:
  explicit Pinned(int value) {
    void* memory = nullptr;
    EXPECT_EQ(cudaHostAlloc(&memory, sizeof(int), cudaHostAllocDefault), cudaSuccess);
    value_ = static_cast<int*>(memory);
    EXPECT_EQ(*value_, -1) << "fresh memory is poisoned";
    *value_ = value;
  }
  ~Pinned() { EXPECT_EQ(cudaFreeHost(value_), cudaSuccess); }
  Pinned(const Pinned&) = delete;
  Pinned& operator=(const Pinned&) = delete;
  [[nodiscard]] int* get() const { return value_; }

 private:
  int* value_ = nullptr;
};

// What a stream records, as a graph that can be launched.
class Recorded {
 public:
  explicit Recorded(const Stream& stream) : stream_(stream) {
    EXPECT_EQ(cudaStreamBeginCapture(stream.get(), cudaStreamCaptureModeRelaxed), cudaSuccess);
  }
  ~Recorded() { EXPECT_EQ(cudaGraphExecDestroy(executable_), cudaSuccess); }
  Recorded(const Recorded&) = delete;
  Recorded& operator=(const Recorded&) = delete;
  void end() {
    cudaGraph_t graph = nullptr;
    ASSERT_EQ(cudaStreamEndCapture(stream_.get(), &graph), cudaSuccess);
    ASSERT_EQ(cudaGraphInstantiateWithFlags(&executable_, graph, 0), cudaSuccess);
    ASSERT_EQ(cudaGraphDestroy(graph), cudaSuccess);
  }
  void launch(const Stream& stream) const {
    ASSERT_EQ(cudaGraphLaunch(executable_, stream.get()), cudaSuccess);
  }

 private:
  const Stream& stream_;
  cudaGraphExec_t executable_ = nullptr;
};

TEST_F(ComputingGpu, RegisteredMemoryIsReadWhenTheCopyRuns) {
  set_schedule("late");
  const Stream stream;
  const DeviceMemory memory;
  const Pinned pinned(1);
  const auto overwritten = [&](int* host) {
    *host = 1;
    copy(memory.get(), host, stream);
    *host = 2;
    return read(memory, stream);
  };
  EXPECT_EQ(overwritten(pinned.get()), 2) << "the host was too early";
  int pageable = 0;
  EXPECT_EQ(overwritten(&pageable), 1);
  set_schedule("early");
  EXPECT_EQ(overwritten(pinned.get()), 1);
}

TEST_F(ComputingGpu, ACopyToRegisteredMemoryIsThereAfterAWait) {
  set_schedule("late");
  const Stream stream;
  const DeviceMemory memory;
  const Pinned pinned(1);
  write(memory, 5, stream);
  copy(pinned.get(), memory.get(), stream);
  EXPECT_EQ(*pinned.get(), 1);
  ASSERT_EQ(cudaStreamSynchronize(stream.get()), cudaSuccess);
  EXPECT_EQ(*pinned.get(), 5);
}

TEST_F(ComputingGpu, TheDefaultStreamWaitsForBlockingStreamsAlone) {
  set_schedule("late");
  const Stream blocking(cudaStreamDefault), free;
  const DeviceMemory one, two;
  write(one, 1, blocking);
  write(two, 2, free);
  int value = 0;
  ASSERT_EQ(cudaMemcpy(&value, one.get(), sizeof value, cudaMemcpyDeviceToHost), cudaSuccess);
  EXPECT_EQ(value, 1);
  ASSERT_EQ(cudaMemcpy(&value, two.get(), sizeof value, cudaMemcpyDeviceToHost), cudaSuccess);
  EXPECT_EQ(value, -1);
  ASSERT_EQ(cudaMemset(one.get(), 0, sizeof value), cudaSuccess);
  EXPECT_EQ(read(one, blocking), 0);
}

TEST_F(ComputingGpu, AGraphRunsInTheLaunchingStreamAndReadsWhatIsThere) {
  set_schedule("late");
  const Stream recording, launching;
  const DeviceMemory source, target, sum;
  const Pinned pinned(0);
  Recorded graph(recording);
  copy(source.get(), pinned.get(), recording);
  copy(target.get(), source.get(), recording);
  const auto add = [to = at(sum), from = at(target)] {
    *to += *from;
    return true;
  };
  ASSERT_EQ(launch_computed({"add", 1, 1, 0, recording.get(), add}), cudaSuccess);
  graph.end();
  ASSERT_EQ(cudaMemsetAsync(sum.get(), 0, sizeof(int), launching.get()), cudaSuccess);
  for (const int value : {3, 4}) {
    *pinned.get() = value;
    graph.launch(launching);
    ASSERT_EQ(cudaStreamSynchronize(recording.get()), cudaSuccess);
    EXPECT_NE(*at(target), value) << "the recording stream has no work";
    EXPECT_EQ(read(target, launching), value);
  }
  EXPECT_EQ(read(sum, launching), 7);
  EXPECT_EQ(grown("/graph_kernels/add"), 2);
  EXPECT_EQ(grown("/kernels/add"), 0);
  EXPECT_EQ(grown("/fault_count"), 0);
}

TEST_F(ComputingGpu, MemoryIsFreedBehindItsWork) {
  set_schedule("late");
  const Stream stream;
  const DeviceMemory target;
  void* memory = nullptr;
  ASSERT_EQ(cudaMalloc(&memory, kBytes), cudaSuccess);
  ASSERT_EQ(cudaMemsetAsync(memory, 1, sizeof(int), stream.get()), cudaSuccess);
  copy(target.get(), memory, stream);
  ASSERT_EQ(cudaFree(memory), cudaSuccess);
  EXPECT_EQ(*at(target), 0x01010101);
  EXPECT_EQ(grown("/fault_count"), 0);
}

TEST_F(ComputingGpu, AGraphsHostMemoryMustStay) {
  const Stream stream;
  const DeviceMemory target;
  int value = 3;
  ASSERT_EQ(cudaHostRegister(&value, sizeof value, cudaHostRegisterDefault), cudaSuccess);
  Recorded graph(stream);
  copy(target.get(), &value, stream);
  graph.end();
  graph.launch(stream);
  EXPECT_EQ(read(target, stream), 3);
  ASSERT_EQ(cudaHostUnregister(&value), cudaSuccess);
  graph.launch(stream);
  expect_fault("is not registered any more");
}

TEST_F(ComputingGpu, HostFunctionsRunInOrder) {
  set_schedule("late");
  const Stream stream;
  const DeviceMemory memory;
  struct Seen {
    const int* from;
    std::vector<int> values;
  } seen{at(memory), {}};
  const auto look = [](void* to) {
    auto* const all = static_cast<Seen*>(to);
    all->values.push_back(*all->from);
  };
  write(memory, 1, stream);
  ASSERT_EQ(cudaLaunchHostFunc(stream.get(), look, &seen), cudaSuccess);
  write(memory, 2, stream);
  ASSERT_EQ(cudaStreamAddCallback(
                stream.get(),
                [](cudaStream_t, cudaError_t, void* to) {
                  static_cast<Seen*>(to)->values.push_back(0);
                  (void)cudaStreamSynchronize(nullptr);
                },
                &seen, 0),
            cudaSuccess);
  EXPECT_TRUE(seen.values.empty());
  ASSERT_EQ(cudaStreamSynchronize(stream.get()), cudaSuccess);
  EXPECT_EQ(seen.values, (std::vector<int>{1, 0}));
  expect_fault("calls the CUDA runtime");
}

TEST_F(ComputingGpu, OnlyComputedKernelsCompute) {
  static const char kernel = 0;
  register_kernel(&kernel, "_Z7missingPf");
  const Stream stream;
  bool ran = false;
  const auto run = [&] { return ran = true; };
  EXPECT_EQ(launch_computed({"_Z5addedPf", 8, 256, 0, stream.get(), run}), cudaSuccess);
  EXPECT_TRUE(ran);
  EXPECT_EQ(grown("/kernels/added(float*)"), 1);
  EXPECT_EQ(grown("/fault_count"), 0);
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(cudaLaunchKernel(&kernel, 8, 256, nullptr, 0, stream.get()), cudaSuccess);
  }
  expect_fault("kernel missing(float*) is not computed");
  EXPECT_EQ(launch_computed({"added", 0, 256, 0, stream.get(), run}),
            cudaErrorInvalidConfiguration);
  EXPECT_EQ(cudaGetLastError(), cudaErrorInvalidConfiguration);
}

TEST_F(ComputingGpu, AStubThatWouldDoWorkIsAFault) {
  count_stub("cudaFuncSetAttribute");
  EXPECT_EQ(grown("/fault_count"), 0);
  for (int i = 0; i < 2; ++i) count_stub("cudaMemcpyToSymbol");
  expect_fault("cudaMemcpyToSymbol has no body");
}

TEST_F(ComputingGpu, AFailedTaskIsAFault) {
  const Stream stream;
  enqueue(stream.get(), []() -> bool { throw std::runtime_error("no such rank"); });
  expect_fault("no such rank");
}

}  // namespace
}  // namespace null_gpu
