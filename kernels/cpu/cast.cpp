#include "kernels/cpu/cast.hpp"

#include <cstddef>
#include <cstring>
#include <string>

#include "base/error.hpp"
#include "kernels/cpu/dispatch.hpp"
#include "kernels/cpu/isa/simd_scalar.hpp"
#include "kernels/cpu/parallel.hpp"

namespace sluice {
namespace {

std::byte* at(void* base, DType dtype, std::int64_t element) {
  return static_cast<std::byte*>(base) + element * size_of(dtype);
}
const std::byte* at(const void* base, DType dtype, std::int64_t element) {
  return static_cast<const std::byte*>(base) + element * size_of(dtype);
}

void check_range(const char* what, bool pointers, std::int64_t n) {
  check(n >= 0, std::string(what) + ": n < 0");
  check(pointers || n == 0, std::string(what) + ": a null buffer");
}

}  // namespace

std::uint16_t bf16_bits(float value) {
  isa::Bf16 result;
  isa::Scalar16::narrow(value, &result);
  return result.bits;
}

std::uint16_t fp16_bits(float value) {
  isa::Half result;
  isa::Scalar16::narrow(value, &result);
  return result.bits;
}

float float_of_bf16(std::uint16_t bits) { return isa::Scalar16::widen(isa::Bf16{bits}); }
float float_of_fp16(std::uint16_t bits) { return isa::Scalar16::widen(isa::Half{bits}); }

void convert(void* dst, DType dst_dtype, const void* src, DType src_dtype, std::int64_t n) {
  check_range("convert", dst != nullptr && src != nullptr, n);
  if (dst == src && dst_dtype == src_dtype) return;
  const KernelTable& table = kernels();
  parallel_for(n, grain_elements(4), [&](std::int64_t begin, std::int64_t end) {
    std::byte* to = at(dst, dst_dtype, begin);
    const std::byte* from = at(src, src_dtype, begin);
    if (dst_dtype == src_dtype) {
      std::memcpy(to, from, static_cast<std::size_t>((end - begin) * size_of(src_dtype)));
    } else {
      table.convert(to, dst_dtype, from, src_dtype, end - begin);
    }
  });
}

void add_to(float* acc, const void* x, DType dtype, std::int64_t n, bool accumulate) {
  if (!accumulate) return convert(acc, DType::kFloat32, x, dtype, n);
  check_range("add_to", acc != nullptr && x != nullptr, n);
  const KernelTable& table = kernels();
  parallel_for(n, grain_elements(4), [&](std::int64_t begin, std::int64_t end) {
    table.add_to(acc + begin, at(x, dtype, begin), dtype, end - begin, true);
  });
}

void ordered_sum(float* out, std::span<const void* const> inputs, DType dtype, std::int64_t n,
                 bool accumulate) {
  check(!inputs.empty(), "ordered_sum: no inputs");
  bool pointers = out != nullptr;
  for (const void* input : inputs) pointers = pointers && input != nullptr;
  check_range("ordered_sum", pointers, n);
  const KernelTable& table = kernels();
  parallel_for(n, grain_elements(4), [&](std::int64_t begin, std::int64_t end) {
    table.ordered_sum(out, inputs.data(), static_cast<std::int64_t>(inputs.size()), dtype, begin,
                      end - begin, accumulate);
  });
}

void scale(float* x, std::int64_t n, float factor) {
  check_range("scale", x != nullptr, n);
  const KernelTable& table = kernels();
  parallel_for(n, grain_elements(4), [&](std::int64_t begin, std::int64_t end) {
    table.scale(x + begin, end - begin, factor);
  });
}

}  // namespace sluice
