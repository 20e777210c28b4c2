// Communicator over c10d's ProcessGroupNCCL, in the CUDA module.
//
// reduce_scatter is an all-to-all of the shares in their own dtype, or rounded to bf16, followed by
// a sum in rank order in fp32. The sum is bit-identical to every other communicator. NCCL's own
// reduction of bf16 rounds after every hop and has no fp32 output; a cast before it would double
// the wire volume.
//
// Streams: a call records the caller's current stream. All operations run one after another on a
// stream of the communicator, which NCCL's stream joins. The additions of a batch have a stream of
// their own, beside the messages of the next batch. Ticket::wait makes the stream that is current
// at that time wait. Only calls for control data block the host.
#include <ATen/cuda/CUDAEvent.h>
#include <ATen/ops/from_blob.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <numeric>
#include <thread>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp>
#include <utility>

#include "base/error.hpp"
#include "kernels/cuda/check_cuda.hpp"
#include "parallel/comm/call_watch.hpp"
#include "parallel/comm/communicator.hpp"
#include "parallel/comm/cuda_factories.hpp"
#include "parallel/comm/exchange_plan.hpp"
#include "parallel/comm/exchange_shares.hpp"
#include "parallel/comm/nccl_ticket.hpp"
#include "parallel/comm/op_queue.hpp"
#include "parallel/comm/ordered_add_cuda.hpp"
#include "parallel/comm/own_stream.hpp"
#include "parallel/comm/rendezvous_bridge.hpp"
#include "parallel/comm/sigpipe.hpp"
#include "parallel/comm/transfer.hpp"

namespace sluice {
namespace {

using Clock = std::chrono::steady_clock;

// With a target device libtorch does not ask the driver where the memory is.
at::Tensor bytes_at(const void* data, std::int64_t bytes, c10::Device device) {
  return at::for_blob(const_cast<void*>(data), {bytes})
      .options(at::TensorOptions().dtype(at::kByte).device(device))
      .target_device(device)
      .make_tensor();
}

// NCCL's reason is in c10d's last lines: "NCCL error in ...\nncclInvalidUsage: ...\nLast error:\n
// Duplicate GPU detected ...". The text on one line, without the stack trace.
std::string all_lines(const std::exception& error) {
  const auto* of_torch = dynamic_cast<const c10::Error*>(&error);
  std::string text = of_torch != nullptr ? of_torch->what_without_backtrace() : error.what();
  text.erase(text.find_last_not_of(" \n") + 1);
  std::replace(text.begin(), text.end(), '\n', ' ');
  return text;
}

// How c10d's own threads behave. This program reports the cause of a failure and ends its ranks
// that hang (runtime/launch/watchdog.hpp), so they do neither. Variables that are set stay.
void set_threads_of_c10d() {
  constexpr std::array<std::pair<const char*, const char*>, 5> kDefaults{{
      // The watchdog breaks the communicator but does not end the process ...
      {"TORCH_NCCL_ASYNC_ERROR_HANDLING", "2"},
      // ... nor does it at a CUDA error, which this program's threads meet too.
      {"TORCH_NCCL_RETHROW_CUDA_ERRORS", "0"},
      // It does not sleep for a minute before it breaks each operation.
      {"TORCH_NCCL_WAIT_TIMEOUT_DUMP_MILSEC", "0"},
      // The monitor does not ask the rendezvous each second, nor does it sleep for 8 minutes after
      // a failure, while the group's destructor waits for it ...
      {"TORCH_NCCL_DUMP_ON_TIMEOUT", "0"},
      // ... and then end the process.
      {"TORCH_NCCL_ENABLE_MONITORING", "0"},
  }};
  for (const auto& [name, value] : kDefaults) setenv(name, value, /*overwrite=*/0);
}

class NcclCommunicator final : public Communicator {
 public:
  NcclCommunicator(const CommOptions& options, std::unique_ptr<Communicator> control,
                   const NcclSettings& settings)
      : name_{options.group, options.rank, options.size},
        settings_(settings),
        control_(std::move(control)),
        device_(c10::kCUDA, c10::cuda::current_device()),
        own_stream_(device_.index(), OwnStream::Priority::kHigh),
        own_adding_(device_.index(), OwnStream::Priority::kHigh),
        health_(std::make_shared<GroupHealth>(
            "group " + name_.group + " on rank " + std::to_string(name_.rank),
            [this, timeout = options.timeout] { return nccl_failure(timeout); })) {
    if (options.size == 1) return;
    set_threads_of_c10d();
    auto nccl = c10d::ProcessGroupNCCL::Options::create(/*is_high_priority_stream=*/true);
    nccl->timeout = options.timeout;
    nccl->config.blocking = 1;
    nccl->config.maxCTAs = settings.most_channels;
    store_ = join_rendezvous(options, Clock::now() + options.timeout);
    group_ = c10::make_intrusive<c10d::ProcessGroupNCCL>(store_, options.rank, options.size, nccl);
    if (!settings.connects_late) connect_peers();
    GroupsOfProcess::all().add(health_);
  }

