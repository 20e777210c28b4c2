// Counted memory of the host tier: whole pages, on huge pages where the kernel has them, zeroed,
// under a budget. Sizes are exact to the page: no size classes, nothing rounded to powers of two.
//
// Blocks and reservations give their bytes back when they end; they may outlive the pool object.
// Thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace sluice {

// Where pages come from. The CUDA module brings one that registers another's for DMA; the default
// maps anonymous memory. Implementations are thread-safe.
class PageSource {
 public:
  virtual ~PageSource() = default;
  // `bytes` of zeros, a multiple of 4096, at a multiple of 4096. Throws BudgetError.
  [[nodiscard]] virtual void* map(std::int64_t bytes) = 0;
  virtual void unmap(void* memory, std::int64_t bytes) noexcept = 0;
  [[nodiscard]] virtual const char* name() const = 0;
};

// Anonymous pages; blocks of 2 MiB and more begin at 2 MiB and ask for huge pages. `locked`: kept
// from swapping (mlock); throws BudgetError where the memlock limit is too small, naming it.
[[nodiscard]] std::shared_ptr<PageSource> make_page_source(bool locked = false);

class HostLedger;

// Bytes in use, with or without the memory itself. Movable.
class HostBlock {
 public:
  HostBlock() = default;
  ~HostBlock();
  HostBlock(HostBlock&& other) noexcept;
  HostBlock& operator=(HostBlock&& other) noexcept;

  [[nodiscard]] std::byte* data() const { return data_; }                // nullptr of a reservation
  [[nodiscard]] std::int64_t bytes() const { return bytes_; }            // as asked for
  [[nodiscard]] std::int64_t counted_bytes() const { return counted_; }  // whole pages
  void reset() noexcept;
  // Gives the memory up without unmapping it: for memory a device may still write to.
  void leak() noexcept;

 private:
  friend class HostPool;
  std::shared_ptr<HostLedger> ledger_;
  std::shared_ptr<PageSource> pages_;
  std::byte* data_ = nullptr;
  std::int64_t bytes_ = 0, counted_ = 0;
  int tag_ = 0;
};

struct HostTagUse {
  std::string tag;
  std::int64_t bytes = 0, peak_bytes = 0;
};

class HostPool {
 public:
  // budget_bytes 0: counts only.
  explicit HostPool(std::int64_t budget_bytes = 0,
                    std::shared_ptr<PageSource> pages = make_page_source());

  // Both throw BudgetError, with the largest tags, where the sum would pass the budget. bytes >= 0.
  // `pages`: where these come from; null: from the pool's own source.
  [[nodiscard]] HostBlock allocate(const std::string& tag, std::int64_t bytes,
                                   const std::shared_ptr<PageSource>& pages = nullptr);
  [[nodiscard]] HostBlock reserve(const std::string& tag, std::int64_t bytes);  // memory of others

  [[nodiscard]] std::int64_t used_bytes() const;
  [[nodiscard]] std::int64_t peak_bytes() const;
  [[nodiscard]] std::int64_t budget_bytes() const;
  void reset_peak();                                     // to what is used now, each tag as well
  [[nodiscard]] std::vector<HostTagUse> by_tag() const;  // largest first

 private:
  std::shared_ptr<HostLedger> ledger_;
};

}  // namespace sluice
