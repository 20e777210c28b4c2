// What a rank does with ranks beyond those of its data-parallel group: norm, loss and decisions of
// the whole mesh, gradients of parameters that others hold too, whole parameters.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/error.hpp"
#include "kernels/cpu/cast.hpp"
#include "parallel/comm/text_exchange.hpp"
#include "runtime/engine/engine.hpp"
#include "runtime/engine/param_parts.hpp"
#include "runtime/model/empty_tensor.hpp"
#include "runtime/model/tensor_view.hpp"

namespace sluice {
namespace {

constexpr std::size_t kFirstSum = 2;  // before the sums: the loss, the vote

}  // namespace

// Stages may have different numbers of groups, and what the ranks exchange is of one length.
void Engine::count_groups() {
  const Mesh& mesh = comms_->mesh();
  stage_groups_.assign(static_cast<std::size_t>(mesh.size(MeshAxis::kPipeline)), store_.size());
  if (stage_groups_.size() == 1) return;
  const double mine = store_.size();
  const std::vector<double> all = world_.all_gather_values({&mine, 1});
  for (std::size_t pp = 0; pp < stage_groups_.size(); ++pp) {
    const int rank = mesh.world_rank({.pp = static_cast<int>(pp)});
    stage_groups_[pp] = static_cast<int>(all[static_cast<std::size_t>(rank)]);
  }
}

// Units run on the executing thread, so they are at the operation that was entered last.
void Engine::watch_exchanges() {
  if (!options_.trace || !model_.tensor) return;
  model_.tensor->watch([this](const TensorGroup::Exchange& e) {
    exchanges_.push_back({op_now_, std::string(e.name), e.bytes, e.started, e.needed, e.finished});
  });
}

// Every rank gets all ranks' elements, a piece at a time, and adds those of its replicas in the
// order of ranks: all of them have the same bits then.
void Engine::add_replicas(const Op& op) {
  const ParamGroup& group = model_.spec.groups[static_cast<std::size_t>(op.group)];
  const bool tied = group.replicas == Replicas::kTied;
  Communicator& comm = tied ? *comms_->tied() : comms_->tensor();
  const int replicas = tied ? comm.size() : group.replica_ranks;
  const int first = comm.rank() / replicas * replicas;
  float* const grads = plan_.shape.placement.gradients == Tier::kHost
                           ? tiers_->host_gradients(op.group)
                           : store_.group(op.group).grad_owned.data_ptr<float>();
  float* const staging = replica_staging_.data_ptr<float>();
  const std::int64_t owned = owned_elems(plan_.shape, op.group);
  const std::int64_t at_once = replica_staging_.numel() / comm.size();
  for (std::int64_t begin = 0; begin < owned; begin += at_once) {
    const std::int64_t elems = std::min(at_once, owned - begin);
    const auto bytes = static_cast<std::size_t>(elems) * sizeof(float);
    float* const mine = staging + comm.rank() * elems;
    std::memcpy(mine, grads + begin, bytes);
    comm.all_gather({{mine, staging, elems, elems}}, DType::kFloat32).wait();
    std::memcpy(grads + begin, staging + first * elems, bytes);
    for (int r = first + 1; r < first + replicas; ++r) {
      add_to(grads + begin, staging + r * elems, DType::kFloat32, elems, true);
    }
  }
}

// The sum over stages, groups, tensor-parallel ranks, then shards, of each shard's sum of squares:
// the same numbers in the same order on every ZeRO stage.
double Engine::squares_of_all(std::span<const double> all, std::size_t stride) const {
  const Mesh& mesh = comms_->mesh();
  const bool whole = plan_.shape.stage == 0;
  double squares = 0;
  for (int pp = 0; pp < mesh.size(MeshAxis::kPipeline); ++pp) {
    for (int g = 0; g < stage_groups_[static_cast<std::size_t>(pp)]; ++g) {
      for (int tp = 0; tp < mesh.size(MeshAxis::kTensor); ++tp) {
        for (int dp = 0; dp < data_.size(); ++dp) {
          // In stage 0 a rank has every shard's sum itself; else there is one from each rank.
          const int rank = mesh.world_rank({tp, whole ? data_.rank() : dp, pp});
          const int sum = whole ? g * data_.size() + dp : g;
          squares += all[static_cast<std::size_t>(rank) * stride + kFirstSum +
                         static_cast<std::size_t>(sum)];
        }
      }
    }
  }
  return squares;
}

void Engine::norm_and_scale() {
  const int most_groups = *std::max_element(stage_groups_.begin(), stage_groups_.end());
  const int sums_of_group = plan_.shape.stage == 0 ? data_.size() : 1;
  std::vector<double> mine(kFirstSum + static_cast<std::size_t>(most_groups * sums_of_group), 0.0);
  mine[0] = counts_loss() ? loss_sum_ : 0.0;
  mine[1] = input_.vote;
  for (int g = 0; g < store_.size(); ++g) {
    if (!model_.spec.groups[static_cast<std::size_t>(g)].counted) continue;
    const std::vector<double> sums = gradient_sums(g);
    std::copy(sums.begin(), sums.end(),
              mine.begin() + static_cast<std::ptrdiff_t>(kFirstSum) + g * sums_of_group);
  }
  const std::vector<double> all = world_.all_gather_values(mine);
  double loss = 0;
  for (std::size_t r = 0; r < all.size(); r += mine.size()) {
    loss += all[r];
    result_.vote = std::max(result_.vote, all[r + 1]);
  }
  result_.loss = loss / (static_cast<double>(plan_.shape.micro_batches * data_.size()) *
                         static_cast<double>(options_.train.micro_batch * model_.spec.options.seq));
  use_norm(squares_of_all(all, mine.size()));
}

void Engine::use_norm(double squares) {
  result_.grad_norm = std::sqrt(squares) / input_.loss_scale;
  clip_coefficient_ = options_.train.clip > 0
                          ? std::min(1.0, options_.train.clip / (result_.grad_norm + 1e-6))
                          : 1.0;
  if (tiers_ && tiers_->optimizer_tier() != Tier::kDevice && mode_ == Mode::kTrain &&
      result_.finite()) {
    pending_ = update_args();
  }
}

std::optional<Engine::Place> Engine::place_of(const std::string& name) const {
  for (std::size_t g = 0; g < plan_.groups.size(); ++g) {
    const std::vector<TensorPlacement>& tensors = plan_.groups[g].tensors;
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      if (tensors[i].spec.name == name) return Place{static_cast<int>(g), static_cast<int>(i)};
    }
  }
  return std::nullopt;
}

