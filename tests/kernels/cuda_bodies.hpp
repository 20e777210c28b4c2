// What the tests of the kernels of blocks share: shapes, and buffers that kernels reach. The tests
// show the kernels' bodies on the host and, linked with cuda_runs_device.cpp, the kernels.
#pragma once

#include <array>
#include <cstring>

#include "tests/kernels/cuda_runs.hpp"
#include "tests/kernels/support.hpp"

namespace sluice::testing {

using Bytes = std::vector<std::byte>;

inline constexpr std::int64_t kRows = 77;  // two blocks of kSumRows and a rest
inline constexpr std::array<std::int64_t, 4> kWidths{64, 1600, 33, 5};

struct Shape {
  DType dtype = DType::kFloat32;
  std::int64_t width = 0;
};

// f(shape).
template <class Fn>
void for_shapes(Fn f) {
  for (const DType dtype : kDTypes) {
    for (const std::int64_t width : kWidths) {
      SCOPED_TRACE(std::string(name_of(dtype)) + ", " + std::to_string(width) + " columns");
      f(Shape{dtype, width});
    }
  }
}

// A buffer on a multiple of 16 bytes.
class Buffer {
 public:
  explicit Buffer(const Bytes& bytes) : Buffer(bytes.size()) {
    if (!bytes.empty()) std::memcpy(data(), bytes.data(), bytes.size());
  }
  explicit Buffer(std::size_t bytes) : bytes_(bytes), memory_(take_memory(bytes)) {}
  Buffer(const Buffer& other) : Buffer(other.content()) {}
  Buffer& operator=(const Buffer&) = delete;
  ~Buffer() { give_memory(memory_); }

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

template <class T>
Buffer copy_of(const std::vector<T>& values) {
  Buffer buffer(values.size() * sizeof(T));
  std::memcpy(buffer.data(), values.data(), values.size() * sizeof(T));
  return buffer;
}

template <class T>
T* data_of(const Buffer& buffer) {
  return static_cast<T*>(buffer.data());
}

inline std::size_t floats(std::int64_t n) { return static_cast<std::size_t>(n) * sizeof(float); }
inline float* numbers(const Buffer& buffer) { return data_of<float>(buffer); }

}  // namespace sluice::testing
