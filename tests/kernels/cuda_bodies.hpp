// What the tests of the CUDA kernels' bodies share: shapes, buffers, and the threads of a grid in
// turn. The bodies are compiled for the host.
#pragma once

#include <array>
#include <functional>
#include <new>

#include "kernels/cuda/elements.hpp"
#include "tests/kernels/support.hpp"

namespace sluice::testing {

using cuda::Worker;
using Bytes = std::vector<std::byte>;

inline constexpr std::int64_t kRows = 77;  // two blocks of kSumRows and a rest
inline constexpr std::array<std::int64_t, 4> kWidths{64, 1600, 33, 5};

struct Shape {
  DType dtype = DType::kFloat32;
  std::int64_t width = 0;
  [[nodiscard]] bool aligned() const { return width * size_of(dtype) % 16 == 0; }
};

// f(shape, null pointer of the element type).
template <class Fn>
void for_shapes(Fn f) {
  for (const DType dtype : kDTypes) {
    for (const std::int64_t width : kWidths) {
      SCOPED_TRACE(std::string(name_of(dtype)) + ", " + std::to_string(width) + " columns");
      const Shape shape{dtype, width};
      if (dtype == DType::kFloat32) f(shape, static_cast<float*>(nullptr));
      if (dtype == DType::kBFloat16) f(shape, static_cast<cuda::Bf16*>(nullptr));
      if (dtype == DType::kFloat16) f(shape, static_cast<cuda::Half*>(nullptr));
    }
  }
}

// A buffer on a multiple of 16 bytes, of exactly its size, so that a sanitizer sees any step over
// its end.
class Buffer {
 public:
  explicit Buffer(const Bytes& bytes) : Buffer(bytes.size()) {
    std::memcpy(data(), bytes.data(), bytes.size());
  }
  explicit Buffer(std::size_t bytes)
      : bytes_(bytes), memory_(::operator new (bytes, std::align_val_t{16})) {}
  Buffer(const Buffer& other) : Buffer(other.content()) {}
  Buffer& operator=(const Buffer&) = delete;
  ~Buffer() { ::operator delete (memory_, std::align_val_t{16}); }

  [[nodiscard]] void* data() const { return memory_; }
  [[nodiscard]] Bytes content() const {
    const auto* from = static_cast<const std::byte*>(memory_);
    return {from, from + bytes_};
  }
  [[nodiscard]] std::vector<float> values(DType dtype) const {
    std::vector<float> result(bytes_ / static_cast<std::size_t>(size_of(dtype)));
    convert(result.data(), DType::kFloat32, memory_, dtype,
            static_cast<std::int64_t>(result.size()));
    return result;
  }

 private:
  std::size_t bytes_;
  void* memory_;
};

inline Buffer random(DType dtype, std::int64_t n, unsigned seed, float std = 1.0F) {
  return Buffer(as_bytes(normal_values(n, seed, std), dtype));
}

// Runs every thread of a row's grid; any number of threads must give the same result.
inline void on_threads(const std::function<void(const Worker&)>& body) {
  constexpr std::int64_t kThreads = 7;
  for (std::int64_t thread = 0; thread < kThreads; ++thread) body({thread, kThreads});
}

inline void on_rows(std::int64_t rows,
                    const std::function<void(std::int64_t, const Worker&)>& body) {
  for (std::int64_t row = 0; row < rows; ++row) {
    on_threads([&](const Worker& worker) { body(row, worker); });
  }
}

inline std::size_t floats(std::int64_t n) { return static_cast<std::size_t>(n) * sizeof(float); }
inline float* numbers(const Buffer& buffer) { return static_cast<float*>(buffer.data()); }

}  // namespace sluice::testing
