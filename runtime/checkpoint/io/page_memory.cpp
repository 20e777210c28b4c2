#include "runtime/checkpoint/io/page_memory.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>
#include <new>

namespace sluice {
namespace {

std::size_t whole_pages(std::int64_t bytes) {
  return static_cast<std::size_t>((std::max<std::int64_t>(bytes, 1) + kPageBytes - 1) / kPageBytes *
                                  kPageBytes);
}

std::byte* allocate(std::size_t bytes) {
  constexpr std::size_t kHugePage = std::size_t{2} << 20;
  const bool huge = bytes >= kHugePage;
  void* const at =
      std::aligned_alloc(huge ? kHugePage : static_cast<std::size_t>(kPageBytes),
                         huge ? (bytes + kHugePage - 1) / kHugePage * kHugePage : bytes);
  if (at == nullptr) throw std::bad_alloc();
  if (huge) (void)::madvise(at, bytes, MADV_HUGEPAGE);  // a hint; small pages work as well
  return static_cast<std::byte*>(at);
}

}  // namespace

PageMemory::PageMemory(std::int64_t bytes)
    : bytes_(whole_pages(bytes)), data_(allocate(bytes_), std::free) {}

}  // namespace sluice
