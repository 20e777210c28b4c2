// The gradients of weights of one backward. Each product runs at once, or later if the sink takes
// deferred products (Deferred). Not thread-safe.
#pragma once

#include <functional>

#include "runtime/model/math/explicit_kernels.hpp"
#include "runtime/model/model_options.hpp"
#include "runtime/model/unit.hpp"

namespace sluice {

class WeightProducts {
 public:
  // Holds its operands by value and asks the sink for targets when it runs.
  using Product = std::function<void(GradSink&)>;

  // `matmul`: how deferred products run. The sink must outlive the object.
  WeightProducts(GradSink& sink, MatmulType matmul);

  // True: add() keeps products for later, so their operands must not be written after add().
  [[nodiscard]] bool defers() const { return deferred_ != nullptr; }
  void add(Product product);
  [[nodiscard]] GradSink& sink() const { return sink_; }
  // Gradients that are sums over rows; the backward finishes them in its end.
  [[nodiscard]] RowSums& sums() { return sums_; }

 private:
  class List;
  GradSink& sink_;
  List* deferred_ = nullptr;  // owned by the sink
  RowSums sums_;
};

}  // namespace sluice
