// Matches the states of a Megatron optimizer to parameters.
#include <algorithm>
#include <cstring>
#include <map>
#include <optional>
#include <utility>

#include "base/error.hpp"
#include "base/format.hpp"
#include "runtime/checkpoint/format/range_plan.hpp"
#include "runtime/checkpoint/import/import_files.hpp"
#include "runtime/checkpoint/import/import_tensor.hpp"
#include "runtime/checkpoint/import/megatron_files.hpp"

namespace sluice {
namespace {

using Kind = PickleValue::Kind;

// A group of parameters, with or without weight decay.
struct Group {
  const PickleValue* said = nullptr;  // the group's dictionary
  std::vector<std::int64_t> numbers;  // numbers of the group's parameters
  bool decays = true;
};

class OptimizerReader {
 public:
  explicit OptimizerReader(MegatronFile& in) : in_(in), tree_(in.file->tree()) {}

  MegatronProgress read() {
    const PickleValue* const optimizer = tree_.find(in_.file->root(), "optimizer");
    if (optimizer == nullptr || optimizer->kind == Kind::kNone) return {};
    if (optimizer->kind != Kind::kDict) {
      refuse("is " + kind_text(*optimizer) + ": several optimizers in one file are not read",
             "optimizer", *optimizer);
    }
    const PickleValue* const wrapped = tree_.find(*optimizer, "optimizer");
    const PickleValue& inner = wrapped == nullptr ? *optimizer : *wrapped;
    read_states(inner);
    read_groups(inner);
    const std::vector<std::vector<MegatronTensor*>> of_groups = assign();
    for (std::size_t g = 0; g < groups_.size(); ++g) {
      for (std::size_t i = 0; i < groups_[g].numbers.size(); ++i) {
        take_moments(*of_groups[g][i], groups_[g].numbers[i]);
      }
    }
    if (used_ != states_.size()) {
      refuse(
          format_text("holds {} states, and its groups list {} parameters", states_.size(), used_),
          "optimizer.state", inner);
    }
    take_masters(*optimizer, of_groups);
    return progress(*optimizer);
  }

 private:
  [[noreturn]] void refuse(const std::string& what, const std::string& tensor,
                           const PickleValue& at) const {
    throw CheckpointError(what + kWeightsAlone, in_.file->path(), tensor, at.at);
  }

  void read_states(const PickleValue& inner) {
    const PickleValue* const state = tree_.find(inner, "state");
    if (state == nullptr || state->kind != Kind::kDict || state->items.empty()) {
      refuse(
          "holds no states: the distributed optimizer's are in distrib_optim.pt, in buffers that "
          "are not read; train a step without --use-distributed-optimizer and save that",
          "optimizer.state", inner);
    }
    for (std::size_t i = 0; i + 1 < state->items.size(); i += 2) {
      const PickleValue& number = tree_.at(state->items[i]);
      if (number.kind == Kind::kInt) states_[number.number] = &tree_.at(state->items[i + 1]);
    }
  }

  void read_groups(const PickleValue& inner) {
    const PickleValue* const groups = tree_.find(inner, "param_groups");
    if (groups == nullptr || groups->kind != Kind::kList) {
      refuse("holds no list of groups", "optimizer.param_groups", inner);
    }
    for (const PickleId id : groups->items) {
      const PickleValue& said = tree_.at(id);
      const PickleValue* const params = tree_.find(said, "params");
      if (params == nullptr || params->kind != Kind::kList) {
        refuse("holds a group that lists no parameters", "optimizer.param_groups", said);
      }
      Group group{&said, {}, decays(said)};
      for (const PickleId number : params->items) {
        if (tree_.at(number).kind != Kind::kInt) {
          refuse("lists a parameter by no number", "optimizer.param_groups", said);
        }
        group.numbers.push_back(tree_.at(number).number);
      }
      groups_.push_back(std::move(group));
    }
  }
  // A group's weight decay is wd_mult times the run's. Older files have only the product.
  [[nodiscard]] bool decays(const PickleValue& group) const {
    for (const char* const key : {"wd_mult", "weight_decay"}) {
      const PickleValue* const value = tree_.find(group, key);
      if (value == nullptr) continue;
      if (value->kind == Kind::kInt) return value->number != 0;
      if (value->kind == Kind::kFloat) return value->real != 0;
    }
    return true;
  }

