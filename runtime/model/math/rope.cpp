#include "runtime/model/math/rope.hpp"

#include <ATen/ops/cat.h>

#include <cmath>
#include <cstddef>
#include <numbers>

#include "base/index.hpp"
#include "kernels/cpu/rope.hpp"
#include "runtime/model/device/device_kernels.hpp"
#include "runtime/model/empty_tensor.hpp"
#include "runtime/model/tensor_view.hpp"

namespace sluice {
namespace {

constexpr c10::ScalarType kWide = c10::ScalarType::Float;

// Meta's scaling for Llama 3.1 (Hugging Face's rope_type llama3).
double scale_llama3(double frequency, const ModelOptions& o) {
  const double turns =
      static_cast<double>(o.rope_original_seq) * frequency / (2 * std::numbers::pi);
  const double kept =
      (turns - o.rope_low_freq_factor) / (o.rope_high_freq_factor - o.rope_low_freq_factor);
  if (turns > o.rope_high_freq_factor) return frequency;
  if (turns < o.rope_low_freq_factor) return frequency / o.rope_factor;
  return (1 - kept) * frequency / o.rope_factor + kept * frequency;
}

}  // namespace

std::vector<float> rope_frequencies(const ModelOptions& o) {
  check(o.head_dim > 0 && o.head_dim % 2 == 0, "rotary positions need an even head_dim");
  std::vector<float> frequencies;
  for (std::int64_t i = 0; i < o.head_dim; i += 2) {
    const double exponent = -static_cast<double>(i) / static_cast<double>(o.head_dim);
    const double frequency = std::pow(o.rope_theta, exponent);
    frequencies.push_back(static_cast<float>(
        o.rope_scaling == RopeScaling::kLlama3 ? scale_llama3(frequency, o) : frequency));
  }
  return frequencies;
}

RopeTable::RopeTable(const ModelOptions& o, bool dry) {
  const std::vector<float> frequencies = rope_frequencies(o);
  const auto half = static_cast<std::int64_t>(frequencies.size());
  if (dry) {
    cos_ = DeviceConstant::dry({o.seq, half}, kWide);
    sin_ = DeviceConstant::dry({o.seq, half}, kWide);
    return;
  }
  at::Tensor cos = empty_tensor({o.seq, half}, kWide);
  at::Tensor sin = empty_tensor({o.seq, half}, kWide);
  for (std::int64_t i = 0; i < o.seq * half; ++i) {
    // Rounds the angle to fp32, since pretrained weights were trained with rounded angles.
    const std::int64_t position = i / half;
    const float angle = static_cast<float>(position) * nth(frequencies, i % half);
    host_data<float>(cos)[i] = static_cast<float>(std::cos(static_cast<double>(angle)));
    host_data<float>(sin)[i] = static_cast<float>(std::sin(static_cast<double>(angle)));
  }
  cos_ = DeviceConstant(cos);
  sin_ = DeviceConstant(sin);
}

RopeTable::Angles RopeTable::angles(const Positions& positions, const at::Device& device) const {
  const auto rows = [&](const DeviceConstant& table) {
    return table.on(device).narrow(0, positions.first, positions.count);
  };
  return {rows(cos_), rows(sin_)};
}

RopeTable::Angles RopeTable::packed_angles(const Positions& positions, std::int64_t rows,
                                           const at::Device& device) const {
  const auto of_tokens = [&](const DeviceConstant& constant) {
    const at::Tensor& table = constant.on(device);
    const std::vector<std::int64_t> sizes{rows, positions.count, table.size(1)};
    if (device.is_cuda() && positions.documents != nullptr) {
      return table.index_select(0, positions.documents->positions(device)).view(sizes);
    }
    const at::Tensor result = empty_tensor(sizes, kWide, device);
    // With documents positions.first is 0.
    for (std::int64_t row = 0; row < rows && !device.is_meta(); ++row) {
      for_documents(positions.documents, row, positions.count, [&](const Documents::Span& span) {
        result.select(0, row)
            .narrow(0, span.first, span.count)
            .copy_(table.narrow(0, positions.first, span.count));
      });
    }
    return result;
  };
  return {of_tokens(cos_), of_tokens(sin_)};
}

at::Tensor RopeTable::apply(const at::Tensor& x, std::int64_t position_dim, const Angles& angles) {
  const auto of_x = [&](const at::Tensor& table) {
    return table.unsqueeze(table.dim() - (position_dim == 1 ? 1 : 2));
  };
  const at::Tensor cos = of_x(angles.cos);
  const at::Tensor sin = of_x(angles.sin);
  const std::vector<at::Tensor> half = x.to(wide_type(x)).chunk(2, -1);
  const at::Tensor turned = at::cat({half[0].mul(cos).sub(half[1].mul(sin)),  //
                                     half[1].mul(cos).add(half[0].mul(sin))},
                                    -1);
  return turned.to(x.scalar_type()).contiguous();
}

void RopeTable::turn(const at::Tensor& x_NE, const Positions& positions, std::int64_t heads,
                     bool back) const {
  if (x_NE.is_meta()) return;
  const at::Tensor& cos = cos_.on(x_NE.device());
  check(positions.first + positions.count <= cos.size(0),
        "rotary positions reach as far as the model's seq");
  const at::Tensor& sin = sin_.on(x_NE.device());
  if (x_NE.is_cuda()) {
    const Documents* documents = positions.documents;
    return device::rope(
        {.x = x_NE,
         .cos = cos.narrow(0, positions.first, positions.count),
         .sin = sin.narrow(0, positions.first, positions.count),
         .positions = documents == nullptr ? at::Tensor() : documents->positions(x_NE.device()),
         .seq = positions.count,
         .heads = heads,
         .back = back});
  }
  const std::int64_t skipped = positions.first * cos.size(1);
  RopeArgs args{.x = host_bytes(x_NE),
                .cos = host_data<float>(cos) + skipped,
                .sin = host_data<float>(sin) + skipped,
                .dtype = dtype_of(x_NE),
                .rows = x_NE.size(0),
                .seq = positions.count,
                .heads = heads,
                .head_dim = 2 * cos.size(1),
                .stride = x_NE.size(1),
                .back = back};
  if (positions.documents == nullptr) return rope(args);
  auto* rows = static_cast<std::byte*>(args.x);
  for (std::int64_t row = 0; row < positions.documents->rows(); ++row) {
    for (const Documents::Span& span : positions.documents->of_row(row)) {
      args.x = rows;
      args.rows = args.seq = span.count;
      rope(args);
      rows += span.count * args.stride * size_of(args.dtype);
    }
  }
}

}  // namespace sluice
