#include "runtime/data/sample_mix.hpp"

#include <algorithm>
#include <utility>

#include "base/error.hpp"

namespace sluice {

SampleMix::SampleMix(std::vector<MixPart> parts, std::int64_t seq, std::uint64_t seed,
                     Epochs epochs)
    : parts_(std::move(parts)), epochs_(epochs) {
  constexpr std::uint64_t kStride = 0xD1B54A32D192ED03U;  // odd: another seed for each part
  std::vector<double> weights;
  for (std::size_t i = 0; i < parts_.size(); ++i) {
    const MixPart& part = parts_[i];
    auto samples =
        part.samples ? part.samples(seq) : std::make_shared<StreamSamples>(part.source, seq);
    const std::int64_t count = samples->samples();
    if (count == 0) continue;
    drawn_.push_back({std::move(samples), SampleOrder(count, seed + i * kStride), part.weight});
    weights.push_back(part.weight);
  }
  if (!weights.empty()) plan_.emplace(weights);
}

std::int64_t SampleMix::samples() const {
  std::int64_t sum = 0;
  for (const Drawn& drawn : drawn_) sum += drawn.order.samples();
  return sum;
}

std::int64_t SampleMix::tokens() const {
  std::int64_t sum = 0;
  for (const MixPart& part : parts_) sum += part.source->size();
  return sum;
}

std::pair<double, double> SampleMix::epochs(std::int64_t draws) const {
  double weights = 0;
  for (const Drawn& drawn : drawn_) weights += drawn.weight;
  std::vector<double> epochs;
  for (const Drawn& drawn : drawn_) {
    epochs.push_back(static_cast<double>(draws) * drawn.weight / weights /
                     static_cast<double>(drawn.order.samples()));
  }
  const auto [fewest, most] = std::minmax_element(epochs.begin(), epochs.end());
  return {*fewest, *most};
}

SampleMix::Place SampleMix::place_of(std::int64_t draw) const {
  if (!plan_) throw Error("SampleMix::read without samples");
  const BlendDraw at = plan_->at(draw);
  const auto& [samples, order, weight] = drawn_[at.part];
  return {*samples, epochs_ == Epochs::kMixed ? order.draw(at.index)
                                              : order.at(0, at.index % order.samples())};
}

std::int64_t SampleMix::read(std::int64_t draw, const SampleRow& row) const {
  const auto [samples, sample] = place_of(draw);
  return samples.read(sample, row);
}

std::int64_t SampleMix::learned(std::int64_t draw) const {
  const auto [samples, sample] = place_of(draw);
  return samples.learned(sample);
}

}  // namespace sluice
