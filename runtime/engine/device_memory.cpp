#include "runtime/engine/device_memory.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <string>
#include <variant>

#include "base/bytes.hpp"
#include "base/error.hpp"
#include "parallel/comm/host/host_memory.hpp"
#include "runtime/model/counting_allocator.hpp"
#include "runtime/model/empty_tensor.hpp"

namespace sluice {
namespace {

// The size of a transparent huge page on x86-64, and on arm64 with 4 KiB pages; elsewhere only an
// alignment.
constexpr std::int64_t kHugePage = 2LL << 20;

std::string first_line(const std::string& text) { return text.substr(0, text.find('\n')); }

[[noreturn]] void refuse(std::int64_t bytes, int error) {
  throw IoError(
      "cannot take " + std::to_string(bytes) +
          " bytes for parameters, gradients or states: " + std::strerror(error) +
          "; `sluice plan` says what a rank needs: use more ranks, a higher zero.stage or "
          "a machine with more memory",
      "memory", error);
}

// Takes all pages. Kernels before 5.14 lack the advice, so each page is written instead.
void touch(char* begin, std::int64_t bytes) {
  if (madvise(begin, static_cast<std::size_t>(bytes), MADV_POPULATE_WRITE) == 0) return;
  if (errno != EINVAL) refuse(bytes, errno);
  const std::int64_t page = sysconf(_SC_PAGESIZE);
  for (std::int64_t at = 0; at < bytes; at += page) *static_cast<volatile char*>(begin + at) = 0;
}

// Begins on a huge page. The length is not rounded up, because a small block would take 2 MiB.
class PrivatePages {
 public:
  explicit PrivatePages(std::int64_t bytes) : bytes_(bytes) {
    const std::int64_t whole = bytes + kHugePage;
    void* base = mmap(nullptr, static_cast<std::size_t>(whole), PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (base == MAP_FAILED) refuse(bytes, errno);
    auto* begin = static_cast<char*>(base);
    const auto past = static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(base) %
                                                std::uintptr_t{kHugePage});
    const std::int64_t head = past == 0 ? 0 : kHugePage - past;
    const std::int64_t page = sysconf(_SC_PAGESIZE);
    const std::int64_t used = (bytes + page - 1) / page * page;
    data_ = begin + head;
    if (head > 0) munmap(begin, static_cast<std::size_t>(head));
    if (whole > head + used) {
      munmap(data_ + used, static_cast<std::size_t>(whole - head - used));
    }
    // Kernels without huge pages refuse the advice; small pages serve.
    madvise(data_, static_cast<std::size_t>(bytes), MADV_HUGEPAGE);
  }
  ~PrivatePages() { munmap(data_, static_cast<std::size_t>(bytes_)); }
  PrivatePages(const PrivatePages&) = delete;
  PrivatePages& operator=(const PrivatePages&) = delete;
  [[nodiscard]] char* data() const { return data_; }

 private:
  std::int64_t bytes_;
  char* data_ = nullptr;
};

// Memory owned by a tensor's storage.
struct Pages {
  Pages(std::int64_t size, bool shared) : bytes(size) {
    if (shared) {
      memory.emplace<HostMemory>(bytes);
    } else {
      memory.emplace<PrivatePages>(bytes);
    }
    touch(data(), bytes);
    count_allocation(CountedDevice::kHost, bytes);
  }
  ~Pages() { count_release(CountedDevice::kHost, bytes); }
  [[nodiscard]] char* data() const {
    const auto* const mapped = std::get_if<HostMemory>(&memory);
    return mapped != nullptr ? mapped->data() : std::get<PrivatePages>(memory).data();
  }
  static void release(void* pages) { delete static_cast<Pages*>(pages); }

  std::int64_t bytes;
  std::variant<std::monostate, HostMemory, PrivatePages> memory;
};

at::Tensor tensor_over(Pages* pages, std::int64_t elems, c10::ScalarType type) {
  const c10::Device cpu(c10::DeviceType::CPU);
  c10::DataPtr data(pages->data(), pages, &Pages::release, cpu);
  c10::Storage storage(c10::make_intrusive<c10::StorageImpl>(
      c10::StorageImpl::use_byte_size_t(), static_cast<std::size_t>(pages->bytes), std::move(data),
      /*allocator=*/nullptr, /*resizable=*/false));
  at::Tensor block = at::detail::make_tensor<c10::TensorImpl>(
      std::move(storage), c10::DispatchKeySet(c10::DispatchKey::CPU),
      c10::scalarTypeToTypeMeta(type));
  block.unsafeGetTensorImpl()->set_sizes_contiguous({elems});
  return block;
}

at::Tensor on_card(std::int64_t elems, c10::ScalarType type, at::Device device) {
  try {
    return empty_tensor({elems}, type, device).zero_();
  } catch (const c10::OutOfMemoryError& error) {
    throw BudgetError(device.str() + " has no room for " +
                      format_bytes(elems * static_cast<std::int64_t>(c10::elementSize(type))) +
                      " of parameters, gradients, states or slots; `sluice plan` says what a rank "
                      "needs: use more ranks, a higher zero.stage or offload.optimizer: host. " +
                      first_line(error.what_without_backtrace()));
  }
}

}  // namespace

at::Tensor DeviceMemory::block(std::int64_t elems, c10::ScalarType type, BlockUse use) const {
  if (elems == 0) return empty_tensor({elems}, type, device_);
  if (!device_.is_cpu()) return on_card(elems, type, device_);
  const auto bytes = elems * static_cast<std::int64_t>(c10::elementSize(type));
  const bool shared = peers_map_ && use == BlockUse::kCollective;
  return tensor_over(new Pages(bytes, shared), elems, type);
}

}  // namespace sluice
