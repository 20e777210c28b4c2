// Units of tensor-parallel ranks on their own: memory of the dry run against what is allocated,
// bytes sent, what runs while ranks exchange, and sequences in parts.
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <future>

#include "base/error.hpp"
#include "runtime/model/counting_allocator.hpp"
#include "runtime/model/unit_profile.hpp"
#include "tests/runtime/model/block_run.hpp"
#include "tests/runtime/model/part_run.hpp"

namespace sluice::testing {
namespace {

using at::Tensor;

// Exchanges nothing and says when it was asked to and when somebody waited.
class SilentCommunicator final : public Communicator {
 public:
  explicit SilentCommunicator(const ModelPart& part) : part_(part) {}
  [[nodiscard]] int rank() const override { return part_.tensor_rank; }
  [[nodiscard]] int size() const override { return part_.tensor; }
  [[nodiscard]] std::int64_t reduce_scatter_staging_bytes(std::int64_t,
                                                          ReduceDtype) const override {
    return 0;
  }
  Ticket reduce_scatter(std::vector<ReduceScatterPiece>, ReduceDtype, void*) override {
    return start("reduce");
  }
  [[nodiscard]] Ticket all_gather(std::vector<AllGatherPiece>, DType) override {
    return start("gather");
  }
  [[nodiscard]] Ticket send(int, const void*, std::int64_t) override { return {}; }
  [[nodiscard]] Ticket receive(int, void*, std::int64_t) override { return {}; }
  [[nodiscard]] std::vector<std::byte> all_gather_bytes(std::span<const std::byte>) override {
    return {};
  }
  void barrier() override {}
  void abort() noexcept override {}

  std::vector<std::string> log;

 private:
  class Logged final : public TicketState {
   public:
    Logged(std::vector<std::string>& log, std::string what) : log_(log), what_(std::move(what)) {}
    void wait() override {
      if (!done_) log_.push_back("have " + what_);
      done_ = true;
    }
    [[nodiscard]] bool done() override { return done_; }

   private:
    std::vector<std::string>& log_;
    const std::string what_;
    bool done_ = false;
  };

  Ticket start(const std::string& what) {
    log.push_back(what);
    return Ticket(std::make_shared<Logged>(log, what));
  }

