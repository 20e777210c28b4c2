#include "runtime/engine/ops/norm_ops.hpp"

#include <algorithm>
#include <cmath>

#include "base/index.hpp"
#include "kernels/cpu/reduce.hpp"
#include "runtime/engine/device_access.hpp"
#include "runtime/engine/ops/step_carry.hpp"
#include "runtime/engine/ops/step_run.hpp"
#include "runtime/engine/tiers/tier_store.hpp"
#include "runtime/engine/update_step.hpp"

namespace sluice {
namespace {

constexpr std::size_t kFirstSum = 3;  // after the loss, the vote and the learned targets

// Pipeline stages may have different numbers of groups; the exchange is of one length.
std::vector<int> groups_by_stage(const EngineSetup& setup, int own) {
  const Mesh& mesh = setup.comms->mesh();
  std::vector<int> groups(static_cast<std::size_t>(mesh.size(MeshAxis::kPipeline)), own);
  if (groups.size() == 1) return groups;
  const double mine = own;
  const std::vector<double> all = setup.world().all_gather_values({&mine, 1});
  for (std::size_t pp = 0; pp < groups.size(); ++pp) {
    const int rank = mesh.world_rank({.pp = static_cast<int>(pp)});
    groups[pp] = static_cast<int>(nth(all, rank));
  }
  return groups;
}

// Sums of squares that a GPU computes for all groups together, without waits between them.
class GpuSums {
 public:
  // `first`: index in own_values() of the group's first shard.
  void add(const at::Tensor& gradients, std::int64_t shard_elems, std::size_t first) {
    for (std::int64_t begin = 0; begin < gradients.numel(); begin += shard_elems) {
      shards_.push_back(gradients.narrow(0, begin, shard_elems));
      places_.push_back(first++);
    }
  }
  void compute(std::vector<double>& values) const {
    const std::vector<double> sums = gpu_sum_squares(shards_);
    for (std::size_t i = 0; i < sums.size(); ++i) values[places_[i]] = sums[i];
  }

 private:
  std::vector<at::Tensor> shards_;
  std::vector<std::size_t> places_;
};

}  // namespace

NormOps::NormOps(const StepParts& parts)
    : setup_(parts.setup),
      run_(parts.run),
      store_(parts.store),
      carry_(parts.carry),
      tiers_(parts.tiers),
      stage_groups_(groups_by_stage(parts.setup, parts.store.size())) {}

std::vector<double> NormOps::gradient_sums(int group) const {
  const std::int64_t shard_elems = nth(setup_.shape().groups, group).shard_elems;
  switch (setup_.shape().placement.gradients) {
    case Tier::kHost:
      return {sum_squares(tiers_->host_gradients(group), shard_elems)};
    case Tier::kNvme:
      return {tiers_->sum_squares(group)};
    case Tier::kDevice:
      break;
  }
  return shard_sum_squares(store_.group(group).grad_owned, shard_elems);
}

std::vector<double> NormOps::own_values() const {
  const int most_groups = *std::max_element(stage_groups_.begin(), stage_groups_.end());
  const int shards = owned_shards(setup_.shape());
  std::vector<double> mine(kFirstSum + static_cast<std::size_t>(most_groups * shards), 0.0);
  mine[0] = setup_.counts_loss() ? run_.loss_sum : 0.0;
  mine[1] = run_.input.vote;
  mine[2] = run_.learned_targets;
  const bool on_gpu =
      setup_.device.is_cuda() && setup_.shape().placement.gradients == Tier::kDevice;
  GpuSums gpu_sums;
  for (int g = 0; g < store_.size(); ++g) {
    if (!nth(setup_.spec().groups, g).counted) continue;
    if (is_frozen(setup_.shape(), g)) continue;
    const std::size_t first = kFirstSum + static_cast<std::size_t>(g * shards);
    if (on_gpu) {
      gpu_sums.add(store_.group(g).grad_owned, nth(setup_.shape().groups, g).shard_elems, first);
      continue;
    }
    const std::vector<double> sums = gradient_sums(g);
    std::copy(sums.begin(), sums.end(), mine.begin() + static_cast<std::ptrdiff_t>(first));
  }
  gpu_sums.compute(mine);
  return mine;
}

double NormOps::squares_of_all(std::span<const double> all, std::size_t stride) const {
  const Mesh& mesh = setup_.comms->mesh();
  const Communicator& data = setup_.data();
  const bool whole = owns_whole_groups(setup_.shape());
  double squares = 0;
  for (int pp = 0; pp < mesh.size(MeshAxis::kPipeline); ++pp) {
    for (int g = 0; g < nth(stage_groups_, pp); ++g) {
      for (int tp = 0; tp < mesh.size(MeshAxis::kTensor); ++tp) {
        for (int dp = 0; dp < data.size(); ++dp) {
          // A rank with whole groups has the sum of every shard; else each rank has one.
          const int rank = mesh.world_rank({tp, whole ? data.rank() : dp, pp});
          const int sum = whole ? g * data.size() + dp : g;
          squares += all[static_cast<std::size_t>(rank) * stride + kFirstSum +
                         static_cast<std::size_t>(sum)];
        }
      }
    }
  }
  return squares;
}

void NormOps::norm_and_scale() {
  const std::vector<double> mine = own_values();
  const std::vector<double> all = setup_.world().all_gather_values(mine);
  double loss = 0;
  for (std::size_t r = 0; r < all.size(); r += mine.size()) {
    loss += all[r];
    run_.result.vote = std::max(run_.result.vote, all[r + 1]);
    run_.learned_targets = std::max(run_.learned_targets, all[r + 2]);
  }
  run_.result.loss = loss / run_.loss_divisor(setup_.tokens_of_step());
  use_norm(squares_of_all(all, mine.size()));
}

void NormOps::use_norm(double squares) {
  const double clip = setup_.options.train.clip;
  run_.result.grad_norm = std::sqrt(squares) / run_.input.loss_scale;
  run_.clip_coefficient = clip > 0 ? std::min(1.0, clip / (run_.result.grad_norm + 1e-6)) : 1.0;
  if (run_.mode == RunMode::kTrain && run_.result.finite()) {
    carry_.defer(run_.update(run_.clip_coefficient));
  }
}

void NormOps::meet() { setup_.world().barrier(); }

}  // namespace sluice
