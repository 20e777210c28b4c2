// A run that keeps an image (offload.image), as often as it is interrupted, against one that never
// was. Its ranks are threads: an engine that is thrown away between steps leaves what a kill
// leaves.
#pragma once

#include <cstdint>
#include <string>

#include "tests/runtime/engine/world.hpp"

namespace sluice::testing {

inline constexpr int kImageSteps = 13;

// Five layers in sixteen-KiB chunks, two micro-batches a step, never clipped.
[[nodiscard]] EngineOptions image_model(DType dtype, int dp);
// The optimizer on NVMe in `folder`, as an image.
void keep_image(EngineOptions& options, const std::string& folder);

struct ImageLife {
  std::int64_t from = 0;  // the step it went on from; -1: none, it began anew
  WorldResult result;     // losses and norms of its steps
  SpeculationCounts counts;
};

// Trains from where the image is (or the start) to step `last`; what it was given is rank 0's.
// `to_the_end`: evaluates, notes the weights and ends the image.
[[nodiscard]] ImageLife live(EngineOptions options, std::int64_t last, bool to_the_end = false);

// All steps, on the same mesh, with `options` as they are.
[[nodiscard]] WorldResult uninterrupted(const EngineOptions& options);

// What an uninterrupted run has of the same steps, and at the end.
void expect_goes_on(const ImageLife& life, std::int64_t from, const WorldResult& oracle,
                    const std::string& what);
void expect_ends_alike(ImageLife life, const WorldResult& oracle, const std::string& what);

}  // namespace sluice::testing