  ~NcclCommunicator() override {
    const SigpipeBlock no_sigpipe;
    try {
      drain();
      if (group_) group_->shutdown();
    } catch (const std::exception&) {
      abort();  // Ticket::wait reports the error
    }
    health_->stop_asking();
    group_.reset();
    store_.reset();
  }

  [[nodiscard]] int rank() const override { return name_.rank; }
  [[nodiscard]] int size() const override { return name_.size; }
  [[nodiscard]] std::int64_t reduce_scatter_staging_bytes(std::int64_t total_elems,
                                                          ReduceDtype dtype) const override {
    return exchange_staging_bytes(size(), total_elems, dtype);
  }

  [[nodiscard]] Ticket reduce_scatter(std::vector<ReduceScatterPiece> pieces, ReduceDtype asked,
                                      void* staging) override {
    return start("reduce_scatter", [&] {
      const ReduceDtype dtype = asked.in_group_of(size());
      std::vector<std::int64_t> elems;
      for (const ReduceScatterPiece& piece : pieces) elems.push_back(piece.elems);
      // Batches bound what the staging memory holds of peers. A rank alone has none: one kernel a
      // piece.
      const std::int64_t batch_elems =
          size() == 1 ? std::max<std::int64_t>(1, std::reduce(elems.begin(), elems.end()))
                      : exchange_batch_elems(size(), dtype);
      const ExchangePlan plan = plan_exchange(elems, batch_elems);
      // The batch before the last one had the same half of the staging memory.
      std::array<at::cuda::CUDAEvent, 2> added;
      const ExchangeShares shares{pieces, dtype, static_cast<char*>(staging), plan.ring_elems,
                                  size()};
      for (std::size_t b = 0; b < plan.batches.size(); ++b) {
        if (b >= 2) added[b % 2].block(stream_);
        if (dtype.rounds()) round(plan.batches[b], shares);
        exchange(plan.batches[b], shares);
        follow(adding_, stream_);
        add(plan.batches[b], shares);
        added[b % 2].record(adding_);
      }
      if (!plan.batches.empty()) follow(stream_, adding_);
    });
  }

  [[nodiscard]] Ticket all_gather(std::vector<AllGatherPiece> pieces, DType dtype) override {
    return start("all_gather", [&] { gather(pieces, dtype); });
  }

  // A mismatch of sizes is noticed only at the timeout.
  [[nodiscard]] Ticket send(int peer, const void* data, std::int64_t bytes) override {
    check_transfer(name_, "send", peer, bytes);
    return start("send", [&] {
      if (bytes > 0) together([&] { post_send(peer, data, bytes); });
    });
  }
  [[nodiscard]] Ticket receive(int peer, void* data, std::int64_t bytes) override {
    check_transfer(name_, "receive", peer, bytes);
    return start("receive", [&] {
      if (bytes > 0) together([&] { post_receive(peer, data, bytes); });
    });
  }

  [[nodiscard]] std::vector<std::byte> all_gather_bytes(std::span<const std::byte> bytes) override {
    GroupsOfProcess::all().check();
    return control_->all_gather_bytes(bytes);
  }
  void barrier() override {
    GroupsOfProcess::all().check();
    control_->barrier();
  }
  void abort() noexcept override {
    try {
      health_->fail("group " + name_.group + " was aborted on rank " + std::to_string(name_.rank));
      control_->abort();
      if (group_) group_->abort();
    } catch (const std::exception&) {
      // The group is broken already.
    }
  }