  const ModelPart part_;
};

ModelOptions options_of(double dropout, ModelType type = ModelType::kGpt2) {
  ModelOptions o{.layers = 1, .hidden = 48, .heads = 6, .vocab = 101, .seq = 100};
  o.type = type;
  o.dropout = dropout;
  if (type != ModelType::kGpt2) {
    o.kv_heads = 1;
    o.ffn = 96;
  }
  return o;
}

// A block's parameters, input and gradient as the rank has them.
BlockData data_of(const Model& model, std::int64_t batch, c10::ScalarType type) {
  BlockData data(model.spec.options, batch, type);
  data.params.clear();
  for (const ParamRef& ref : model.spec.units[1].params) {
    const ParamSpec& param = model.spec.groups[static_cast<std::size_t>(ref.group)]
                                 .params[static_cast<std::size_t>(ref.index)];
    data.params.push_back(part_of_whole(whole_parameter(param), param).to(type));
  }
  const ModelPart& part = model.spec.part;
  const std::int64_t own = data.x.size(1) / (part.sequence ? part.tensor : 1);
  data.x = data.x.narrow(1, 0, own).contiguous();
  data.dy = data.dy.narrow(1, 0, own).contiguous();
  return data;
}

TEST(TensorProfile, TheDryRunOfABlockIsTheRealRun) {
  install_counting_allocators();
  constexpr std::int64_t kScalars = 64;  // numbers that libtorch wraps in 0-dim host tensors
  for (const ModelType type : {ModelType::kGpt2, ModelType::kLlama}) {
    for (const bool sequence : {false, true}) {
      for (const double dropout : {0.0, 0.1}) {
        const ModelPart part{.tensor = 2, .tensor_rank = 1, .sequence = sequence};
        SilentCommunicator comm(part);
        const Model model = make_model(options_of(dropout, type), part, &comm);
        const UnitMemory real = real_memory(*model.units[1], data_of(model, 3, at::kFloat));
        const UnitMemory meta = profile_unit(model, 1, {.micro_batch = 3, .seq = 100});
        EXPECT_EQ(meta.kept, real.kept);
        EXPECT_EQ(meta.output, real.output);
        EXPECT_LE(std::abs(meta.forward_peak - real.forward_peak), kScalars);
        EXPECT_LE(std::abs(meta.forward_only_peak - real.forward_only_peak), kScalars);
        EXPECT_LE(std::abs(meta.backward_peak - real.backward_peak), kScalars);
        EXPECT_LE(std::abs(meta.recompute_peak - real.recompute_peak), kScalars);
        const Model dry = make_model(options_of(dropout, type), part);
        EXPECT_EQ(profile_unit(dry, 1, {.micro_batch = 3, .seq = 100}).backward_peak,
                  meta.backward_peak);
      }
    }
  }
}

TEST(TensorProfile, OnlyTheShardOfTheResidualStreamIsKept) {
  const auto kept = [](const ModelPart& part) {
    return profile_unit(make_model(options_of(0), part), 1, {.micro_batch = 2, .seq = 100}).kept;
  };
  const std::int64_t token = 2 * 100 * 48 * 4;  // of hidden elements
  EXPECT_EQ(kept({}), 9 * token);
  const ProfileShape split{.micro_batch = 2, .seq = 100, .split_backward = true};
  EXPECT_EQ(profile_unit(make_model(options_of(0)), 1, split).deferred,
            16 * token + 13 * 48 * 4);  // and the gradients of norms and biases
  EXPECT_EQ(kept({.tensor = 3}), 8 * token / 3 + token);
  EXPECT_EQ(kept({.tensor = 2, .sequence = true}), 9 * token / 2);
}

std::int64_t live() { return allocation_count(CountedDevice::kHost).live; }

// As the engine's: what a split backward gives at once is held until the rest is there.
class SplitSink final : public GradSink {
 public:
  explicit SplitSink(const BlockData& data) {
    for (const Tensor& p : data.params) grads_.push_back(at::empty(p.sizes(), at::kFloat));
  }
  GradTarget target(int index) override {
    const Tensor& grad = grads_[static_cast<std::size_t>(index)];
    if (runs_rest_) return {grad, false};
    early_.push_back(at::empty(grad.sizes(), at::kFloat));
    return {early_.back(), false};
  }
  std::unique_ptr<Deferred>* deferred() override { return &rest; }
  void run_rest() {
    runs_rest_ = true;
    rest->run(*this);
  }
  void forget() {
    rest.reset();
    early_.clear();
  }
  std::unique_ptr<Deferred> rest;

