// The end of a branch and the norm of its result, of one row by one warp.
#pragma once

#include "kernels/cuda/branch_body.hpp"
#include "kernels/cuda/norm_body.hpp"

namespace sluice::cuda {

// The bits of branch_body, then norm_forward_body: norm.at.x is branch.out. A lane reads only what
// it wrote itself.
template <class T, bool kCentered>
SLUICE_BODY void branch_norm_body(const BranchArgs& branch, const NormRows& norm, void* y,
                                  std::int64_t row, const Warp& warp, bool aligned) {
  warp.each([&](int lane) { branch_body<T>(branch, row, {lane, kWarp}, aligned); });
  norm_forward_body<T, kCentered>(norm, y, row, warp, aligned);
}

}  // namespace sluice::cuda
