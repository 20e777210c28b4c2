#include "offload/host_pool.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <mutex>
#include <utility>
#include <vector>

#include "base/bytes.hpp"
#include "base/error.hpp"
#include "base/index.hpp"
#include "base/posix/map.hpp"

namespace sluice {
namespace {

constexpr std::int64_t kPage = 4096;
constexpr std::int64_t kHugePage = 2 * kMiB;

class AnonymousPages final : public PageSource {
 public:
  [[nodiscard]] void* map(std::int64_t bytes) override {
    const std::int64_t alignment = bytes >= kHugePage ? kHugePage : kPage;
    MappedPages pages = MappedPages::anonymous(bytes, alignment);
    if (!pages) {
      throw BudgetError("the system has no " + format_bytes(bytes) + " of host memory (" +
                        std::strerror(errno) + "): lower memory.host or move states to NVMe");
    }
    if (alignment == kHugePage) {
      // Advice: kernels without transparent huge pages say EINVAL and small pages serve.
      ::madvise(pages.data(), static_cast<std::size_t>(bytes), MADV_HUGEPAGE);
    }
    return pages.release();
  }
  void unmap(void* memory, std::int64_t bytes) noexcept override {
    ::munmap(memory, static_cast<std::size_t>(bytes));
  }
  [[nodiscard]] const char* name() const override { return "pageable"; }
};

}  // namespace

std::shared_ptr<PageSource> make_page_source() { return std::make_shared<AnonymousPages>(); }

// The counters of a pool, shared by the pool and its blocks.
class HostLedger {
 public:
  HostLedger(std::int64_t budget, std::shared_ptr<PageSource> pages)
      : budget_(budget), pages_(std::move(pages)) {}

  // Adds `bytes` to the tag and returns the index of the tag.
  int take(const std::string& tag, std::int64_t bytes) {
    const std::lock_guard lock(mutex_);
    if (budget_ > 0 && used_ + bytes > budget_) over_budget(tag, bytes);
    auto entry =
        std::find_if(tags_.begin(), tags_.end(), [&](const TagUse& use) { return use.tag == tag; });
    if (entry == tags_.end()) entry = tags_.insert(entry, {tag, 0});
    used_ += bytes;
    peak_ = std::max(peak_, used_);
    entry->bytes += bytes;
    return static_cast<int>(entry - tags_.begin());
  }
  void count_pages_of(const PageSource* source, std::int64_t bytes) {
    if (source == pages_.get()) return;
    const std::lock_guard lock(mutex_);
    other_source_ += bytes;
  }
  void give_back(int tag, std::int64_t bytes) {
    const std::lock_guard lock(mutex_);
    used_ -= bytes;
    nth(tags_, tag).bytes -= bytes;
  }
  [[nodiscard]] std::int64_t used() const {
    const std::lock_guard lock(mutex_);
    return used_;
  }
  [[nodiscard]] std::int64_t other_source() const {
    const std::lock_guard lock(mutex_);
    return other_source_;
  }
  [[nodiscard]] std::int64_t peak() const {
    const std::lock_guard lock(mutex_);
    return peak_;
  }
  [[nodiscard]] const std::shared_ptr<PageSource>& pages() const { return pages_; }

 private:
  struct TagUse {
    std::string tag;
    std::int64_t bytes = 0;
  };

  [[noreturn]] void over_budget(const std::string& tag, std::int64_t bytes) const {
    std::vector<TagUse> largest_first = tags_;
    std::stable_sort(largest_first.begin(), largest_first.end(),
                     [](const auto& a, const auto& b) { return a.bytes > b.bytes; });
    std::string holders;
    for (const TagUse& use : largest_first) {
      if (use.bytes > 0) holders += ", " + use.tag + " " + format_bytes(use.bytes);
    }
    throw BudgetError("memory.host is " + format_bytes(budget_) + ": no room for " +
                      format_bytes(bytes) + " of " + tag + ", " +
                      format_bytes(used_ + bytes - budget_) +
                      " too much; in use: " + (holders.empty() ? "nothing" : holders.substr(2)) +
                      ". Raise memory.host or move the largest of them to nvme");
  }

  const std::int64_t budget_;
  const std::shared_ptr<PageSource> pages_;
  mutable std::mutex mutex_;
  std::int64_t used_ = 0, peak_ = 0, other_source_ = 0;
  std::vector<TagUse> tags_;  // never shrinks: blocks hold indices
};

HostBlock::~HostBlock() { reset(); }

HostBlock::HostBlock(HostBlock&& other) noexcept
    : ledger_(std::move(other.ledger_)),
      pages_(std::move(other.pages_)),
      data_(std::exchange(other.data_, nullptr)),
      bytes_(std::exchange(other.bytes_, 0)),
      counted_(std::exchange(other.counted_, 0)),
      tag_(other.tag_) {}

HostBlock& HostBlock::operator=(HostBlock&& other) noexcept {
  if (this == &other) return *this;
  reset();
  ledger_ = std::move(other.ledger_);
  pages_ = std::move(other.pages_);
  data_ = std::exchange(other.data_, nullptr);
  bytes_ = std::exchange(other.bytes_, 0);
  counted_ = std::exchange(other.counted_, 0);
  tag_ = other.tag_;
  return *this;
}

void HostBlock::reset() noexcept {
  if (!ledger_) return;
  if (data_ != nullptr) {
    pages_->unmap(data_, counted_);
    ledger_->count_pages_of(pages_.get(), -counted_);
  }
  ledger_->give_back(tag_, counted_);
  leak();
}

void HostBlock::leak() noexcept {
  ledger_.reset();
  pages_.reset();
  data_ = nullptr;
  bytes_ = counted_ = 0;
}

HostPool::HostPool(std::int64_t budget_bytes, std::shared_ptr<PageSource> pages)
    : ledger_(std::make_shared<HostLedger>(budget_bytes, std::move(pages))) {}

HostBlock HostPool::reserve(const std::string& tag, std::int64_t bytes) {
  check(bytes >= 0, "a size that is not negative");
  HostBlock block;
  block.tag_ = ledger_->take(tag, bytes);
  block.ledger_ = ledger_;
  block.bytes_ = block.counted_ = bytes;
  return block;
}

HostBlock HostPool::allocate(const std::string& tag, std::int64_t bytes,
                             const std::shared_ptr<PageSource>& pages) {
  HostBlock block = reserve(tag, round_up(std::max<std::int64_t>(bytes, 0), kPage));
  block.pages_ = pages ? pages : ledger_->pages();
  if (block.counted_ > 0) {
    block.data_ = static_cast<std::byte*>(block.pages_->map(block.counted_));
    ledger_->count_pages_of(block.pages_.get(), block.counted_);
  }
  block.bytes_ = bytes;
  return block;
}

std::int64_t HostPool::used_bytes() const { return ledger_->used(); }
std::int64_t HostPool::other_source_bytes() const { return ledger_->other_source(); }
std::int64_t HostPool::peak_bytes() const { return ledger_->peak(); }

}  // namespace sluice