 private:
  // NCCL connects a sender and a receiver at their first message, which blocks both callers until
  // the other one has called. Pipeline stages that begin with different links would wait in a
  // circle. So a byte goes each way here, where all ranks of the group are.
  void connect_peers() {
    group_->eagerConnectSingleDevice(device_);
    void* memory = nullptr;
    check_cuda(cudaMalloc(&memory, static_cast<std::size_t>(size()) + 1), "connecting ranks");
    const std::unique_ptr<void, void (*)(void*)> owned(memory, [](void* m) { (void)cudaFree(m); });
    char* const bytes = static_cast<char*>(memory);
    const c10::cuda::CUDAStreamGuard on_stream(stream_);
    together([&] {
      for (int r = 0; r < size(); ++r) {
        if (r == rank()) continue;
        if (!settings_.one_way || rank() == 1) post_receive(r, bytes + r, 1);
        if (!settings_.one_way || rank() == 0) post_send(r, bytes + size(), 1);
      }
    });
    check_cuda(cudaStreamSynchronize(stream_.stream()), "connecting ranks");
    health_->check();
  }

  template <typename Body>
  Ticket start(const std::string& op, const Body& body) {
    settings_.failpoint("comm." + op);
    (void)health_->check_flying();
    const std::uint64_t seq = ++seq_;
    const std::string what = describe_failure(name_, op, seq, "");
    try {
      const c10::cuda::CUDAGuard device(device_.index());
      at::cuda::CUDAEvent before;
      before.record(c10::cuda::getCurrentCUDAStream(device_.index()));
      before.block(stream_);
      const c10::cuda::CUDAStreamGuard on_stream(stream_);
      if (CallWatch* watch = call_watch()) watch->begins();
      body();
      if (CallWatch* watch = call_watch()) watch->ends();
      auto operation = std::make_shared<NcclOperation>();
      operation->what = what;
      operation->event.record(stream_);
      health_->add(operation);
      return Ticket(std::make_shared<NcclTicket>(health_, std::move(operation)));
    } catch (const std::exception& error) {
      health_->fail(what + all_lines(error));
      health_->check();
      throw;
    }
  }

  // Runs the sends and receives that `post` makes as one NCCL group call.
  template <typename Post>
  void together(const Post& post) {
    if (size() == 1) return;
    group_->startCoalescing();
    post();
    const auto work = group_->endCoalescing(c10d::OpType::COALESCED);
    if (work) work->wait();  // stream_ waits, not the host
  }

  void post_send(int peer, const void* data, std::int64_t bytes) {
    std::vector<at::Tensor> tensors{bytes_at(data, bytes, device_)};
    group_->send(tensors, peer, /*tag=*/0);
  }
  void post_receive(int peer, void* data, std::int64_t bytes) {
    std::vector<at::Tensor> tensors{bytes_at(data, bytes, device_)};
    group_->recv(tensors, peer, /*tag=*/0);
  }

  // Later work of `stream` runs after the work that `other` has now.
  static void follow(const c10::cuda::CUDAStream& stream, const c10::cuda::CUDAStream& other) {
    at::cuda::CUDAEvent now;
    now.record(other);
    now.block(stream);
  }

  // Rounds the shares of all ranks into the rings that they are sent from. Earlier sends from these
  // rings have completed on this stream.
  void round(const ExchangeBatch& batch, const ExchangeShares& shares) {
    const auto options = at::TensorOptions().device(device_);
    for (const ExchangeSegment& segment : batch) {
      const std::array<std::int64_t, 2> sizes{size(), segment.elems};
      void* const given = const_cast<char*>(shares.given(segment, 0));
      const at::Tensor from = at::from_blob(given, sizes, {shares.pieces[segment.piece].stride, 1},
                                            options.dtype(at::kFloat));
      at::from_blob(shares.rounded(segment, 0), sizes, {shares.ring_elems, 1},
                    options.dtype(at::kBFloat16))
          .copy_(from);
    }
  }

  void exchange(const ExchangeBatch& batch, const ExchangeShares& shares) {
    const std::int64_t width = size_of(shares.dtype.sent);
    together([&] {
      for (const ExchangeSegment& segment : batch) {
        for (int r = 0; r < size(); ++r) {
          if (r == rank()) continue;
          const int slot = r < rank() ? r : r - 1;
          post_receive(r, shares.staged(segment, slot), segment.elems * width);
          post_send(r, shares.of(segment, r), segment.elems * width);
        }
      }
    });
  }

