// One block, run forward and backward on computed numbers: its results, and the allocator's count.
#pragma once

#include <vector>

#include "runtime/model/documents.hpp"
#include "runtime/model/unit_profile.hpp"
#include "runtime/model/units.hpp"

namespace sluice::testing {

// Parameters as tensors of their own, or as an engine has them: views of one flat group.
enum class Layout { kApart, kFlat };

struct BlockData {
  BlockData(const ModelOptions& options, std::int64_t batch, c10::ScalarType type,
            Layout layout = Layout::kApart);
  [[nodiscard]] BlockData to(c10::ScalarType type) const;

  std::vector<at::Tensor> params;
  at::Tensor x, dy;
  Layout layout;
};

struct BlockResult {
  std::vector<at::Tensor> tensors;  // y, dx, gradients of the parameters
};

enum class BlockMemory { kSaved, kRecomputed };

// y and dx of the last micro-batch, and the sum of the gradients. Expects dy unchanged.
[[nodiscard]] BlockResult run_block(Unit& unit, const BlockData& data,
                                    BlockMemory memory = BlockMemory::kSaved, int micro_batches = 1,
                                    const Documents* documents = nullptr);

// |ours - want| / |want| in double.
[[nodiscard]] double relative_error(const at::Tensor& ours, const at::Tensor& want);

void expect_same_bits(const BlockResult& a, const BlockResult& b, const char* what);

// As profile_unit, but of the host's allocator.
[[nodiscard]] UnitMemory real_memory(Unit& unit, const BlockData& data,
                                     const Documents* documents = nullptr);

// Expects the dry run of the model's block to equal real_memory. A backward may need up to
// `thread_scratch_bytes` less: the dry run counts this scratch for all threads, and a run has it
// for those that work at once.
void expect_dry_run_is_real(const Model& model, const BlockData& data, const std::string& what,
                            const Documents* documents = nullptr,
                            std::int64_t thread_scratch_bytes = 0);

}  // namespace sluice::testing
