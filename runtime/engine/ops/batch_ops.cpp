#include "runtime/engine/ops/batch_ops.hpp"

#include <algorithm>
#include <chrono>
#include <utility>

#include "base/error.hpp"
#include "kernels/cpu/softmax_cross_entropy.hpp"
#include "runtime/engine/ops/step_run.hpp"
#include "runtime/model/empty_tensor.hpp"
#include "runtime/model/tensor_view.hpp"

namespace sluice {
namespace {

// Adds its life to the step's time of data.
class DataTime {
 public:
  explicit DataTime(StepRun& run) : run_(run) {}
  ~DataTime() {
    const std::chrono::duration<double, std::milli> time =
        std::chrono::steady_clock::now() - begin_;
    run_.data_ms += time.count();
  }
  DataTime(const DataTime&) = delete;
  DataTime& operator=(const DataTime&) = delete;

 private:
  StepRun& run_;
  const std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
};

}  // namespace

std::int64_t first_row(const EngineSetup& setup, const StepRun& run, const Op& op) {
  const std::int64_t m =
      run.mode == RunMode::kEvaluate ? run.index % setup.shape().micro_batches : op.micro_batch;
  return (m * setup.data().size() + setup.data().rank()) * setup.options.train.micro_batch;
}

BatchOps::BatchOps(const Parts& parts, RowSource train, RowSource valid)
    : setup_(parts.setup),
      run_(parts.run),
      flights_(parts.flights),
      for_graphs_(parts.for_graphs),
      train_(std::move(train)),
      valid_(std::move(valid)) {
  if (!for_graphs_) return;
  const BatchSize size = setup_.micro_batch();
  for (int m = 0; m < setup_.shape().micro_batches; ++m) {
    Flight& flight = flights_.of(m);
    if (setup_.spec().options.packed_rows) {
      flight.document_memory = Documents::device_memory(size.rows, size.tokens, setup_.device);
    }
    if (!loads()) continue;
    flight.keeps_batch = true;
    for (at::Tensor* batch : {&flight.tokens, &flight.targets}) {
      *batch = empty_tensor({size.rows, size.tokens}, c10::ScalarType::Long, setup_.device);
    }
  }
}

bool BatchOps::loads() const {
  return setup_.shape().begins_model() || setup_.shape().ends_model();
}

void BatchOps::use_rows(const RowSource& rows, std::int64_t count) {
  given_ = &rows;
  given_count_ = count;
}

// On the host. From registered memory the host does not wait for a copy to a GPU; libtorch keeps
// the memory until the copy has completed.
at::Tensor BatchOps::staged(std::span<const std::int64_t> values, BatchSize size) const {
  const at::Tensor host = empty_tensor({size.rows, size.tokens}, c10::ScalarType::Long);
  check(std::ssize(values) == host.numel(), "rows are of the model's seq");
  std::copy(values.begin(), values.end(), host_data<std::int64_t>(host));
  return setup_.device.is_cuda() ? host.pin_memory() : host;
}

at::Tensor BatchOps::on_device(std::span<const std::int64_t> values, BatchSize size) const {
  return staged(values, size).to(setup_.device, c10::ScalarType::Long, /*non_blocking=*/true);
}

void BatchOps::put(const SampleRows& rows, Flight& flight) const {
  const BatchSize size = setup_.micro_batch();
  if (flight.keeps_batch) {
    flight.tokens.copy_(staged(rows.tokens, size), /*non_blocking=*/true);
    flight.targets.copy_(staged(rows.targets, size), /*non_blocking=*/true);
  } else {
    flight.tokens = on_device(rows.tokens, size);
    flight.targets = on_device(rows.targets, size);
  }
}

void BatchOps::use_tokens(std::span<const std::int64_t> tokens, BatchSize size) {
  given_tokens_ = on_device(tokens, size);
}

void BatchOps::read_rows(const Op& op, SampleRows& rows) const {
  const BatchSize size = setup_.micro_batch();
  if (run_.mode == RunMode::kEvaluate) {
    valid_(run_.index / setup_.shape().micro_batches, first_row(setup_, run_, op), size.rows, rows);
  } else if (run_.mode != RunMode::kLosses) {
    train_(run_.index, first_row(setup_, run_, op), size.rows, rows);
  } else if (run_.index < given_count_) {
    (*given_)(run_.index, 0, size.rows, rows);
  } else {  // a round that other ranks need
    const auto tokens = static_cast<std::size_t>(size.rows * size.tokens);
    rows.tokens.assign(tokens, 0);
    rows.targets.assign(tokens, kIgnoreTarget);
  }
}

// Else the caller gives tokens alone.
bool BatchOps::reads_rows() const {
  return run_.mode != RunMode::kLogits && run_.mode != RunMode::kDecode;
}

// Recorded work takes the code of documents in every step, so a row without ends is one document.
void BatchOps::note_documents(Flight& flight, const SampleRows& rows) const {
  const BatchSize size = setup_.micro_batch();
  const bool kept = flight.document_memory.defined();
  std::vector<std::vector<std::int32_t>> whole;
  if (rows.cu_seqlens.empty()) {
    if (!kept) return;
    whole.assign(static_cast<std::size_t>(size.rows), {0, static_cast<std::int32_t>(size.tokens)});
  } else if (!setup_.spec().options.packed_rows) {
    throw Error(
        "rows hold several documents, but the model was made for rows of one; set "
        "ModelOptions::packed_rows");
  }
  const auto& ends = rows.cu_seqlens.empty() ? whole : rows.cu_seqlens;
  check(std::ssize(ends) == size.rows, "each row has the ends of its documents");
  flight.documents = std::make_unique<Documents>(ends, size.tokens);
  if (kept) flight.documents->put_on(flight.document_memory);
}

Flight& BatchOps::read(const Op& op) {
  Flight& flight = flights_.of(op);
  if (std::exchange(flight.has_read, true)) return flight;
  const DataTime time(run_);
  auto rows = std::make_unique<SampleRows>();
  read_rows(op, *rows);
  note_documents(flight, *rows);
  run_.learned_targets = static_cast<double>(rows->learned_targets);
  if (loads()) flight.rows = std::move(rows);
  return flight;
}

const Documents* BatchOps::documents(const Op& op) {
  if (!setup_.spec().options.packed_rows || !reads_rows()) return nullptr;
  return read(op).documents.get();
}

bool BatchOps::outgrows_graphs() {
  if (!for_graphs_ || !setup_.spec().options.packed_rows) return false;
  std::int64_t room = room_;
  const int micro_batches = setup_.shape().micro_batches;
  for (int m = 0; m < micro_batches; ++m) {
    room = std::max(room, read({.micro_batch = m}).documents->room());
  }
  for (int m = 0; m < micro_batches; ++m) flights_.of(m).documents->widen(room);
  return std::exchange(room_, room) < room;
}

double BatchOps::loss_factor() {
  if (!setup_.shape().ends_model()) return 0;
  read({.micro_batch = 0});
  return run_.loss_factor(setup_.tokens_of_step());
}

void BatchOps::load(const Op& op) {
  Flight& flight = flights_.of(op);
  if (reads_rows()) {
    const std::unique_ptr<SampleRows> rows = std::move(read(op).rows);
    check(rows != nullptr, "a program loads each micro-batch once");
    const DataTime time(run_);
    put(*rows, flight);
  }
  if (setup_.shape().begins_model()) {
    flight.inputs[0] = reads_rows() ? flight.tokens : std::exchange(given_tokens_, {});
  }
}

}  // namespace sluice
