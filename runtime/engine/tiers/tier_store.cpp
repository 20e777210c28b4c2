#include "runtime/engine/tiers/tier_store.hpp"

#include <algorithm>

#include "base/error.hpp"
#include "base/index.hpp"
#include "runtime/model/tensor_view.hpp"
#include "runtime/program/model/memory_model.hpp"

namespace sluice {
namespace {

// Settings that change the meaning of an element but no array size.
std::string layout_of(const StepShape& shape) {
  std::string layout = "dp " + std::to_string(shape.dp) + " stage " + std::to_string(shape.stage);
  if (shape.tensor > 1) layout += " tensor " + std::to_string(shape.tensor);
  if (shape.pipeline.stages > 1) {
    layout += " pipeline " + std::to_string(shape.pipeline.stages) + " x " +
              std::to_string(shape.pipeline.virtual_stages());
  }
  return layout;
}

ShardStoreOptions store_options(const StepShape& shape, bool image, const TierOptions& options) {
  ShardStoreOptions store{.host_budget = options.host_budget,
                          .nvme = options.nvme,
                          .host_pages = options.host_pages,
                          .dma_pages = options.dma_pages,
                          .chunk_elems = shape.placement.chunk_elems,
                          .image_layout = image ? layout_of(shape) : std::string()};
  store.nvme.image = image;
  store.nvme.spares_images = shape.frozen || options.image.spare;
  return store;
}

std::vector<std::string> names_of(const std::vector<GroupPlan>& groups) {
  std::vector<std::string> names;
  names.reserve(groups.size());
  for (const GroupPlan& group : groups) names.push_back(group.name);
  return names;
}

}  // namespace

TierStore::TierStore(const StepPlan& plan, const StateTable& table,
                     const OptimizerOptions& optimizer, std::span<const Program* const> programs,
                     GroupStore& groups, int dp_rank, const TierOptions& options,
                     std::shared_ptr<DeviceCopies> copies)
    : shape_(plan.shape),
      store_(table, names_of(plan.groups),
             store_options(plan.shape, programs.front()->image, options)),
      copies_(std::move(copies), store_.block(StateArray::kBounce)) {
  find_groups(groups);
  take_slots(programs, options);
  updates_ = std::make_unique<ChunkUpdates>(store_, copies_.device(), shape_, optimizer, groups_,
                                            *programs.front());
  moves_ = std::make_unique<TierMoves>(store_, copies_, shape_, groups_, arena_.data(), dp_rank);
  if (store_.nvme() != nullptr && !store_.keeps_image()) store_.nvme()->open();
}

// Memory of copies that may still be in flight is not freed.
TierStore::~TierStore() {
  if (!copies_.device().lost()) return;
  store_.leak();
  arena_.leak();
}

void TierStore::find_groups(GroupStore& groups) {
  const auto address = [this](const at::Tensor& tensor) {
    return tensor.defined() ? copies_.device().address(tensor.data_ptr()) : DevicePtr();
  };
  for (int g = 0; g < groups.size(); ++g) {
    const GroupState& state = groups.group(g);
    OffDeviceGroup group{.params = store_.find(g, StateArray::kParameterShard),
                         .master = store_.find(g, StateKind::kMaster),
                         .remainders = store_.find(g, StateArray::kRemainder),
                         .grads = {},
                         .on_device = device_elems(shape_, g),
                         .first_element = state.first_element,
                         .segments = state.segments,
                         .device_shard = address(state.shard),
                         .device_grads = address(state.grad_owned)};
    if (params_are_master(shape_, g) || is_frozen(shape_, g)) group.master = group.params;
    for (const StateKind moment : rule_of(shape_.optimizer).moment_kinds()) {
      group.moments[moment_index(moment)] = store_.find(g, moment);
    }
    for (int s = 0; store_.find(g, StateArray::kGradientShard, s) >= 0; ++s) {
      group.grads.push_back(store_.find(g, StateArray::kGradientShard, s));
    }
    groups_.push_back(std::move(group));
  }
}

void TierStore::take_slots(std::span<const Program* const> programs, const TierOptions& options) {
  std::int64_t arena_bytes = 0;
  std::int64_t program_bytes = 0;  // of a training program: the others are in its figure
  for (const Program* program : programs) {
    arena_bytes = std::max(arena_bytes, program->host_arena_bytes);
    program_bytes = std::max(program_bytes, host_bytes_of(*program));
  }
  arena_ = store_.pool().allocate("arena", arena_bytes, options.dma_pages);
  step_program_ = store_.pool().reserve("step_program", program_bytes);
  if (store_.nvme() != nullptr && arena_.bytes() > 0) {
    store_.nvme()->register_buffer(arena_.data(), arena_.bytes());
  }
}

Ticket TierStore::run(const Program& program, const Op& op, DevicePtr device_arena) {
  if (op.chunk < 0) return moves_->run(program, op, device_arena);
  return updates_->run(op, nth(program.chunks, op.chunk));
}

void TierStore::write_master(int g, std::int64_t begin, std::span<const float> values) {
  const std::int64_t on_device = group(g).on_device;
  const std::int64_t skip = std::max<std::int64_t>(0, on_device - begin);
  if (skip < std::ssize(values) && off_device_elems(shape_, g) > 0) {
    store_.put(group(g).master_or_remainders(), begin + skip - on_device,
               values.subspan(static_cast<std::size_t>(skip)));
  }
  write_params(g, begin, values);
}

void TierStore::write_params(int g, std::int64_t begin, std::span<const float> values) {
  if (group(g).params < 0 || params_are_master(shape_, g)) return;
  store_.put(group(g).params, begin, values);
}

void TierStore::fill_params(int g, std::int64_t begin, std::span<const float> values) {
  const RowId params = group(g).params;
  if (params < 0 || !store_.on_nvme(params)) write_params(g, begin, values);
}

void TierStore::read_master(int g, std::span<float> owned) {
  const std::int64_t on_device = group(g).on_device;
  if (on_device < std::ssize(owned)) {
    get_master(g, 0, owned.subspan(static_cast<std::size_t>(on_device)));
  }
}

// Of states off the device, from element `begin` on.
void TierStore::get_master(int g, std::int64_t begin, std::span<float> values) {
  const OffDeviceGroup& of = group(g);
  if (of.remainders >= 0) {
    store_.get(of.params, begin, values);
    store_.get(of.remainders, begin, values);
  } else if (of.master >= 0) {
    store_.get(of.master, begin, values);
  }
}

std::int64_t TierStore::state_elems(int g) const {
  return owned_elems(shape_, g) - group(g).on_device;
}

void TierStore::check_range(int g, std::int64_t begin, std::int64_t elems) const {
  check(begin >= 0 && begin + elems <= state_elems(g),
        "a range of a group's states is one of those off the device");
}

void TierStore::read_state(int g, StateKind kind, std::int64_t begin, std::span<float> values) {
  check_range(g, begin, std::ssize(values));
  if (kind == StateKind::kMaster) {
    get_master(g, begin, values);
  } else {
    store_.get(store_.find(g, kind), begin, values);
  }
}

void TierStore::write_moment(int g, StateKind kind, std::int64_t begin,
                             std::span<const float> values) {
  check_range(g, begin, std::ssize(values));
  store_.put(store_.find(g, kind), begin, values);
}

void TierStore::withdraw_image() {
  if (keeps_image()) store_.nvme()->withdraw_image();
}

std::byte* TierStore::host_gradients(int g) const { return store_.host(group(g).grads[0]); }

std::int64_t TierStore::nvme_bytes() const {
  return store_.nvme() != nullptr ? store_.nvme()->total_bytes() : 0;
}

NvmeStats TierStore::nvme_stats() const {
  return store_.nvme() != nullptr ? store_.nvme()->stats() : NvmeStats{};
}

}  // namespace sluice
