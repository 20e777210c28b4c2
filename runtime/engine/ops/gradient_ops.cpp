#include "runtime/engine/ops/gradient_ops.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/index.hpp"
#include "kernels/cpu/cast.hpp"
#include "runtime/engine/ops/program_memory.hpp"
#include "runtime/engine/ops/step_run.hpp"
#include "runtime/engine/tiers/tier_store.hpp"

namespace sluice {

GradientOps::GradientOps(const StepParts& parts)
    : setup_(parts.setup),
      memory_(parts.memory),
      run_(parts.run),
      store_(parts.store),
      tiers_(parts.tiers) {}

void GradientOps::begin_program() { pieces_.assign(run_.program->ops.size(), {}); }

void GradientOps::bind(const Buffer& buffer) {
  store_.bind_grads(buffer.group, memory_.slot(buffer));
}

void GradientOps::unbind(const Buffer& buffer) {
  store_.unbind_grads(buffer.group, memory_.slot(buffer));
}

// A bucket with a slot is reduced into it, on its way off-device; else into the gradient shards.
void GradientOps::enter_reduce(const Op& op) {
  std::vector<ReduceScatterPiece>& pieces = pieces_[run_.index_of(op)];
  auto* staging = op.device_slot >= 0
                      ? reinterpret_cast<float*>(memory_.slot(run_.buffer(op.device_slot)))
                      : nullptr;
  for (const BucketPiece& piece : run_.pieces(op)) {
    GroupState& group = store_.group(piece.group);
    const std::int64_t shard_elems = nth(setup_.shape().groups, piece.group).shard_elems;
    float* output = staging;
    if (staging != nullptr) {
      staging += piece.elems;
    } else {
      const at::Tensor& shard =
          piece.stream == 0 ? group.grad_shard : nth(group.grad_streams, piece.stream - 1);
      output = shard.data_ptr<float>() + piece.begin;
    }
    pieces.push_back({group.grad_full.data_ptr<float>() + piece.begin, output, piece.elems,
                      shard_elems, op.accumulate && op.device_slot < 0});
  }
}

Ticket GradientOps::reduce(const Op& op) {
  return setup_.data().reduce_scatter(std::move(pieces_[run_.index_of(op)]), DType::kFloat32,
                                      memory_.bucket_staging.data_ptr());
}

void GradientOps::add_streams(const Op& op) {
  if (setup_.shape().placement.gradients == Tier::kHost) {
    tiers_->add_gradient_streams(op.group);
    return;
  }
  GroupState& group = store_.group(op.group);
  for (const at::Tensor& stream : group.grad_streams) group.grad_shard.add_(stream);
}

Ticket GradientOps::gather(const Op& op) {
  std::vector<AllGatherPiece> pieces;
  for (const BucketPiece& piece : run_.pieces(op)) {
    GroupState& group = store_.group(piece.group);
    pieces.push_back({group.grad_shard.data_ptr<float>() + piece.begin,
                      group.grad_full.data_ptr<float>() + piece.begin, piece.elems,
                      group.grad_shard.numel()});
  }
  return setup_.data().all_gather(std::move(pieces), DType::kFloat32);
}

// Every rank gets all ranks' elements, a piece at a time, and adds its replicas in the order of
// ranks. So all replicas have the same bits.
void GradientOps::add_replicas(const Op& op) {
  const ParamGroup& group = nth(setup_.spec().groups, op.group);
  const bool tied = group.replicas == Replicas::kTied;
  Communicator& comm = tied ? *setup_.comms->tied() : setup_.comms->tensor();
  const int replicas = tied ? comm.size() : group.replica_ranks;
  const int first = comm.rank() / replicas * replicas;
  float* const grads = setup_.shape().placement.gradients == Tier::kHost
                           ? tiers_->host_gradients(op.group)
                           : store_.group(op.group).grad_owned.data_ptr<float>();
  float* const staging = memory_.replica_staging.data_ptr<float>();
  const std::int64_t owned = owned_elems(setup_.shape(), op.group);
  const std::int64_t at_once = memory_.replica_staging.numel() / comm.size();
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

}  // namespace sluice