  void add(const ExchangeBatch& batch, const ExchangeShares& shares) {
    std::vector<CudaAddSegment> segments;
    segments.reserve(batch.size());
    for (const ExchangeSegment& segment : batch) {
      const ReduceScatterPiece& piece = shares.pieces[segment.piece];
      segments.push_back({.own = shares.of(segment, rank()),
                          .staged = shares.staged(segment, 0),
                          .output = piece.output + segment.offset,
                          .elems = segment.elems,
                          .accumulate = piece.accumulate});
    }
    ordered_add_cuda(segments.data(), static_cast<int>(segments.size()),
                     {.staged_stride = shares.ring_elems,
                      .rank = rank(),
                      .size = size(),
                      .dtype = shares.dtype.sent},
                     {adding_.stream()});
  }

  void gather(const std::vector<AllGatherPiece>& pieces, DType dtype) {
    for (const AllGatherPiece& piece : pieces) {
      const std::int64_t bytes = piece.elems * size_of(dtype);
      char* own = static_cast<char*>(piece.output) + rank() * piece.stride * size_of(dtype);
      if (bytes == 0 || own == piece.input) continue;
      check_cuda(cudaMemcpyAsync(own, piece.input, static_cast<std::size_t>(bytes),
                                 cudaMemcpyDeviceToDevice, stream_.stream()),
                 "copying the own share");
    }
    together([&] {
      for (const AllGatherPiece& piece : pieces) {
        const std::int64_t bytes = piece.elems * size_of(dtype);
        for (int r = 0; r < size() && bytes > 0; ++r) {
          if (r == rank()) continue;
          post_receive(r, static_cast<char*>(piece.output) + r * piece.stride * size_of(dtype),
                       bytes);
          post_send(r, piece.input, bytes);
        }
      }
    });
  }

  // Why c10d has broken the group; "" if it has not.
  [[nodiscard]] std::string nccl_failure(std::chrono::milliseconds timeout) {
    switch (group_ ? group_->getError() : c10d::ErrorType::SUCCESS) {
      case c10d::ErrorType::SUCCESS:
        return "";
      case c10d::ErrorType::TIMEOUT:
        return "not done " + std::to_string(timeout.count()) + " ms after the call";
      default:
        return "NCCL's connection to another rank broke; this rank's log has NCCL's reason";
    }
  }

  void drain() {
    const Clock::time_point deadline = Clock::now() + kDrainGrace;
    while (true) {
      if (health_->check_flying() == 0) return;
      if (Clock::now() >= deadline) throw CommError("operations in flight", /*secondary=*/true);
      std::this_thread::sleep_for(std::chrono::milliseconds{1});
    }
  }

  const GroupName name_;
  const NcclSettings settings_;
  const std::unique_ptr<Communicator> control_;  // holds the rendezvous server: destroyed last
  const c10::Device device_;
  const OwnStream own_stream_;
  const OwnStream own_adding_;
  const c10::cuda::CUDAStream stream_ = own_stream_.get();
  const c10::cuda::CUDAStream adding_ = own_adding_.get();
  const std::shared_ptr<GroupHealth> health_;
  c10::intrusive_ptr<c10d::Store> store_;
  c10::intrusive_ptr<c10d::ProcessGroupNCCL> group_;
  std::uint64_t seq_ = 0;
};

}  // namespace
}  // namespace sluice

extern "C" __attribute__((visibility("default"))) sluice::Communicator*
sluice_make_nccl_communicator(const sluice::CommOptions& options, sluice::Communicator* control,
                              const sluice::NcclSettings& settings) {
  const sluice::SigpipeBlock no_sigpipe;  // inherited by the threads of c10d and NCCL
  std::unique_ptr<sluice::Communicator> owned(control);
  try {
    return new sluice::NcclCommunicator(options, std::move(owned), settings);
  } catch (const sluice::Error&) {
    throw;
  } catch (const std::exception& error) {
    throw sluice::CommError(
        "group " + options.group + ": NCCL could not be started: " + sluice::all_lines(error),
        /*secondary=*/false);
  }
}
