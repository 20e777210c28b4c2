#include "runtime/model/device/fp8_products.hpp"

#include <initializer_list>
#include <utility>
#include <vector>

#include "base/bytes.hpp"
#include "base/error.hpp"
#include "runtime/model/device/kernel_calls.hpp"
#include "runtime/model/empty_tensor.hpp"

namespace sluice::device {
namespace {

using at::Tensor;

constexpr std::int64_t kAlignment = 256;

// Layouts of codes. A product's operands have their rows along K.
enum Layouts { kRows = 1, kTurned = 2 };

struct Operand {
  const Measured of;
  Fp8Format format;
  int layouts;
};

// A matrix of codes: `lines` rows of K elements.
struct Side {
  cuda::Fp8Matrix codes;
  std::int64_t lines, K;
};

// The operands of a call in 8 bits. All scratch of the call is one tensor, so that the allocator's
// blocks hardly differ from call to call.
class Rounded {
 public:
  Rounded(std::initializer_list<Operand> operands) : operands_(operands) {
    const std::int64_t bytes = place();
    memory_ = empty_tensor({bytes}, c10::ScalarType::Byte, operands_[0].of.tensor.device());
    if (memory_.is_meta()) return;
    place();
    block_kernels().fp8_quantise(args_, stream_of(memory_));
  }

  [[nodiscard]] Side rows(int index) const {
    const cuda::Fp8Operand& a = args_.of[index];
    return {{a.codes, a.format, a.inverse}, a.rows, a.columns};
  }
  [[nodiscard]] Side turned(int index) const {
    const cuda::Fp8Operand& a = args_.of[index];
    return {{a.turned, a.format, a.inverse}, a.columns, round_up(a.rows, cuda::kFp8Multiple)};
  }

  // d [n, m] = b [n, k] a [m, k]^T + bias, or +=.
  void multiply(const Tensor& d, const Side& a, const Side& b, const Tensor& bias,
                bool accumulate) const {
    check(a.K == b.K && d.size(0) == b.lines && d.size(1) == a.lines && d.stride(1) == 1,
          "the matrices of an FP8 product fit each other");
    if (memory_.is_meta()) return;
    block_kernels().fp8_product({.a = a.codes,
                                 .b = b.codes,
                                 .d = d.data_ptr(),
                                 .m = a.lines,
                                 .n = b.lines,
                                 .k = a.K,
                                 .d_stride = d.size(0) == 1 ? d.size(1) : d.stride(0),
                                 .wide = d.scalar_type() == c10::ScalarType::Float,
                                 .accumulate = accumulate,
                                 .bias = bias.defined() ? bias.data_ptr() : nullptr,
                                 .workspace = memory_.data_ptr(),
                                 .workspace_bytes = cuda::kFp8WorkspaceBytes},
                                stream_of(d));
  }

 private:
  // Sets the arguments; their addresses are null while there is no memory. Returns all bytes.
  std::int64_t place() {
    std::int64_t bytes = cuda::kFp8WorkspaceBytes;
    const auto take = [&](std::int64_t count) -> void* {
      const std::int64_t at = std::exchange(bytes, bytes + round_up(count, kAlignment));
      const bool there = memory_.defined() && !memory_.is_meta();
      return there ? static_cast<std::byte*>(memory_.data_ptr()) + at : nullptr;
    };
    args_.count = 0;
    for (const Operand& operand : operands_) {
      const Tensor& x = operand.of.tensor;
      const Tensor& maxima = operand.of.row_maxima;
      check(!maxima.defined() || maxima.size(0) == x.size(0),
            "the largest magnitudes are those of the rows of an FP8 product");
      check(x.dim() == 2 && x.stride(1) == 1 && x.scalar_type() == c10::ScalarType::BFloat16,
            "an operand of an FP8 product is a bf16 matrix of contiguous rows");
      cuda::Fp8Operand& a = args_.of[args_.count++];
      a = {.x = memory_.defined() ? x.data_ptr() : nullptr,
           .rows = x.size(0),
           .columns = x.size(1),
           .stride = x.size(0) == 1 ? x.size(1) : x.stride(0),
           .format = operand.format};
      if (memory_.defined() && maxima.defined()) {
        a.row_maxima = static_cast<const std::uint32_t*>(maxima.data_ptr());
      }
      a.parts = static_cast<std::uint32_t*>(take(cuda::kFp8PartBytes));
      a.inverse = static_cast<float*>(take(sizeof(float)));
      if ((operand.layouts & kRows) != 0) a.codes = take(a.rows * a.columns);
      if ((operand.layouts & kTurned) != 0) a.turned = take(turned(args_.count - 1).K * a.columns);
    }
    return bytes;
  }

  const std::vector<Operand> operands_;
  cuda::Fp8Operands args_;
  Tensor memory_;
};

}  // namespace

void fp8_linear(const Tensor& y, const Measured& x, const Tensor& weight, const Tensor& bias) {
  const Rounded all{{weight, Fp8Format::kE4M3, kRows}, {x, Fp8Format::kE4M3, kRows}};
  all.multiply(y, all.rows(0), all.rows(1), bias, false);
}

void fp8_input_gradient(const Tensor& dx, const Measured& dy, const Tensor& weight,
                        bool accumulate) {
  const Rounded all{{weight, Fp8Format::kE4M3, kTurned}, {dy, Fp8Format::kE5M2, kRows}};
  all.multiply(dx, all.turned(0), all.rows(1), {}, accumulate);
}

void fp8_weight_gradient(const Tensor& target, const Measured& dy, const Measured& x,
                         bool accumulate) {
  const Rounded all{{x, Fp8Format::kE4M3, kTurned}, {dy, Fp8Format::kE5M2, kTurned}};
  all.multiply(target, all.turned(0), all.turned(1), {}, accumulate);
}

void fp8_gradients(const Fp8Gradients& to, const Measured& dy, const Tensor& weight,
                   const Measured& x) {
  const Rounded all{{weight, Fp8Format::kE4M3, kTurned},
                    {x, Fp8Format::kE4M3, kTurned},
                    {dy, Fp8Format::kE5M2, kRows | kTurned}};
  all.multiply(to.target, all.turned(1), all.turned(2), {}, to.accumulate);
  all.multiply(to.dx, all.turned(0), all.rows(2), {}, false);
}

}  // namespace sluice::device
