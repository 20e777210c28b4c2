// The null GPU finds what it says: each check has a bad sample.
#include <cublas_v2.h>
#include <cudnn.h>
#include <nccl.h>

#include <algorithm>
#include <array>
#include <thread>
#include <vector>

#include "tests/gpu/null/fixture.hpp"

namespace null_gpu {
namespace {

TEST_F(NullGpu, ScalarsSurviveTheDevice) {
  const DeviceMemory memory;
  double out = 0;
  const double in = 1.5;
  ASSERT_EQ(cudaMemcpy(memory.get() + 64, &in, sizeof in, cudaMemcpyHostToDevice), cudaSuccess);
  ASSERT_EQ(cudaMemcpy(&out, memory.get() + 64, sizeof out, cudaMemcpyDeviceToHost), cudaSuccess);
  EXPECT_EQ(out, in);
  EXPECT_EQ(grown("/host_waits/blocking_copy"), 2);
  EXPECT_EQ(grown("/default_stream/copies"), 2);
  EXPECT_EQ(grown("/fault_count"), 0);
}

TEST_F(NullGpu, ALargeCopyToTheHostIsZeros) {
  const DeviceMemory memory;
  std::vector<unsigned char> host(kBytes, 0xff);
  ASSERT_EQ(cudaMemcpy(host.data(), memory.get(), kBytes, cudaMemcpyDeviceToHost), cudaSuccess);
  EXPECT_EQ(host, std::vector<unsigned char>(kBytes, 0));
}

TEST_F(NullGpu, PageableCopiesAreToldFromRegistered) {
  const DeviceMemory memory;
  std::vector<char> host(4096);
  const auto copy = [&] {
    return cudaMemcpyAsync(memory.get(), host.data(), host.size(), cudaMemcpyHostToDevice, nullptr);
  };
  ASSERT_EQ(copy(), cudaSuccess);
  ASSERT_EQ(cudaHostRegister(host.data(), host.size(), cudaHostRegisterDefault), cudaSuccess);
  ASSERT_EQ(copy(), cudaSuccess);
  ASSERT_EQ(cudaHostUnregister(host.data()), cudaSuccess);
  EXPECT_EQ(grown("/copies/host_to_device/copies"), 2);
  EXPECT_EQ(grown("/copies/host_to_device/pageable_copies"), 1);
  EXPECT_EQ(cudaHostUnregister(host.data()), cudaErrorInvalidValue);
  expect_fault("not registered");
}

TEST_F(NullGpu, CopiesBehindWorkAreToldFromThoseThatFollowAWait) {
  static const char kernel = 0;
  register_kernel(&kernel, "_Z7aheadv");
  const DeviceMemory memory;
  const Stream busy, idle;
  void* host = nullptr;
  ASSERT_EQ(cudaHostAlloc(&host, 64, cudaHostAllocDefault), cudaSuccess);
  const auto copy = [&](const Stream& stream) {
    ASSERT_EQ(cudaMemcpyAsync(memory.get(), host, 64, cudaMemcpyHostToDevice, stream.get()),
              cudaSuccess);
  };
  ASSERT_EQ(cudaLaunchKernel(&kernel, 8, 256, nullptr, 0, busy.get()), cudaSuccess);
  copy(idle);
  EXPECT_EQ(grown("/copies/host_to_device/behind_copies"), 0);
  copy(busy);
  EXPECT_EQ(grown("/copies/host_to_device/behind_copies"), 1);
  ASSERT_EQ(cudaStreamSynchronize(busy.get()), cudaSuccess);
  copy(busy);
  EXPECT_EQ(grown("/copies/host_to_device/behind_copies"), 1);

  // A wait for an event covers what was enqueued before its record.
  cudaEvent_t event = nullptr;
  ASSERT_EQ(cudaEventCreate(&event), cudaSuccess);
  ASSERT_EQ(cudaLaunchKernel(&kernel, 8, 256, nullptr, 0, busy.get()), cudaSuccess);
  ASSERT_EQ(cudaEventRecord(event, busy.get()), cudaSuccess);
  ASSERT_EQ(cudaEventSynchronize(event), cudaSuccess);
  copy(busy);
  EXPECT_EQ(grown("/copies/host_to_device/behind_copies"), 1);
  ASSERT_EQ(cudaLaunchKernel(&kernel, 8, 256, nullptr, 0, busy.get()), cudaSuccess);
  ASSERT_EQ(cudaEventSynchronize(event), cudaSuccess);
  copy(busy);
  EXPECT_EQ(grown("/copies/host_to_device/behind_copies"), 2);
  ASSERT_EQ(cudaEventDestroy(event), cudaSuccess);
  ASSERT_EQ(cudaFreeHost(host), cudaSuccess);
}

TEST_F(NullGpu, ACopyInTheWrongDirectionIsAFault) {
  const DeviceMemory memory;
  std::array<char, 64> host{};
  EXPECT_EQ(cudaMemcpy(memory.get(), host.data(), host.size(), cudaMemcpyDeviceToHost),
            cudaErrorInvalidValue);
  expect_fault("between other places");
  EXPECT_EQ(cudaGetLastError(), cudaErrorInvalidValue);
  EXPECT_EQ(cudaGetLastError(), cudaSuccess);
}

TEST_F(NullGpu, ACopyBeyondItsBlockIsAFault) {
  const DeviceMemory memory(2 << 20);  // whole pages of the device
  std::array<char, 64> host{};
  EXPECT_EQ(cudaMemcpy(host.data(), memory.get() + (2 << 20) - 32, 64, cudaMemcpyDeviceToHost),
            cudaErrorInvalidValue);
  expect_fault("leaves its block");
}

TEST_F(NullGpu, ACopyOfPartlyRegisteredMemoryIsAFault) {
  const DeviceMemory memory;
  std::array<char, 4096> host{};
  const auto copy = [&](std::size_t first, std::size_t bytes) {
    return cudaMemcpy(memory.get(), host.data() + first, bytes, cudaMemcpyHostToDevice);
  };
  ASSERT_EQ(cudaHostRegister(host.data() + 1024, 1024, cudaHostRegisterDefault), cudaSuccess);
  ASSERT_EQ(cudaHostRegister(host.data() + 2048, 1024, cudaHostRegisterDefault), cudaSuccess);
  EXPECT_EQ(copy(0, 1024), cudaSuccess);
  EXPECT_EQ(copy(1024, 1024), cudaSuccess);
  EXPECT_EQ(copy(3072, 1024), cudaSuccess);
  EXPECT_EQ(grown("/fault_count"), 0);
  const std::array refused{copy(512, 1024), copy(2560, 1024), copy(1024, 2048), copy(0, 4096),
                           cudaHostRegister(host.data() + 512, 1024, cudaHostRegisterDefault)};
  for (const cudaError_t status : refused) EXPECT_EQ(status, cudaErrorInvalidValue);
  EXPECT_EQ(grown("/fault_count"), std::ssize(refused));
  EXPECT_EQ(cudaHostUnregister(host.data() + 1024), cudaSuccess);
  EXPECT_EQ(cudaHostUnregister(host.data() + 2048), cudaSuccess);
}

TEST_F(NullGpu, AThreadThatChoseNoCardMakesAContextOnTheFirst) {
  ::setenv("NULL_GPU_COUNT", "2", 1);
  std::thread([] { EXPECT_EQ(cudaSetDevice(1), cudaSuccess); }).join();
  EXPECT_THAT(report()["contexts"], testing::Contains(1));
  std::thread([] { const DeviceMemory memory; }).join();
  EXPECT_EQ(report()["contexts"], json({0, 1}));
  ::unsetenv("NULL_GPU_COUNT");
}

TEST_F(NullGpu, NoHostMemoryIsFreedWhereThereIsNone) {
  EXPECT_EQ(cudaFreeHost(nullptr), cudaErrorInvalidValue);
  expect_fault("not a live allocation");
}

TEST_F(NullGpu, FreedMemoryIsNoMemoryOfTheDevice) {
  void* memory = nullptr;
  ASSERT_EQ(cudaMalloc(&memory, kBytes), cudaSuccess);
  ASSERT_EQ(cudaFree(memory), cudaSuccess);
  EXPECT_EQ(cudaMemsetAsync(memory, 0, 16, nullptr), cudaErrorInvalidValue);
  expect_fault("outside of device memory");
  EXPECT_EQ(cudaFree(memory), cudaErrorInvalidValue);
}

TEST_F(NullGpu, ACardCanBeFull) {
  std::size_t free = 0, total = 0;
  ASSERT_EQ(cudaMemGetInfo(&free, &total), cudaSuccess);
  void* memory = nullptr;
  EXPECT_EQ(cudaMalloc(&memory, free + 1), cudaErrorMemoryAllocation);
  EXPECT_EQ(cudaGetLastError(), cudaErrorMemoryAllocation);
  constexpr std::size_t kPage = 2 << 20;
  const DeviceMemory rest(free / kPage * kPage);
  EXPECT_EQ(report()["device_peak_bytes"], total / kPage * kPage);
}

TEST_F(NullGpu, TheHostMustNotTouchDeviceMemory) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_DEATH(
      {
        const DeviceMemory memory;
        *static_cast<volatile char*>(memory.get()) = 1;
      },
      "the host reads or writes device memory");
}

TEST_F(NullGpu, LaunchesAreCountedByKernel) {
  static const char kernel = 0;
  register_kernel(&kernel, "_Z6kernelPfi");
  cudaStream_t stream = nullptr;
  ASSERT_EQ(cudaStreamCreateWithPriority(&stream, 0, 0), cudaSuccess);
  EXPECT_EQ(cudaLaunchKernel(&kernel, 8, 256, nullptr, 0, stream), cudaSuccess);
  EXPECT_EQ(grown("/kernels/kernel(float*, int)"), 1);
  EXPECT_EQ(grown("/default_stream/launches"), 0);
  EXPECT_EQ(cudaLaunchKernel(&kernel, 8, 256, nullptr, 0, nullptr), cudaSuccess);
  EXPECT_EQ(grown("/default_stream/launches"), 1);
  EXPECT_EQ(cudaLaunchKernel(&kernel, 8, dim3(1024, 2), nullptr, 0, stream),
            cudaErrorInvalidConfiguration);
  expect_fault("kernel");
  EXPECT_EQ(cudaLaunchKernel(&kernel, 0, 256, nullptr, 0, stream), cudaErrorInvalidConfiguration);
  EXPECT_EQ(grown("/work/launches"), 2) << "a refused launch is none";
  EXPECT_EQ(cudaStreamDestroy(stream), cudaSuccess);
}

TEST_F(NullGpu, ProductsAreCheckedForAlignment) {
  const DeviceMemory memory;
  cublasHandle_t handle = nullptr;
  ASSERT_EQ(cublasCreate(&handle), CUBLAS_STATUS_SUCCESS);
  const float one = 1;
  const auto multiply = [&](int lda, const void* a) {
    return cublasGemmEx(handle, CUBLAS_OP_N, CUBLAS_OP_N, 8, 8, 8, &one, a, CUDA_R_16BF, lda,
                        memory.get(), CUDA_R_16BF, 8, &one, memory.get(), CUDA_R_16BF, 8,
                        CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT);
  };
  const auto products = [&](bool aligned) {
    std::int64_t count = 0;
    const json all = report();
    for (const json& p : all["products"]) {
      if (p["aligned"] == aligned) count += p["count"].get<std::int64_t>();
    }
    return count;
  };
  const std::int64_t before = products(false);
  EXPECT_EQ(multiply(8, memory.get()), CUBLAS_STATUS_SUCCESS);
  EXPECT_EQ(products(false), before);
  EXPECT_EQ(multiply(9, memory.get()), CUBLAS_STATUS_SUCCESS);
  EXPECT_EQ(multiply(8, memory.get() + 2), CUBLAS_STATUS_SUCCESS);
  EXPECT_EQ(products(false), before + 2);
  EXPECT_EQ(multiply(8, &one), CUBLAS_STATUS_INVALID_VALUE);
  expect_fault("not on the device");
  EXPECT_EQ(cublasDestroy(handle), CUBLAS_STATUS_SUCCESS);
}

// An operation on one tensor, by the calls of cudnn-frontend.
TEST_F(NullGpu, CudnnChecksItsTensorsAndCountsALaunch) {
  const auto made = [](cudnnBackendDescriptorType_t type = CUDNN_BACKEND_ENGINECFG_DESCRIPTOR) {
    cudnnBackendDescriptor_t descriptor = nullptr;
    cudnnBackendCreateDescriptor(type, &descriptor);
    return descriptor;
  };
  const cudnnBackendDescriptor_t tensor = made(CUDNN_BACKEND_TENSOR_DESCRIPTOR), operation = made(),
                                 graph = made();
  const cudnnBackendDescriptor_t heuristic = made(), plan = made(), pack = made();
  cudnnBackendDescriptor_t config = made();
  const auto set = [](auto to, auto name, auto type, const auto& value) {
    EXPECT_EQ(cudnnBackendSetAttribute(to, name, type, 1, static_cast<const void*>(&value)),
              CUDNN_STATUS_SUCCESS);
  };
  const std::int64_t id = 5, elems = 16;
  set(tensor, CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, id);
  set(tensor, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, elems);
  set(tensor, CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, elems);
  constexpr auto kPart = CUDNN_TYPE_BACKEND_DESCRIPTOR;
  set(operation, CUDNN_ATTR_OPERATION_MATMUL_ADESC, kPart, tensor);
  set(graph, CUDNN_ATTR_OPERATIONGRAPH_OPS, kPart, operation);
  set(heuristic, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, kPart, graph);
  cudnnBackendGetAttribute(heuristic, CUDNN_ATTR_ENGINEHEUR_RESULTS, kPart, 1, nullptr,
                           static_cast<void*>(&config));
  set(plan, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, kPart, config);
  set(pack, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, id);
  cudnnHandle_t handle = nullptr;
  cudnnCreate(&handle);
  constexpr std::size_t kPage = 2 << 20;
  const DeviceMemory memory(kPage);
  const auto execute = [&](const void* address) {
    set(pack, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, address);
    return cudnnBackendExecute(handle, plan, pack);
  };
  EXPECT_EQ(execute(memory.get() + kPage - 32), CUDNN_STATUS_BAD_PARAM);
  expect_fault("tensor 5 leaves its allocation");
  EXPECT_EQ(execute(memory.get()), CUDNN_STATUS_SUCCESS);
  EXPECT_EQ(grown("/kernels/cudnn_attention_forward"), 1);
}

TEST_F(NullGpu, MessagesAreCheckedForPlaceAndPeer) {
  const DeviceMemory memory;
  ncclComm_t comm = nullptr;
  ASSERT_EQ(ncclCommInitRank(&comm, 2, {}, 0), ncclSuccess);
  EXPECT_EQ(ncclSend(memory.get(), 16, ncclBfloat16, 1, comm, nullptr), ncclSuccess);
  EXPECT_EQ(grown("/messages/send/bytes"), 32);
  EXPECT_EQ(ncclSend(static_cast<const void*>(&comm), 1, ncclInt8, 1, comm, nullptr),
            ncclInvalidArgument);
  expect_fault("not on the device");
  EXPECT_EQ(ncclRecv(memory.get(), 1, ncclInt8, 2, comm, nullptr), ncclInvalidArgument);
  EXPECT_EQ(ncclCommDestroy(comm), ncclSuccess);
}

TEST_F(NullGpu, ACommunicatorsMessagesKeepTheirGroupsAndOrder) {
  const DeviceMemory memory;
  ncclUniqueId id{};
  ASSERT_EQ(ncclGetUniqueId(&id), ncclSuccess);
  ncclComm_t comm = nullptr;
  ASSERT_EQ(ncclCommInitRank(&comm, 3, id, 2), ncclSuccess);
  const auto exchange = [&] {
    ASSERT_EQ(ncclGroupStart(), ncclSuccess);
    ASSERT_EQ(ncclSend(memory.get(), 8, ncclInt8, 0, comm, nullptr), ncclSuccess);
    ASSERT_EQ(ncclRecv(memory.get(), 4, ncclInt8, 1, comm, nullptr), ncclSuccess);
    ASSERT_EQ(ncclGroupEnd(), ncclSuccess);
  };
  exchange();
  ASSERT_EQ(ncclAllReduce(memory.get(), memory.get(), 2, ncclFloat32, ncclSum, comm, nullptr),
            ncclSuccess);
  exchange();
  const json all = report();
  const auto found = std::find_if(all["channels"].begin(), all["channels"].end(),
                                  [&](const json& c) { return c["id"] == id.internal; });
  ASSERT_NE(found, all["channels"].end());
  EXPECT_EQ((*found)["rank"], 2);
  EXPECT_EQ((*found)["size"], 3);
  EXPECT_EQ((*found)["groups"], json({"send 0 8; receive 1 4", "all_reduce -1 8"}));
  EXPECT_EQ((*found)["order"], json({0, 1, 0}));
  EXPECT_EQ(ncclCommDestroy(comm), ncclSuccess);
}

}  // namespace
}  // namespace null_gpu
