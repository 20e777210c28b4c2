#include "runtime/engine/ops/norm_ops.hpp"

#include <algorithm>
#include <numeric>
#include <utility>

#include "base/failpoint.hpp"
#include "base/index.hpp"
#include "kernels/cpu/reduce.hpp"
#include "kernels/cuda/step_clip.hpp"
#include "kernels/cuda/sum_squares.hpp"
#include "runtime/engine/device_access.hpp"
#include "runtime/engine/ops/step_carry.hpp"
#include "runtime/engine/ops/step_run.hpp"
#include "runtime/engine/tiers/tier_store.hpp"
#include "runtime/engine/update_step.hpp"
#include "runtime/model/tensor_view.hpp"

namespace sluice {
namespace {

constexpr std::size_t kFirstSum = kNormScalars;

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

std::span<const double> values_of(const at::Tensor& losses) {
  if (!losses.defined()) return {};
  return {losses.data_ptr<double>(), static_cast<std::size_t>(losses.numel())};
}

std::size_t place_of(const EngineSetup& setup, int group) {
  return kFirstSum + static_cast<std::size_t>(group * owned_shards(setup.shape()));
}

bool counts(const EngineSetup& setup, int group) {
  return nth(setup.spec().groups, group).counted && !is_frozen(setup.shape(), group);
}

void add_spans(const GroupState& group, std::int64_t shard_elems,
               std::vector<cuda::SquaresSpan>& spans) {
  const at::Tensor& gradients = group.grad_owned;
  const DType dtype = dtype_of(gradients);
  for (std::int64_t begin = 0; begin < gradients.numel(); begin += shard_elems) {
    const auto* const bytes = static_cast<const std::byte*>(gradients.data_ptr());
    spans.push_back({bytes + begin * size_of(dtype), shard_elems, dtype});
  }
}

}  // namespace

NormOps::NormOps(const StepParts& parts)
    : setup_(parts.setup),
      run_(parts.run),
      store_(parts.store),
      carry_(parts.carry),
      tiers_(parts.tiers),
      stage_groups_(groups_by_stage(parts.setup, parts.store.size())) {
  const Placement& placement = setup_.shape().placement;
  const bool on_gpu = setup_.device.is_cuda() && placement.gradients == Tier::kDevice;
  if (!on_gpu || !setup_.trains()) return;
  std::vector<cuda::SquaresSpan> sizes;
  places_.resize(static_cast<std::size_t>(store_.size()));
  for (const bool counted : {true, false}) {
    for (int g = 0; g < store_.size(); ++g) {
      if (is_frozen(setup_.shape(), g) || counts(setup_, g) != counted) continue;
      nth(places_, g) = std::ssize(sizes);
      const std::int64_t shard_elems = nth(setup_.shape().groups, g).shard_elems;
      sizes.insert(sizes.end(), static_cast<std::size_t>(owned_shards(setup_.shape())),
                   {.elems = shard_elems});
    }
    if (counted) counted_sums_ = std::ssize(sizes);
  }
  gpu_ = device_norm(setup_.device, sizes);
  const bool alone = setup_.world().size() == 1;
  if (alone && placement.optimizer == Tier::kDevice) decision_ = gpu_->decision();
}

std::vector<double> NormOps::gradient_sums(int group) const {
  if (tiers_ != nullptr && tiers_->sums_squares(group)) return {tiers_->sum_squares(group)};
  const std::int64_t shard_elems = nth(setup_.shape().groups, group).shard_elems;
  if (setup_.shape().placement.gradients == Tier::kHost) {
    const DType dtype = gradient_dtype(setup_.shape(), group);
    return {sum_squares(tiers_->host_gradients(group), dtype, shard_elems)};
  }
  return shard_sum_squares(store_.group(group).grad_owned, shard_elems);
}

void NormOps::add_host_sums(std::vector<double>& values) const {
  for (int g = 0; g < store_.size(); ++g) {
    if (!counts(setup_, g)) continue;
    const std::vector<double> sums = gradient_sums(g);
    std::copy(sums.begin(), sums.end(),
              values.begin() + static_cast<std::ptrdiff_t>(place_of(setup_, g)));
  }
}

void NormOps::begin_program() { summed_.assign(static_cast<std::size_t>(store_.size()), false); }

// Runs of groups whose places follow each other are summed together.
void NormOps::sum_on_gpu() {
  std::vector<cuda::SquaresSpan> spans;
  std::int64_t first = 0;
  for (int g = 0; g < store_.size(); ++g) {
    if (!counts(setup_, g) || nth(summed_, g)) continue;
    if (nth(places_, g) != first + std::ssize(spans)) {
      gpu_->sum(spans, first);
      spans.clear();
      first = nth(places_, g);
    }
    add_spans(store_.group(g), nth(setup_.shape().groups, g).shard_elems, spans);
  }
  gpu_->sum(spans, first);
}

const cuda::StepClip* NormOps::decide_group(int group, const at::Tensor& losses) {
  std::vector<cuda::SquaresSpan> spans;
  add_spans(store_.group(group), nth(setup_.shape().groups, group).shard_elems, spans);
  const std::int64_t place = nth(places_, group);
  gpu_->sum(spans, place);
  nth(summed_, group) = true;
  const std::span<const double> known = decision_ != nullptr ? values_of(losses) : values_of({});
  return gpu_->decide_part(place, std::ssize(spans), known, clip_input());
}

void NormOps::read_gpu(const at::Tensor& losses, std::vector<double>& values) {
  sum_on_gpu();
  const std::span<const double> losses_there = values_of(losses);
  std::vector<double> read(static_cast<std::size_t>(counted_sums_) + losses_there.size());
  gpu_->read(losses_there, read);
  auto next = read.begin();
  for (int g = 0; g < store_.size(); ++g) {
    if (!counts(setup_, g)) continue;
    const auto end = next + owned_shards(setup_.shape());
    std::copy(next, end, values.begin() + static_cast<std::ptrdiff_t>(place_of(setup_, g)));
    next = end;
  }
  run_.loss_sum = std::accumulate(next, read.end(), run_.loss_sum);
}

std::vector<double> NormOps::own_values(const at::Tensor& losses) {
  const int most_groups = *std::max_element(stage_groups_.begin(), stage_groups_.end());
  std::vector<double> mine(place_of(setup_, most_groups), 0.0);
  if (gpu_) read_gpu(losses, mine);
  failpoint("engine.norm");
  if (tiers_ != nullptr) tiers_->end_backward();
  if (!gpu_) add_host_sums(mine);
  mine[0] = setup_.counts_loss() ? run_.loss_sum : 0.0;
  mine[1] = run_.input.vote;
  mine[2] = run_.learned_targets;
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

void NormOps::norm_and_scale(const at::Tensor& losses) {
  if (decision_ != nullptr) {
    sum_on_gpu();
    gpu_->decide(counted_sums_, values_of(losses), clip_input());
    undecided_ = true;
    return;
  }
  const std::vector<double> mine = own_values(losses);
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

// The host computes its result from the sums that the GPU has decided by, with the same bits.
bool NormOps::finish() {
  if (!std::exchange(undecided_, false)) return false;
  const cuda::StepClip step = gpu_->wait();
  run_.loss_sum += step.loss_sum;
  run_.result.vote = std::max(run_.result.vote, run_.input.vote);
  run_.result.loss = run_.loss_sum / run_.loss_divisor(setup_.tokens_of_step());
  use_norm(step.squares);
  return true;
}

cuda::ClipInput NormOps::clip_input() const {
  return {.most = setup_.options.train.clip,
          .loss_scale = run_.input.loss_scale,
          .loss_divisor = run_.loss_divisor(setup_.tokens_of_step())};
}

void NormOps::use_norm(double squares) {
  const cuda::ClipInput input = clip_input();
  run_.result.grad_norm = cuda::norm_of(squares, input);
  run_.clip_coefficient = cuda::clip_coefficient(run_.result.grad_norm, input);
  if (run_.mode == RunMode::kTrain && run_.result.finite()) {
    carry_.defer(run_.update(run_.clip_coefficient));
  }
}

void NormOps::meet() { setup_.world().barrier(); }

}  // namespace sluice
