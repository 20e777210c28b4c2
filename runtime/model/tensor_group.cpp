#include "runtime/model/tensor_group.hpp"

#include <c10/core/StreamGuard.h>

#include <utility>

#include "kernels/cpu/cast.hpp"
#include "parallel/comm/exchange_plan.hpp"
#include "runtime/model/empty_tensor.hpp"
#include "runtime/model/tensor_view.hpp"

namespace sluice {

namespace {

// n elements of a contiguous tensor from `first` on, flat.
at::Tensor run_of(const at::Tensor& x, std::int64_t first, std::int64_t n) {
  return x.view({-1}).narrow(0, first, n);
}

// Memory that a communicator of the tensor's device takes.
void* memory_of(const at::Tensor& x) {
  check(x.is_contiguous(), "an exchange takes contiguous tensors");
  return x.data_ptr();
}

}  // namespace

struct TensorGroup::Started::Work {
  TensorGroup* group = nullptr;
  Timed exchange;
  at::Tensor result;
  at::Tensor input, staging;  // in use by the exchange
  at::Tensor sums;            // fp32, to be rounded into `rounded`; undefined for fp32
  at::Tensor rounded;
  bool rounds = false;   // `sums` at the end
  bool gathers = false;  // after the rounding, all of `result` from each rank's `rounded`
  Ticket ticket;
};

void TensorGroup::Started::Release::operator()(Work* work) const noexcept {
  try {
    work->ticket.wait();
  } catch (...) {  // who destroys a started exchange is on the way out with an error already
    (void)0;
  }
  delete work;
}

TensorGroup::Started::~Started() = default;

at::Tensor TensorGroup::Started::finish() {
  check(work_ != nullptr, "an exchange is finished once");
  const auto work = std::move(work_);
  work->group->conclude(*work);
  return work->result;
}

TensorGroup::TensorGroup(const ModelPart& part, Communicator* comm) : part_(part), comm_(comm) {
  check(part.tensor > 1, "one tensor-parallel rank needs no group");
  check(comm == nullptr || (comm->size() == part.tensor && comm->rank() == part.tensor_rank),
        "the communicator of a tensor group is that of the part's tensor-parallel ranks");
}

TensorGroup::Started TensorGroup::begin(std::string_view name, ExchangeKind kind, Beside beside,
                                        const at::Tensor& result) {
  check(result.is_meta() || comm_ != nullptr,
        "a model made without a communicator runs on meta tensors only");
  Started started;
  started.work_.reset(new Started::Work);
  started.work_->group = this;
  started.work_->exchange.name = name;
  started.work_->exchange.what = {.kind = kind, .beside = beside};
  started.work_->result = result;
  started.work_->exchange.started = clock_();
  return started;
}

// `pieces` runs of the partial one after another, each cut into a share for every rank.
void TensorGroup::reduce(Started::Work& work, const at::Tensor& partial, std::int64_t pieces) {
  const DType dtype = dtype_of(partial);
  const std::int64_t total = partial.numel() / size();
  const std::int64_t share = total / pieces;
  check(share * pieces * size() == partial.numel(), "a sum over ranks is cut into equal shares");
  work.input = partial;
  work.staging = empty_tensor({exchange_staging_bytes(size(), total, dtype)}, c10::ScalarType::Byte,
                              partial.device());
  if (dtype != DType::kFloat32) {
    work.sums = empty_tensor({total}, c10::ScalarType::Float, partial.device());
    work.rounds = true;
  }
  work.exchange.what.bytes += (size() - 1) * total * size_of(dtype);
  if (partial.is_meta()) return;
  const auto* from = static_cast<const std::byte*>(memory_of(partial));
  auto* to = static_cast<float*>(memory_of(work.rounds ? work.sums : work.rounded));
  std::vector<ReduceScatterPiece> list;
  for (std::int64_t piece = 0; piece < pieces; ++piece) {
    list.push_back({.input = from + piece * share * size() * size_of(dtype),
                    .output = to + piece * share,
                    .elems = share,
                    .stride = share});
  }
  work.ticket = comm_->reduce_scatter(std::move(list), dtype, memory_of(work.staging));
}

void TensorGroup::gather(Started::Work& work, const at::Tensor& part, std::int64_t pieces) {
  const std::int64_t share = part.numel() / pieces;
  const std::int64_t width = static_cast<std::int64_t>(part.element_size());
  work.input = part;
  work.exchange.what.bytes += (size() - 1) * part.numel() * width;
  if (part.is_meta()) return;
  const auto* from = static_cast<const std::byte*>(memory_of(part));
  auto* to = static_cast<std::byte*>(memory_of(work.result));
  const bool in_place = part.is_cuda() && pieces > 1;
  if (in_place) {  // one kernel, not a copy a piece
    work.result.view({pieces, size(), share}).select(1, rank()).copy_(part.view({pieces, share}));
  }
  std::vector<AllGatherPiece> list;
  for (std::int64_t piece = 0; piece < pieces; ++piece) {
    std::byte* const output = to + piece * share * size() * width;
    list.push_back(
        {.input = in_place ? output + rank() * share * width : from + piece * share * width,
         .output = output,
         .elems = share,
         .stride = share});
  }
  work.ticket = comm_->all_gather(std::move(list), dtype_of(part));
}

TensorGroup::Started TensorGroup::sum(const at::Tensor& partial, std::int64_t batch,
                                      Beside beside) {
  const std::int64_t total = partial.numel() / size();
  if (sequence()) {
    Started started = begin("reduce-scatter of tokens", ExchangeKind::kReduceScatter, beside,
                            empty_tensor({partial.size(0) / size(), partial.size(1)},
                                         partial.scalar_type(), partial.device()));
    started.work_->rounded = started.work_->result;
    reduce(*started.work_, partial, batch);
    return started;
  }
  Started started = begin("sum over tensor ranks", ExchangeKind::kAllReduce, beside, partial);
  Started::Work& work = *started.work_;
  work.rounded = run_of(partial, rank() * total, total);
  reduce(work, partial, 1);
  if (!work.rounds) {
    gather(work, work.rounded, 1);  // runs after the reduction
  } else if (partial.is_cuda()) {
    gather_beside(work);
  } else {
    work.gathers = true;  // after the rounding
  }
  return started;
}

// Queues the rounding and the gather behind the reduction, on a stream of their own.
void TensorGroup::gather_beside(Started::Work& work) {
  const at::Device device = work.result.device();
  if (!beside_) {
    const c10::impl::VirtualGuardImpl streams(device.type());
    beside_ = streams.getStreamFromGlobalPool(device, /*isHighPriority=*/true);
  }
  const c10::StreamGuard on_stream(*beside_);
  work.ticket.wait();
  round(work);
  work.rounds = false;
  gather(work, work.rounded, 1);
}

void TensorGroup::round(const Started::Work& work) {
  if (work.sums.is_meta()) return;
  if (work.sums.is_cuda()) {
    work.rounded.copy_(work.sums.view_as(work.rounded));
    return;
  }
  convert(host_bytes(work.rounded), dtype_of(work.rounded), host_bytes(work.sums), DType::kFloat32,
          work.sums.numel());
}

TensorGroup::Started TensorGroup::whole(const at::Tensor& x, std::int64_t batch, Beside beside) {
  if (!sequence()) return begin("", ExchangeKind::kAllGather, beside, x);
  Started started =
      begin("all-gather of tokens", ExchangeKind::kAllGather, beside,
            empty_tensor({x.size(0) * size(), x.size(1)}, x.scalar_type(), x.device()));
  gather(*started.work_, x, batch);
  return started;
}

at::Tensor TensorGroup::each(const at::Tensor& x) {
  std::vector<std::int64_t> sizes = x.sizes().vec();
  sizes.insert(sizes.begin(), size());
  Started started = begin("all-gather", ExchangeKind::kAllGather, Beside::kNothing,
                          empty_tensor(sizes, x.scalar_type(), x.device()));
  gather(*started.work_, x, 1);
  return started.finish();
}

void TensorGroup::conclude(Started::Work& work) {
  work.exchange.needed = clock_();
  work.ticket.wait();
  if (work.rounds) round(work);
  if (work.gathers) {
    gather(work, work.rounded, 1);
    work.ticket.wait();
  }
  work.exchange.finished = clock_();
  if (work.exchange.what.bytes == 0) return;
  last_ = work.exchange;
  if (watcher_) watcher_(work.exchange);
}

void TensorGroup::leave_out(std::int64_t times) {
  if (times == 0 || !watcher_) return;
  Timed alike{.name = last_.name, .what = last_.what};
  alike.what.times = times;
  watcher_(alike);
}

}  // namespace sluice
