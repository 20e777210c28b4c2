#include "runtime/engine/ops/step_graphs.hpp"

#include <exception>
#include <utility>

#include "base/error.hpp"

namespace sluice {

namespace {

PipeMessage memory_of(const at::Tensor& tensor) {
  return {tensor.data_ptr(), static_cast<std::int64_t>(tensor.nbytes())};
}

}  // namespace

PipeMessage StepGraphs::message(const Op& op, const std::function<at::Tensor()>& make) {
  return place(messages_, static_cast<OpId>(run_.index_of(op)), make);
}

void* StepGraphs::buffer(BufferId id, const std::function<at::Tensor()>& make) {
  return place(buffers_, id, make).data;
}

// Within a recording, tensors come from the pool without a scope of their own.
PipeMessage StepGraphs::place(Places& recorded, int id, const std::function<at::Tensor()>& make) {
  if (graphs_ == nullptr) return memory_of(make());
  decide();
  if (how_ == How::kLaunch) return recorded.at(id);
  std::optional<PoolScope> pool;
  if (!recording_) pool.emplace(*graphs_);
  const PipeMessage memory = memory_of(make());
  if (how_ == How::kRecord) recorded[id] = memory;
  return memory;
}

void StepGraphs::run(const Op& op, const std::function<void()>& body) {
  // A program of updates has releases alone, which take nothing from the pool.
  if (graphs_ == nullptr || run_.mode == RunMode::kUpdate) return body();
  decide();
  if (how_ == How::kEager) return run_eagerly(op, body);
  const auto id = static_cast<OpId>(run_.index_of(op));
  while (segment_ < segments_.size() && segments_[segment_].end <= id) ++segment_;
  const bool outside = segment_ == segments_.size() || id < segments_[segment_].begin;
  if (outside) return body();  // a release between two segments
  if (how_ == How::kRecord) return record(id, body);
  if (segments_[segment_].begin == id) recorded_[segment_]->launch();
}

void StepGraphs::decide() {
  if (std::exchange(decided_, true)) return;
  how_ = How::kEager;
  segment_ = 0;
  if (run_.mode != RunMode::kTrain) {
    recorded_.clear();
    return;
  }
  if (outgrown_()) recorded_.clear();
  if (segments_.empty()) segments_ = graph_segments(*run_.program);
  if (!std::exchange(has_trained_, true)) return;
  how_ = recorded_.empty() ? How::kRecord : How::kLaunch;
}

// Logits belong to the caller and may live while later programs run.
void StepGraphs::run_eagerly(const Op& op, const std::function<void()>& body) {
  const bool gives_logits = run_.mode == RunMode::kLogits || run_.mode == RunMode::kDecode;
  if (op.kind == OpKind::kLossHead && gives_logits) return body();
  const PoolScope pool(*graphs_);
  body();
}

void StepGraphs::record(OpId id, const std::function<void()>& body) {
  const GraphSegment& segment = segments_[segment_];
  if (segment.begin == id) recording_.emplace(*graphs_);
  try {
    body();
    if (segment.end != id + 1 || !recording_) return;
    recorded_.push_back(recording_->finish());
    recording_.reset();
    recorded_.back()->launch();
  } catch (const std::exception&) {
    recording_.reset();
    std::throw_with_nested(
        Error("recorded for a CUDA graph (train.cuda_graphs: never runs without)"));
  }
}

}  // namespace sluice