  // The parameters of each group in the order of their numbers. Matrices decay, vectors do not. If
  // one group has all parameters, they have the order of the module.
  std::vector<std::vector<MegatronTensor*>> assign() {
    const auto full = std::count_if(groups_.begin(), groups_.end(),
                                    [](const Group& group) { return !group.numbers.empty(); });
    std::vector<std::vector<MegatronTensor*>> of_groups(groups_.size());
    for (std::size_t g = 0; g < groups_.size(); ++g) {
      const Group& group = groups_[g];
      if (group.numbers.empty()) continue;
      for (std::size_t other = 0; other < g; ++other) {
        if (groups_[other].numbers.empty() || groups_[other].decays != group.decays) continue;
        refuse(
            "holds two groups of parameters that are told apart by more than weight decay, so "
            "that which parameters they have is not known",
            "optimizer.param_groups", *group.said);
      }
      for (auto& chunk : in_.chunks) {
        for (MegatronTensor& tensor : chunk) {
          if (full == 1 || is_matrix(tensor) == group.decays) of_groups[g].push_back(&tensor);
        }
      }
      if (of_groups[g].size() == group.numbers.size()) continue;
      refuse(format_text("lists {} parameters in group {}, and {} of the model's are to be in it{}",
                         group.numbers.size(), g, of_groups[g].size(),
                         full == 1      ? ""
                         : group.decays ? ": matrices, whose weights decay"
                                        : ": vectors, whose weights do not decay"),
             "optimizer.param_groups", *group.said);
    }
    return of_groups;
  }
  [[nodiscard]] bool is_matrix(const MegatronTensor& tensor) const {
    return !tensor.canonical.ends_with(".bias") && shape_of(*tensor.states[0]).size() > 1;
  }
  [[nodiscard]] const std::vector<std::int64_t>& shape_of(const PickleValue& value) const {
    return in_.file->tensor(value).shape;
  }

  // Checks that a value of the optimizer is a tensor with the parameter's shape.
  const PickleValue& matching(const MegatronTensor& of, const PickleValue* value,
                              const std::string& what, const PickleValue& near) const {
    if (value == nullptr || value->kind != Kind::kTensor) {
      refuse("has no " + what + " in the optimizer", of.in_file, near);
    }
    const std::vector<std::int64_t>& shape = shape_of(*of.states[0]);
    if (shape_of(*value) != shape) {
      refuse("has the shape " + shape_text(shape) + ", and its " + what + " has " +
                 shape_text(shape_of(*value)) + ": the optimizer numbers parameters otherwise",
             of.in_file, *value);
    }
    return *value;
  }

  void take_moments(MegatronTensor& of, std::int64_t number) {
    const auto state = states_.find(number);
    if (state == states_.end() || state->second == nullptr) {
      refuse(format_text("has no state in the optimizer, or shares state {}", number), of.in_file,
             *of.states[0]);
    }
    const PickleValue& at = *std::exchange(state->second, nullptr);
    ++used_;
    const std::string which = format_text(" (state {})", number);
    of.states[1] = &matching(of, tree_.find(at, "exp_avg"), "exp_avg" + which, at);
    of.states[2] = &matching(of, tree_.find(at, "exp_avg_sq"), "exp_avg_sq" + which, at);
    if (const PickleValue* const step = tree_.find(at, "step")) take_step(*step, of.in_file);
  }
  void take_step(const PickleValue& value, const std::string& of) {
    const std::int64_t updates = updates_of(*in_.file, value);
    if (updates_ >= 0 && updates != updates_) {
      refuse(format_text("was updated {} times, and others {} times", updates, updates_), of,
             value);
    }
    updates_ = updates;
  }

