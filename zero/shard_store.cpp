#include "zero/shard_store.hpp"

#include <algorithm>
#include <utility>

#include "base/all_of.hpp"
#include "base/error.hpp"
#include "base/index.hpp"
#include "kernels/cpu/cast.hpp"
#include "kernels/cpu/update/remainder.hpp"

namespace sluice {
namespace {

// 16-bit elements staged at once for NVMe: 4 MiB.
constexpr std::int64_t kStagedElems = std::int64_t{2} << 20;

// Calls f(first, elems, staging) for each piece of `elems` elements of a row.
template <class F>
void in_pieces(const StateRow& row, std::int64_t elems, F&& f) {
  std::vector<std::byte> staging(
      static_cast<std::size_t>(std::min(elems, kStagedElems) * row.element_bytes));
  for (std::int64_t first = 0; first < elems; first += kStagedElems) {
    f(first, std::min(kStagedElems, elems - first), staging.data());
  }
}

// `n` elements of the row, from fp32.
void narrow(const StateRow& row, std::byte* to, const float* from, std::int64_t n) {
  if (row.array == StateArray::kRemainder) {
    take_remainders(reinterpret_cast<std::uint16_t*>(to), from, n);
  } else {
    convert(to, row.dtype, from, DType::kFloat32, n);
  }
}

// Remainders are added to the weights that `to` has.
void widen(const StateRow& row, float* to, const std::byte* from, std::int64_t n) {
  if (row.array == StateArray::kRemainder) {
    add_remainders(to, reinterpret_cast<const std::uint16_t*>(from), n);
  } else {
    convert(to, DType::kFloat32, from, row.dtype, n);
  }
}

// The first row off the device that `matches`; -1: none does.
template <class Matches>
RowId find_off_device(const StateTable& table, const Matches& matches) {
  const auto row = std::find_if(table.rows.begin(), table.rows.end(), [&](const StateRow& r) {
    return r.tier != Tier::kDevice && matches(r);
  });
  return row == table.rows.end() ? -1 : static_cast<RowId>(row - table.rows.begin());
}

bool any_on_nvme(const StateTable& table) {
  return std::any_of(table.rows.begin(), table.rows.end(),
                     [](const StateRow& row) { return row.tier == Tier::kNvme; });
}

}  // namespace

ShardStore::ShardStore(const StateTable& table, std::span<const std::string> group_names,
                       const ShardStoreOptions& options)
    : table_(table),
      options_(options),
      keeps_image_(!options.image_layout.empty()),
      pool_(options.host_budget, options.host_pages),
      blocks_(table.blocks.size()),
      extents_(table.rows.size()) {
  if (any_on_nvme(table_)) nvme_ = std::make_unique<NvmeStore>(options.nvme);
  take_blocks();
  for (const StateRow& row : table_.rows) {
    if (row.tier != Tier::kHost || row.second_elems == 0) continue;
    const auto group = static_cast<std::size_t>(row.group);
    if (host_places_.size() <= group) host_places_.resize(group + 1);
    host_places_[group].resize(
        static_cast<std::size_t>((row.elems + options_.chunk_elems - 1) / options_.chunk_elems));
  }
  if (!nvme_) return;
  declare_extents(group_names);
  if (keeps_image_) declare_image();
  const std::span<std::byte> ring = block(StateArray::kRing);
  if (!ring.empty()) nvme_->register_buffer(ring.data(), std::ssize(ring));
}

void ShardStore::take_blocks() {
  for (std::size_t b = 0; b < blocks_.size(); ++b) {
    const StateBlock& block = table_.blocks[b];
    if (block.tier != Tier::kHost) continue;
    const std::string tag(name_of(block.tag));
    blocks_[b] = block.reserved ? pool_.reserve(tag, block.bytes)
                                : pool_.allocate(tag, block.bytes,
                                                 block.copied ? options_.dma_pages : nullptr);
  }
}

// Image records are not declared here.
void ShardStore::declare_extents(std::span<const std::string> group_names) {
  for (std::size_t r = 0; r < table_.rows.size(); ++r) {
    const StateRow& row = table_.rows[r];
    if (row.tier != Tier::kNvme || row.array == StateArray::kImageRecord) continue;
    const std::string tag(name_of(row.tag));
    const std::string name =
        name_of(row, row.group < 0 ? std::string() : nth(group_names, row.group));
    extents_[r].first = nvme_->add(tag, name, row.bytes());
    if (row.second_elems > 0) {
      extents_[r].second = nvme_->add(tag, name + ".second", row.second_bytes());
    }
  }
}

void ShardStore::declare_image() {
  std::vector<ImagePair> pairs;
  for (const Extents& row : extents_) {
    if (row.second.index >= 0) pairs.push_back({row.first, row.second});
  }
  nvme_->add_image(std::move(pairs), options_.image_layout);
}

RowId ShardStore::find(int group, StateArray array, int stream) const {
  return find_off_device(table_, [&](const StateRow& row) {
    return row.group == group && row.array == array && row.stream == stream;
  });
}

RowId ShardStore::find(int group, StateKind state) const {
  return find_off_device(table_, [&](const StateRow& row) {
    return row.group == group && row.array == StateArray::kState && row.state == state;
  });
}

RowId ShardStore::input(int unit, int flight) const {
  std::vector<RowId> rows;
  for (std::size_t r = 0; r < table_.rows.size(); ++r) {
    const StateRow& row = table_.rows[r];
    if (row.array == StateArray::kInput && row.unit == unit) rows.push_back(static_cast<RowId>(r));
  }
  check(!rows.empty(), "a unit's input on NVMe has a row");
  return rows[static_cast<std::size_t>(flight) % rows.size()];
}

std::byte* ShardStore::host(RowId id, std::int64_t begin, At at) const {
  const StateRow& r = row(id);
  check(r.tier == Tier::kHost, "memory is asked for of a row on the host");
  return memory(id, runs_of(id, begin, 1, at).front());
}

std::span<std::byte> ShardStore::block(StateArray array) const {
  for (std::size_t b = 0; b < blocks_.size(); ++b) {
    if (table_.blocks[b].array != array || table_.blocks[b].tier != Tier::kHost) continue;
    return {blocks_[b].data(), static_cast<std::size_t>(blocks_[b].bytes())};
  }
  return {};
}

bool ShardStore::uses_second(const StateRow& row, std::int64_t chunk) const {
  if (row.array == StateArray::kParameterShard && row.tier == Tier::kHost) return false;
  return row.tier == Tier::kHost ? nth(nth(host_places_, row.group), chunk) != 0 : place_ != 0;
}

ExtentId ShardStore::extent(RowId id, const Run& run) const {
  const Extents& extents = nth(extents_, id);
  return run.second ? extents.second : extents.first;
}

std::byte* ShardStore::memory(RowId id, const Run& run) const {
  const StateRow& r = row(id);
  return nth(blocks_, r.block).data() + r.offset_bytes + (run.second ? r.bytes() : 0) + run.offset;
}

std::vector<ShardStore::Run> ShardStore::runs_of(RowId id, std::int64_t begin, std::int64_t elems,
                                                 At at) const {
  const StateRow& r = row(id);
  const std::int64_t size = r.element_bytes;
  if (r.second_elems == 0) return {{false, begin * size, elems * size}};
  const std::int64_t chunk = options_.chunk_elems;
  const std::int64_t second_end = r.second_first + r.second_elems;
  std::vector<Run> runs;
  for (std::int64_t from = begin; from < begin + elems;) {
    const std::int64_t end = std::min(begin + elems, (from / chunk + 1) * chunk);
    const bool has_two = from >= r.second_first / chunk * chunk && from < second_end;
    const bool second = (has_two && uses_second(r, from / chunk)) != (at == At::kOther);
    if (runs.empty() || runs.back().second != second) {
      runs.push_back({second, (from - (second ? r.second_first : 0)) * size, 0});
    }
    runs.back().bytes += (end - from) * size;
    from = end;
  }
  return runs;
}

Ticket ShardStore::read(RowId id, std::int64_t begin, std::int64_t elems, void* into, At at) {
  const std::vector<Run> runs = runs_of(id, begin, elems, at);
  auto* to = static_cast<std::byte*>(into);
  return issue_all(runs.size(), [&](std::size_t i) {
    const Run& run = runs[i];
    return nvme_->read(extent(id, run), run.offset, std::exchange(to, to + run.bytes), run.bytes);
  });
}

Ticket ShardStore::write(RowId id, std::int64_t begin, std::int64_t elems, const void* from,
                         At at) {
  const std::vector<Run> runs = runs_of(id, begin, elems, at);
  const auto* bytes = static_cast<const std::byte*>(from);
  return issue_all(runs.size(), [&](std::size_t i) {
    const Run& run = runs[i];
    return nvme_->write(extent(id, run), run.offset, std::exchange(bytes, bytes + run.bytes),
                        run.bytes);
  });
}

void ShardStore::get(RowId id, std::int64_t begin, std::span<float> values) {
  const StateRow& r = row(id);
  const std::int64_t elems = std::ssize(values);
  if (elems == 0) return;
  if (!on_nvme(id)) {
    float* to = values.data();
    for (const Run& run : runs_of(id, begin, elems, At::kCurrent)) {
      const std::int64_t count = run.bytes / r.element_bytes;
      widen(r, std::exchange(to, to + count), memory(id, run), count);
    }
  } else if (r.element_bytes == sizeof(float)) {
    read(id, begin, elems, values.data()).wait();
  } else {
    in_pieces(r, elems, [&](std::int64_t first, std::int64_t count, std::byte* staging) {
      read(id, begin + first, count, staging).wait();
      widen(r, values.data() + first, staging, count);
    });
  }
}

// A write outside a step is not committed, so put() first withdraws the image.
void ShardStore::put(RowId id, std::int64_t begin, std::span<const float> values) {
  const StateRow& r = row(id);
  const std::int64_t elems = std::ssize(values);
  if (elems == 0) return;
  if (!on_nvme(id)) {
    const float* from = values.data();
    for (const Run& run : runs_of(id, begin, elems, At::kCurrent)) {
      const std::int64_t count = run.bytes / r.element_bytes;
      narrow(r, memory(id, run), std::exchange(from, from + count), count);
    }
    return;
  }
  if (keeps_image_) nvme_->withdraw_image();
  if (r.element_bytes == sizeof(float)) {
    write(id, begin, elems, values.data()).wait();
    return;
  }
  in_pieces(r, elems, [&](std::int64_t first, std::int64_t count, std::byte* staging) {
    narrow(r, staging, values.data() + first, count);
    write(id, begin + first, count, staging).wait();
  });
}

void ShardStore::swap_places() { place_ = 1 - place_; }

void ShardStore::swap_place(int group, std::int64_t begin) {
  char& place = nth(nth(host_places_, group), begin / options_.chunk_elems);
  place = place == 0 ? 1 : 0;
}

std::int64_t ShardStore::second_place_bytes() const {
  std::int64_t bytes = 0;
  for (const StateRow& row : table_.rows) {
    if (row.tier == Tier::kNvme) bytes += NvmeStore::padded_bytes(row.second_bytes());
  }
  return bytes;
}

void ShardStore::adopt_image(const FoundImage& found, std::size_t version) {
  nvme_->adopt(version);
  place_ = found.versions.at(version).place;
}

Ticket ShardStore::commit(std::int64_t step, std::string state) {
  return nvme_->commit_image(step, place_, std::move(state));
}

void ShardStore::leak() noexcept {
  for (HostBlock& block : blocks_) block.leak();
}

}  // namespace sluice