const ParamSpec& Engine::spec_of(Place place) const {
  return model_.spec.groups[static_cast<std::size_t>(place.group)]
      .params[static_cast<std::size_t>(place.index)];
}

// This rank's part of a parameter from the shards of its data-parallel group.
at::Tensor Engine::gather_part(Place place) {
  const GroupPlan& plan = plan_.groups[static_cast<std::size_t>(place.group)];
  const TensorPlacement& tensor = plan.tensors[static_cast<std::size_t>(place.index)];
  at::Tensor whole = owned_master(place.group);
  if (plan_.shape.stage > 0) {
    const at::Tensor own = whole.to(device_);
    const at::Tensor all = empty_tensor({plan.elems}, c10::ScalarType::Float, device_);
    data_
        .all_gather({{own.data_ptr(), all.data_ptr(), plan.shard_elems, plan.shard_elems}},
                    DType::kFloat32)
        .wait();
    whole = all.to(c10::DeviceType::CPU);
  }
  return whole.narrow(0, tensor.offset_elems, tensor.elems).view(tensor.spec.shape).clone();
}

// Every element comes from one rank: of the counted replica, with data-parallel coordinate 0. It is
// set by all, at the places that its owner names.
at::Tensor Engine::join_parts(const std::string& name, std::optional<Place> place) {
  const at::Tensor part = place ? gather_part(*place).flatten() : at::Tensor();
  const bool gives = place && data_.rank() == 0 &&
                     model_.spec.groups[static_cast<std::size_t>(place->group)].counted;
  const std::vector<std::string> layouts =
      exchange_text(world_, gives ? encode_part(spec_of(*place)) : std::string());
  std::vector<ParamSpec> parts;
  std::int64_t largest = 0;
  for (const std::string& layout : layouts) {
    parts.push_back(decode_part(name, layout));
    largest = std::max(largest, part_elems(parts.back()));
  }
  const auto any = std::find_if(parts.begin(), parts.end(),
                                [](const ParamSpec& p) { return part_elems(p) > 0; });
  if (any == parts.end()) throw Error("no parameter is named " + name);
  const at::Tensor own = empty_tensor({largest}, c10::ScalarType::Float).zero_();
  if (gives) own.narrow(0, 0, part.numel()).copy_(part);
  const at::Tensor all = empty_tensor({world_.size() * largest}, c10::ScalarType::Float);
  world_.all_gather({{own.data_ptr(), all.data_ptr(), largest, largest}}, DType::kFloat32).wait();
  const at::Tensor whole = empty_tensor(whole_shape(*any), c10::ScalarType::Float).zero_();
  for (std::size_t r = 0; r < parts.size(); ++r) {
    const float* const from = host_data<float>(all) + static_cast<std::int64_t>(r) * largest;
    for (const ParamRun& run : runs_of(parts[r], 0, part_elems(parts[r]))) {
      std::copy_n(from + run.local, run.elems, host_data<float>(whole) + run.whole);
    }
  }
  return whole;
}

