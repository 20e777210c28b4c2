// libtorch's operators on the emulated GPU against those of the CPU. Runs on the null GPU
// (tests/gpu/null/null_gpu.py) with NULL_GPU_COMPUTES.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <vector>

namespace sluice::emulated {
namespace {

using at::Tensor;

Tensor on_card(const Tensor& x) { return x.to(at::kCUDA); }

Tensor sample(at::IntArrayRef sizes, at::ScalarType type = at::kFloat) {
  return at::randn(sizes).to(type);
}

double difference(const Tensor& card, const Tensor& host) {
  return (card.cpu().to(at::kDouble) - host.to(at::kDouble)).abs().max().item<double>();
}

// --- simple operators ---

struct Case {
  const char* name;
  std::function<Tensor(const Tensor& a, const Tensor& b)> call;  // matrices of one shape
};

std::vector<Case> cases() {
  return {
      {"add", [](const Tensor& a, const Tensor& b) { return a + b; }},
      {"add of a turned one", [](const Tensor& a, const Tensor& b) { return a.t() + b.t(); }},
      {"add in place", [](const Tensor& a, const Tensor& b) { return a.clone().add_(b, 3); }},
      {"mul", [](const Tensor& a, const Tensor& b) { return a * b; }},
      {"mul by a number", [](const Tensor& a, const Tensor&) { return a * 1.5; }},
      {"mul in place",
       [](const Tensor& a, const Tensor& b) {
         Tensor all = a.clone();
         all.narrow(1, 1, 3).mul_(b.narrow(1, 2, 3));
         return all;
       }},
      {"fill", [](const Tensor& a, const Tensor&) { return at::empty_like(a).fill_(2.5); }},
      {"zero",
       [](const Tensor& a, const Tensor&) {
         Tensor all = a.clone();
         all.narrow(1, 1, 2).zero_();
         return all;
       }},
      {"turned copy", [](const Tensor& a, const Tensor&) { return a.t().contiguous(); }},
      {"cast to bf16", [](const Tensor& a, const Tensor&) { return a.to(at::kBFloat16); }},
      {"cast to double", [](const Tensor& a, const Tensor&) { return a.to(at::kDouble); }},
      {"cat",
       [](const Tensor& a, const Tensor& b) {
         return at::cat({a, b, a.narrow(1, 0, 3)}, 1);
       }},
      {"cat into",
       [](const Tensor& a, const Tensor& b) {
         Tensor all = at::full({2 * a.size(0), a.size(1)}, 7, a.options());
         at::cat_out(all, {a, b}, 0);
         return all;
       }},
      {"repeated heads", [](const Tensor& a, const Tensor&) { return a.repeat_interleave(3, 0); }},
      {"sum of a dimension", [](const Tensor& a, const Tensor&) { return a.sum({0}); }},
      {"sum", [](const Tensor& a, const Tensor&) { return a.sum(at::kDouble); }},
      {"sum into",
       [](const Tensor& a, const Tensor&) {
         Tensor all = at::empty({a.size(0)}, a.options());
         at::sum_out(all, a, at::IntArrayRef{1});
         return all;
       }},
      {"sub and div", [](const Tensor& a, const Tensor& b) { return (a - b) / 3; }},
      {"mean", [](const Tensor& a, const Tensor&) { return a.mean(-1, true); }},
      {"rsqrt of squares", [](const Tensor& a, const Tensor&) { return (a.pow(2) + 1).rsqrt(); }},
      {"neg and abs", [](const Tensor& a, const Tensor&) { return a.abs().neg(); }},
      {"index select",
       [](const Tensor& a, const Tensor&) {
         return a.index_select(0, at::arange(5, a.options().dtype(at::kLong)) + 1);
       }},
      {"isfinite", [](const Tensor& a, const Tensor&) { return at::isfinite(a).all(); }},
      {"softmax", [](const Tensor& a, const Tensor&) { return at::softmax(a, -1); }},
      {"ge and where",
       [](const Tensor& a, const Tensor& b) {
         Tensor all = b.clone();
         const Tensor rows = at::arange(a.size(0), a.options().dtype(at::kInt));
         at::where_out(all, rows.ge(rows.narrow(0, 3, 1)).view({-1, 1}), a, all);
         return all;
       }},
      {"eq", [](const Tensor& a, const Tensor& b) { return a.to(at::kInt).eq(b.to(at::kInt)); }},
      {"addmm",
       [](const Tensor& a, const Tensor& b) {
         return at::addmm(a[0], a, b.t().narrow(1, 0, 1).expand({-1, a.size(1)}));
       }},
      {"addmm of a matrix",
       [](const Tensor& a, const Tensor& b) {
         return at::addmm(a.t().matmul(b), a.t(), b, 0.5, 2);
       }},
      {"bmm",
       [](const Tensor& a, const Tensor& b) {
         return at::stack({a, b}).bmm(at::stack({b, a}).transpose(1, 2));
       }},
  };
}

TEST(Operators, HaveTheNumbersOfTheCpu) {
  at::manual_seed(1);
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16, at::kHalf}) {
    const Tensor a = sample({7, 10}, type), b = sample({7, 10}, type);
    for (const Case& each : cases()) {
      const Tensor host = each.call(a, b), card = each.call(on_card(a), on_card(b));
      ASSERT_TRUE(card.is_cuda() && card.scalar_type() == host.scalar_type()) << each.name;
      ASSERT_EQ(card.sizes(), host.sizes()) << each.name;
      const double unit = type == at::kFloat ? 1e-6 : type == at::kHalf ? 2e-3 : 1e-2;
      EXPECT_LE(difference(card, host), unit * host.to(at::kDouble).abs().max().item<double>())
          << each.name << " of " << type;
    }
  }
}

