#include "kernels/cpu/update/update_span.hpp"

#include "base/error.hpp"

namespace sluice {

void check_span(const UpdateSpan& span, const std::string& optimizer, std::size_t moments) {
  check(span.n >= 0, optimizer + ": n < 0");
  if (span.n == 0) return;
  const bool split = span.remainders != nullptr;
  check(
      !split || (span.master == nullptr && span.master_out == nullptr && span.weights != nullptr &&
                 span.weights_out != nullptr && span.weights_dtype == DType::kBFloat16),
      optimizer + ": remainders are those of bf16 weights, in place of master weights");
  check(split || span.remainders_out == nullptr,
        optimizer + ": new remainders are those of remainders");
  const bool elsewhere = span.master_out != nullptr || span.remainders_out != nullptr;
  bool given = (split || span.master != nullptr) && span.grad != nullptr;
  for (std::size_t k = 0; k < moments; ++k) given = given && span.moments[k] != nullptr;
  check(given, optimizer + ": a null buffer");
  for (std::size_t k = 0; k < moments; ++k) {
    check((span.moments_out[k] != nullptr) == elsewhere,
          optimizer + ": new master weights and moments go to other memory together");
  }
  check(span.moments_dtype != DType::kFloat16,
        optimizer +
            ": moments in fp16 would lose second moments below 6e-8; keep them in fp32 or bf16");
  check(span.rounding_element >= 0, optimizer + ": rounding_element < 0");
}

}  // namespace sluice
