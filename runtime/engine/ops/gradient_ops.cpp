#include "runtime/engine/ops/gradient_ops.hpp"

#include <ATen/ops/add.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/index.hpp"
#include "kernels/cpu/cast.hpp"
#include "offload/device_copies.hpp"
#include "runtime/engine/ops/program_memory.hpp"
#include "runtime/engine/ops/step_graphs.hpp"
#include "runtime/engine/ops/step_run.hpp"
#include "runtime/engine/replica_sums.hpp"
#include "runtime/engine/tiers/tier_store.hpp"
#include "runtime/model/empty_tensor.hpp"
#include "runtime/model/tensor_view.hpp"

namespace sluice {

GradientOps::GradientOps(const StepParts& parts, StepGraphs& graphs)
    : setup_(parts.setup),
      memory_(parts.memory),
      run_(parts.run),
      store_(parts.store),
      tiers_(parts.tiers),
      copies_(parts.copies),
      graphs_(graphs) {}

void GradientOps::begin_program() {
  pieces_.assign(run_.program->ops.size(), {});
  passing_.clear();
}

void GradientOps::bind(BufferId id) {
  const Buffer& buffer = run_.buffer(id);
  if (buffer.in_arena) {
    store_.bind_grads(buffer.group, memory_.slot(buffer));
  } else {
    store_.pass_grads(buffer.group, pass(id));
  }
}

void GradientOps::unbind(BufferId id) {
  const Buffer& buffer = run_.buffer(id);
  if (buffer.in_arena) return store_.unbind_grads(buffer.group, memory_.slot(buffer));
  store_.pass_grads(buffer.group, nullptr);
  passing_.erase(id);
}

// Memory of gradients that exist for a part of the step.
void* GradientOps::pass(BufferId id) {
  return graphs_.buffer(id, [&] {
    const int g = run_.buffer(id).group;
    const c10::ScalarType type = scalar_type(gradient_dtype(setup_.shape(), g));
    return passing_[id] =
               empty_tensor({lasting_gradient_elems(setup_.shape(), g)}, type, setup_.device);
  });
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
    const float* input = group.grad_full.data_ptr<float>() + piece.begin;
    if (is_there(input, output)) continue;
    pieces.push_back(
        {input, output, piece.elems, shard_elems, op.accumulate && op.device_slot < 0});
  }
}

// A rank alone has nothing to send: its gradients are the reduced ones where they are written.
bool GradientOps::is_there(const float* input, const float* output) const {
  return setup_.data().size() == 1 && input == output;
}

Ticket GradientOps::reduce(const Op& op) {
  std::vector<ReduceScatterPiece> pieces = std::move(pieces_[run_.index_of(op)]);
  if (pieces.empty()) return {};
  return setup_.data().reduce_scatter(std::move(pieces),
                                      {DType::kFloat32, sent_dtype(setup_.shape())},
                                      memory_.bucket_staging.data_ptr());
}

void GradientOps::round(const Op& op) { store_.round_grads(op.group); }

void GradientOps::add_streams(const Op& op) {
  if (on_host()) {
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
    const float* input = group.grad_shard.data_ptr<float>() + piece.begin;
    float* output = group.grad_full.data_ptr<float>() + piece.begin;
    if (is_there(input, output)) continue;
    pieces.push_back({input, output, piece.elems, group.grad_shard.numel()});
  }
  if (pieces.empty()) return {};
  return setup_.data().all_gather(std::move(pieces), DType::kFloat32);
}

