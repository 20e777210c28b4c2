// Asynchronous transfers between memory and files: the interface between the store and the kernel.
// Implementations: io_uring, threads with pread and pwrite, and a decorator that injects faults.
//
// One thread calls all functions but wake(). Any thread may call wake().
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace sluice {

struct IoTransfer {
  std::uint64_t tag = 0;  // returned in the completion
  bool write = false;
  // Moves no bytes: makes the completed writes of the file survive a loss of power (fdatasync).
  bool sync = false;
  int file = 0;  // index into the descriptors given to use_files
  std::int64_t offset = 0, bytes = 0;
  void* memory = nullptr;
};

struct IoCompletion {
  std::uint64_t tag = 0;
  std::int64_t result = 0;  // bytes moved, possibly fewer than requested; or -errno
};

struct IoMemory {
  void* begin = nullptr;
  std::int64_t bytes = 0;
};

class IoBackend {
 public:
  virtual ~IoBackend() = default;
  [[nodiscard]] virtual std::string name() const = 0;
  virtual void use_files(std::span<const int> descriptors) = 0;
  // Memory of later transfers. A backend may pin it once; if the kernel refuses, the log says so.
  virtual void use_memory(std::span<const IoMemory> ranges) = 0;
  // Accepts a transfer. The transfer starts now or at flush(). REQUIRES: at most `depth` in flight.
  virtual void submit(const IoTransfer& transfer) = 0;
  virtual void flush() = 0;
  // Appends completions. Returns on a completion, on wake(), or after timeout_ms. timeout_ms 0:
  // does not block; -1: no timeout.
  virtual void wait(std::vector<IoCompletion>& completions, std::int64_t timeout_ms) = 0;
  virtual void wake() noexcept = 0;
};

// Throws IoError if the kernel, a container's seccomp profile or the build offers no io_uring.
[[nodiscard]] std::unique_ptr<IoBackend> make_uring_backend(int depth);
// If the system refuses a thread, the backend works with the threads that it has, and the log says
// so. Throws if it has none. Failpoint: nvme.thread, before each thread.
[[nodiscard]] std::unique_ptr<IoBackend> make_thread_backend(int depth);

// Failpoints (base/failpoint.hpp), each evaluated once per transfer:
// clang-format off
//   nvme.read  nvme.write                  error: EIO;  nan: one bit is flipped;  delay=MS: slow
//   nvme.read.short  nvme.write.short      error: half of the bytes move (of one sector: 512 bytes)
//   nvme.read.again  nvme.write.again      error: EAGAIN;   ...intr: EINTR
//   nvme.write.enospc                      error: ENOSPC
//   nvme.read.lost   nvme.write.lost       error: no completion ever
//   nvme.sync                              error: EIO;  delay=MS;  also .again, .intr, .lost
// clang-format on
[[nodiscard]] std::unique_ptr<IoBackend> make_faulty_backend(std::unique_ptr<IoBackend> inner);

// Returns `error_number` if the failpoint `name` fires with `error`, else 0.
[[nodiscard]] int injected_errno(const char* name, int error_number);

}  // namespace sluice
