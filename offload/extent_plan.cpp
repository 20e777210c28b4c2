#include "offload/extent_plan.hpp"

#include <algorithm>
#include <map>
#include <string_view>

#include "base/bytes.hpp"
#include "base/error.hpp"
#include "base/index.hpp"

namespace sluice {

ExtentPlan::ExtentPlan(int files, std::int64_t block_bytes) : block_bytes_(block_bytes) {
  check(files > 0 && block_bytes > 0 && block_bytes % kAlignment == 0, "shape of an extent plan");
  file_bytes_.assign(static_cast<std::size_t>(files), kHeaderBytes);
}

int ExtentPlan::add(std::string tag, std::string name, std::int64_t bytes) {
  if (bytes < 1) throw ConfigError("NVMe extent '" + name + "' has no bytes");
  const auto same = [&](const Extent& other) { return other.name == name; };
  if (std::any_of(extents_.begin(), extents_.end(), same)) {
    throw ConfigError("NVMe extent '" + name + "' is declared twice");
  }
  Extent extent{std::move(tag), std::move(name), bytes, round_up(bytes, kAlignment), 0,
                file_bytes_};
  const auto least = std::min_element(file_bytes_.begin(), file_bytes_.end());
  extent.first_file = static_cast<int>(least - file_bytes_.begin());
  const std::int64_t count = files();
  const std::int64_t whole = extent.padded / block_bytes_;  // blocks, without a shorter last block
  for (std::int64_t i = 0; i < count; ++i) {
    const std::int64_t file = (extent.first_file + i) % count;
    std::int64_t taken = (whole / count + (i < whole % count ? 1 : 0)) * block_bytes_;
    if (i == whole % count) taken += extent.padded % block_bytes_;
    nth(file_bytes_, file) += taken;
  }
  extents_.push_back(std::move(extent));
  return extents() - 1;
}

ExtentPlan::Place ExtentPlan::place(int index, std::int64_t offset) const {
  const Extent& e = extent(index);
  check(offset >= 0 && offset < e.padded, "offset inside its extent");
  const std::int64_t block = offset / block_bytes_, within = offset % block_bytes_;
  Place result;
  result.file = static_cast<int>((e.first_file + block) % files());
  result.offset = nth(e.base, result.file) + block / files() * block_bytes_ + within;
  result.contiguous = std::min(block_bytes_ - within, e.padded - offset);
  return result;
}

std::int64_t ExtentPlan::total_bytes() const {
  std::int64_t total = 0;
  for (const Extent& e : extents_) total += e.padded;
  return total;
}

std::vector<std::pair<std::string, std::int64_t>> ExtentPlan::bytes_by_tag() const {
  std::map<std::string, std::int64_t> sums;
  for (const Extent& e : extents_) sums[e.tag] += e.padded;
  std::vector<std::pair<std::string, std::int64_t>> result(sums.begin(), sums.end());
  std::stable_sort(result.begin(), result.end(),
                   [](const auto& a, const auto& b) { return a.second > b.second; });
  return result;
}

std::uint64_t ExtentPlan::layout_hash(const std::string& more) const {
  std::uint64_t hash = 0xcbf29ce484222325U;  // FNV-1a
  const auto mix = [&](std::string_view text) {
    for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3U;
    hash = (hash ^ 0xffU) * 0x100000001b3U;  // ends a field: no UTF-8 name holds this byte
  };
  mix(std::to_string(files()));
  mix(std::to_string(block_bytes_));
  for (const Extent& e : extents_) {
    mix(e.name);
    mix(std::to_string(e.bytes));
  }
  if (!more.empty()) mix(more);
  return hash;
}

}  // namespace sluice
