// Memory for reads and writes past the page cache.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

namespace sluice {

inline constexpr std::int64_t kPageBytes =
    4096;  // what O_DIRECT's memory and offsets lie in step of

class PageMemory {
 public:
  // Whole pages, at least one; of 2 MiB and more on huge pages where the kernel has them. Throws
  // bad_alloc.
  explicit PageMemory(std::int64_t bytes);
  [[nodiscard]] std::byte* data() const { return data_.get(); }
  [[nodiscard]] std::span<std::byte> all() const { return {data_.get(), bytes_}; }

 private:
  std::size_t bytes_;
  std::unique_ptr<std::byte[], void (*)(void*)> data_;
};

}  // namespace sluice
