// A flight holds the tensors of one micro-batch from its first forward to its last backward.
// Only the executing thread uses flights. Other threads get addresses, never a flight.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <utility>
#include <vector>

#include "base/index.hpp"
#include "runtime/data/training_data.hpp"
#include "runtime/model/documents.hpp"
#include "runtime/model/unit.hpp"
#include "runtime/program/program.hpp"

namespace sluice {

// Vectors are by unit of this rank.
struct Flight {
  explicit Flight(std::size_t units)
      : inputs(units),
        input_buffers(units, -1),
        saved(units),
        deferred(units),
        early(units),
        arrived(units) {}

  at::Tensor tokens;
  at::Tensor targets;
  // Of packed rows; units' graphs refer to it until the last backward. Lives until the program
  // ends.
  std::unique_ptr<Documents> documents;  // null: each row is one
  // Where recorded work reads the documents (Documents::device_memory); else undefined.
  at::Tensor document_memory;
  bool has_read = false;             // the rows, in this program
  std::unique_ptr<SampleRows> rows;  // read, and still to be loaded
  std::vector<at::Tensor> inputs;
  std::vector<BufferId> input_buffers;  // the program's buffer that counts the input
  std::vector<std::unique_ptr<Saved>> saved;
  // After a split backward: the weight products still to run, and gradients made at once.
  std::vector<std::unique_ptr<Deferred>> deferred;
  std::vector<std::vector<std::pair<int, at::Tensor>>> early;
  at::Tensor gradient;  // of the activation between the last unit done and the next unit
  // Between pipeline stages: the output for another stage, and by last unit of a chunk the received
  // gradient of the unit's output.
  at::Tensor output;
  std::vector<at::Tensor> arrived;

  // A batch in buffers of its own stays for recorded work (StepGraphs).
  bool keeps_batch = false;
  void release_batch() {
    if (keeps_batch) return;
    tokens.reset();
    targets.reset();
  }
};

class Flights {
 public:
  Flights(int micro_batches, std::size_t units) : units_(units) {
    for (int m = 0; m < micro_batches; ++m) flights_.emplace_back(units);
  }
  [[nodiscard]] Flight& of(const Op& op) { return of(op.micro_batch); }
  [[nodiscard]] Flight& of(int micro_batch) { return nth(flights_, micro_batch); }
  // Buffer ids are those of one program, and rows those of its batch.
  void begin_program() {
    for (Flight& flight : flights_) {
      flight.input_buffers.assign(units_, -1);
      flight.documents.reset();
      flight.rows.reset();
      flight.has_read = false;
    }
  }

 private:
  std::size_t units_;
  std::vector<Flight> flights_;
};

}  // namespace sluice
