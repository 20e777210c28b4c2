#include "runtime/model/documents.hpp"

#include <algorithm>
#include <bit>
#include <cstddef>
#include <functional>
#include <numeric>
#include <string>

#include "base/error.hpp"
#include "base/index.hpp"
#include "runtime/model/empty_tensor.hpp"
#include "runtime/model/tensor_view.hpp"
#include "runtime/model/unit.hpp"

namespace sluice {
namespace {

std::int64_t power_of_two(std::int64_t at_least) {
  return static_cast<std::int64_t>(std::bit_ceil(static_cast<std::uint64_t>(at_least)));
}

// int64 [tokens] positions, then the ends as int32.
std::int64_t end_longs(std::int64_t tokens) {
  return power_of_two(std::max(tokens, Documents::kFewest)) / 2 + 1;
}

}  // namespace

Documents::Documents(std::span<const std::vector<std::int32_t>> bounds, std::int64_t seq)
    : seq_(seq) {
  std::int64_t documents = 0;
  for (const std::vector<std::int32_t>& row : bounds) {
    const bool whole = row.size() >= 2 && row.front() == 0 && row.back() == seq;
    const auto repeated = std::adjacent_find(row.begin(), row.end(), std::greater_equal<>());
    if (!whole || repeated != row.end()) {
      throw Error("row " + std::to_string(rows_.size()) + " of a micro-batch: the ends of its " +
                  "documents do not increase from 0 to seq = " + std::to_string(seq));
    }
    std::vector<Span> spans;
    for (std::size_t i = 0; i + 1 < row.size(); ++i) {
      spans.push_back({row[i], row[i + 1] - row[i]});
    }
    documents += std::ssize(spans);
    rows_.push_back(std::move(spans));
  }
  room_ = power_of_two(documents);
}

const std::vector<Documents::Span>& Documents::of_row(std::int64_t row) const {
  return nth(rows_, row);
}

void Documents::write_positions(std::int64_t* to) const {
  for (const std::vector<Span>& row : rows_) {
    for (const Span& span : row) {
      std::iota(to, to + span.count, std::int64_t{0});
      to += span.count;
    }
  }
}

void Documents::write_ends(std::span<std::int32_t> to) const {
  std::fill(to.begin(), to.end(), static_cast<std::int32_t>(rows() * seq_));
  to[0] = 0;
  std::size_t document = 0;
  std::int64_t end = 0;
  for (const std::vector<Span>& row : rows_) {
    for (const Span& span : row) to[++document] = static_cast<std::int32_t>(end += span.count);
  }
}

void Documents::widen(std::int64_t room) { room_ = std::max(room_, room); }

at::Tensor Documents::device_memory(std::int64_t rows, std::int64_t seq, at::Device device) {
  return empty_tensor({rows * seq + end_longs(rows * seq)}, c10::ScalarType::Long, device);
}

std::int64_t Documents::device_bytes(std::int64_t rows, std::int64_t seq) {
  return 8 * (rows * seq + end_longs(rows * seq));
}

void Documents::put_on(const at::Tensor& memory) const {
  const std::int64_t tokens = rows() * seq_, longs = end_longs(tokens);
  at::Tensor host = device_memory(rows(), seq_, c10::DeviceType::CPU);
  write_positions(host_data<std::int64_t>(host));
  const at::Tensor ends = host.narrow(0, tokens, longs).view(c10::ScalarType::Int);
  write_ends({host_data<std::int32_t>(ends), 2 * static_cast<std::size_t>(longs)});
  // libtorch keeps registered memory until its copy has completed.
  if (memory.is_cuda()) host = host.pin_memory();
  memory.copy_(host, /*non_blocking=*/true);
  positions_ = memory.narrow(0, 0, tokens);
  ends_ = memory.narrow(0, tokens, longs).view(c10::ScalarType::Int);
}

void Documents::put_on_device(const at::Device& device) const {
  if (!ends_.defined()) put_on(device_memory(rows(), seq_, device));
}

const at::Tensor& Documents::positions(const at::Device& device) const {
  put_on_device(device);
  return positions_;
}

at::Tensor Documents::ends(const at::Device& device, std::int64_t first, std::int64_t count) const {
  put_on_device(device);
  return ends_.narrow(0, first, count + 1);
}

void check_documents(const UnitCall& call, std::int64_t rows, std::int64_t seq) {
  if (call.documents == nullptr) return;
  check(call.documents->rows() == rows && call.documents->seq() == seq,
        "a micro-batch's documents are of its rows");
}

}  // namespace sluice
