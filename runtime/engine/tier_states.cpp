// States and parameters off the device as others than a step's operations read and write them.
#include <algorithm>
#include <utility>

#include "base/error.hpp"
#include "kernels/cpu/cast.hpp"
#include "runtime/engine/all_of.hpp"
#include "runtime/engine/tier_store.hpp"

namespace sluice {
namespace {

// What is staged at once of 16-bit elements on their way to or from NVMe: 4 MiB.
constexpr std::int64_t kStagedElems = std::int64_t{2} << 20;

// f(first, elems, staging) over so many elements of an array, piece by piece.
template <class F>
void in_pieces(const TierArray& array, std::int64_t elems, F&& f) {
  std::vector<std::byte> staging(
      static_cast<std::size_t>(std::min(elems, kStagedElems) * array.element_bytes()));
  for (std::int64_t first = 0; first < elems; first += kStagedElems) {
    f(first, std::min(kStagedElems, elems - first), staging.data());
  }
}

}  // namespace

std::vector<TierStore::Run> TierStore::runs_of(int g, const Array& array, std::int64_t begin,
                                               std::int64_t elems, At at) const {
  const std::int64_t size = array.element_bytes();
  if (array.second.index < 0) return {{array.extent, begin * size, elems * size}};
  const Away& a = away(g);
  const std::int64_t chunk = shape_.placement.chunk_elems;
  std::vector<Run> runs;
  for (std::int64_t from = begin; from < begin + elems;) {
    const std::int64_t end = std::min(begin + elems, (from / chunk + 1) * chunk);
    const auto c = static_cast<std::size_t>(from / chunk);
    const bool moved = c < a.in_second.size() && a.in_second[c] != 0;
    const bool second = moved != (at == At::kOther);
    const ExtentId extent = second ? array.second : array.extent;
    if (runs.empty() || runs.back().extent.index != extent.index) {
      runs.push_back({extent, (from - (second ? a.second_begin : 0)) * size, 0});
    }
    runs.back().bytes += (end - from) * size;
    from = end;
  }
  return runs;
}

Ticket TierStore::read(int g, const Array& array, std::int64_t begin, std::int64_t elems,
                       void* into, At at) {
  const std::vector<Run> runs = runs_of(g, array, begin, elems, at);
  auto* to = static_cast<std::byte*>(into);
  return issue_all(runs.size(), [&](std::size_t i) {
    const Run& run = runs[i];
    return nvme_->read(run.extent, run.offset, std::exchange(to, to + run.bytes), run.bytes);
  });
}

Ticket TierStore::write(int g, const Array& array, std::int64_t begin, std::int64_t elems,
                        const void* from, At at) {
  const std::vector<Run> runs = runs_of(g, array, begin, elems, at);
  const auto* bytes = static_cast<const std::byte*>(from);
  return issue_all(runs.size(), [&](std::size_t i) {
    const Run& run = runs[i];
    return nvme_->write(run.extent, run.offset, std::exchange(bytes, bytes + run.bytes), run.bytes);
  });
}

void TierStore::get(int g, const Array& array, std::int64_t begin, std::span<float> values) {
  const std::int64_t elems = std::ssize(values);
  if (elems == 0) return;
  if (!array.on_disk()) {
    convert(values.data(), DType::kFloat32, array.host + begin * array.element_bytes(), array.dtype,
            elems);
    return;
  }
  if (array.dtype == DType::kFloat32) {
    read(g, array, begin, elems, values.data()).wait();
    return;
  }
  in_pieces(array, elems, [&](std::int64_t first, std::int64_t count, std::byte* staging) {
    read(g, array, begin + first, count, staging).wait();
    convert(values.data() + first, DType::kFloat32, staging, array.dtype, count);
  });
}

void TierStore::put(int g, const Array& array, std::int64_t begin, std::span<const float> values) {
  const std::int64_t elems = std::ssize(values);
  if (elems == 0) return;
  if (!array.on_disk()) {
    convert(array.host + begin * array.element_bytes(), array.dtype, values.data(), DType::kFloat32,
            elems);
    return;
  }
  withdraw_image();
  if (array.dtype == DType::kFloat32) {
    write(g, array, begin, elems, values.data()).wait();
    return;
  }
  in_pieces(array, elems, [&](std::int64_t first, std::int64_t count, std::byte* staging) {
    convert(staging, array.dtype, values.data() + first, DType::kFloat32, count);
    write(g, array, begin + first, count, staging).wait();
  });
}

void TierStore::write_master(int g, std::int64_t begin, std::span<const float> values) {
  const Away& a = away(g);
  const std::int64_t skip = std::max<std::int64_t>(0, a.there - begin);  // lives on the device
  if (skip < std::ssize(values) && a.there < owned_elems(shape_, g) && !shape_.frozen) {
    put(g, a.master, begin + skip - a.there, values.subspan(static_cast<std::size_t>(skip)));
  }
  write_params(g, begin, values);
}

// Those that are not the master weights themselves.
void TierStore::write_params(int g, std::int64_t begin, std::span<const float> values) {
  const Away& a = away(g);
  if (!a.params_here || params_are_master(shape_, g)) return;
  put(g, a.params, begin, values);
}

void TierStore::fill_params(int g, std::int64_t begin, std::span<const float> values) {
  if (!away(g).params.on_disk()) write_params(g, begin, values);
}

void TierStore::read_master(int g, std::span<float> owned) {
  const Away& a = away(g);
  if (!shape_.frozen) {
    if (a.there >= std::ssize(owned)) return;
    get(g, a.master, 0, owned.subspan(static_cast<std::size_t>(a.there)));
  } else if (a.params_here) {
    get(g, a.params, 0, owned);
  }
}

std::int64_t TierStore::state_elems(int g) const { return owned_elems(shape_, g) - away(g).there; }

const TierStore::Array& TierStore::array_of(int g, StateKind kind, std::int64_t begin,
                                            std::size_t elems) const {
  check(begin >= 0 && begin + static_cast<std::int64_t>(elems) <= state_elems(g),
        "a range of a group's states is one of those off the device");
  const Away& a = away(g);
  return kind == StateKind::kMaster    ? a.master
         : kind == StateKind::kMoment1 ? a.moment1
                                       : a.moment2;
}

void TierStore::read_state(int g, StateKind kind, std::int64_t begin, std::span<float> values) {
  get(g, array_of(g, kind, begin, values.size()), begin, values);
}

void TierStore::write_state(int g, StateKind kind, std::int64_t begin,
                            std::span<const float> values) {
  put(g, array_of(g, kind, begin, values.size()), begin, values);
}

}  // namespace sluice
