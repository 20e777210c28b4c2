// Which operator computes attention on a GPU, for refusals, plans and runs. Pure.
#pragma once

#include <cstdint>
#include <string>

#include "base/bytes.hpp"
#include "base/dtype.hpp"
#include "runtime/model/model_options.hpp"

namespace sluice {

enum class AttentionOperator { kFlash, kEfficient, kCudnn, kVarlen };

// One call of attention: `packed` rows hold several documents.
struct AttentionCall {
  AttentionBackend wanted = AttentionBackend::kFlash;
  bool fp32 = false;
  bool packed = false;
  std::int64_t queries = 0;  // of a sample
};

// cuDNN does not support samples of one token. Its other limits (why_no_cudnn) are checked before a
// run. Both 16-bit operators need compute capability 8.0.
[[nodiscard]] inline AttentionOperator attention_operator(const AttentionCall& call) {
  if (call.packed) return AttentionOperator::kVarlen;
  if (call.fp32) return AttentionOperator::kEfficient;
  const bool cudnn = call.wanted == AttentionBackend::kCudnn && call.queries > 1;
  return cudnn ? AttentionOperator::kCudnn : AttentionOperator::kFlash;
}

// The heads that flash attention takes.
[[nodiscard]] inline bool fits_flash(std::int64_t head_dim) {
  constexpr std::int64_t kMultiple = 8, kLargest = 256;
  return head_dim % kMultiple == 0 && head_dim <= kLargest;
}

// Columns of a row of dq in fp32, which flash attention's backward adds up in scratch.
[[nodiscard]] inline std::int64_t flash_scratch_columns(std::int64_t head_dim) {
  constexpr std::int64_t kSmall = 128;
  return round_up(head_dim, head_dim <= kSmall ? 32 : 64);
}

// Batched products compute a model's attention in training (device/product_attention.hpp).
[[nodiscard]] inline bool trains_by_products(const ModelOptions& o) {
  return o.on_gpu && o.explicit_units && (o.dropout > 0 || !fits_flash(o.head_dim));
}

// Why cuDNN does not support a model's attention; empty: it does.
[[nodiscard]] inline std::string why_no_cudnn(const ModelOptions& options, DType dtype) {
  constexpr std::int64_t kMultiple = 8, kLargest = 128;
  const ModelOptions o = with_defaults(options);
  if (dtype == DType::kFloat32) return "takes 16 bits, and train.dtype is fp32";
  if (!o.explicit_units) return "needs explicit blocks, and model.explicit_units is false";
  if (o.dropout > 0) return "takes no model.dropout";
  if (o.head_dim % kMultiple != 0 || o.head_dim > kLargest) {
    return "takes a head_dim that is a multiple of 8 up to 128, which " +
           std::to_string(o.head_dim) + " is not";
  }
  if (o.sliding_window > 0 && o.sliding_window < o.seq) {
    return "takes no model.sliding_window that is shorter than model.seq";
  }
  if (o.packed_rows) return "takes no rows of several documents";
  if (o.deterministic) {
    return "adds in any order, and train.deterministic is true";
  }
  return "";
}

// The operator that train.attention means. auto takes cuDNN's where it is known to be faster: on
// Hopper (docs/benchmarks-gpu.md).
[[nodiscard]] inline AttentionBackend settled_attention(AttentionChoice choice,
                                                        const ModelOptions& options, DType dtype) {
  constexpr int kHopper = 90;
  const bool hopper = options.on_gpu && options.gpu.compute_capability == kHopper;
  const bool cudnn =
      choice == AttentionChoice::kCudnn ||
      (choice == AttentionChoice::kAuto && hopper && why_no_cudnn(options, dtype).empty());
  return cudnn ? AttentionBackend::kCudnn : AttentionBackend::kFlash;
}

}  // namespace sluice
