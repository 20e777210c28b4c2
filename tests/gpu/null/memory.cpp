#include "tests/gpu/null/memory.hpp"

#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <map>
#include <mutex>

#include "tests/gpu/null/queue.hpp"
#include "tests/gpu/null/record.hpp"

namespace null_gpu {
namespace {

using Address = std::uintptr_t;

constexpr std::size_t kPage = std::size_t{2} << 20;      // the granularity of cudaMalloc
constexpr std::uint64_t kCardBytes = 85'017'493'504ULL;  // an H100 of 80 GB

struct DeviceBlock {
  std::size_t bytes = 0;
  int device = 0;
  void* bytes_behind = nullptr;
};

struct Memory {
  std::mutex mutex;
  std::map<Address, DeviceBlock> device;
  std::map<Address, std::size_t> pinned;
  std::map<int, std::size_t> used;
  std::size_t pinned_bytes = 0;
};

Memory& memory() {
  static auto* const all = new Memory;
  return *all;
}

Address address_of(const void* pointer) { return reinterpret_cast<Address>(pointer); }

// The block that holds the address, or end().
template <typename Blocks>
auto block_before(Blocks& blocks, const void* pointer) {
  auto block = blocks.upper_bound(address_of(pointer));
  return block == blocks.begin() ? blocks.end() : --block;
}

const std::pair<const Address, DeviceBlock>* device_block(const void* pointer) {
  const auto block = block_before(memory().device, pointer);
  if (block == memory().device.end()) return nullptr;
  return address_of(pointer) < block->first + block->second.bytes ? &*block : nullptr;
}

struct sigaction before_us;

// Async-signal-safe but for the lookup, which reads the maps without their lock: the process ends
// here in any case.
void report_access(int signal, siginfo_t* info, void*) {
  if (device_block(info->si_addr) != nullptr) {
    constexpr char kText[] =
        "null GPU: the host reads or writes device memory; only copies and kernels may\n";
    (void)!::write(STDERR_FILENO, kText, sizeof kText - 1);
  }
  ::sigaction(signal, &before_us, nullptr);  // the access repeats, and meets the handler before us
}

void watch_accesses() {
  static std::once_flag once;
  std::call_once(once, [] {
    struct sigaction ours {};
    ours.sa_sigaction = report_access;
    ours.sa_flags = SA_SIGINFO;
    ::sigaction(SIGSEGV, &ours, &before_us);
  });
}

// Two mappings of the same new pages; null if the system has none.
bool map_twice(std::size_t bytes, void** address, void** behind) {
  const int file = ::memfd_create("null-gpu", MFD_CLOEXEC);
  if (file < 0) return false;
  bool mapped = ::ftruncate(file, static_cast<off_t>(bytes)) == 0;
  if (mapped) {
    const int access = computes() ? PROT_READ | PROT_WRITE : PROT_NONE;
    *address = ::mmap(nullptr, bytes, access, MAP_SHARED | MAP_NORESERVE, file, 0);
    *behind = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, file, 0);
    mapped = *address != MAP_FAILED && *behind != MAP_FAILED;
  }
  ::close(file);
  return mapped;
}

}  // namespace

void* take_device(int device, std::size_t bytes) {
  watch_accesses();
  const std::size_t rounded = std::max((bytes + kPage - 1) / kPage * kPage, kPage);
  Memory& all = memory();
  const std::lock_guard lock(all.mutex);
  std::size_t& used = all.used[device];
  if (used + rounded > device_bytes_total()) return nullptr;
  void *address = nullptr, *behind = nullptr;
  if (!map_twice(rounded, &address, &behind)) return nullptr;
  if (computes()) std::memset(behind, kPoison, rounded);
  all.device[address_of(address)] = {rounded, device, behind};
  used += rounded;
  note_device_bytes(used);
  return address;
}

bool give_device(void* address) {
  Memory& all = memory();
  const std::lock_guard lock(all.mutex);
  const auto block = all.device.find(address_of(address));
  if (block == all.device.end()) return false;
  ::munmap(address, block->second.bytes);
  ::munmap(block->second.bytes_behind, block->second.bytes);
  all.used[block->second.device] -= block->second.bytes;
  all.device.erase(block);
  return true;
}

void note_pinned(const void* address, std::size_t bytes) {
  Memory& all = memory();
  const std::lock_guard lock(all.mutex);
  all.pinned[address_of(address)] = bytes;
  all.pinned_bytes += bytes;
  note_pinned_bytes(all.pinned_bytes);
}

std::size_t forget_pinned(const void* address) {
  Memory& all = memory();
  const std::lock_guard lock(all.mutex);
  const auto block = all.pinned.find(address_of(address));
  if (block == all.pinned.end()) return 0;
  const std::size_t bytes = block->second;
  all.pinned_bytes -= bytes;
  all.pinned.erase(block);
  return bytes;
}

Place place_of(const void* address, int* device) {
  Memory& all = memory();
  const std::lock_guard lock(all.mutex);
  if (const auto* block = device_block(address)) {
    if (device != nullptr) *device = block->second.device;
    return Place::kDevice;
  }
  const auto pinned = block_before(all.pinned, address);
  const bool inside =
      pinned != all.pinned.end() && address_of(address) < pinned->first + pinned->second;
  return inside ? Place::kPinned : Place::kPageable;
}

bool is_device_range(const void* address, std::size_t bytes) {
  const std::lock_guard lock(memory().mutex);
  const auto* block = device_block(address);
  return block != nullptr && address_of(address) + bytes <= block->first + block->second.bytes;
}

bool is_host_range(const void* address, std::size_t bytes) {
  Memory& all = memory();
  const std::lock_guard lock(all.mutex);
  const Address end = address_of(address) + bytes;
  const auto next = all.pinned.upper_bound(address_of(address));
  if (const auto at = block_before(all.pinned, address);
      at != all.pinned.end() && address_of(address) < at->first + at->second) {
    return end <= at->first + at->second;
  }
  return next == all.pinned.end() || end <= next->first;
}

void* bytes_behind(const void* address) {
  const std::lock_guard lock(memory().mutex);
  const auto* block = device_block(address);
  return static_cast<char*>(block->second.bytes_behind) + (address_of(address) - block->first);
}

std::size_t device_bytes_total() { return setting("NULL_GPU_BYTES", kCardBytes); }

std::size_t device_bytes_free(int device) {
  const std::lock_guard lock(memory().mutex);
  return device_bytes_total() - memory().used[device];
}

int device_count() { return static_cast<int>(setting("NULL_GPU_COUNT", 1)); }

int driver_version() { return static_cast<int>(setting("NULL_GPU_DRIVER", 13000)); }

int capability() { return static_cast<int>(setting("NULL_GPU_CAPABILITY", 90)); }
int multiprocessors() { return static_cast<int>(setting("NULL_GPU_MULTIPROCESSORS", 132)); }

}  // namespace null_gpu
