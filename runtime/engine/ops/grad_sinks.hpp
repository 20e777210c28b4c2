// Where the gradients of a unit's parameters go during its backward.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "runtime/engine/group_store.hpp"
#include "runtime/model/model_spec.hpp"
#include "runtime/model/unit.hpp"

namespace sluice {

// Into the groups' gradient buffers. The first gradient after the buffers were opened replaces the
// content, later gradients are added.
class GroupSink final : public GradSink {
 public:
  GroupSink(GroupStore& store, const UnitSpec& unit) : store_(store), unit_(unit) {}
  GradTarget target(int index) override;
  // The place in the groups' buffers; undefined for a frozen parameter.
  [[nodiscard]] const at::Tensor& gradient(int index) const;

 private:
  GroupStore& store_;
  const UnitSpec& unit_;
};

// The sink of a split backward, during which the groups' gradient buffers need not exist. Weight
// products are deferred. The other gradients are kept in tensors of their own.
class SplitSink final : public GradSink {
 public:
  // `whole`: the unit's gradient buffers, for the sizes of its gradients.
  SplitSink(const GroupSink& whole, std::unique_ptr<Deferred>& deferred,
            std::vector<std::pair<int, at::Tensor>>& early)
      : whole_(whole), deferred_(deferred), early_(early) {}
  std::unique_ptr<Deferred>* deferred() override { return &deferred_; }
  GradTarget target(int index) override;

 private:
  const GroupSink& whole_;
  std::unique_ptr<Deferred>& deferred_;
  std::vector<std::pair<int, at::Tensor>>& early_;
};

}  // namespace sluice
