#include <cerrno>
#include <cstddef>
#include <cstring>
#include <new>
#include <unordered_map>
#include <utility>

#include "base/error.hpp"
#include "base/failpoint.hpp"
#include "offload/io_backend.hpp"

namespace sluice {
namespace {

// Failpoint names of one direction. Literals, so that evaluating a failpoint allocates nothing.
struct Names {
  const char *plain, *shorter, *again, *intr, *lost;
};
constexpr Names kRead{"nvme.read", "nvme.read.short", "nvme.read.again", "nvme.read.intr",
                      "nvme.read.lost"};
constexpr Names kWrite{"nvme.write", "nvme.write.short", "nvme.write.again", "nvme.write.intr",
                       "nvme.write.lost"};
constexpr Names kSync{"nvme.sync", "nvme.sync.short", "nvme.sync.again", "nvme.sync.intr",
                      "nvme.sync.lost"};

// Flips a bit of the first byte. The last bytes may be padding, which has no checksum.
void flip_bit(void* memory) { *static_cast<unsigned char*>(memory) ^= 0x10U; }

class FaultyBackend final : public IoBackend {
 public:
  explicit FaultyBackend(std::unique_ptr<IoBackend> inner) : inner_(std::move(inner)) {}

  [[nodiscard]] std::string name() const override { return inner_->name(); }
  void use_files(std::span<const int> descriptors) override { inner_->use_files(descriptors); }
  void use_memory(std::span<const IoMemory> ranges) override { inner_->use_memory(ranges); }
  void flush() override { inner_->flush(); }
  void wake() noexcept override { inner_->wake(); }

  void submit(const IoTransfer& transfer) override {
    const Names& names = transfer.sync ? kSync : transfer.write ? kWrite : kRead;
    if (const int error = error_of(transfer, names)) {
      ready_.push_back({transfer.tag, -error});
      return;
    }
    if (injected_errno(names.lost, 1) != 0) return;
    IoTransfer passed = transfer;
    if (!transfer.sync && injected_errno(names.shorter, 1) != 0) {
      passed.bytes = transfer.bytes > 4096 ? transfer.bytes / 2 / 4096 * 4096 : 512;
    }
    bool flip = false;
    try {
      flip = failpoint(names.plain) == FailpointOutcome::kPoison;
    } catch (const Error&) {
      ready_.push_back({transfer.tag, -EIO});
      return;
    }
    if (flip && !transfer.sync) spoil(passed);
    inner_->submit(passed);
  }

  void wait(std::vector<IoCompletion>& completions, std::int64_t timeout_ms) override {
    const std::size_t first = completions.size();
    inner_->wait(completions, ready_.empty() ? timeout_ms : 0);
    for (std::size_t i = first; i < completions.size(); ++i) {
      const auto hit = spoilt_.find(completions[i].tag);
      if (hit == spoilt_.end()) continue;
      const IoTransfer& transfer = hit->second.transfer;
      if (!transfer.write) flip_bit(transfer.memory);
      spoilt_.erase(hit);
    }
    completions.insert(completions.end(), ready_.begin(), ready_.end());
    ready_.clear();
  }

 private:
  static int error_of(const IoTransfer& transfer, const Names& names) {
    if (const int error = injected_errno(names.again, EAGAIN)) return error;
    if (const int error = injected_errno(names.intr, EINTR)) return error;
    return transfer.write && !transfer.sync ? injected_errno("nvme.write.enospc", ENOSPC) : 0;
  }

  // A read is spoilt after its completion. A write sends a spoilt copy, so the caller's memory does
  // not change.
  void spoil(IoTransfer& transfer) {
    Spoilt entry;
    if (transfer.write) {
      const auto bytes = static_cast<std::size_t>(transfer.bytes);
      entry.copy.reset(::operator new (bytes, std::align_val_t{4096}));
      std::memcpy(entry.copy.get(), transfer.memory, bytes);
      flip_bit(entry.copy.get());
      transfer.memory = entry.copy.get();
    }
    entry.transfer = transfer;
    spoilt_.emplace(transfer.tag, std::move(entry));
  }

  struct Free {
    void operator()(void* memory) const { ::operator delete (memory, std::align_val_t{4096}); }
  };
  struct Spoilt {
    IoTransfer transfer;
    std::unique_ptr<void, Free> copy;
  };

  std::unique_ptr<IoBackend> inner_;
  std::vector<IoCompletion> ready_;
  std::unordered_map<std::uint64_t, Spoilt> spoilt_;
};

}  // namespace

std::unique_ptr<IoBackend> make_faulty_backend(std::unique_ptr<IoBackend> inner) {
  return std::make_unique<FaultyBackend>(std::move(inner));
}

int injected_errno(const char* name, int error_number) {
  try {
    failpoint(name);
    return 0;
  } catch (const Error&) {
    return error_number;
  }
}

}  // namespace sluice
