#include "runtime/engine/tier_store.hpp"

#include <algorithm>
#include <cstring>

#include "kernels/base/error.hpp"
#include "kernels/cpu/cast.hpp"
#include "kernels/cpu/philox.hpp"
#include "runtime/engine/all_of.hpp"
#include "runtime/model/tensor_view.hpp"
#include "runtime/program/memory_model.hpp"
#include "runtime/program/use_order.hpp"

namespace sluice {
namespace {

// What moves at once between a caller and an array: 4 MiB of fp32.
constexpr std::size_t kStatePieceElems = std::size_t{1} << 20;

}  // namespace

TierStore::TierStore(const StepPlan& plan, const OptimizerOptions& optimizer,
                     std::span<const Program* const> programs, GroupStore& groups, int dp_rank,
                     std::uint64_t seed, const TierOptions& options)
    : shape_(plan.shape),
      optimizer_(optimizer),
      seed_(seed),
      groups_(groups),
      dp_rank_(dp_rank),
      layout_(chunk_layout(plan.shape)),
      away_(plan.shape.groups.size()),
      inputs_(plan.shape.units.size()),
      pool_(options.host_budget, options.host_pages),
      wanted_(static_cast<std::size_t>(kTagCount)) {
  const Placement& p = shape_.placement;
  for (const Tier tier : {p.optimizer, p.parameters, p.gradients, p.activations}) {
    if (tier == Tier::kNvme && !nvme_) nvme_ = std::make_unique<NvmeStore>(options.nvme);
  }
  plan_states(plan, *programs.front());
  plan_inputs();
  take_host_memory(programs);
  std::int64_t largest = 0;  // of a training program: those beside it are in its figure
  for (const Program* program : programs) largest = std::max(largest, host_bytes_of(*program));
  blocks_.push_back(pool_.reserve("step_program", largest));
  if (!nvme_) return;
  blocks_.push_back(pool_.reserve("nvme_store", nvme_->host_bytes()));
  if (ring_.bytes() > 0) nvme_->register_buffer(ring_.data(), ring_.bytes());
  if (arena_.bytes() > 0) nvme_->register_buffer(arena_.data(), arena_.bytes());
  nvme_->open();
}

TierStore::~TierStore() = default;

void TierStore::declare(Array& array, Tier tier, Tag tag, const std::string& name,
                        std::int64_t elems, std::int64_t element_bytes, std::int64_t second_elems) {
  array.element_bytes = element_bytes;
  if (tier == Tier::kHost) {
    wanted_[static_cast<std::size_t>(tag)].emplace_back(&array, elems * element_bytes);
  } else {
    array.extent = nvme_->add(std::string(name_of(tag)), name, elems * element_bytes);
    if (second_elems == 0) return;
    array.second =
        nvme_->add(std::string(name_of(tag)), name + ".second", second_elems * element_bytes);
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
  const Placement& p = shape_.placement;
  const std::int64_t element_bytes = size_of(shape_.dtype);
  const std::int64_t moment_bytes = size_of(p.moments_dtype);
  std::int64_t elements = 0;  // of the groups before
  const bool is_part = shape_.tensor > 1 || shape_.pipeline.stages > 1;
  constexpr int kSpareBits = 8;  // so that elements of a group can be added
  for (int g = 0; g < static_cast<int>(away_.size()); ++g) {
    const std::string& name = plan.groups[static_cast<std::size_t>(g)].name;
    Away& a = away(g);
    a.there = device_elems(shape_, g);
    const std::int64_t owned = owned_elems(shape_, g);
    // Replicas of a group round alike, whatever else their ranks hold.
    const std::int64_t first =
        is_part ? static_cast<std::int64_t>(hash_name(name) >> kSpareBits) : elements;
    a.first_element = first + (shape_.stage == 0 ? 0 : dp_rank_ * owned);
    elements += shape_.groups[static_cast<std::size_t>(g)].elems;
    const Tier params = parameter_tier(shape_, g);
    a.params_here = params != Tier::kDevice;
    if (a.params_here) {
      declare(a.params, params, Tag::kParameters, name + ".params", owned, element_bytes,
              a.second_elems);
    }
    if (owned > a.there && !shape_.frozen) {
      if (!params_are_master(shape_, g)) {
        declare(a.master, p.optimizer, Tag::kMaster, name + ".master", owned - a.there, 4,
                a.second_elems);
      }
      declare(a.moment1, p.optimizer, Tag::kMoments, name + ".moment1", owned - a.there,
              moment_bytes, a.second_elems);
      declare(a.moment2, p.optimizer, Tag::kMoments, name + ".moment2", owned - a.there,
              moment_bytes, a.second_elems);
    }
    if (p.gradients == Tier::kDevice) continue;
    a.grads.resize(static_cast<std::size_t>(gradient_streams(shape_, g)));
    for (std::size_t s = 0; s < a.grads.size(); ++s) {
      declare(a.grads[s], p.gradients, Tag::kGradients, name + ".grads" + std::to_string(s), owned,
              4);
    }
    a.block_sums.resize(
        static_cast<std::size_t>((owned + kChunkAlignElems - 1) / kChunkAlignElems));
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
    blocks_.push_back(pool_.allocate(std::string(name_of(static_cast<Tag>(tag))), bytes));
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
  ring_ = pool_.allocate(std::string(name_of(Tag::kStateStaging)), ring_bytes);
  arena_ = pool_.allocate("arena", arena_bytes);
  for (int g = 0; g < static_cast<int>(away_.size()); ++g) {
    if (away(g).there < owned_elems(shape_, g) && params_are_master(shape_, g)) {
      away(g).master = away(g).params;
    }
  }
}

std::vector<TierStore::Run> TierStore::runs_of(int g, const Array& array, std::int64_t begin,
                                               std::int64_t elems, At at) const {
  const std::int64_t size = array.element_bytes;
  if (array.second.index < 0) return {{array.extent, begin * size, elems * size}};
  const Away& a = away(g);
  const std::int64_t chunk = shape_.placement.chunk_elems;
  std::vector<Run> runs;
  for (std::int64_t from = begin; from < begin + elems;) {
    const std::int64_t end = std::min(begin + elems, (from / chunk + 1) * chunk);
    const auto c = static_cast<std::size_t>(from / chunk);
    const bool moved = c < a.in_second.size() && a.in_second[c] != 0;
    const bool second = moved != (at == At::kOther);
    const ExtentId extent = second ? array.second : array.extent;
    if (runs.empty() || runs.back().extent.index != extent.index) {
      runs.push_back({extent, (from - (second ? a.second_begin : 0)) * size, 0});
    }
    runs.back().bytes += (end - from) * size;
    from = end;
  }
  return runs;
}

Ticket TierStore::read(int g, const Array& array, std::int64_t begin, std::int64_t elems,
                       void* into) {
  std::vector<Ticket> parts;
  auto* to = static_cast<std::byte*>(into);
  for (const Run& run : runs_of(g, array, begin, elems, At::kCurrent)) {
    parts.push_back(nvme_->read(run.extent, run.offset, to, run.bytes));
    to += run.bytes;
  }
  return all_of(std::move(parts));
}

Ticket TierStore::write(int g, const Array& array, std::int64_t begin, std::int64_t elems,
                        const void* from, At at) {
  std::vector<Ticket> parts;
  const auto* bytes = static_cast<const std::byte*>(from);
  for (const Run& run : runs_of(g, array, begin, elems, at)) {
    parts.push_back(nvme_->write(run.extent, run.offset, bytes, run.bytes));
    bytes += run.bytes;
  }
  return all_of(std::move(parts));
}

void TierStore::set_update(const UpdateArgs* args, bool kept) {
  update_ = args;
  keeps_ = kept;
  if (!kept) return;
  const std::int64_t chunk = shape_.placement.chunk_elems;
  for (Away& a : away_) {
    for (auto c = static_cast<std::size_t>(a.second_begin / chunk); c < a.in_second.size(); ++c) {
      a.in_second[c] = a.in_second[c] == 0 ? 1 : 0;
    }
  }
}

std::int64_t TierStore::second_place_bytes() const {
  std::int64_t bytes = 0;
  for (const Away& a : away_) {
    const auto add = [&](const Array& array) {
      if (array.second.index < 0) return;
      bytes += NvmeStore::padded_bytes(a.second_elems * array.element_bytes);
    };
    add(a.params);
    if (a.master.second.index != a.params.second.index) add(a.master);
    add(a.moment1);
    add(a.moment2);
  }
  return bytes;
}

void TierStore::write_master(int g, std::int64_t begin, std::span<const float> values) {
  Away& a = away(g);
  const auto elems = static_cast<std::int64_t>(values.size());
  const auto put = [&](const Array& array, std::int64_t at, const void* from, std::int64_t count) {
    if (array.on_disk()) {
      write(g, array, at, count, from).wait();
    } else {
      std::memcpy(array.host + at * array.element_bytes, from,
                  static_cast<std::size_t>(count * array.element_bytes));
    }
  };
  const std::int64_t skip = std::max<std::int64_t>(0, a.there - begin);  // lives on the device
  if (skip < elems && a.there < owned_elems(shape_, g) && !shape_.frozen) {
    put(a.master, begin + skip - a.there, values.data() + skip, elems - skip);
  }
  if (!a.params_here || params_are_master(shape_, g)) return;
  if (shape_.dtype == DType::kFloat32) {
    put(a.params, begin, values.data(), elems);
    return;
  }
  std::vector<std::byte> narrow(static_cast<std::size_t>(elems * a.params.element_bytes));
  convert(narrow.data(), shape_.dtype, values.data(), DType::kFloat32, elems);
  put(a.params, begin, narrow.data(), elems);
}

void TierStore::read_master(int g, std::span<float> owned) {
  const Away& a = away(g);
  if (shape_.frozen) return read_params(g, owned);
  const auto elems = static_cast<std::int64_t>(owned.size()) - a.there;
  if (elems <= 0) return;
  if (a.master.on_disk()) {
    read(g, a.master, 0, elems, owned.data() + a.there).wait();
  } else {
    std::memcpy(owned.data() + a.there, a.master.host, static_cast<std::size_t>(elems) * 4);
  }
}

void TierStore::read_params(int g, std::span<float> owned) {
  const Array& params = away(g).params;
  if (!away(g).params_here) return;
  const auto elems = static_cast<std::int64_t>(owned.size());
  std::vector<std::byte> staging;
  const std::byte* from = params.host;
  if (params.on_disk()) {
    staging.resize(owned.size() * static_cast<std::size_t>(params.element_bytes));
    read(g, params, 0, elems, staging.data()).wait();
    from = staging.data();
  }
  convert(owned.data(), DType::kFloat32, from, shape_.dtype, elems);
}

std::int64_t TierStore::state_elems(int g) const { return owned_elems(shape_, g) - away(g).there; }

const TierStore::Array& TierStore::array_of(int g, StateKind kind, std::int64_t begin,
                                            std::size_t elems) const {
  check(begin >= 0 && begin + static_cast<std::int64_t>(elems) <= state_elems(g),
        "a range of a group's states is one of those off the device");
  const Away& a = away(g);
  return kind == StateKind::kMaster    ? a.master
         : kind == StateKind::kMoment1 ? a.moment1
                                       : a.moment2;
}

void TierStore::read_state(int g, StateKind kind, std::int64_t begin, std::span<float> values) {
  const Array& array = array_of(g, kind, begin, values.size());
  const bool wide = array.element_bytes == 4;
  std::vector<std::byte> staging;
  for (std::size_t done = 0; done < values.size();) {
    const std::size_t elems = std::min(kStatePieceElems, values.size() - done);
    const std::int64_t at = begin + static_cast<std::int64_t>(done);
    const auto count = static_cast<std::int64_t>(elems);
    float* const to = values.data() + done;
    const std::byte* from = nullptr;
    if (array.on_disk()) {
      if (!wide) staging.resize(elems * 2);
      read(g, array, at, count, wide ? static_cast<void*>(to) : staging.data()).wait();
      from = staging.data();
    } else {
      from = array.host + at * array.element_bytes;
    }
    if (!wide) {
      convert(to, DType::kFloat32, from, DType::kBFloat16, count);
    } else if (!array.on_disk()) {
      std::memcpy(to, from, elems * sizeof(float));
    }
    done += elems;
  }
}

void TierStore::write_state(int g, StateKind kind, std::int64_t begin,
                            std::span<const float> values) {
  const Array& array = array_of(g, kind, begin, values.size());
  const bool wide = array.element_bytes == 4;
  std::vector<std::byte> staging;
  for (std::size_t done = 0; done < values.size();) {
    const std::size_t elems = std::min(kStatePieceElems, values.size() - done);
    const std::int64_t at = begin + static_cast<std::int64_t>(done);
    const auto count = static_cast<std::int64_t>(elems);
    const void* from = values.data() + done;
    if (!wide) {
      staging.resize(elems * 2);
      convert(staging.data(), DType::kBFloat16, from, DType::kFloat32, count);
      from = staging.data();
    }
    if (array.on_disk()) {
      write(g, array, at, count, from).wait();
    } else {
      std::memcpy(array.host + at * array.element_bytes, from,
                  elems * static_cast<std::size_t>(array.element_bytes));
    }
    done += elems;
  }
}

float* TierStore::host_gradients(int g) const {
  return reinterpret_cast<float*>(away(g).grads[0].host);
}

std::int64_t TierStore::host_peak_bytes() const { return pool_.peak_bytes(); }

std::int64_t TierStore::nvme_bytes() const { return nvme_ ? nvme_->total_bytes() : 0; }

NvmeStats TierStore::nvme_stats() const { return nvme_ ? nvme_->stats() : NvmeStats{}; }

}  // namespace sluice
