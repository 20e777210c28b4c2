#include "runtime/checkpoint/hf/widen.hpp"

#include <algorithm>
#include <array>
#include <cstring>

#include "kernels/cpu/cast.hpp"

namespace sluice {

void widen(const std::byte* stored, DType dtype, std::int64_t first, std::span<float> out) {
  const std::int64_t size = size_of(dtype);
  const std::byte* from = stored + first * size;
  if (reinterpret_cast<std::uintptr_t>(from) % static_cast<std::uintptr_t>(size) == 0) {
    convert(out.data(), DType::kFloat32, from, dtype, static_cast<std::int64_t>(out.size()));
    return;
  }
  alignas(64) std::array<std::byte, 4096> aligned;
  const std::size_t most = aligned.size() / static_cast<std::size_t>(size);
  for (std::size_t done = 0; done < out.size();) {
    const std::size_t n = std::min(most, out.size() - done);
    std::memcpy(aligned.data(), from + done * static_cast<std::size_t>(size),
                n * static_cast<std::size_t>(size));
    convert(out.data() + done, DType::kFloat32, aligned.data(), dtype,
            static_cast<std::int64_t>(n));
    done += n;
  }
}

}  // namespace sluice
