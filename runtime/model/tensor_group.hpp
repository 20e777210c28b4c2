// The exchanges of a unit's tensor-parallel ranks (Shoeybi et al. 2019): the sum of partial
// products. Sequence parallelism (Korthikanti et al. 2022) uses the two halves of the sum, because
// between units each rank has only its own tokens.
//
// Rows are tokens. [N, H] are the tokens of B whole samples. [M, H] are this rank's tokens between
// units: all (M = N), or with `sequence` tokens [rank x S / tensor, ...) of each sample (M = N /
// tensor). Every rank makes the same calls in the same order. Sums are ordered sums, rounded once,
// so all ranks have the same bits.
//
// A call starts the exchange and returns; finish() waits and throws the exchange's CommError.
// Buffers are tensors, so a dry run on meta tensors allocates as the run does, but sends nothing.
// Not thread-safe: one rank's units call in turn.
//
// On a GPU the exchange runs on the communicator's stream behind all that the caller's stream has
// been given; finish() lets the caller's stream wait, never the host. Buffers are freed behind that
// wait, so the allocator may use them again at once.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Stream.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>

#include "parallel/comm/communicator.hpp"
#include "runtime/model/model_part.hpp"
#include "runtime/program/exchange.hpp"

namespace sluice {

class TensorGroup {
 public:
  // One exchange of this rank with its times. From `started` to `needed` (the request of the
  // result) computation hides the exchange. Exchanges that a dry run leaves out have no times.
  struct Timed {
    std::string_view name{};
    Exchange what{};
    std::chrono::steady_clock::time_point started{}, needed{}, finished{};
  };
  using Watcher = std::function<void(const Timed&)>;
  using Clock = std::function<std::chrono::steady_clock::time_point()>;

  // A started exchange. The destructor waits too, because the memory is in use.
  class Started {
   public:
    Started() = default;
    Started(Started&&) noexcept = default;
    Started& operator=(Started&&) noexcept = default;
    ~Started();
    // The result. Called once.
    [[nodiscard]] at::Tensor finish();

   private:
    friend class TensorGroup;
    struct Work;
    struct Release {
      void operator()(Work* work) const noexcept;
    };
    std::unique_ptr<Work, Release> work_;
  };

  // `comm`: communicator of the tensor-parallel ranks, which outlives the group; null only for dry
  // runs on meta tensors. REQUIRES: part.tensor > 1, and comm of that size and rank.
  TensorGroup(const ModelPart& part, Communicator* comm);

  [[nodiscard]] int size() const { return part_.tensor; }
  [[nodiscard]] int rank() const { return part_.tensor_rank; }
  [[nodiscard]] bool sequence() const { return part_.sequence; }
  [[nodiscard]] const ModelPart& part() const { return part_; }

  // `beside`: the caller's work before the exchange's finish().
  // partial [N, H] contiguous, not accessed until finish() -> the sum over ranks, [M, H], in the
  // memory of `partial` if M = N. REQUIRES: H is divisible by size().
  [[nodiscard]] Started sum(const at::Tensor& partial_NH, std::int64_t batch,
                            Beside beside = Beside::kNothing);
  // [M, H] contiguous -> [N, H]; without sequence sends nothing.
  [[nodiscard]] Started whole(const at::Tensor& x_MH, std::int64_t batch,
                              Beside beside = Beside::kNothing);
  // x contiguous, of equal shape on all ranks -> [size(), sizes of x...], by rank.
  [[nodiscard]] at::Tensor each(const at::Tensor& x);

  // Sets the watcher, which each finish() of a sending exchange calls on the unit's thread; empty:
  // none. Returns the previous watcher.
  Watcher watch(Watcher watcher) { return std::exchange(watcher_, std::move(watcher)); }
  // Sets the clock of the exchanges' times; by default the host's.
  void time_by(Clock clock) { clock_ = std::move(clock); }
  // Reports `times` exchanges like the last one, which a dry run leaves out, to the watcher.
  void leave_out(std::int64_t times);

 private:
  [[nodiscard]] Started begin(std::string_view name, ExchangeKind kind, Beside beside,
                              const at::Tensor& result);
  void reduce(Started::Work& work, const at::Tensor& partial, std::int64_t batch);
  void gather(Started::Work& work, const at::Tensor& part, std::int64_t batch);
  static void round(const Started::Work& work);
  void gather_beside(Started::Work& work);
  void conclude(Started::Work& work);

  const ModelPart part_;
  Communicator* const comm_;
  std::optional<c10::Stream> beside_;  // of a GPU
  Watcher watcher_;
  Clock clock_ = [] { return std::chrono::steady_clock::now(); };
  Timed last_;
};

}  // namespace sluice
