// Element types of tensors and files. Independent of libtorch: runtime/model maps them to c10's.
#pragma once

#include <cstdint>
#include <string_view>

namespace sluice {

enum class DType : std::uint8_t { kFloat32, kBFloat16, kFloat16 };

[[nodiscard]] constexpr std::int64_t size_of(DType dtype) {
  return dtype == DType::kFloat32 ? 4 : 2;
}

[[nodiscard]] constexpr std::string_view name_of(DType dtype) {
  switch (dtype) {
    case DType::kFloat32:
      return "fp32";
    case DType::kBFloat16:
      return "bf16";
    case DType::kFloat16:
      return "fp16";
  }
  return "?";
}

}  // namespace sluice
