#include "runtime/engine/engine.hpp"

#include <algorithm>
#include <optional>
#include <utility>

#include "base/error.hpp"
#include "base/failpoint.hpp"
#include "runtime/engine/device_access.hpp"
#include "runtime/engine/gpu_memory.hpp"
#include "runtime/engine/graph_choice.hpp"
#include "runtime/model/counting_allocator.hpp"
#include "runtime/program/model/memory_model.hpp"

namespace sluice {
namespace {

// Set-up leaves freed memory behind; the process returns it before the arena is taken.
ProgramMemory make_program_memory(const EngineSetup& setup, const EnginePrograms& programs,
                                  GroupStore& store) {
  return_freed_memory();
  return ProgramMemory(setup, programs.arena_bytes(),
                       store.block(programs.states(), StateArray::kCommStaging));
}

// A GPU orders its lanes by marks even where nothing leaves it.
std::shared_ptr<DeviceCopies> copies_of(const EngineSetup& setup) {
  if (!leaves_device(setup.shape().placement) && !setup.device.is_cuda()) return nullptr;
  return device_copies(setup.options.tiers, setup.device);
}

std::unique_ptr<TierStore> make_tiers(const EngineSetup& setup, const EnginePrograms& programs,
                                      GroupStore& store,
                                      const std::shared_ptr<DeviceCopies>& copies) {
  if (!leaves_device(setup.shape().placement)) return nullptr;
  TierOptions options = with_dma(setup.options.tiers, setup.device);
  options.nvme.ranks = setup.world().size();
  return std::make_unique<TierStore>(setup.plan, programs.states(), setup.options.optimizer,
                                     programs.all(), store, setup.data().rank(), options, copies);
}

std::unique_ptr<DeviceGraphs> make_graphs(const EngineSetup& setup) {
  const bool launches = launches_graphs(setup.options, setup.shape().micro_batches);
  return launches ? device_graphs(setup.device) : nullptr;
}

std::unique_ptr<OpClock> make_clock(const EngineSetup& setup) {
  if (!setup.options.device_times || !setup.device.is_cuda()) return nullptr;
  auto clock = std::make_unique<OpClock>(device_events(setup.device));
  if (setup.options.trace && setup.model.tensor) {
    setup.model.tensor->time_by([&clock = *clock] { return clock.stamp(); });
  }
  return clock;
}

}  // namespace

Engine::Engine(EngineOptions options, Model model, StepPlan plan, MeshRef comms, at::Device device,
               RowSource train, RowSource valid, PhaseObserver observer)
    : setup_{std::move(options), std::move(model), std::move(plan), std::move(comms), device},
      programs_(write_programs(setup_)),
      store_(setup_.spec(), setup_.plan, programs_.states(), setup_.data().rank(),
             DeviceMemory(device, setup_.data().maps_host_memory())),
      memory_(make_program_memory(setup_, programs_, store_)),
      copies_(copies_of(setup_)),
      tiers_(make_tiers(setup_, programs_, store_, copies_)),
      graphs_(make_graphs(setup_)),
      clock_(make_clock(setup_)),
      image_(tiers_.get(), setup_.world(), setup_.options.tiers),
      carry_(setup_.shape(), tiers_.get()),
      states_(setup_, store_, carry_, tiers_.get()),
      parameters_(setup_, states_, carry_, image_),
      flights_(setup_.shape().micro_batches, setup_.shape().units.size()),
      ops_({.setup = setup_,
            .memory = memory_,
            .store = store_,
            .run = run_,
            .flights = flights_,
            .carry = carry_,
            .image = image_,
            .copies = copies_.get(),
            .tiers = tiers_.get(),
            .graphs = graphs_.get(),
            .clock = clock_.get()},
           std::move(train), std::move(valid)),
      observer_(std::move(observer)),
      runner_(setup_, programs_, run_, ops_, copies_.get(), observer_),
      use_(setup_, programs_, run_, ops_, runner_) {
  run_.rounding_seed = setup_.options.train.seed;
  if (image_.found() || !setup_.options.later_weights) make_first_weights();
}

Engine::~Engine() = default;

// Piece by piece, because a group may be a good part of the machine's memory.
void Engine::make_first_weights() {
  if (has_weights_) return;
  constexpr std::int64_t kElemsAtOnce = 1 << 20;
  for (int g = 0; g < store_.size(); ++g) {
    const std::int64_t owned = owned_elems(setup_.shape(), g);
    const InitialWeights initial = states_.rounding().watched(g, setup_.options.initial_weights);
    for (std::int64_t begin = 0; begin < owned; begin += kElemsAtOnce) {
      if (observer_) observer_("first weights", false);  // may be read from a slow disk
      const std::int64_t elems = std::min(kElemsAtOnce, owned - begin);
      if (image_.found()) {
        states_.restore_from_image(g, begin, elems);
      } else {
        states_.set_master(g, begin,
                           draw_owned(setup_.spec(), setup_.plan, g, setup_.data().rank(), begin,
                                      elems, setup_.options.train.seed, initial));
      }
    }
  }
  has_weights_ = true;
}

void Engine::require_weights() const {
  check(has_weights_, "an engine's weights are made or restored before they are used");
}

void Engine::reserve_device(std::int64_t bytes) {
  std::optional<PoolScope> pool;
  if (graphs_) pool.emplace(*graphs_);
  reserve_bytes(setup_.device, bytes - add_up(programs_.train).small_peak);
}

StepResult Engine::train_step(const StepInput& input) {
  check(setup_.trains(), "an engine that was made to train is asked for a step");
  require_weights();
  failpoint("engine.step");
  const std::int64_t io_before = tiers_ ? tiers_->nvme_stats().busy_ns : 0;
  run_.begin_step(input);
  carry_.begin_step(run_.update(1.0));
  runner_.execute(programs_.train, RunMode::kTrain, input.step);
  carry_.end_step(run_.clipped());
  run_.result.times = step_times();
  if (tiers_) {
    run_.result.times.io = 1e-6 * static_cast<double>(tiers_->nvme_stats().busy_ns - io_before);
  }
  remake_parameters();
  return run_.result;
}

// The timings stay the step's.
void Engine::remake_parameters() {
  if (!carry_.begin_remaking()) return;
  std::vector<OpTiming> timings = std::move(run_.timings);
  runner_.execute(programs_.update, RunMode::kUpdate, run_.index);
  run_.timings = std::move(timings);
  carry_.end_remaking();
}

StepTimes Engine::step_times() const {
  if (!clock_) return run_.times(run_.timings);
  std::vector<OpTiming> timings = run_.timings;
  clock_->apply(timings);
  return run_.times(timings);
}

void Engine::read_device_times(std::vector<OpTiming>& timings,
                               std::vector<ExchangeTiming>& exchanges) const {
  if (clock_) clock_->finish(timings, exchanges);
}

void Engine::settle() {
  if (!carry_.begin_settling()) return;
  runner_.execute(programs_.update, RunMode::kUpdate, run_.index);
  carry_.end_settling();
}

double Engine::evaluate(std::int64_t batches) {
  // NOLINTNEXTLINE(bugprone-unchecked-optional-access): only an evaluation that is left has no loss
  return *evaluate(batches, [] { return false; });
}

std::optional<double> Engine::evaluate(std::int64_t batches, const std::function<bool()>& leave) {
  require_weights();
  settle();
  return use_.evaluate(batches, leave);
}

std::vector<double> Engine::losses(const RowSource& rows, std::int64_t count) {
  require_weights();
  settle();
  return use_.losses(rows, count);
}

at::Tensor Engine::decode(std::int64_t first, std::span<const std::int64_t> tokens) {
  require_weights();
  settle();
  return use_.decode(first, tokens);
}

at::Tensor Engine::next_token_logits(const SampleRows& tokens, std::int64_t rows) {
  require_weights();
  settle();
  return use_.next_token_logits(tokens, rows);
}

std::string Engine::find_non_finite(std::int64_t step) {
  require_weights();
  carry_.forget_speculation();  // the step runs with the parameters that it had
  remake_parameters();
  return use_.find_non_finite(step);
}

at::Tensor Engine::full_parameter(const std::string& name) {
  require_weights();
  settle();
  return parameters_.get(name);
}

void Engine::set_parameter(const std::string& name, const at::Tensor& value) {
  require_weights();
  settle();
  parameters_.set(name, value);
}

std::vector<StatePiece> Engine::owned_pieces() const {
  return sluice::owned_pieces(setup_.spec(), setup_.plan, programs_.states(), setup_.data().rank());
}

std::vector<StatePiece> Engine::saved_pieces() const {
  return sluice::saved_pieces(setup_.spec(), setup_.plan, programs_.states(), setup_.data().rank());
}

void Engine::read_state(const StatePiece& piece, StateKind kind, std::int64_t first,
                        std::span<float> values) {
  require_weights();
  states_.read(piece, kind, first, values);
}

void Engine::write_state(const StatePiece& piece, StateKind kind, std::int64_t first,
                         std::span<const float> values) {
  states_.write(piece, kind, first, values);
}

void Engine::set_image_state(std::string state) { image_.set_state(std::move(state)); }

void Engine::commit_image() {
  if (!image_.keeps() || !carry_.has_trained()) return;
  settle();
  image_.commit(run_.input.step).wait();
}

void Engine::end_image() { image_.end(); }

}  // namespace sluice