  // Takes the fp32 copies of fp16 or bf16 weights, one list per group.
  void take_masters(const PickleValue& optimizer,
                    const std::vector<std::vector<MegatronTensor*>>& of_groups) {
    const PickleValue* copies = tree_.find(optimizer, "fp32_from_fp16_params");
    if (copies == nullptr) copies = tree_.find(optimizer, "fp32_from_fp16");
    const bool listed = copies != nullptr && copies->kind == Kind::kList;
    for (std::size_t g = 0; g < groups_.size(); ++g) {
      std::vector<MegatronTensor*> half;
      for (MegatronTensor* const tensor : of_groups[g]) {
        if (in_.file->dtype(*tensor->states[0], tensor->in_file) != DType::kFloat32) {
          half.push_back(tensor);
        }
      }
      const bool has_group = listed && g < copies->items.size();
      const PickleValue& group = has_group ? tree_.at(copies->items[g]) : optimizer;
      const std::size_t count = has_group && group.kind == Kind::kList ? group.items.size() : 0;
      if (count != half.size()) {
        refuse(format_text(
                   "holds {} fp32 weights of group {}, and {} of its weights are in fp16 or bf16",
                   count, g, half.size()),
               "optimizer.fp32_from_fp16_params", group);
      }
      for (std::size_t i = 0; i < count; ++i) {
        const PickleValue& value = tree_.at(group.items[i]);
        const PickleValue& master = matching(*half[i], &value, "fp32 weight", group);
        check_rounds(*half[i], master);
        half[i]->states[0] = &master;
      }
    }
  }
  // Proves the order: the first and last rows of the fp32 weight must round to the model's rows.
  void check_rounds(const MegatronTensor& of, const PickleValue& master) const {
    const OpenTensor model(of.in_file, in_.file, *of.states[0]);
    const OpenTensor exact(of.in_file, in_.file, master);
    const std::vector<std::int64_t>& shape = model.shape();
    if (shape.empty() || shape.size() > 2 || element_count(shape) == 0) return;
    exact.check_dtype();
    model.check_storage();
    exact.check_storage();
    const bool bf16 = in_.file->dtype(*of.states[0], of.in_file) == DType::kBFloat16;
    std::vector<float> rounded(static_cast<std::size_t>(shape.back()));
    std::vector<float> whole(rounded.size());
    for (const std::int64_t row : {std::int64_t{0}, shape.size() == 2 ? shape[0] - 1 : 0}) {
      model.read_row(row, 0, rounded);
      exact.read_row(row, 0, whole);
      // Tolerance: half a step, which is at most 2^-8 of the value in bf16 and 2^-11 in fp16; or
      // one subnormal step.
      const float relative = bf16 ? 0x1p-8F : 0x1p-11F;
      const float absolute = bf16 ? 0x1p-133F : 0x1p-24F;
      for (std::size_t i = 0; i < whole.size(); ++i) {
        const float distance =
            rounded[i] > whole[i] ? rounded[i] - whole[i] : whole[i] - rounded[i];
        const float size = whole[i] < 0 ? -whole[i] : whole[i];
        if (distance <= std::max(absolute, relative * size) || rounded[i] == whole[i]) continue;
        refuse(
            "is no rounding of the optimizer's fp32 weight: the optimizer numbers parameters "
            "otherwise",
            of.in_file, master);
      }
    }
  }

  MegatronProgress progress(const PickleValue& optimizer) {
    MegatronProgress at;
    at.moments = true;
    for (const Group& group : groups_) {
      if (group.numbers.empty()) continue;
      if (const PickleValue* const step = tree_.find(*group.said, "step")) {
        take_step(*step, "optimizer.param_groups");
      }
      const PickleValue* const rate = tree_.find(*group.said, "lr");
      if (rate != nullptr && rate->kind == Kind::kFloat) at.learning_rate = rate->real;
    }
    at.updates = updates_;
    const PickleValue* const scaler = tree_.find(optimizer, "grad_scaler");
    if (scaler == nullptr) return at;
    const PickleValue* const scale = tree_.find(*scaler, "scale");
    if (scale != nullptr && scale->kind == Kind::kFloat) at.loss_scale = scale->real;
    if (scale != nullptr && scale->kind == Kind::kTensor) {
      in_.file->check_storage(*scale, "grad_scaler.scale");
      at.loss_scale = in_.file->read_number(*scale, "grad_scaler.scale");
    }
    at.good_steps = whole_number(tree_, *scaler, "growth_tracker");
    at.lives = whole_number(tree_, *scaler, "hysteresis_tracker");
    return at;
  }

  MegatronFile& in_;
  const PickleTree& tree_;
  std::map<std::int64_t, const PickleValue*> states_;  // by number; nullptr: used already
  std::vector<Group> groups_;
  std::size_t used_ = 0;
  std::int64_t updates_ = -1;
};

}  // namespace

MegatronProgress read_megatron_optimizer(MegatronFile& file) {
  return OptimizerReader(file).read();
}

}  // namespace sluice
