#include "runtime/model/math/weight_products.hpp"

#include <c10/core/GradMode.h>

#include <memory>
#include <utility>
#include <vector>

#include "runtime/model/math/explicit_linear.hpp"

namespace sluice {

class WeightProducts::List final : public Deferred {
 public:
  explicit List(MatmulType matmul) : matmul_(matmul) {}

  void add(Product product) { products_.push_back(std::move(product)); }

  void run(GradSink& sink) override {
    const c10::AutoGradMode no_graph(false);
    const MatmulMode products(matmul_);
    for (Product& product : products_) std::exchange(product, nullptr)(sink);
  }

 private:
  const MatmulType matmul_;
  std::vector<Product> products_;
};

WeightProducts::WeightProducts(GradSink& sink, MatmulType matmul) : sink_(sink) {
  std::unique_ptr<Deferred>* later = sink.deferred();
  if (later == nullptr) return;
  auto list = std::make_unique<List>(matmul);
  deferred_ = list.get();
  *later = std::move(list);
}

void WeightProducts::add(Product product) {
  if (defers()) {
    deferred_->add(std::move(product));
  } else {
    product(sink_);
  }
}

}  // namespace sluice
