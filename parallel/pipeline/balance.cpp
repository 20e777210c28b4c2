#include "parallel/pipeline/balance.hpp"

#include <algorithm>
#include <functional>
#include <limits>
#include <string>

#include "base/error.hpp"

namespace sluice {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();

// For each (k, u): the value of the best cut of the first u units into k parts, and the first unit
// of its last part.
struct Cuts {
  Cuts(std::size_t parts, std::size_t units)
      : best(parts + 1, std::vector<double>(units + 1, kNever)),
        from(parts + 1, std::vector<std::size_t>(units + 1, 0)) {
    best[0][0] = 0;
  }
  std::vector<std::vector<double>> best;
  std::vector<std::vector<std::size_t>> from;
};

// `join(value, cost)`: the value of a cut after one more part of the given cost.
Cuts cut(const std::vector<double>& sums, std::size_t parts,
         const std::function<double(double, double)>& join) {
  const std::size_t units = sums.size() - 1;
  Cuts cuts(parts, units);
  for (std::size_t k = 1; k <= parts; ++k) {
    for (std::size_t u = k; u <= units; ++u) {
      for (std::size_t v = k - 1; v < u; ++v) {
        const double worth = join(cuts.best[k - 1][v], sums[u] - sums[v]);
        if (worth < cuts.best[k][u]) {
          cuts.best[k][u] = worth;
          cuts.from[k][u] = v;
        }
      }
    }
  }
  return cuts;
}

}  // namespace

std::vector<int> balance_stages(std::span<const double> costs, int parts) {
  const std::size_t units = costs.size();
  check(parts > 0, "a pipeline has stages");
  if (static_cast<std::size_t>(parts) > units) {
    throw ConfigError("parallel.pipeline x parallel.virtual_stages = " + std::to_string(parts) +
                      " stages need a unit each, but the model has " + std::to_string(units) +
                      " (embedding, blocks, loss head): lower one of them");
  }
  std::vector<double> sums(units + 1, 0);
  for (std::size_t u = 0; u < units; ++u) {
    check(costs[u] >= 0, "a unit's cost is not negative");
    sums[u + 1] = sums[u] + costs[u];
  }
  const auto count = static_cast<std::size_t>(parts);
  const double largest =
      cut(sums, count, [](double a, double b) { return std::max(a, b); }).best[count][units];
  // A part's cost is a difference of rounded prefix sums, so the limit needs a margin.
  const double limit = largest * (1 + 1e-12);
  const Cuts cuts = cut(sums, count, [limit](double squares, double cost) {
    return cost <= limit ? squares + cost * cost : kNever;
  });
  std::vector<int> ends(count);
  std::size_t end = units;
  for (std::size_t k = count; k > 0; --k) {
    ends[k - 1] = static_cast<int>(end);
    end = cuts.from[k][end];
  }
  return ends;
}

std::vector<int> given_stages(std::span<const int> blocks, int parts, int layers) {
  std::string sum;
  int total = 0;
  bool positive = true;
  std::vector<int> ends;
  for (const int count : blocks) {
    positive = positive && count > 0;
    sum += (sum.empty() ? "" : " + ") + std::to_string(count);
    total += count;
    ends.push_back(total + 1);
  }
  if (static_cast<int>(blocks.size()) != parts) {
    throw ConfigError(
        "parallel.stage_layers has " + std::to_string(blocks.size()) +
        " numbers, but parallel.pipeline x parallel.virtual_stages = " + std::to_string(parts));
  }
  if (!positive || total != layers) {
    throw ConfigError("parallel.stage_layers: " + sum + " = " + std::to_string(total) +
                      ", but the model has " + std::to_string(layers) +
                      " layers, at least one a stage");
  }
  ++ends.back();
  return ends;
}

}  // namespace sluice