 private:
  bool runs_rest_ = false;
  std::vector<Tensor> early_;
  std::vector<Tensor> grads_;
};

TEST(TensorProfile, WhatASplitBackwardHoldsIsWhatTheDryRunSays) {
  install_counting_allocators();
  for (const int tensor : {1, 2}) {
    for (const ModelType type : {ModelType::kGpt2, ModelType::kLlama}) {
      const ModelPart part{.tensor = tensor, .tensor_rank = tensor - 1};
      SilentCommunicator comm(part);
      const Model model = make_model(options_of(0.1, type), part, tensor > 1 ? &comm : nullptr);
      BlockData data = data_of(model, 3, at::kFloat);
      SplitSink sink(data);
      const UnitCall call{.training = true};
      const std::int64_t before = live() - data.dy.numel() * 4;
      std::unique_ptr<Saved> saved;
      (void)model.units[1]->forward(call, data.params, data.x, &saved);
      (void)model.units[1]->backward(call, data.params, data.x, std::move(saved), data.dy, sink);
      data.dy.reset();
      ASSERT_NE(sink.rest, nullptr);
      const std::int64_t held = live() - before;
      const std::int64_t start = live();
      reset_allocation_peak(CountedDevice::kHost);
      sink.run_rest();
      const std::int64_t peak = allocation_count(CountedDevice::kHost).peak - start;
      sink.forget();
      EXPECT_EQ(live(), before);
      const UnitMemory meta =
          profile_unit(model, 1, {.micro_batch = 3, .seq = 100, .split_backward = true});
      EXPECT_EQ(meta.deferred, held);
      EXPECT_LE(std::abs(meta.weights_peak - peak), 64);
      EXPECT_EQ(profile_unit(model, 1, {.micro_batch = 3, .seq = 100}).deferred, 0);
    }
  }
}

// A dry run leaves alike chunks out; what they send is counted.
TEST(TensorProfile, TrafficOfTheHeadGrowsWithItsRows) {
  const Model model = make_model(options_of(0), {.tensor = 2});
  const auto traffic = [&](std::int64_t samples) {
    return unit_exchanges(model, 2, {.micro_batch = samples, .seq = 128});
  };
  const UnitExchanges one = traffic(2);  // a chunk of 256 rows
  ASSERT_EQ(one.forward.size(), 1U);
  for (const std::int64_t chunks : {2, 3, 4, 1000}) {
    ExchangeList alike = one.forward;
    alike.front().times = chunks;
    EXPECT_EQ(traffic(2 * chunks).forward, alike);
    EXPECT_EQ(sent_bytes(traffic(2 * chunks).backward), chunks * sent_bytes(one.backward));
  }
}

class WholeSink final : public GradSink {
 public:
  explicit WholeSink(const BlockData& data) {
    for (const Tensor& p : data.params) grads_.push_back(at::empty(p.sizes(), at::kFloat));
  }
  GradTarget target(int index) override { return {grads_[static_cast<std::size_t>(index)], false}; }

