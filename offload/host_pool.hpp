// Counted memory of the host tier under a budget. The memory is whole, zeroed pages; large blocks
// ask for huge pages. Sizes are exact to the page: there are no size classes and no powers of two.
//
// The destructor of a block or reservation returns its bytes to the pool. A block may outlive the
// pool object. Thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

namespace sluice {

// A source of pages. The default maps anonymous memory. The CUDA module wraps another source and
// registers its pages for DMA. Implementations are thread-safe.
class PageSource {
 public:
  virtual ~PageSource() = default;
  // Maps `bytes` of zeros at a multiple of 4096. Throws BudgetError.
  // REQUIRES: `bytes` is a multiple of 4096.
  [[nodiscard]] virtual void* map(std::int64_t bytes) = 0;
  virtual void unmap(void* memory, std::int64_t bytes) noexcept = 0;
  [[nodiscard]] virtual const char* name() const = 0;
};

// Maps anonymous pages. Blocks of at least 2 MiB begin at a multiple of 2 MiB and ask for huge
// pages.
[[nodiscard]] std::shared_ptr<PageSource> make_page_source();

class HostLedger;

// Counted bytes of a pool: allocated memory, or a reservation without memory. Movable.
class HostBlock {
 public:
  HostBlock() = default;
  ~HostBlock();
  HostBlock(HostBlock&& other) noexcept;
  HostBlock& operator=(HostBlock&& other) noexcept;

  [[nodiscard]] std::byte* data() const { return data_; }      // nullptr for a reservation
  [[nodiscard]] std::int64_t bytes() const { return bytes_; }  // as requested
  [[nodiscard]] std::int64_t counted_bytes() const { return counted_; }  // whole pages
  void reset() noexcept;
  // Forgets the memory without unmapping it and without returning its bytes to the pool. For memory
  // that a device may still write to.
  void leak() noexcept;

 private:
  friend class HostPool;
  std::shared_ptr<HostLedger> ledger_;
  std::shared_ptr<PageSource> pages_;
  std::byte* data_ = nullptr;
  std::int64_t bytes_ = 0, counted_ = 0;
  int tag_ = 0;
};

class HostPool {
 public:
  // budget_bytes 0: the pool only counts.
  explicit HostPool(std::int64_t budget_bytes = 0,
                    std::shared_ptr<PageSource> pages = make_page_source());

  // Both throw BudgetError, which names the largest tags, if the sum would exceed the budget.
  // REQUIRES: bytes >= 0. `pages`: the source of these pages; null: the pool's own source.
  [[nodiscard]] HostBlock allocate(const std::string& tag, std::int64_t bytes,
                                   const std::shared_ptr<PageSource>& pages = nullptr);
  // Counts bytes that another component allocates.
  [[nodiscard]] HostBlock reserve(const std::string& tag, std::int64_t bytes);

  [[nodiscard]] std::int64_t used_bytes() const;
  // The part of used_bytes() whose pages come from another source than the pool's own.
  [[nodiscard]] std::int64_t other_source_bytes() const;
  [[nodiscard]] std::int64_t peak_bytes() const;

 private:
  std::shared_ptr<HostLedger> ledger_;
};

}  // namespace sluice
