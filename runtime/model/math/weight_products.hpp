// The gradients of weights of one backward: each a product that is made at once, or left for later
// where the sink takes what is deferred (Deferred). Not thread-safe.
#pragma once

#include <functional>

#include "runtime/model/model_options.hpp"
#include "runtime/model/unit.hpp"

namespace sluice {

class WeightProducts {
 public:
  // Holds its operands by value; what it asks the sink for it asks for when it runs.
  using Product = std::function<void(GradSink&)>;

  // `matmul`: how deferred products run. The sink outlives the object.
  WeightProducts(GradSink& sink, MatmulType matmul);

  // Operands are kept, so none may be written to after add().
  [[nodiscard]] bool defers() const { return deferred_ != nullptr; }
  void add(Product product);
  [[nodiscard]] GradSink& sink() const { return sink_; }

 private:
  class List;
  GradSink& sink_;
  List* deferred_ = nullptr;  // owned by the sink
};

}  // namespace sluice
