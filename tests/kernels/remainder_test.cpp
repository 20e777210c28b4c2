// Master weights kept as bf16 weights and their low 16 bits.
#include "kernels/cpu/update/remainder.hpp"

#include <bit>
#include <cmath>

#include "base/error.hpp"
#include "kernels/cpu/update/adamw.hpp"
#include "kernels/cpu/update/lion.hpp"
#include "kernels/cpu/update/sgd.hpp"
#include "tests/kernels/support.hpp"

namespace sluice::testing {
namespace {

std::vector<std::uint16_t> bf16_of(const std::vector<float>& values) {
  std::vector<std::uint16_t> weights(values.size());
  convert(weights.data(), DType::kBFloat16, values.data(), DType::kFloat32, std::ssize(values));
  return weights;
}

std::vector<std::uint32_t> bits_of(const std::vector<float>& values) {
  std::vector<std::uint32_t> bits;
  for (const float value : values) bits.push_back(std::bit_cast<std::uint32_t>(value));
  return bits;
}

// All low halves, below high halves of both signs: zero, subnormal, ordinary (even and odd), the
// largest finite one.
std::vector<float> every_low_half() {
  std::vector<float> values;
  for (const std::uint32_t high : {0x0000U, 0x0001U, 0x007fU, 0x3f80U, 0x3f81U, 0x4249U, 0x7f7fU}) {
    for (const std::uint32_t sign : {0U, 0x8000U}) {
      for (std::uint32_t low = 0; low < 0x10000U; ++low) {
        values.push_back(std::bit_cast<float>((high | sign) << 16 | low));
      }
    }
  }
  return values;
}

std::vector<float> joined(const std::vector<std::uint16_t>& weights,
                          const std::vector<std::uint16_t>& remainders) {
  std::vector<float> master(weights.size());
  convert(master.data(), DType::kFloat32, weights.data(), DType::kBFloat16, std::ssize(weights));
  add_remainders(master.data(), remainders.data(), std::ssize(master));
  return master;
}

TEST(Remainder, WeightsAndRemaindersAreTheMasterWeights) {
  std::vector<float> master = every_low_half();
  leave_ties(master.data(), std::ssize(master));
  std::vector<std::uint16_t> remainders(master.size());
  take_remainders(remainders.data(), master.data(), std::ssize(master));
  EXPECT_EQ(bits_of(joined(bf16_of(master), remainders)), bits_of(master));
}

// One in 2^17 values changes, by one fp32 value towards zero, and no bf16 value does.
TEST(Remainder, OnlyTiesBelowAnEvenValueAreLeft) {
  const std::vector<float> before = every_low_half();
  std::vector<float> after = before;
  leave_ties(after.data(), std::ssize(after));
  for (std::size_t i = 0; i < before.size(); ++i) {
    const auto bits = std::bit_cast<std::uint32_t>(before[i]);
    const bool tie = bits % 0x20000U == 0x8000U;
    EXPECT_EQ(after[i], tie ? std::nextafter(before[i], 0.0F) : before[i]) << bits;
  }
  EXPECT_EQ(bf16_of(after), bf16_of(before));
}

struct Rule {
  void (*update)(const UpdateSpan&);
  std::size_t moments;
};
constexpr Rule kRules[] = {{adamw, 2}, {lion, 1}, {sgd, 1}};

struct States {
  States(std::int64_t n, DType moments) : dtype(moments), master(normal_values(n, 1)) {
    std::vector<float> second = normal_values(n, 3, 0.1F);
    for (float& v : second) v *= v;
    moment = {as_bytes(normal_values(n, 2, 0.1F), moments), as_bytes(second, moments)};
    leave_ties(master.data(), n);
    weights = bf16_of(master);
    remainders.resize(master.size());
    take_remainders(remainders.data(), master.data(), n);
  }
  // Elements [begin, begin + n) of an update whose numbers are those of `step`.
  UpdateSpan span(const std::vector<float>& grad, std::int64_t begin, std::int64_t n,
                  std::int64_t step, bool split) {
    UpdateSpan span{.grad = grad.data() + begin,
                    .weights_out = weights.data() + begin,
                    .weights_dtype = DType::kBFloat16,
                    .n = n,
                    .lr = 3e-3,
                    .weight_decay = 0.1,
                    .step = step,
                    .grad_scale = 0.37,
                    .moments_dtype = dtype,
                    .rounding_seed = 77,
                    .rounding_element = 5 + begin};
    if (split) {
      span.remainders = remainders.data() + begin;
      span.weights = span.weights_out;
    } else {
      span.master = master.data() + begin;
    }
    for (std::size_t k = 0; k < 2; ++k)
      span.moments[k] = moment.at(k).data() + begin * size_of(dtype);
    return span;
  }
  DType dtype;
  std::vector<float> master;
  std::vector<std::vector<std::byte>> moment;
  std::vector<std::uint16_t> weights, remainders;
};

void expect_same_bits(const Rule& rule, std::int64_t n, DType moments) {
  const std::vector<float> grad = normal_values(n, 4);
  States whole(n, moments), split = whole;
  for (std::int64_t step = 1; step <= 3; ++step) {
    rule.update(whole.span(grad, 0, n, step, false));
    const std::int64_t cut = n * step / 4;
    rule.update(split.span(grad, 0, cut, step, true));
    rule.update(split.span(grad, cut, n - cut, step, true));
  }
  EXPECT_EQ(split.weights, whole.weights) << n;
  EXPECT_EQ(bits_of(joined(split.weights, split.remainders)), bits_of(whole.master)) << n;
  for (std::size_t k = 0; k < rule.moments; ++k) {
    EXPECT_TRUE(same_bytes(split.moment[k], whole.moment[k])) << n << ", moment " << k;
  }
}

TEST(Remainder, AnUpdateHasTheBitsOfOneOfWholeMasterWeights) {
  for (const Rule& rule : kRules) {
    for (const DType moments : {DType::kFloat32, DType::kBFloat16}) {
      for (const std::int64_t n : kSizes) {
        on_every_setting([&] { expect_same_bits(rule, n, moments); });
      }
    }
  }
}

// 2^20 elements: weights are written past the caches, but not where they are read too.
TEST(Remainder, AnUpdateHasThemAtSizesThatBypassTheCaches) {
  for (const Isa isa : isas_here()) {
    select_isa(isa);
    expect_same_bits(kRules[0], (1 << 20) + 5, DType::kFloat32);
  }
  select_isa(detect_isa());
}

// Into other memory: all, or with states in place the weights alone.
void expect_same_elsewhere(const Rule& rule, std::int64_t n, DType moments, bool states) {
  const std::vector<float> grad = normal_values(n, 4);
  States in_place(n, moments), before = in_place, after = in_place;
  const auto fill = [](auto& buffer) {
    std::memset(buffer.data(), 0x5a, buffer.size() * sizeof buffer[0]);
  };
  fill(after.weights);
  fill(after.remainders);
  for (std::vector<std::byte>& moment : after.moment) fill(moment);
  rule.update(in_place.span(grad, 0, n, 3, true));
  const States old = before;
  UpdateSpan span = before.span(grad, 0, n, 3, true);
  span.weights_out = after.weights.data();
  if (states) {
    span.remainders_out = after.remainders.data();
    for (std::size_t k = 0; k < 2; ++k) span.moments_out[k] = after.moment[k].data();
  }
  rule.update(span);
  const States& now = states ? after : before;
  EXPECT_EQ(before.weights, old.weights);
  EXPECT_EQ(after.weights, in_place.weights) << n;
  EXPECT_EQ(now.remainders, in_place.remainders) << n;
  for (std::size_t k = 0; k < rule.moments; ++k) {
    EXPECT_TRUE(same_bytes(now.moment[k], in_place.moment[k])) << n;
    if (!states) continue;
    EXPECT_TRUE(same_bytes(before.moment[k], old.moment[k])) << n;
  }
  if (!states) return;
  EXPECT_EQ(before.remainders, old.remainders);
}

TEST(Remainder, AnUpdateElsewhereHasTheBitsOfOneInPlace) {
  for (const Rule& rule : kRules) {
    for (const bool states : {false, true}) {
      for (const DType moments : {DType::kFloat32, DType::kBFloat16}) {
        for (const std::int64_t n : kSizes) {
          on_every_setting([&] { expect_same_elsewhere(rule, n, moments, states); });
        }
      }
      for (const Isa isa : isas_here()) {
        select_isa(isa);
        expect_same_elsewhere(rule, (1 << 20) + 5, DType::kFloat32, states);
      }
      select_isa(detect_isa());
    }
  }
}

// An update that changes nothing else leaves ties: of bf16 weights, whether it writes them or not.
TEST(Remainder, UpdatesOfBf16WeightsLeaveTies) {
  const std::vector<float> before = every_low_half();
  const auto n = std::ssize(before);
  std::vector<float> left = before;
  leave_ties(left.data(), n);
  const std::vector<float> zeros(before.size());
  const auto updated = [&](DType weights, bool writes) {
    std::vector<float> master = before, moment = zeros;
    std::vector<std::byte> out(before.size() * 4);
    sgd({.master = master.data(),
         .moments = {moment.data()},
         .grad = zeros.data(),
         .weights_out = writes ? out.data() : nullptr,
         .weights_dtype = weights,
         .n = n});
    return bits_of(master);
  };
  on_every_setting([&] {
    for (const bool writes : {false, true}) {
      EXPECT_EQ(updated(DType::kBFloat16, writes), bits_of(left));
      EXPECT_EQ(updated(DType::kFloat16, writes), bits_of(before));
      EXPECT_EQ(updated(DType::kFloat32, writes), bits_of(before));
    }
  });
}

TEST(Remainder, MisuseIsNamed) {
  States states(16, DType::kFloat32);
  const std::vector<float> grad(16);
  const UpdateSpan good = states.span(grad, 0, 16, 1, true);
  EXPECT_NO_THROW(adamw(good));
  for (const Rule& rule : kRules) {
    UpdateSpan bad = good;
    bad.master = states.master.data();
    EXPECT_THROW(rule.update(bad), Error);
    bad = good;
    bad.weights_out = nullptr;
    EXPECT_THROW(rule.update(bad), Error);
    bad = good;
    bad.weights = nullptr;
    EXPECT_THROW(rule.update(bad), Error);
    bad = good;
    bad.remainders_out = states.remainders.data();
    EXPECT_THROW(rule.update(bad), Error);
    bad = states.span(grad, 0, 16, 1, false);
    bad.remainders_out = states.remainders.data();
    for (std::size_t k = 0; k < 2; ++k) bad.moments_out[k] = states.moment[k].data();
    EXPECT_THROW(rule.update(bad), Error);
    bad = good;
    bad.weights_dtype = DType::kFloat16;
    EXPECT_THROW(rule.update(bad), Error);
  }
}

}  // namespace
}  // namespace sluice::testing