 private:
  std::vector<Tensor> grads_;
};

TEST(TensorProfile, TheDryRunOfTheHeadIsTheRealRun) {
  install_counting_allocators();
  for (const bool sequence : {false, true}) {
    const ModelPart part{.tensor = 2, .tensor_rank = 1, .sequence = sequence};
    SilentCommunicator comm(part);
    const Model model = make_model(options_of(0), part, &comm);
    const UnitMemory meta = profile_unit(model, 2, {.micro_batch = 4, .seq = 100});
    std::vector<Tensor> params;
    for (const ParamRef& ref : model.spec.units[2].params) {
      const ParamSpec& param = model.spec.groups[static_cast<std::size_t>(ref.group)]
                                   .params[static_cast<std::size_t>(ref.index)];
      params.push_back(part_of_whole(whole_parameter(param), param));
    }
    const BlockData data = data_of(model, 4, at::kFloat);
    const Tensor targets = at::zeros({4, 100}, at::kLong);
    const Tensor scratch = at::empty({model.head->scratch_bytes(400, DType::kFloat32)}, at::kByte);
    EXPECT_EQ(scratch.numel(), meta.scratch);
    BlockData of_head = data;
    of_head.params = params;
    WholeSink sink(of_head);
    const std::int64_t start = live();
    reset_allocation_peak(CountedDevice::kHost);
    Tensor grad;
    (void)model.head->loss(params, data.x, targets, 1, scratch, &sink, &grad);
    const std::int64_t peak = allocation_count(CountedDevice::kHost).peak - start;
    EXPECT_LE(std::abs(meta.backward_peak - peak), 64) << sequence;
    EXPECT_EQ(meta.input_gradient, grad.numel() * 4);
  }
}

TEST(TensorProfile, BytesSentAreThoseOfTheSums) {
  const std::int64_t rows = 2 * 100 * 48 * 4;  // [N, H] in fp32
  const ProfileShape shape{.micro_batch = 2, .seq = 100};
  const auto of_unit = [&](const ModelPart& part, std::size_t unit) {
    return unit_exchanges(make_model(options_of(0), part), unit, shape);
  };
  using enum ExchangeKind;
  const auto once = [](ExchangeKind kind, std::int64_t bytes, Beside beside = Beside::kNothing) {
    return Exchange{.kind = kind, .beside = beside, .bytes = bytes};
  };
  // A share goes to each of the others; a sum is a reduce-scatter and an all-gather.
  const UnitExchanges whole = of_unit({.tensor = 3}, 1);
  const std::int64_t sum = 2 * (2 * rows / 3);
  const Exchange hidden = once(kAllReduce, sum, Beside::kWeightProduct);
  EXPECT_EQ(whole.forward, (ExchangeList{{.bytes = sum, .times = 2}}));
  ExchangeList both;
  append(both, hidden);
  append(both, hidden);
  EXPECT_EQ(whole.backward, both);
  // The forward again leaves out the sum that only the next unit needs.
  EXPECT_EQ(sent_bytes(whole.again), 3 * sum);
  EXPECT_EQ(whole.again.front(), once(kAllReduce, sum));

  const UnitExchanges shards = of_unit({.tensor = 2, .sequence = true}, 1);
  const std::int64_t half = rows / 2;
  EXPECT_EQ(shards.forward, (ExchangeList{once(kAllGather, half), once(kReduceScatter, half),
                                          once(kAllGather, half), once(kReduceScatter, half)}));
  const Exchange again = once(kAllGather, half, Beside::kInputProduct);
  const Exchange scattered = once(kReduceScatter, half, Beside::kWeightProduct);
  EXPECT_EQ(shards.backward, (ExchangeList{once(kAllGather, half), again, scattered,
                                           once(kAllGather, half), again, scattered}));
  EXPECT_EQ(sent_bytes(shards.again), 9 * half);

  EXPECT_EQ(of_unit({.tensor = 3}, 0).forward, (ExchangeList{once(kAllReduce, sum)}));
  const UnitExchanges head = of_unit({.tensor = 3}, 2);
  EXPECT_EQ(head.forward, (ExchangeList{once(kAllGather, 2 * 200 * 3 * 8)}));  // doubles a row
  EXPECT_EQ(head.backward, (ExchangeList{hidden}));
  EXPECT_EQ(unit_exchanges(make_model(options_of(0)), 1, shape), UnitExchanges{});
}

// Weights that a split backward leaves for later are no product to run beside.
TEST(TensorProfile, ASplitBackwardHidesNoSum) {
  const Model model = make_model(options_of(0), {.tensor = 2});
  int told = 0;
  model.tensor->watch([&](const TensorGroup::Timed&) { ++told; });
  const UnitExchanges split =
      unit_exchanges(model, 1, {.micro_batch = 2, .seq = 100, .split_backward = true});
  for (const Exchange& exchange : split.backward) EXPECT_EQ(exchange.beside, Beside::kNothing);
  EXPECT_EQ(told, 0);
  (void)profile_unit(model, 1, {.micro_batch = 2, .seq = 100});
  EXPECT_GT(told, 0);  // the watcher is back
}

// Says when gradients are asked for.
class LoggingSink final : public GradSink {
 public:
  LoggingSink(const BlockData& data, std::vector<std::string>& log) : log_(log) {
    for (const Tensor& p : data.params) grads_.push_back(at::empty(p.sizes(), at::kFloat));
  }
  GradTarget target(int index) override {
    const Tensor& grad = grads_[static_cast<std::size_t>(index)];
    if (grad.dim() == 2) log_.push_back("weight " + std::to_string(index));
    return {grad, false};
  }

