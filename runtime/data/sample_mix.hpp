// Samples of one part of the data, or of a blend of several. Immutable after construction;
// thread-safe.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "runtime/data/blend_plan.hpp"
#include "runtime/data/sample_order.hpp"
#include "runtime/data/sample_source.hpp"
#include "runtime/data/token_source.hpp"

namespace sluice {

struct MixPart {
  std::shared_ptr<const TokenSource> source;
  double weight = 1;      // relative to the other parts'
  std::string name = {};  // in messages
  // Makes the part's samples of seq tokens. Empty: StreamSamples of the source.
  std::function<std::shared_ptr<const SampleSource>(std::int64_t seq)> samples = {};
};

enum class Epochs {
  kMixed,  // each epoch of a part has an order of its own
  kEqual,  // each epoch repeats the first
};

class SampleMix {
 public:
  // Parts without a sample are left out of the draws. The only part's order follows from the seed
  // alone; of several parts, also from the part's position.
  SampleMix(std::vector<MixPart> parts, std::int64_t seq, std::uint64_t seed, Epochs epochs);

  [[nodiscard]] std::int64_t samples() const;  // of all parts
  [[nodiscard]] std::int64_t tokens() const;
  // Epochs that `draws` draws make: of the part that has fewest, and of the part that has most.
  // REQUIRES: samples() > 0.
  [[nodiscard]] std::pair<double, double> epochs(std::int64_t draws) const;
  [[nodiscard]] const std::vector<MixPart>& parts() const { return parts_; }

  // Fills the row with draw `draw` (from 0) and returns the position of its first token in its
  // source. REQUIRES: samples() > 0.
  std::int64_t read(std::int64_t draw, const SampleRow& row) const;
  // SampleSource::learned of the draw's sample.
  [[nodiscard]] std::int64_t learned(std::int64_t draw) const;

 private:
  struct Drawn {
    std::shared_ptr<const SampleSource> samples;
    SampleOrder order;
    double weight;  // MixPart::weight
  };
  struct Place {
    const SampleSource& samples;
    std::int64_t sample;
  };
  [[nodiscard]] Place place_of(std::int64_t draw) const;

  std::vector<MixPart> parts_;
  Epochs epochs_;
  std::vector<Drawn> drawn_;       // the parts that have samples
  std::optional<BlendPlan> plan_;  // over these; nothing if none has samples
};

}  // namespace sluice
