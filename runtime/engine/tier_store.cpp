#include "runtime/engine/tier_store.hpp"

#include <algorithm>

#include "base/error.hpp"
#include "kernels/cpu/philox.hpp"
#include "runtime/model/tensor_view.hpp"
#include "runtime/program/model/memory_model.hpp"
#include "runtime/program/write/use_order.hpp"

namespace sluice {

TierStore::TierStore(const StepPlan& plan, const OptimizerOptions& optimizer,
                     std::span<const Program* const> programs, GroupStore& groups, int dp_rank,
                     std::uint64_t seed, const TierOptions& options,
                     std::shared_ptr<DeviceCopies> copies)
    : shape_(plan.shape),
      optimizer_(optimizer),
      seed_(seed),
      dp_rank_(dp_rank),
      layout_(chunk_layout(plan.shape)),
      image_(programs.front()->image),
      away_(plan.shape.groups.size()),
      inputs_(plan.shape.units.size()),
      pool_(options.host_budget, options.host_pages),
      dma_pages_(options.dma_pages),
      copies_(std::move(copies), options, pool_, programs),
      wanted_(static_cast<std::size_t>(kTagCount)) {
  const Placement& p = shape_.placement;
  for (const Tier tier : {p.optimizer, p.parameters, p.gradients, p.activations}) {
    if (tier == Tier::kNvme && !nvme_) nvme_ = std::make_unique<NvmeStore>(store_options(options));
  }
  plan_states(plan, *programs.front());
  find_on_device(groups);
  plan_inputs();
  take_host_memory(programs);
  if (image_) declare_image();
  std::int64_t largest = 0;  // of a training program: those beside it are in its figure
  for (const Program* program : programs) largest = std::max(largest, host_bytes_of(*program));
  blocks_.push_back(pool_.reserve("step_program", largest));
  if (!nvme_) return;
  blocks_.push_back(pool_.reserve("nvme_store", nvme_->host_bytes()));
  if (ring_.bytes() > 0) nvme_->register_buffer(ring_.data(), ring_.bytes());
  if (arena_.bytes() > 0) nvme_->register_buffer(arena_.data(), arena_.bytes());
  if (!image_) nvme_->open();
}

TierStore::~TierStore() {
  blocks_.push_back(std::move(ring_));
  blocks_.push_back(std::move(arena_));
  copies_.leak_if_lost(blocks_);
}

void TierStore::declare(Array& array, Tier tier, Tag tag, const std::string& name,
                        std::int64_t elems, DType dtype, std::int64_t second_elems) {
  array.dtype = dtype;
  const std::int64_t bytes = elems * array.element_bytes();
  if (tier == Tier::kHost) {
    wanted_[static_cast<std::size_t>(tag)].emplace_back(&array, bytes);
  } else {
    array.extent = nvme_->add(std::string(name_of(tag)), name, bytes);
    if (second_elems == 0) return;
    array.second = nvme_->add(std::string(name_of(tag)), name + ".second",
                              second_elems * array.element_bytes());
  }
}

void TierStore::plan_states(const StepPlan& plan, const Program& train) {
  for (const SecondPlace& place : second_places(train.chunks)) {
    Away& a = away(place.group);
    a.second_begin = place.begin - device_elems(shape_, place.group);
    a.second_elems = place.elems;
    const std::int64_t chunk = shape_.placement.chunk_elems;
    a.in_second.assign(
        static_cast<std::size_t>((a.second_begin + a.second_elems + chunk - 1) / chunk), 0);
  }
  note_early(train);
  std::int64_t elements = 0;  // of the groups before
  const bool is_part = shape_.tensor > 1 || shape_.pipeline.stages > 1;
  constexpr int kSpareBits = 8;  // so that elements of a group can be added
  for (int g = 0; g < static_cast<int>(away_.size()); ++g) {
    const GroupPlan& group = plan.groups[static_cast<std::size_t>(g)];
    // Replicas of a group round alike, whatever else their ranks hold.
    plan_group(group, g,
               is_part ? static_cast<std::int64_t>(hash_name(group.name) >> kSpareBits) : elements);
    elements += shape_.groups[static_cast<std::size_t>(g)].elems;
  }
}

void TierStore::plan_group(const GroupPlan& plan, int g, std::int64_t first_element) {
  const Placement& p = shape_.placement;
  const std::string& name = plan.name;
  Away& a = away(g);
  a.there = device_elems(shape_, g);
  const std::int64_t owned = owned_elems(shape_, g);
  a.first_element = first_element + (shape_.stage == 0 ? 0 : dp_rank_ * owned);
  const Tier params = parameter_tier(shape_, g);
  a.params_here = params != Tier::kDevice;
  if (a.params_here) {
    declare(a.params, params, Tag::kParameters, name + ".params", owned, shape_.dtype,
            a.second_elems);
  }
  if (owned > a.there && !shape_.frozen) {
    if (!params_are_master(shape_, g)) {
      declare(a.master, p.optimizer, Tag::kMaster, name + ".master", owned - a.there,
              DType::kFloat32, a.second_elems);
    }
    declare(a.moment1, p.optimizer, Tag::kMoments, name + ".moment1", owned - a.there,
            p.moments_dtype, a.second_elems);
    declare(a.moment2, p.optimizer, Tag::kMoments, name + ".moment2", owned - a.there,
            p.moments_dtype, a.second_elems);
  }
  if (p.gradients == Tier::kDevice) return;
  a.grads.resize(static_cast<std::size_t>(gradient_streams(shape_, g)));
  for (std::size_t s = 0; s < a.grads.size(); ++s) {
    declare(a.grads[s], p.gradients, Tag::kGradients, name + ".grads" + std::to_string(s), owned,
            DType::kFloat32);
  }
  a.block_sums.resize(static_cast<std::size_t>((owned + kChunkAlignElems - 1) / kChunkAlignElems));
}

void TierStore::find_on_device(GroupStore& groups) {
  for (int g = 0; g < static_cast<int>(away_.size()); ++g) {
    const GroupState& group = groups.group(g);
    Away& a = away(g);
    a.segments = group.segments;
    const auto address = [this](const at::Tensor& tensor) {
      return tensor.defined() ? copies_.device().address(tensor.data_ptr()) : DevicePtr();
    };
    a.device_shard = address(group.shard);
    a.device_grads = address(group.grad_owned);
  }
}

void TierStore::plan_inputs() {
  if (shape_.placement.activations != Tier::kNvme) return;
  const int flights = input_extents(shape_);
  for (std::size_t u = 0; u < inputs_.size(); ++u) {
    const std::int64_t bytes = leaving_bytes(shape_, static_cast<int>(u));
    for (int m = 0; m < flights && bytes > 0; ++m) {
      inputs_[u].push_back(nvme_->add(std::string(name_of(Tag::kActivations)),
                                      "input." + std::to_string(u) + "." + std::to_string(m),
                                      bytes));
    }
  }
}

// One block a tag: an array that is a page short of nothing wastes no page.
void TierStore::take_host_memory(std::span<const Program* const> programs) {
  for (std::size_t tag = 0; tag < wanted_.size(); ++tag) {
    std::int64_t bytes = 0;
    for (const auto& [array, size] : wanted_[tag]) bytes += size;
    if (bytes == 0) continue;
    const auto pages = is_copied(static_cast<Tag>(tag), shape_.dtype) ? dma_pages_ : nullptr;
    blocks_.push_back(pool_.allocate(std::string(name_of(static_cast<Tag>(tag))), bytes, pages));
    std::byte* at = blocks_.back().data();
    for (const auto& [array, size] : wanted_[tag]) {
      array->host = at;
      at += size;
    }
  }
  wanted_.clear();
  std::int64_t arena_bytes = 0;
  std::int64_t ring_bytes = 0;
  for (const Program* program : programs) {
    arena_bytes = std::max(arena_bytes, program->host_arena_bytes);
    ring_bytes = std::max(ring_bytes, program->chunk_slots * layout_.bytes);
  }
  ring_ = pool_.allocate(std::string(name_of(Tag::kStateStaging)), ring_bytes, dma_pages_);
  arena_ = pool_.allocate("arena", arena_bytes, dma_pages_);
  for (int g = 0; g < static_cast<int>(away_.size()); ++g) {
    if (away(g).there < owned_elems(shape_, g) && params_are_master(shape_, g)) {
      away(g).master = away(g).params;
    }
  }
}

float* TierStore::host_gradients(int g) const {
  return reinterpret_cast<float*>(away(g).grads[0].host);
}

std::int64_t TierStore::host_peak_bytes() const { return pool_.peak_bytes(); }

std::int64_t TierStore::nvme_bytes() const { return nvme_ ? nvme_->total_bytes() : 0; }

NvmeStats TierStore::nvme_stats() const { return nvme_ ? nvme_->stats() : NvmeStats{}; }

}  // namespace sluice
