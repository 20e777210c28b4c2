#include <liburing.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/bytes.hpp"
#include "base/error.hpp"
#include "base/log.hpp"
#include "base/posix/descriptor.hpp"
#include "offload/io_backend.hpp"

namespace sluice {
namespace {

constexpr std::uint64_t kWakeTag = ~std::uint64_t{1};  // liburing reserves ~0
// One registration takes at most 1024 ranges (UIO_MAXIOV) of at most 1 GiB each.
constexpr std::int64_t kLargestRange = kGiB;
constexpr std::size_t kMostRanges = 1024;

std::string refused(int error) {
  return "io_uring is refused by the kernel (" + std::string(std::strerror(error)) +
         "): see the container's seccomp profile and sysctl kernel.io_uring_disabled";
}

class UringBackend final : public IoBackend {
 public:
  explicit UringBackend(int depth) {
    // One entry more than transfers, for the read of the wake-up counter.
    const auto entries = static_cast<unsigned>(depth) + 1;
    int error = io_uring_queue_init(entries, &ring_, IORING_SETUP_COOP_TASKRUN);
    if (error == -EINVAL) error = io_uring_queue_init(entries, &ring_, 0);  // before Linux 5.19
    if (error < 0) throw IoError(refused(-error), "io_uring", -error);
    wake_fd_ = Descriptor(::eventfd(0, EFD_CLOEXEC));
    if (!wake_fd_) {
      io_uring_queue_exit(&ring_);
      throw IoError("eventfd: " + std::string(std::strerror(errno)), "eventfd", errno);
    }
    arm_wake();
  }
  ~UringBackend() override {
    // The kernel destroys a ring some time after io_uring_queue_exit(). Until then registered files
    // stay open, so the space of removed files is not free, and registered memory counts against
    // the memlock limit. Both are therefore unregistered first, but only without transfers in
    // flight: older kernels wait for them, which never ends if the device does not answer.
    if (out_ == 0) {
      if (fixed_files_) io_uring_unregister_files(&ring_);
      if (!memory_.empty()) io_uring_unregister_buffers(&ring_);
    }
    io_uring_queue_exit(&ring_);
  }
  UringBackend(const UringBackend&) = delete;
  UringBackend& operator=(const UringBackend&) = delete;

  [[nodiscard]] std::string name() const override { return "io_uring"; }

  void use_files(std::span<const int> descriptors) override {
    files_.assign(descriptors.begin(), descriptors.end());
    const int error =
        io_uring_register_files(&ring_, files_.data(), static_cast<unsigned>(files_.size()));
    fixed_files_ = error == 0;
    if (error < 0) log_info("io_uring: files are not registered: " + std::string(strerror(-error)));
  }

  void use_memory(std::span<const IoMemory> ranges) override {
    for (const IoMemory& range : ranges) {
      for (std::int64_t done = 0; done < range.bytes; done += kLargestRange) {
        const std::int64_t bytes = std::min(kLargestRange, range.bytes - done);
        memory_.push_back(
            {static_cast<std::byte*>(range.begin) + done, static_cast<std::size_t>(bytes)});
      }
    }
    if (memory_.size() > kMostRanges) memory_.resize(kMostRanges);
    if (memory_.empty()) return;
    const int error =
        io_uring_register_buffers(&ring_, memory_.data(), static_cast<unsigned>(memory_.size()));
    if (error == 0) return;
    memory_.clear();
    log_warning("io_uring: buffers are not registered (" + std::string(strerror(-error)) +
                "), each transfer pins its pages itself; raise the memlock limit (ulimit -l)");
  }

  void submit(const IoTransfer& transfer) override {
    io_uring_sqe* entry = io_uring_get_sqe(&ring_);
    if (entry == nullptr) {  // the ring is full of entries that the kernel has not taken yet
      flush();
      entry = io_uring_get_sqe(&ring_);
    }
    check(entry != nullptr, "no more transfers than the ring has entries");
    prepare(entry, transfer);
    io_uring_sqe_set_data64(entry, transfer.tag);
    ++out_;
  }

  void flush() override {
    const int taken = io_uring_submit(&ring_);
    // After EAGAIN, EINTR and EBUSY the entries stay in the ring; wait() submits them.
    if (taken < 0 && taken != -EAGAIN && taken != -EINTR && taken != -EBUSY) fail("submit", -taken);
  }