// Output and gradients of what libtorch's autograd differentiates.
std::vector<Tensor> differentiated(const Tensor& given, const Tensor& grad) {
  const Tensor x = given.detach().requires_grad_(true);
  const Tensor weight = (given[0].detach() + 1).requires_grad_(true);
  const Tensor bias = given[1].detach().clone().requires_grad_(true);
  const Tensor y =
      at::silu(at::gelu(at::layer_norm(x, {x.size(1)}, weight, bias), "tanh")) + at::gelu(x);
  y.backward(grad);
  return {y.detach(), x.grad(), weight.grad(), bias.grad()};
}

TEST(Operators, OfAutogradHaveTheNumbersOfTheCpu) {
  at::manual_seed(4);
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
    const Tensor x = sample({7, 16}, type), grad = sample({7, 16}, type);
    const std::vector<Tensor> host = differentiated(x.to(at::kDouble), grad.to(at::kDouble));
    const std::vector<Tensor> card = differentiated(on_card(x), on_card(grad));
    for (std::size_t i = 0; i < host.size(); ++i) {
      EXPECT_LE(difference(card[i], host[i]), type == at::kFloat ? 1e-5 : 0.1) << i;
    }
  }
}

TEST(Operators, NormalNumbersAreNormal) {
  const Tensor x = at::empty({20000}, at::kCUDA).normal_(1, 2).cpu();
  EXPECT_NEAR(x.mean().item<double>(), 1, 0.1);
  EXPECT_NEAR(x.std().item<double>(), 2, 0.1);
}

TEST(Operators, TakeAHostsTensorAsItIsAtTheCall) {
  Tensor number = at::full({}, 3.0F);
  const Tensor x = at::ones({5}, at::kCUDA);
  const Tensor sum = x + number;
  number.fill_(100);
  EXPECT_EQ(sum.sum().item<float>(), 20);
}

// --- attention ---

struct Shape {
  std::int64_t rows, tokens, heads, key_heads, dim;
  std::int64_t window = 0;              // keys that a query sees, with its own; 0: all
  std::vector<std::int32_t> ends = {};  // of documents over all rows
};

