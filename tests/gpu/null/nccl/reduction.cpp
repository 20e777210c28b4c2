#include "tests/gpu/null/nccl/reduction.hpp"

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <algorithm>
#include <cstdint>
#include <cstring>

namespace null_gpu {
namespace {

template <typename T>
T combined(T a, T b, ncclRedOp_t op) {
  switch (op) {
    case ncclProd:
      return static_cast<T>(a * b);
    case ncclMax:
      return std::max(a, b);
    case ncclMin:
      return std::min(a, b);
    default:
      return static_cast<T>(a + b);
  }
}

// Wide: the type of the sums.
template <typename T, typename Wide>
void reduce_as(const std::vector<const std::byte*>& parts, std::size_t count, ncclRedOp_t op,
               std::byte* output) {
  for (std::size_t i = 0; i < count; ++i) {
    const auto element = [&](const std::byte* part) {
      T value;
      std::memcpy(&value, part + i * sizeof(T), sizeof(T));
      return static_cast<Wide>(value);
    };
    Wide sum = element(parts.front());
    for (std::size_t r = 1; r < parts.size(); ++r) sum = combined(sum, element(parts[r]), op);
    if (op == ncclAvg) sum = static_cast<Wide>(sum / static_cast<Wide>(parts.size()));
    const auto rounded = static_cast<T>(sum);
    std::memcpy(output + i * sizeof(T), &rounded, sizeof(T));
  }
}

using ReduceAs = void (*)(const std::vector<const std::byte*>&, std::size_t, ncclRedOp_t,
                          std::byte*);

ReduceAs function_for(ncclDataType_t type) {
  switch (type) {
    case ncclInt8:
      return reduce_as<std::int8_t, std::int8_t>;
    case ncclUint8:
      return reduce_as<std::uint8_t, std::uint8_t>;
    case ncclInt32:
      return reduce_as<std::int32_t, std::int32_t>;
    case ncclUint32:
      return reduce_as<std::uint32_t, std::uint32_t>;
    case ncclInt64:
      return reduce_as<std::int64_t, std::int64_t>;
    case ncclUint64:
      return reduce_as<std::uint64_t, std::uint64_t>;
    case ncclFloat16:
      return reduce_as<__half, float>;
    case ncclBfloat16:
      return reduce_as<__nv_bfloat16, float>;
    case ncclFloat32:
      return reduce_as<float, float>;
    case ncclFloat64:
      return reduce_as<double, double>;
    default:
      return nullptr;
  }
}

}  // namespace

std::size_t bytes_of(ncclDataType_t type) {
  switch (type) {
    case ncclInt64:
    case ncclUint64:
    case ncclFloat64:
      return 8;
    case ncclInt32:
    case ncclUint32:
    case ncclFloat32:
      return 4;
    case ncclFloat16:
    case ncclBfloat16:
      return 2;
    default:
      return 1;
  }
}

bool is_reducible(ncclDataType_t type, ncclRedOp_t op) {
  return function_for(type) != nullptr && op <= ncclAvg;
}

void reduce(const std::vector<const std::byte*>& parts, std::size_t count, ncclDataType_t type,
            ncclRedOp_t op, std::byte* output) {
  function_for(type)(parts, count, op, output);
}

}  // namespace null_gpu
