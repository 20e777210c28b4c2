// Rotary position embedding (Su et al. 2021) in the half-split order of Hugging Face: elements i
// and i + D/2 of a head turn together by position * theta^(-2i/D). With llama3 scaling, slow
// frequencies are divided by the factor, fast ones kept, frequencies between blended.
#pragma once

#include <vector>

#include "runtime/model/documents.hpp"
#include "runtime/model/math/device_constant.hpp"
#include "runtime/model/model_options.hpp"

namespace sluice {

// D/2 values in fp32. REQUIRES: with_defaults() was applied; even head_dim.
[[nodiscard]] std::vector<float> rope_frequencies(const ModelOptions& options);

// cos and sin of all angles, [seq, D/2] fp32; one table of a model, shared by its blocks.
class RopeTable {
 public:
  // `dry`: only for the meta device; nothing is computed.
  explicit RopeTable(const ModelOptions& options, bool dry = false);

  // The tokens of each sequence have positions [first, first + count). With documents, positions
  // restart at 0 in each document, and `first` is 0.
  struct Positions {
    std::int64_t first = 0;
    std::int64_t count = 0;
    const Documents* documents = nullptr;
  };
  // cos and sin of a call's tokens: [S, D/2], or [B, S, D/2] for packed rows.
  struct Angles {
    at::Tensor cos, sin;
  };
  [[nodiscard]] Angles angles(const Positions& positions, const at::Device& device) const;
  // The angles of `rows` packed rows. Without documents each row is one document.
  [[nodiscard]] Angles packed_angles(const Positions& positions, std::int64_t rows,
                                     const at::Device& device) const;

  // Differentiable. x: [B, heads, S, D] or, with position_dim 1, [B, S, heads, D] -> the same shape
  // and type, contiguous. Computed in fp32.
  [[nodiscard]] static at::Tensor apply(const at::Tensor& x, std::int64_t position_dim,
                                        const Angles& angles);

  // In place, on the host (kernels/cpu/rope.hpp), a GPU or the meta device. x: [N, E] contiguous;
  // the first `heads` heads of a row turn; row n is token n % count of its sequence. `back`: the
  // inverse rotation, which is the gradient. REQUIRES: first + count <= the table's seq.
  void turn(const at::Tensor& x_NE, const Positions& positions, std::int64_t heads,
            bool back = false) const;

 private:
  DeviceConstant cos_;
  DeviceConstant sin_;
};

}  // namespace sluice