// q, k, v and the output's gradient, [rows, tokens, heads, dim].
struct Inputs {
  Inputs(const Shape& s, at::ScalarType type)
      : q(sample({s.rows, s.tokens, s.heads, s.dim}, type)),
        k(sample({s.rows, s.tokens, s.key_heads, s.dim}, type)),
        v(sample({s.rows, s.tokens, s.key_heads, s.dim}, type)),
        grad(sample({s.rows, s.tokens, s.heads, s.dim}, type)) {}
  Tensor q, k, v, grad;
};

std::vector<Tensor> results(const Tensor& out, const Tensor& q, const Tensor& k, const Tensor& v) {
  return {out, q.grad(), k.grad(), v.grad()};
}

// Output and gradients by libtorch's CPU operators and autograd, in fp64.
std::vector<Tensor> reference(const Shape& s, const Inputs& in) {
  const std::int64_t tokens = s.rows * s.tokens;
  const auto leaf = [&](const Tensor& x) {
    return x.to(at::kDouble).reshape({tokens, x.size(2), s.dim}).requires_grad_(true);
  };
  const Tensor q = leaf(in.q), k = leaf(in.k), v = leaf(in.v);
  const Tensor place = at::arange(tokens);
  Tensor document = place.floor_divide(s.tokens);
  if (!s.ends.empty()) {
    document = at::zeros({tokens}, at::kLong);
    for (const std::int32_t end : s.ends) document += place.ge(end).to(at::kLong);
  }
  const Tensor behind = place.unsqueeze(1) - place.unsqueeze(0);
  Tensor sees = behind.ge(0).logical_and(document.unsqueeze(1).eq(document.unsqueeze(0)));
  if (s.window > 0) sees = sees.logical_and(behind.lt(s.window));
  const Tensor mask =
      at::zeros(sees.sizes(), at::kDouble)
          .masked_fill(sees.logical_not(), -std::numeric_limits<double>::infinity());
  const Tensor out = std::get<0>(at::_scaled_dot_product_attention_math(
                                     q.transpose(0, 1), k.transpose(0, 1), v.transpose(0, 1), mask,
                                     0.0, false, std::nullopt, std::nullopt, true))
                         .transpose(0, 1);
  out.backward(in.grad.to(at::kDouble).reshape(out.sizes()));
  return results(out.detach(), q, k, v);
}

std::optional<c10::SymInt> before(const Shape& s) {
  if (s.window == 0) return std::nullopt;
  return c10::SymInt(s.window - 1);
}
std::optional<c10::SymInt> behind(const Shape& s) {
  if (s.window == 0) return std::nullopt;
  return c10::SymInt(0);
}

// Tensors of the card as the operators take them: rows and tokens are one dimension with documents.
Tensor given(const Shape& s, const Tensor& x) {
  const Tensor card = on_card(x);
  return s.ends.empty() ? card : card.reshape({s.rows * s.tokens, x.size(2), s.dim});
}

std::vector<Tensor> flash(const Shape& s, const Inputs& in) {
  const Tensor q = given(s, in.q), k = given(s, in.k), v = given(s, in.v);
  std::optional<Tensor> ends;
  if (!s.ends.empty()) ends = on_card(at::tensor(s.ends, at::kInt));
  const auto [out, lse, state, unused, mask] =
      at::_flash_attention_forward_symint(q, k, v, ends, ends, s.tokens, s.tokens, 0.0, true, false,
                                          std::nullopt, before(s), behind(s));
  const auto [dq, dk, dv] = at::_flash_attention_backward_symint(
      given(s, in.grad), q, k, v, out, lse, ends.value_or(Tensor()), ends.value_or(Tensor()),
      s.tokens, s.tokens, 0.0, true, state, state, std::nullopt, before(s), behind(s));
  return {out, dq, dk, dv};
}

