#include "kernels/cpu/gelu.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "base/error.hpp"
#include "kernels/cpu/dispatch.hpp"
#include "kernels/cpu/parallel.hpp"

namespace sluice {
namespace {

// A value costs about 10 operations, so smaller pieces than those of a copy are worthwhile.
constexpr std::int64_t kGrain = grain_elements(4) / 4;

// Calls f(gate and up of a row, first byte of the row in a [rows, width] matrix) for every row.
template <class Fn>
void for_gate_up_rows(const GateUp& g, const void* other, Fn f) {
  check(g.rows >= 0 && g.width >= 0, "swiglu: a negative size");
  check(g.rows * g.width == 0 || (g.data != nullptr && other != nullptr), "swiglu: a null buffer");
  const std::int64_t row_bytes = g.width * size_of(g.dtype);
  const std::int64_t grain = std::max<std::int64_t>(1, kGrain / std::max<std::int64_t>(1, g.width));
  parallel_for(g.rows, grain, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t row = begin; row < end; ++row) {
      std::byte* gate = static_cast<std::byte*>(g.data) + row * 2 * row_bytes;
      f(gate, gate + row_bytes, row * row_bytes);
    }
  });
}

template <class... Rest>
std::int64_t common_length(const char* what, std::span<float> first, Rest... rest) {
  check(((rest.size() == first.size()) && ...), what);
  return static_cast<std::int64_t>(first.size());
}

}  // namespace

void gelu_forward(void* y, const void* x, DType dtype, std::int64_t n) {
  check(n == 0 || (y != nullptr && x != nullptr), "gelu_forward: a null buffer");
  auto* out = static_cast<std::byte*>(y);
  const auto* in = static_cast<const std::byte*>(x);
  parallel_for(n, kGrain, [&, &table = kernels()](std::int64_t begin, std::int64_t end) {
    const std::int64_t at = begin * size_of(dtype);
    table.gelu_forward(out + at, in + at, dtype, end - begin);
  });
}

void gelu_forward(std::span<float> y, std::span<const float> x) {
  gelu_forward(y.data(), x.data(), DType::kFloat32,
               common_length("gelu_forward: lengths differ", y, x));
}

void gelu_backward(void* dx, const void* x, const void* dy, DType dtype, std::int64_t n, void* y) {
  check(n == 0 || (dx != nullptr && x != nullptr && dy != nullptr), "gelu_backward: a null buffer");
  check(y == nullptr || y != dx, "gelu_backward: y and dx are one buffer");
  auto* out = static_cast<std::byte*>(dx);
  auto* again = static_cast<std::byte*>(y);
  const auto* in = static_cast<const std::byte*>(x);
  const auto* grad = static_cast<const std::byte*>(dy);
  parallel_for(n, kGrain, [&, &table = kernels()](std::int64_t begin, std::int64_t end) {
    const std::int64_t at = begin * size_of(dtype);
    table.gelu_backward(out + at, again == nullptr ? nullptr : again + at, in + at, grad + at,
                        dtype, end - begin);
  });
}

void gelu_backward(std::span<float> dx, std::span<const float> x, std::span<const float> dy) {
  gelu_backward(dx.data(), x.data(), dy.data(), DType::kFloat32,
                common_length("gelu_backward: lengths differ", dx, x, dy));
}

void swiglu_forward(std::span<float> y, std::span<const float> gate, std::span<const float> up) {
  const std::int64_t n = common_length("swiglu_forward: lengths differ", y, gate, up);
  parallel_for(n, kGrain, [&, &table = kernels()](std::int64_t begin, std::int64_t end) {
    table.swiglu_forward(y.data() + begin, gate.data() + begin, up.data() + begin, DType::kFloat32,
                         end - begin);
  });
}

void swiglu_backward(std::span<float> d_gate, std::span<float> d_up, std::span<const float> gate,
                     std::span<const float> up, std::span<const float> dy) {
  const std::int64_t n =
      common_length("swiglu_backward: lengths differ", d_gate, d_up, gate, up, dy);
  check(n == 0 || d_gate.data() != d_up.data(), "swiglu_backward: d_gate and d_up are one buffer");
  parallel_for(n, kGrain, [&, &table = kernels()](std::int64_t begin, std::int64_t end) {
    table.swiglu_backward({d_gate.data() + begin, d_up.data() + begin, nullptr},
                          gate.data() + begin, up.data() + begin, dy.data() + begin,
                          DType::kFloat32, end - begin);
  });
}

void swiglu_forward(void* y, const GateUp& gate_up) {
  auto* out = static_cast<std::byte*>(y);
  for_gate_up_rows(gate_up, y, [&, &table = kernels()](auto* gate, auto* up, std::int64_t at) {
    table.swiglu_forward(out + at, gate, up, gate_up.dtype, gate_up.width);
  });
}

void swiglu_backward(const GateUp& gate_up, const void* dy, void* y) {
  const auto* grad = static_cast<const std::byte*>(dy);
  auto* out = static_cast<std::byte*>(y);
  for_gate_up_rows(gate_up, dy, [&, &table = kernels()](auto* gate, auto* up, std::int64_t at) {
    table.swiglu_backward({gate, up, out == nullptr ? nullptr : out + at}, gate, up, grad + at,
                          gate_up.dtype, gate_up.width);
  });
}

}  // namespace sluice
