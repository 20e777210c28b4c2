// Which place of a chunk on NVMe is current, and what of that outlives the process.
#include <algorithm>
#include <utility>

#include "base/error.hpp"
#include "runtime/engine/tier_store.hpp"

namespace sluice {

// The chunks that speculation has updated have moved; with an image, all that this program updates.
void TierStore::set_update(const UpdateArgs* args, bool kept) {
  update_ = args;
  keeps_ = kept;
  if (args == nullptr || !(kept || image_)) return;
  const std::int64_t chunk = shape_.placement.chunk_elems;
  for (Away& a : away_) {
    for (auto c = static_cast<std::size_t>(a.second_begin / chunk); c < a.in_second.size(); ++c) {
      a.in_second[c] = a.in_second[c] == 0 ? 1 : 0;
    }
  }
  image_place_ = 1 - image_place_;
}

void TierStore::note_early(const Program& train) {
  for (const Chunk& chunk : train.chunks) {
    if (!chunk.speculated) continue;
    Away& a = away(chunk.group);
    const std::int64_t begin = chunk.begin - device_elems(shape_, chunk.group);
    if (a.early_elems == 0) a.early_begin = begin;
    a.early_elems = begin + chunk.elems - a.early_begin;
  }
}

bool TierStore::speculates() const {
  return std::any_of(away_.begin(), away_.end(), [](const Away& a) { return a.early_elems > 0; });
}

std::int64_t TierStore::second_place_bytes() const {
  std::int64_t bytes = 0;
  for (const Away& a : away_) {
    const auto add = [&](const Array& array) {
      if (array.second.index < 0) return;
      bytes += NvmeStore::padded_bytes(a.second_elems * array.element_bytes());
    };
    add(a.params);
    if (a.master.second.index != a.params.second.index) add(a.master);
    add(a.moment1);
    add(a.moment2);
  }
  return bytes;
}

NvmeOptions TierStore::store_options(const TierOptions& options) const {
  NvmeOptions nvme = options.nvme;
  nvme.image = image_;
  nvme.spares_images = shape_.frozen || options.image.spare;
  return nvme;
}

void TierStore::declare_image() {
  std::vector<ImagePair> pairs;
  for (const Away& a : away_) {
    const auto add = [&](const Array& array) {
      if (array.second.index < 0) return;
      pairs.push_back({array.extent, array.second});
    };
    add(a.params);
    if (a.master.second.index != a.params.second.index) add(a.master);
    add(a.moment1);
    add(a.moment2);
  }
  // What changes the meaning of an element without changing the size of anything.
  std::string layout = "dp " + std::to_string(shape_.dp) + " stage " + std::to_string(shape_.stage);
  if (shape_.tensor > 1) layout += " tensor " + std::to_string(shape_.tensor);
  if (shape_.pipeline.stages > 1) {
    layout += " pipeline " + std::to_string(shape_.pipeline.stages) + " x " +
              std::to_string(shape_.pipeline.virtual_stages());
  }
  nvme_->add_image(std::move(pairs), layout);
}

FoundImage TierStore::find_image() { return nvme_->find_image(); }

void TierStore::remove_found_image() { nvme_->remove_found_image(); }

void TierStore::adopt_image(const FoundImage& found, std::size_t version) {
  nvme_->adopt(version);
  image_place_ = found.versions.at(version).place;
  for (Away& a : away_) {
    std::fill(a.in_second.begin(), a.in_second.end(), static_cast<char>(image_place_));
  }
}

Ticket TierStore::commit(std::int64_t step, std::string state) {
  return nvme_->commit_image(step, image_place_, std::move(state));
}

void TierStore::withdraw_image() {
  if (image_) nvme_->withdraw_image();
}

void TierStore::end_image() { nvme_->end_image(); }

}  // namespace sluice
