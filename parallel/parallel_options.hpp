// The `parallel:` section: the mesh.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

namespace sluice {

enum class PipelineSchedule { kGpipe, k1f1b, kInterleaved, kZeroBubble };

// The configuration's name of a schedule.
[[nodiscard]] constexpr std::string_view name_of(PipelineSchedule schedule) {
  switch (schedule) {
    case PipelineSchedule::kGpipe:
      return "gpipe";
    case PipelineSchedule::k1f1b:
      return "1f1b";
    case PipelineSchedule::kInterleaved:
      return "interleaved";
    case PipelineSchedule::kZeroBubble:
      return "zero_bubble";
  }
  return "?";
}

struct ParallelOptions {
  int tensor = 1;
  bool sequence = false;
  int pipeline = 1;
  int virtual_stages = 1;
  PipelineSchedule schedule = PipelineSchedule::k1f1b;
  int data = 0;  // 0: auto = world / (tensor x pipeline)
  // Blocks of each pipeline stage; with virtual stages, of each chunk in model order. The embedding
  // belongs to the first, the loss head to the last. Empty: the stages are balanced by FLOP.
  std::vector<int> stage_layers{};
};

// Rows of a token table on each tensor-parallel rank; the last rank has the remaining rows. The
// result is a multiple of 8, so that a rank's fp32 logits begin on half a cache line.
[[nodiscard]] constexpr std::int64_t vocab_rows(std::int64_t vocab, int tensor) {
  constexpr std::int64_t kMultiple = 8;
  const std::int64_t least = (vocab + tensor - 1) / tensor;
  return (least + kMultiple - 1) / kMultiple * kMultiple;
}

}  // namespace sluice