at::Tensor Engine::full_parameter(const std::string& name) {
  finish_updates();
  const std::optional<Place> place = place_of(name);
  if (!comms_.is_plain()) return join_parts(name, place);
  if (!place) throw Error("no parameter is named " + name);
  return gather_part(*place);
}

void Engine::set_parameter(const std::string& name, const at::Tensor& value) {
  finish_updates();
  const std::optional<Place> place = place_of(name);
  const bool anywhere =
      comms_.is_plain() ? place.has_value() : on_any_rank(world_, place.has_value());
  if (!anywhere) throw Error("no parameter is named " + name);
  if (tiers_) tiers_->withdraw_image();  // on the ranks that have no part of it as well
  if (!place) return;
  const GroupPlan& plan = plan_.groups[static_cast<std::size_t>(place->group)];
  const TensorPlacement& tensor = plan.tensors[static_cast<std::size_t>(place->index)];
  const ParamSpec& spec = spec_of(*place);
  check(value.numel() == element_count(whole_shape(spec)),
        "a parameter is replaced by one of its size");
  const std::int64_t begin = plan_.shape.stage == 0 ? 0 : data_.rank() * plan.shard_elems;
  const std::int64_t end = begin + owned_elems(plan_.shape, place->group);
  const std::int64_t from = std::max(begin, tensor.offset_elems);
  const std::int64_t to = std::min(end, tensor.offset_elems + tensor.elems);
  if (from < to) {
    const at::Tensor flat = value.to(c10::ScalarType::Float).contiguous().flatten();
    const at::Tensor own = empty_tensor({to - from}, c10::ScalarType::Float);
    const std::int64_t first = from - tensor.offset_elems;
    for (const ParamRun& run : runs_of(spec, first, first + (to - from))) {
      own.narrow(0, run.local - first, run.elems).copy_(flat.narrow(0, run.whole, run.elems));
    }
    write_owned(place->group, from - begin, own);
  }
  store_.group(place->group).fresh = plan_.shape.stage == 0;
}

}  // namespace sluice
