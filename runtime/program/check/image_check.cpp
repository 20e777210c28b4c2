#include "runtime/program/check/image_check.hpp"

#include <algorithm>

#include "base/index.hpp"

namespace sluice {
namespace {

bool is_write(const Op& op) {
  return op.kind == OpKind::kWriteStates || op.kind == OpKind::kWriteParams;
}

}  // namespace

ImageCheck::ImageCheck(const Program& program, const OpOrder& order)
    : program_(program), order_(order) {
  overwrites_early_ = std::any_of(program.ops.begin(), program.ops.end(),
                                  [](const Op& op) { return op.speculative; });
  has_tensor_ranks_ = std::any_of(program.ops.begin(), program.ops.end(),
                                  [](const Op& op) { return op.unit >= 0 && op.exchanges >= 0; });
}

std::string ImageCheck::enter(OpId id) {
  if (!program_.image) return "";
  const Op& op = nth(program_.ops, id);
  if (op.kind == OpKind::kCommit) return commit(id);
  if (op.chunk >= 0 && !nth(program_.chunks, op.chunk).second) {
    return "works on a chunk without a second place";
  }
  if (is_write(op) && op.speculative) return overwrite(id);
  if (op.kind == OpKind::kMeet) return meet(id);
  if (is_write(op)) {
    writes_.push_back(id);
    return commit_ < 0 ? "" : "is left out by the commit";
  }
  const bool tells_others =
      op.kind == OpKind::kNormAndScale || (op.kind == OpKind::kReduceGrads && overwrites_early_);
  if (!tells_others || committed(id)) return "";
  return "lets other ranks overwrite a step before this one has committed";
}

std::string ImageCheck::overwrite(OpId id) const {
  if (!committed(id)) return "overwrites the step before, and its own is not committed";
  const bool met = meeting_ >= 0 && order_.over(meeting_, id);
  if (has_tensor_ranks_ && !met) {
    return "overwrites the step before, which a tensor-parallel rank may have alone";
  }
  return "";
}

std::string ImageCheck::meet(OpId id) {
  if (meeting_ >= 0) return "comes twice";
  meeting_ = id;
  return committed(id) ? "" : "meets other ranks before this one has committed";
}

std::string ImageCheck::commit(OpId id) {
  if (commit_ >= 0) return "comes twice";
  commit_ = id;
  for (const OpId write : writes_) {
    if (!order_.over(write, id)) {
      return "commits what operation " + std::to_string(write) + " may still write";
    }
  }
  return "";
}

std::string ImageCheck::fault_at_end() const {
  return program_.image && commit_ < 0 ? "nothing is committed" : "";
}

}  // namespace sluice
