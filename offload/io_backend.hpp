// Transfers between memory and files, in flight together: what stands between the store and the
// kernel. Two kinds (io_uring; threads with pread and pwrite) and a decorator that injects faults.
//
// One thread calls everything but wake(), which any thread may call.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace sluice {

struct IoTransfer {
  std::uint64_t tag = 0;  // comes back in the completion
  bool write = false;
  // Moves nothing: what the file has of completed writes survives a loss of power (fdatasync).
  bool sync = false;
  int file = 0;  // index into the descriptors given to use_files
  std::int64_t offset = 0, bytes = 0;
  void* memory = nullptr;
};

struct IoCompletion {
  std::uint64_t tag = 0;
  std::int64_t result = 0;  // bytes moved, may be fewer than asked; or -errno
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
  // Memory that transfers will lie in, for kinds that can pin it once. Refusal is only logged.
  virtual void use_memory(std::span<const IoMemory> ranges) = 0;
  // Takes a transfer; it may start at once or at flush(). At most `depth` are ever out.
  virtual void submit(const IoTransfer& transfer) = 0;
  virtual void flush() = 0;
  // Appends completions; returns when there is one, after wake(), or after timeout_ms (-1: never).
  // Does not block with timeout_ms 0.
  virtual void wait(std::vector<IoCompletion>& completions, std::int64_t timeout_ms) = 0;
  virtual void wake() noexcept = 0;
};

// Throws IoError where the kernel, a container's seccomp profile or the build has no io_uring.
[[nodiscard]] std::unique_ptr<IoBackend> make_uring_backend(int depth);
[[nodiscard]] std::unique_ptr<IoBackend> make_thread_backend(int depth);

// Failpoints (base/failpoint.hpp), each passed once for each transfer:
//   nvme.read  nvme.write                  error: EIO;  nan: one bit is flipped;  delay=MS: slow
//   nvme.read.short  nvme.write.short      error: half of it moves (a single sector: 512 bytes)
//   nvme.read.again  nvme.write.again      error: EAGAIN;   ...intr: EINTR
//   nvme.write.enospc                      error: ENOSPC
//   nvme.read.lost   nvme.write.lost       error: no completion ever
//   nvme.sync                              error: EIO;  delay=MS;  also .again, .intr, .lost
[[nodiscard]] std::unique_ptr<IoBackend> make_faulty_backend(std::unique_ptr<IoBackend> inner);

// 0, or `error_number` where the failpoint `name` is armed with `error`.
[[nodiscard]] int injected_errno(const char* name, int error_number);

}  // namespace sluice