// Replicas are added in the order of ranks, so all have the same bits. Where the sum is not in
// place, every rank gets all ranks' elements, a piece at a time, and adds its replicas.
void GradientOps::add_replicas(const Op& op) {
  const ParamGroup& group = nth(setup_.spec().groups, op.group);
  const bool tied = group.replicas == Replicas::kTied;
  Communicator& comm = tied ? *setup_.comms->tied() : setup_.comms->tensor();
  const int replicas = tied ? comm.size() : group.replica_ranks;
  const int first = comm.rank() / replicas * replicas;
  const std::int64_t owned = owned_elems(setup_.shape(), op.group);
  const std::int64_t at_once = memory_.replica_staging.numel() / comm.size();
  const bool in_place =
      setup_.device.is_cuda() &&
      sums_in_place(setup_.shape(), setup_.spec(), static_cast<std::size_t>(op.group), owned);
  const std::int64_t summed = in_place ? sum_in_place(comm, op.group, owned) : 0;
  for (std::int64_t begin = summed; begin < owned; begin += at_once) {
    const ReplicaPiece piece{op.group, begin, std::min(at_once, owned - begin), first, replicas};
    if (setup_.device.is_cuda()) {
      add_on_gpu(comm, piece);
    } else {
      add_on_host(comm, piece);
    }
  }
}

// All elements but a rest smaller than the group of ranks. Returns their number.
std::int64_t GradientOps::sum_in_place(Communicator& comm, int g, std::int64_t owned) {
  const std::int64_t share = owned / comm.size();
  float* const grads = store_.group(g).grad_owned.data_ptr<float>();
  float* const own = grads + comm.rank() * share;
  comm.reduce_scatter({{grads, own, share, share}}, DType::kFloat32,
                      memory_.replica_staging.data_ptr())
      .wait();
  comm.all_gather({{own, grads, share, share}}, DType::kFloat32).wait();
  return share * comm.size();
}

void GradientOps::add_on_host(Communicator& comm, const ReplicaPiece& piece) {
  float* const grads = on_host()
                           ? on_host_fp32(piece)
                           : store_.group(piece.group).grad_owned.data_ptr<float>() + piece.begin;
  float* const staging = memory_.replica_staging.data_ptr<float>();
  float* const mine = staging + comm.rank() * piece.elems;
  const auto bytes = static_cast<std::size_t>(piece.elems) * sizeof(float);
  std::memcpy(mine, grads, bytes);
  comm.all_gather({{mine, staging, piece.elems, piece.elems}}, DType::kFloat32).wait();
  std::memcpy(grads, staging + piece.first * piece.elems, bytes);
  for (int r = piece.first + 1; r < piece.first + piece.replicas; ++r) {
    add_to(grads, staging + r * piece.elems, DType::kFloat32, piece.elems, true);
  }
}

// The host waits for nothing: gradients on the host come back while the program goes on.
void GradientOps::add_on_gpu(Communicator& comm, const ReplicaPiece& piece) {
  const at::Tensor all = memory_.replica_staging.narrow(0, 0, comm.size() * piece.elems)
                             .view({comm.size(), piece.elems});
  const std::int64_t bytes = piece.elems * std::int64_t{sizeof(float)};
  float* const host = on_host() ? on_host_fp32(piece) : nullptr;
  at::Tensor own = on_host()
                       ? all.select(0, comm.rank())
                       : store_.group(piece.group).grad_owned.narrow(0, piece.begin, piece.elems);
  if (on_host()) copies_->to_device(copies_->address(own.data_ptr()), host, bytes);
  comm.all_gather({{own.data_ptr(), all.data_ptr(), piece.elems, piece.elems}}, DType::kFloat32)
      .wait();
  at::Tensor sum = on_host() ? all.select(0, piece.first) : own;
  at::add_out(sum, all.select(0, piece.first), all.select(0, piece.first + 1));
  for (int r = piece.first + 2; r < piece.first + piece.replicas; ++r) sum.add_(all.select(0, r));
  if (!on_host()) return;
  copies_->to_host(host, copies_->address(sum.data_ptr()), bytes);
  returning_ = true;
}

void GradientOps::settle_replicas() {
  if (std::exchange(returning_, false)) copies_->settle();
}

float* GradientOps::on_host_fp32(const ReplicaPiece& piece) const {
  return reinterpret_cast<float*>(tiers_->host_gradients(piece.group)) + piece.begin;
}

bool GradientOps::on_host() const { return setup_.shape().placement.gradients == Tier::kHost; }

}  // namespace sluice
