// Updates whose new master weights and moments go to other memory.
#include <algorithm>
#include <array>
#include <cstring>
#include <span>

#include "base/error.hpp"
#include "kernels/cpu/update/adamw.hpp"
#include "kernels/cpu/update/lion.hpp"
#include "kernels/cpu/update/sgd.hpp"
#include "tests/kernels/support.hpp"

namespace sluice::testing {
namespace {

using UpdateFunction = void (*)(const UpdateSpan&);

struct Rule {
  UpdateFunction update;
  std::size_t moments;
};
constexpr Rule kRules[] = {{adamw, 2}, {lion, 1}, {sgd, 1}};

// Master weights and moments, each at `offset` elements behind an address of 64 bytes.
class States {
 public:
  States(std::int64_t n, DType moments, std::int64_t offset) : n_(n), moments_(moments) {
    for (std::size_t k = 0; k < 3; ++k) {
      const std::int64_t size = k == 0 ? 4 : size_of(moments);
      std::vector<std::byte>& bytes = bytes_.at(k);
      bytes.resize(static_cast<std::size_t>((n + offset) * size + 64), std::byte{0x5a});
      const auto past = reinterpret_cast<std::uintptr_t>(bytes.data()) % 64;
      first_.at(k) = static_cast<std::size_t>(offset * size) + (64 - past) % 64;
    }
  }
  void fill() {
    set(0, normal_values(n_, 1));
    set(1, normal_values(n_, 2, 0.1F));
    std::vector<float> squares = normal_values(n_, 3, 0.1F);
    for (float& v : squares) v *= v;
    set(2, squares);
  }
  void* at(std::size_t k) { return bytes_.at(k).data() + first_.at(k); }
  // The bytes of the master weights and the first `moments` moments.
  std::vector<std::byte> bytes(std::size_t moments) {
    std::vector<std::byte> all;
    for (std::size_t k = 0; k <= moments; ++k) {
      const auto* const from = static_cast<const std::byte*>(at(k));
      all.insert(all.end(), from, from + n_ * (k == 0 ? 4 : size_of(moments_)));
    }
    return all;
  }

 private:
  void set(std::size_t k, const std::vector<float>& values) {
    convert(at(k), k == 0 ? DType::kFloat32 : moments_, values.data(), DType::kFloat32, n_);
  }

  std::int64_t n_;
  DType moments_;
  std::array<std::vector<std::byte>, 3> bytes_;
  std::array<std::size_t, 3> first_{};
};

UpdateSpan span_of(States& from, States& to, const std::vector<float>& grad, DType moments) {
  UpdateSpan span{.master = static_cast<float*>(from.at(0)),
                  .moments = {from.at(1), from.at(2)},
                  .grad = grad.data(),
                  .weights_dtype = DType::kBFloat16,
                  .n = std::ssize(grad),
                  .lr = 3e-3,
                  .weight_decay = 0.1,
                  .step = 3,
                  .grad_scale = 0.37,
                  .moments_dtype = moments,
                  .rounding_seed = 77,
                  .rounding_element = 5};
  if (&from == &to) return span;
  span.master_out = static_cast<float*>(to.at(0));
  span.moments_out[0] = to.at(1);
  span.moments_out[1] = to.at(2);
  return span;
}

void expect_same_elsewhere(std::int64_t n, std::int64_t offset, std::span<const DType> types) {
  const std::vector<float> grad = normal_values(n, 4);
  for (const Rule& rule : kRules) {
    for (const DType moments : types) {
      States before(n, moments, 0);
      before.fill();
      States in_place = before;
      in_place.fill();
      rule.update(span_of(in_place, in_place, grad, moments));
      States after(n, moments, offset);
      const std::vector<std::byte> old = before.bytes(2);
      std::vector<std::uint16_t> expected(static_cast<std::size_t>(n));
      convert(expected.data(), DType::kBFloat16, in_place.at(0), DType::kFloat32, n);
      for (const std::int64_t weights_offset : {-1, 0, 3}) {  // -1: no weights
        UpdateSpan span = span_of(before, after, grad, moments);
        States weights(n, DType::kBFloat16, std::max<std::int64_t>(weights_offset, 0));
        if (weights_offset >= 0) span.weights_out = weights.at(1);
        rule.update(span);
        EXPECT_TRUE(same_bytes(after.bytes(rule.moments), in_place.bytes(rule.moments)))
            << n << ", " << offset;
        EXPECT_TRUE(same_bytes(before.bytes(2), old));
        if (weights_offset < 0) continue;
        EXPECT_EQ(std::memcmp(weights.at(1), expected.data(), static_cast<std::size_t>(2 * n)), 0)
            << n << ", " << offset << ", " << weights_offset;
      }
    }
  }
}

TEST(UpdateElsewhere, HasTheBitsOfAnUpdateInPlace) {
  constexpr DType kTypes[] = {DType::kFloat32, DType::kBFloat16};
  for (const std::int64_t n : kSizes) {
    on_every_setting([&] {
      for (const std::int64_t offset : {0, 3}) expect_same_elsewhere(n, offset, kTypes);
    });
  }
}

// From 2^20 elements on, new states in fp32 are written past the caches if they begin as the old
// ones do.
TEST(UpdateElsewhere, HasThemPastTheCachesToo) {
  constexpr DType kTypes[] = {DType::kFloat32};
  for (const Isa isa : isas_here()) {
    select_isa(isa);
    for (const std::int64_t offset : {0, 3}) expect_same_elsewhere((1 << 20) + 5, offset, kTypes);
  }
  select_isa(detect_isa());
}

TEST(UpdateElsewhere, TakesAllStatesOrNone) {
  const std::vector<float> grad(1);
  for (const Rule& rule : kRules) {
    States from(1, DType::kFloat32, 0);
    from.fill();
    States to = from;
    UpdateSpan span = span_of(from, to, grad, DType::kFloat32);
    EXPECT_NO_THROW(rule.update(span));
    span.moments_out[0] = nullptr;
    EXPECT_THROW(rule.update(span), Error);
    span = span_of(from, to, grad, DType::kFloat32);
    span.master_out = nullptr;
    EXPECT_THROW(rule.update(span), Error);
  }
}

}  // namespace
}  // namespace sluice::testing
