// What a process does with the null GPU, counted. The library that stands for the CUDA runtime owns
// the record; the other libraries link that one. Thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <string>

namespace null_gpu {

// The work that a stream can hold.
enum class Work { kLaunch, kCopy, kMemset, kProduct, kMessage };

// How a host thread waits for the GPU.
enum class Wait { kStream, kEvent, kDevice, kBlockingCopy };

enum class Direction { kHostToDevice, kDeviceToHost, kDeviceToDevice, kHostToHost };

struct Copy {
  Direction direction = Direction::kDeviceToDevice;
  std::size_t bytes = 0;
  bool pageable = false;  // the host's side is not registered: the driver stages such a copy
  bool behind = false;    // the stream has work for which the host has not waited
};

// One matrix product, column-major as cuBLAS counts: C is m x n.
struct Product {
  std::int64_t m = 0, n = 0, k = 0;
  std::int64_t lda = 0, ldb = 0, ldc = 0;
  std::int64_t batch = 1;
  int type_in = 0, type_out = 0;  // cudaDataType_t
  const void* a = nullptr;
  const void* b = nullptr;
  const void* c = nullptr;
};

void count_work(Work work, const void* stream);
void count_launch(const std::string& kernel, const void* stream);
// Of a stream that records, the product is counted at each launch of the graph.
void count_product(const Product& product, const void* stream);
// A product with a 16-bit result for which cuBLAS may round parts of a sum to 16 bits.
void count_rounded_sums();
// A launch of a graph, with its kernels by name.
void count_graph(const std::map<std::string, std::int64_t>& kernels, const void* stream);
void count_copy(const Copy& copy);
// Kernels and graphs of all streams so far.
[[nodiscard]] std::int64_t work_number();
// Covers all work, or that up to a work_number().
void count_wait(Wait wait, std::int64_t upto = std::numeric_limits<std::int64_t>::max());
// Whether the stream was given kernels or graphs that no wait of the host has covered.
[[nodiscard]] bool has_open_work(const void* stream);
void count_stream_wait();  // of a stream for an event; the host goes on
void count_query();        // of a stream or an event, without waiting
void count_communicator();
// The process has a context on the card: memory of the card that no plan counts.
void note_context(int device);
[[nodiscard]] bool has_context(int device);
void count_message(const char* kind, std::size_t bytes);
// A name without a body of its own: it does nothing and reports success. A fault where the null GPU
// computes, once for each name, unless the function only manages handles and settings.
void count_stub(const char* name);
// A use that a real GPU or driver would refuse. Also printed to stderr.
void fault(const std::string& what);
void note_device_bytes(std::size_t used);  // for the peak
void note_pinned_bytes(std::size_t used);
// Writes the record as one JSON object to $NULL_GPU_REPORT/PID.json, if that folder is named and
// the process used the GPU.
void write_report();

// Of an element of a cudaDataType_t; 0 of a type that no product here takes.
[[nodiscard]] std::int64_t bytes_of_type(int type);
[[nodiscard]] bool is_fp8(int type);

// Bytes of the alignment that a tensor core's product needs: 16.
[[nodiscard]] bool is_aligned(const Product& product);

// A kernel's name as one reads it.
[[nodiscard]] std::string demangled(const std::string& name);

// An environment variable's whole number, or `otherwise`.
[[nodiscard]] std::uint64_t setting(const char* name, std::uint64_t otherwise);

}  // namespace null_gpu