 private:
  std::vector<std::string>& log_;
  std::vector<Tensor> grads_;
};

TEST(TensorProfile, InputGradientsAreSummedWhileTheWeightsAreMade) {
  for (const bool sequence : {false, true}) {
    const ModelPart part{.tensor = 2, .tensor_rank = 0, .sequence = sequence};
    SilentCommunicator comm(part);
    const Model model = make_model(options_of(0), part, &comm);
    const BlockData data = data_of(model, 1, at::kFloat);
    const UnitCall call{.training = true};
    std::unique_ptr<Saved> saved;
    (void)model.units[1]->forward(call, data.params, data.x, &saved);
    comm.log.clear();
    LoggingSink sink(data, comm.log);
    (void)model.units[1]->backward(call, data.params, data.x, std::move(saved), data.dy, sink);
    using Log = std::vector<std::string>;
    // gpt2: 10 is the MLP's down, 8 its up, 4 attention's out, 2 its q, k, v.
    const Log plain{"weight 10", "reduce", "gather", "weight 8", "have gather",
                    "weight 4",  "reduce", "gather", "weight 2", "have gather"};
    const Log shards{"gather", "have gather", "weight 10",  // whole rows of dy
                     "gather", "have gather", "reduce",     "weight 8", "have reduce",
                     "gather", "have gather", "weight 4",   "gather",   "have gather",
                     "reduce", "weight 2",    "have reduce"};
    EXPECT_EQ(comm.log, sequence ? shards : plain);
  }
}

// Ranks that remember their own heads against one rank that runs the whole sequence.
TEST(TensorParallel, RunsSequencesInParts) {
  for (const ModelType type : {ModelType::kGpt2, ModelType::kLlama}) {
    PartCase given{.options = options_of(0, type), .tensor = 3, .batch = 1};
    given.options.seq = 9;
    if (type == ModelType::kLlama) given.options.kv_heads = 3;
    const auto comms = make_local_communicators(given.tensor, std::chrono::milliseconds{60'000});
    const Tensor tokens = at::zeros({1, 9}, at::kLong);
    for (std::int64_t i = 0; i < 9; ++i) tokens.data_ptr<std::int64_t>()[i] = 7 * i + 1;
    const auto run = [&](const ModelPart& part, Communicator* comm, bool in_parts) {
      const Model model = make_model(given.options, part, comm);
      std::vector<Tensor> caches;
      for (const auto& unit : model.units) {
        caches.push_back(at::empty({1, unit->cache_elems(9).value()}, at::kFloat));
      }
      Tensor logits;
      for (std::int64_t first = 0; first < 9;) {
        const std::int64_t n = in_parts ? (first == 0 ? 4 : 1) : 9;
        Tensor x = tokens.narrow(1, first, n).contiguous();
        for (std::size_t u = 0; u <= model.units.size(); ++u) {
          std::vector<Tensor> params;
          for (const ParamRef& ref : model.spec.units[u].params) {
            const ParamSpec& param = model.spec.groups[static_cast<std::size_t>(ref.group)]
                                         .params[static_cast<std::size_t>(ref.index)];
            params.push_back(part_of_whole(whole_parameter(param), param));
          }
          if (u == model.units.size()) {
            logits = model.head->logits(params, x, n - 1);
          } else {
            const UnitCall call{.cache = in_parts ? &caches[u] : nullptr, .first_position = first};
            x = model.units[u]->forward(call, params, x, nullptr);
          }
        }
        first += n;
      }
      return logits;
    };
    const Tensor whole = run({}, nullptr, false);
    std::vector<std::future<Tensor>> ours;
    for (int r = 0; r < 3; ++r) {
      Communicator* comm = comms[static_cast<std::size_t>(r)].get();
      ours.push_back(std::async(std::launch::async,
                                [&, r, comm] { return run(part_of_rank(given, r), comm, true); }));
    }
    for (std::future<Tensor>& logits : ours) EXPECT_LT(relative_error(logits.get(), whole), 1e-5);
  }
  const Model shards = make_model(options_of(0), {.tensor = 2, .sequence = true});
  EXPECT_EQ(shards.units[1]->cache_elems(9), std::nullopt);
}

}  // namespace
}  // namespace sluice::testing