  void wait(std::vector<IoCompletion>& completions, std::int64_t timeout_ms) override {
    __kernel_timespec limit{timeout_ms / 1000, timeout_ms % 1000 * 1'000'000};
    io_uring_cqe* first = nullptr;
    const int got = io_uring_submit_and_wait_timeout(&ring_, &first, timeout_ms == 0 ? 0 : 1,
                                                     timeout_ms < 0 ? nullptr : &limit, nullptr);
    if (got < 0 && got != -ETIME && got != -EINTR && got != -EAGAIN && got != -EBUSY) {
      fail("wait", -got);
    }
    unsigned head = 0, seen = 0;
    io_uring_cqe* entry = nullptr;
    bool woken = false;
    io_uring_for_each_cqe(&ring_, head, entry) {
      ++seen;
      if (entry->user_data == kWakeTag) {
        woken = true;
      } else if (entry->user_data != LIBURING_UDATA_TIMEOUT) {
        completions.push_back({entry->user_data, entry->res});
        --out_;
      }
    }
    io_uring_cq_advance(&ring_, seen);
    if (woken) arm_wake();
  }

  void wake() noexcept override {
    const std::uint64_t one = 1;
    // The write fails only if the counter is full; the thread then wakes anyway.
    [[maybe_unused]] const auto written = ::write(wake_fd_.get(), &one, sizeof(one));
  }

 private:
  [[noreturn]] static void fail(const char* what, int error) {
    throw IoError("io_uring " + std::string(what) + ": " + std::strerror(error), "io_uring", error);
  }

  void arm_wake() {
    io_uring_sqe* entry = io_uring_get_sqe(&ring_);
    if (entry == nullptr) {
      flush();
      entry = io_uring_get_sqe(&ring_);
    }
    check(entry != nullptr, "an entry of the ring for the wake-up");
    io_uring_prep_read(entry, wake_fd_.get(), &wake_count_, sizeof(wake_count_), 0);
    io_uring_sqe_set_data64(entry, kWakeTag);
  }

  // Index of the registered range that contains the whole transfer, or -1.
  [[nodiscard]] int range_of(const IoTransfer& transfer) const {
    const auto* begin = static_cast<const std::byte*>(transfer.memory);
    for (std::size_t i = 0; i < memory_.size(); ++i) {
      const auto* range = static_cast<const std::byte*>(memory_[i].iov_base);
      if (begin >= range && begin + transfer.bytes <= range + memory_[i].iov_len) {
        return static_cast<int>(i);
      }
    }
    return -1;
  }

  void prepare(io_uring_sqe* entry, const IoTransfer& transfer) const {
    const auto index = static_cast<std::size_t>(transfer.file);
    const int file = fixed_files_ ? transfer.file : files_.at(index);
    const auto bytes = static_cast<unsigned>(transfer.bytes);
    const auto offset = static_cast<std::uint64_t>(transfer.offset);
    const int range = transfer.sync ? -1 : range_of(transfer);
    if (transfer.sync) {
      io_uring_prep_fsync(entry, file, IORING_FSYNC_DATASYNC);
    } else if (range >= 0 && transfer.write) {
      io_uring_prep_write_fixed(entry, file, transfer.memory, bytes, offset, range);
    } else if (range >= 0) {
      io_uring_prep_read_fixed(entry, file, transfer.memory, bytes, offset, range);
    } else if (transfer.write) {
      io_uring_prep_write(entry, file, transfer.memory, bytes, offset);
    } else {
      io_uring_prep_read(entry, file, transfer.memory, bytes, offset);
    }
    if (fixed_files_) io_uring_sqe_set_flags(entry, IOSQE_FIXED_FILE);
  }

  io_uring ring_{};
  Descriptor wake_fd_;
  std::uint64_t wake_count_ = 0;  // destination of the kernel's read of wake_fd_
  std::vector<int> files_;
  bool fixed_files_ = false;
  int out_ = 0;  // transfers without a completion
  std::vector<iovec> memory_;
};

}  // namespace

std::unique_ptr<IoBackend> make_uring_backend(int depth) {
  if (const int error = injected_errno("nvme.uring_setup", EPERM)) {
    throw IoError(refused(error), "io_uring", error);
  }
  return std::make_unique<UringBackend>(depth);
}

}  // namespace sluice
