// Memory for reads and writes that bypass the page cache.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

namespace sluice {

inline constexpr std::int64_t kPageBytes = 4096;  // alignment of O_DIRECT's memory and offsets

class PageMemory {
 public:
  // Allocates whole pages, at least one. At least 2 MiB ask for huge pages. Throws bad_alloc.
  explicit PageMemory(std::int64_t bytes);
  [[nodiscard]] std::byte* data() const { return data_.get(); }
  [[nodiscard]] std::span<std::byte> all() const { return {data_.get(), bytes_}; }

 private:
  std::size_t bytes_;
  std::unique_ptr<std::byte[], void (*)(void*)> data_;
};

}  // namespace sluice
