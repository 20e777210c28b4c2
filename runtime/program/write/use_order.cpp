#include "runtime/program/write/use_order.hpp"

#include <algorithm>

#include "base/error.hpp"
#include "base/index.hpp"

namespace sluice {
namespace {

// Micro-batch by micro-batch, or unit by unit in layer-major order.
std::vector<Use> order_without_stages(const StepShape& shape, bool training) {
  const int head = static_cast<int>(shape.units.size()) - 1;
  const int micro_batches = training ? shape.micro_batches : 1;
  const int at_once = shape.layer_major ? micro_batches : 1;
  int last_backward = head;
  while (last_backward > 0 && has_backward(shape, last_backward - 1)) --last_backward;
  std::vector<Use> uses;
  int visit = 0;
  const auto visit_unit = [&](OpKind kind, int unit, int first) {
    const bool flushes = unit == last_backward || shape.layer_major;
    for (int m = first; m < first + at_once; ++m) {
      uses.push_back({kind, unit, m, visit, false, flushes});
    }
    ++visit;
  };
  for (int m = 0; m < micro_batches; m += at_once) {
    for (int u = 0; u < head; ++u) visit_unit(OpKind::kForward, u, m);
    visit_unit(OpKind::kLossHead, head, m);
    for (int u = head - 1; training && u >= last_backward; --u) visit_unit(OpKind::kBackward, u, m);
  }
  return uses;
}

bool splits(const StepShape& shape, int unit) {
  return has_input(shape, unit) && !is_loss_head(shape, unit) &&
         nth(shape.units, unit).memory.deferred > 0;
}

class StageOrder {
 public:
  StageOrder(const StepShape& shape, bool training) : shape_(shape), training_(training) {}

  UseOrder write() {
    const PipelineShape& pipeline = shape_.pipeline;
    if (training_) {
      for (const Slot& slot : list_slots(pipeline_run(shape_), pipeline.stage)) add(slot);
    } else {
      for (int c = 0; c < pipeline.virtual_stages(); ++c) add({SlotKind::kForward, c, 0});
    }
    return std::move(order_);
  }

 private:
  void add(const Slot& slot) {
    const std::size_t begin = order_.uses.size();
    const int first = chunk_begin(shape_, slot.chunk);
    const int end = chunk_end(shape_, slot.chunk);
    if (slot.kind == SlotKind::kForward) {
      for (int u = first; u < end; ++u) forward(u, slot);
    } else {
      for (int u = end - 1; u >= first; --u) backward(u, slot);
    }
    end_bucket(begin);
    order_.slots.push_back({slot, begin, order_.uses.size()});
  }

  void forward(int u, const Slot& slot) {
    const bool head = is_loss_head(shape_, u);
    if (!head || !training_) use(head ? OpKind::kLossHead : OpKind::kForward, u, slot);
  }

  void backward(int u, const Slot& slot) {
    const bool in_two = slot.kind != SlotKind::kBackward && splits(shape_, u);
    if (slot.kind == SlotKind::kBackwardWeights) {
      if (in_two) use(OpKind::kBackwardWeights, u, slot);
      return;
    }
    use(is_loss_head(shape_, u) ? OpKind::kLossHead : OpKind::kBackward, u, slot);
    order_.uses.back().split = in_two;
  }

  void use(OpKind kind, int unit, const Slot& slot) {
    const bool again =
        !order_.uses.empty() && order_.uses.back().unit == unit && order_.uses.back().kind == kind;
    if (!again) ++visit_;
    order_.uses.push_back({kind, unit, slot.micro_batch, visit_});
  }

  // No bucket holds gradients of two slots, because the slots are of different micro-batches.
  void end_bucket(std::size_t begin) {
    for (std::size_t i = order_.uses.size(); i > begin; --i) {
      Use& use = order_.uses[i - 1];
      if (use.kind == OpKind::kForward || use.split) continue;
      use.flushes = true;
      return;
    }
  }

  const StepShape& shape_;
  const bool training_;
  UseOrder order_;
  int visit_ = -1;
};

}  // namespace

UseOrder order_uses(const StepShape& shape, bool training) {
  UseOrder order;
  if (is_pipelined(shape)) {
    order = StageOrder(shape, training).write();
  } else {
    order.uses = order_without_stages(shape, training);
  }
  const auto last = std::find_if(order.uses.rbegin(), order.uses.rend(), [](const Use& use) {
    return use.kind == OpKind::kForward || use.kind == OpKind::kLossHead;
  });
  order.last_backwards = static_cast<int>(last - order.uses.rbegin());
  return order;
}

PipelineRun pipeline_run(const StepShape& shape) {
  return {.schedule = shape.pipeline.schedule,
          .stages = shape.pipeline.stages,
          .virtual_stages = shape.pipeline.virtual_stages(),
          .micro_batches = shape.micro_batches};
}

int chunk_begin(const StepShape& shape, int chunk) {
  return chunk == 0 ? 0 : chunk_end(shape, chunk - 1);
}

int chunk_end(const StepShape& shape, int chunk) {
  const std::vector<int>& ends = shape.pipeline.chunk_ends;
  return ends.empty() ? static_cast<int>(shape.units.size()) : nth(ends, chunk);
}

bool ends_chunk(const StepShape& shape, int unit) {
  const std::vector<int>& ends = shape.pipeline.chunk_ends;
  return unit + 1 == static_cast<int>(shape.units.size()) ||
         std::find(ends.begin(), ends.end(), unit + 1) != ends.end();
}

bool begins_chunk(const StepShape& shape, int unit) {
  return unit == 0 || ends_chunk(shape, unit - 1);
}

std::int64_t input_bytes(const StepShape& shape, int unit) {
  return begins_chunk(shape, unit) ? shape.pipeline.boundary_bytes
                                   : shape.units[static_cast<std::size_t>(unit) - 1].memory.output;
}

int input_extents(const StepShape& shape) {
  return shape.layer_major || is_pipelined(shape) ? shape.micro_batches : 1;
}

}  // namespace sluice
