// What a unit needs of its tensor-parallel ranks (Shoeybi et al. 2019): the sum of partial
// products, and with sequence parallelism (Korthikanti et al. 2022) its two halves, since between
// units each rank then has only its tokens.
//
// Rows are tokens: [N, H] those of B whole samples, [M, H] those this rank has between units: all
// (M = N), or with `sequence` tokens [rank x S / tensor, ...) of each sample (M = N / tensor).
// Every rank makes the same calls in the same order. Sums are in fp32 in the order of ranks,
// rounded once, so all ranks have the same bits.
//
// A call starts the exchange and returns; finish() waits for it, throwing its CommError. Buffers
// are tensors: a dry run on meta tensors, which exchanges nothing, allocates what the real one
// does. Not thread-safe: one rank's units call in turn.
#pragma once

#include <ATen/core/Tensor.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string_view>
#include <utility>

#include "parallel/comm/communicator.hpp"
#include "runtime/model/model_part.hpp"
#include "runtime/program/exchange.hpp"

namespace sluice {

class TensorGroup {
 public:
  // One exchange of this rank, and when it was: between `started` and `needed`, when its result was
  // asked for, it was hidden behind computation. Of exchanges that a dry run leaves out: no times.
  struct Timed {
    std::string_view name{};
    Exchange what{};
    std::chrono::steady_clock::time_point started{}, needed{}, finished{};
  };
  using Watcher = std::function<void(const Timed&)>;

  // One that was started. Destroying it waits too, since the memory is in use.
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

  // `comm`: the tensor-parallel ranks, which outlives the group. Null: for dry runs on meta tensors
  // alone. REQUIRES: part.tensor > 1, and comm of that size and rank.
  TensorGroup(const ModelPart& part, Communicator* comm);

  [[nodiscard]] int size() const { return part_.tensor; }
  [[nodiscard]] int rank() const { return part_.tensor_rank; }
  [[nodiscard]] bool sequence() const { return part_.sequence; }
  [[nodiscard]] const ModelPart& part() const { return part_; }

  // `beside`: what the caller computes before it finishes the exchange.
  // partial [N, H] contiguous, to be left alone meanwhile -> the sum over ranks, [M, H]; in the
  // memory of `partial` where all ranks get all of it. REQUIRES: H divides by size().
  [[nodiscard]] Started sum(const at::Tensor& partial_NH, std::int64_t batch,
                            Beside beside = Beside::kNothing);
  // [M, H] contiguous -> [N, H]; without sequence there is nothing to do, and nothing is sent.
  [[nodiscard]] Started whole(const at::Tensor& x_MH, std::int64_t batch,
                              Beside beside = Beside::kNothing);
  // x contiguous, alike on all ranks -> [size(), sizes of x...], by rank.
  [[nodiscard]] at::Tensor each(const at::Tensor& x);

  // Called on the unit's thread at each finish() of an exchange that sends; empty: nobody. Returns
  // the watcher before.
  Watcher watch(Watcher watcher) { return std::exchange(watcher_, std::move(watcher)); }
  // Tells the watcher of `times` exchanges like the last one, which a dry run leaves out.
  void leave_out(std::int64_t times);

 private:
  [[nodiscard]] Started begin(std::string_view name, ExchangeKind kind, Beside beside,
                              const at::Tensor& result);
  void reduce(Started::Work& work, const at::Tensor& partial, std::int64_t batch);
  void gather(Started::Work& work, const at::Tensor& part, std::int64_t batch);
  void conclude(Started::Work& work);

  const ModelPart part_;
  Communicator* const comm_;
  Watcher watcher_;
  Timed last_;
};

}  // namespace sluice
