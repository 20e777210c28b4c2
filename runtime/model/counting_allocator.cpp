#include "runtime/model/counting_allocator.hpp"

#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>
#include <malloc.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <new>

#include "runtime/model/gpu_path.hpp"

// MKL's, inside libtorch; null in a libtorch without MKL.
extern "C" [[gnu::weak]] int mkl_serv_disable_fast_mm();

namespace sluice {
namespace {

class Counter {
 public:
  void add(std::int64_t bytes) {
    const std::int64_t live = live_.fetch_add(bytes) + bytes;
    std::int64_t peak = peak_.load();
    while (live > peak && !peak_.compare_exchange_weak(peak, live)) {
    }
  }
  void remove(std::int64_t bytes) { live_.fetch_sub(bytes); }
  [[nodiscard]] AllocationCount read() const { return {live_.load(), peak_.load()}; }
  void reset_peak() { peak_.store(live_.load()); }

 private:
  std::atomic<std::int64_t> live_{0};
  std::atomic<std::int64_t> peak_{0};
};

// A thread that profiles a unit counts its own meta tensors: other ranks may be threads of this
// process, and make theirs at the same time.
Counter& counter(CountedDevice device) {
  static Counter host;
  thread_local Counter meta, meta_small;
  if (device == CountedDevice::kHost) return host;
  return device == CountedDevice::kMeta ? meta : meta_small;
}

constexpr std::size_t kCacheLine = 64;

// Lies just before the memory, so that the pointer itself is the context and raw allocations
// (c10's raw_allocate) work.
struct Header {
  void* block;
  std::size_t bytes;
};
static_assert(sizeof(Header) <= alignof(std::max_align_t), "any block has room for it");

// Aligns memory from malloc to a cache line. The C library's aligned_alloc asks its heap for more
// than it keeps, finds no hole of that size among freed memory of the same size, and lets the heap
// grow in every step.
class CountingHostAllocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(std::size_t bytes) override {
    if (bytes == 0) return {nullptr, nullptr, &release, c10::Device(c10::DeviceType::CPU)};
    const std::size_t lines = (bytes + kCacheLine - 1) / kCacheLine;
    void* block = std::malloc((lines + 1) * kCacheLine);
    if (block == nullptr) throw std::bad_alloc();
    const auto address = reinterpret_cast<std::uintptr_t>(block);
    const std::uintptr_t next_line = (address / kCacheLine + 1) * kCacheLine;
    char* data = static_cast<char*>(block) + (next_line - address);
    const Header header{block, bytes};
    std::memcpy(data - sizeof header, &header, sizeof header);
    counter(CountedDevice::kHost).add(static_cast<std::int64_t>(bytes));
    return {data, data, &release, c10::Device(c10::DeviceType::CPU)};
  }
  [[nodiscard]] c10::DeleterFnPtr raw_deleter() const override { return &release; }
  void copy_data(void* to, const void* from, std::size_t bytes) const override {
    std::memcpy(to, from, bytes);
  }

 private:
  static void release(void* data) {
    if (data == nullptr) return;
    Header header{};
    std::memcpy(&header, static_cast<char*>(data) - sizeof header, sizeof header);
    counter(CountedDevice::kHost).remove(static_cast<std::int64_t>(header.bytes));
    std::free(header.block);
  }
};

class CountingMetaAllocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(std::size_t asked) override {
    const auto bytes = static_cast<std::int64_t>(asked);
    const bool gpu = meta_stands_for_gpu();
    const std::int64_t taken = gpu ? cuda_block_bytes(bytes) : bytes;
    const std::int64_t small = gpu && taken <= kSmallCudaBlock ? taken : 0;
    counter(CountedDevice::kMeta).add(taken);
    counter(CountedDevice::kMetaSmall).add(small);
    return {nullptr, new Taken{taken, small}, &release, c10::Device(c10::DeviceType::Meta)};
  }
  void copy_data(void* /*to*/, const void* /*from*/, std::size_t /*bytes*/) const override {}

 private:
  struct Taken {
    std::int64_t bytes, small;
  };
  static void release(void* context) {
    const auto* taken = static_cast<Taken*>(context);
    counter(CountedDevice::kMeta).remove(taken->bytes);
    counter(CountedDevice::kMetaSmall).remove(taken->small);
    delete taken;
  }
};

// Activations come and go with every step. The C library would map the large ones anew each time
// and give the top of its heap back: the kernel then finds and clears their pages in every step.
// So all memory comes from the heap, and freed memory stays for the next step.
void keep_freed_memory() {
  constexpr int kNever = -1;
  mallopt(M_MMAP_MAX, 0);
  mallopt(M_TRIM_THRESHOLD, kNever);
}

// MKL packs the matrices of a product into buffers and keeps them, several of up to 5 MiB for each
// thread, which are in no plan. Without its own cache it takes each buffer from the heap, whose
// freed memory the next operation uses.
void free_packing_buffers() {
  if (mkl_serv_disable_fast_mm != nullptr) mkl_serv_disable_fast_mm();
}

}  // namespace

void install_counting_allocators() {
  static std::once_flag once;
  std::call_once(once, [] {
    keep_freed_memory();
    free_packing_buffers();
    static CountingHostAllocator host;
    static CountingMetaAllocator meta;
    constexpr std::uint8_t kAboveDefault = 100;
    c10::SetAllocator(c10::DeviceType::CPU, &host, kAboveDefault);
    c10::SetAllocator(c10::DeviceType::Meta, &meta, kAboveDefault);
  });
}

void return_freed_memory() { malloc_trim(0); }

AllocationCount allocation_count(CountedDevice device) { return counter(device).read(); }

void count_allocation(CountedDevice device, std::int64_t bytes) { counter(device).add(bytes); }

void count_release(CountedDevice device, std::int64_t bytes) noexcept {
  counter(device).remove(bytes);
}

void reset_allocation_peak(CountedDevice device) { counter(device).reset_peak(); }

}  // namespace sluice