std::vector<Tensor> efficient(const Shape& s, const Inputs& in) {
  const auto row = [&](const Tensor& x) {
    const Tensor card = given(s, x);
    return s.ends.empty() ? card : card.unsqueeze(0);
  };
  const Tensor q = row(in.q), k = row(in.k), v = row(in.v);
  std::optional<Tensor> ends;
  if (!s.ends.empty()) ends = on_card(at::tensor(s.ends, at::kInt));
  std::optional<std::int64_t> window;
  if (s.window > 0) window = s.window;
  const std::optional<c10::SymInt> longest =
      ends ? std::optional<c10::SymInt>(s.tokens) : std::nullopt;
  const auto [out, lse, seed, offset, longest_q, longest_k] =
      at::_efficient_attention_forward_symint(q, k, v, std::nullopt, ends, ends, longest, longest,
                                              0.0, 1, true, std::nullopt, std::nullopt, window);
  const auto [dq, dk, dv, bias] = at::_efficient_attention_backward_symint(
      row(in.grad), q, k, v, std::nullopt, out, ends, ends, s.tokens, s.tokens, lse, 0.0, seed,
      offset, 1, false, std::nullopt, std::nullopt, window);
  return {out, dq, dk, dv};
}

void expect_near(const std::vector<Tensor>& card, const std::vector<Tensor>& host, double limit) {
  for (std::size_t i = 0; i < host.size(); ++i) {
    const Tensor made = card[i].cpu().to(at::kDouble).reshape(host[i].sizes());
    EXPECT_LE((made - host[i]).abs().max().item<double>(), limit) << "result " << i;
  }
}

std::vector<Shape> shapes() {
  return {{2, 7, 4, 4, 8},
          {2, 40, 4, 2, 16},
          {1, 33, 6, 2, 8, 5},
          {2, 8, 2, 2, 8, 0, {0, 3, 4, 8, 14, 16, 16, 16}},
          {3, 16, 4, 2, 8, 4, {0, 16, 19, 32, 40, 48}}};
}

TEST(Attention, FlashHasTheNumbersOfTheCpu) {
  at::manual_seed(2);
  for (const Shape& s : shapes()) {
    for (const at::ScalarType type : {at::kHalf, at::kBFloat16}) {
      const Inputs in(s, type);
      expect_near(flash(s, in), reference(s, in), type == at::kHalf ? 6e-3 : 5e-2);
    }
  }
}

TEST(Attention, EfficientHasTheNumbersOfTheCpu) {
  at::manual_seed(3);
  for (Shape s : shapes()) {
    s.key_heads = s.heads;  // it takes a key head for each query head
    const Inputs in(s, at::kFloat);
    expect_near(efficient(s, in), reference(s, in), 1e-5);
  }
}

TEST(Attention, BackwardReadsWhatTheForwardKept) {
  const Shape s{1, 9, 2, 2, 8};
  const Inputs in(s, at::kHalf);
  const Tensor q = on_card(in.q), k = on_card(in.k), v = on_card(in.v), grad = on_card(in.grad);
  const auto [out, lse, state, unused, mask] = at::_flash_attention_forward_symint(
      q, k, v, std::nullopt, std::nullopt, s.tokens, s.tokens, 0.0, true, false);
  const auto dq = [&, &state = state](const Tensor& kept_out, const Tensor& kept_lse) {
    return std::get<0>(at::_flash_attention_backward_symint(grad, q, k, v, kept_out, kept_lse,
                                                            Tensor(), Tensor(), s.tokens, s.tokens,
                                                            0.0, true, state, state))
        .cpu();
  };
  const Tensor right = dq(out, lse);
  EXPECT_GT(difference(dq(out, lse + 1), right), 0.05);
  EXPECT_GT(difference(dq(out + 1, lse), right), 0.05);
}

}  // namespace
}  // namespace sluice::emulated
