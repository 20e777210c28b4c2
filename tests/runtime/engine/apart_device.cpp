#include "tests/runtime/engine/apart_device.hpp"

#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <exception>
#include <functional>
#include <utility>

#include "base/error.hpp"
#include "kernels/cpu/cast.hpp"

namespace sluice::testing {
namespace {

// No process has memory there, on x86-64 (not canonical, or beyond what the kernel gives out) nor
// on arm64 (the kernel's half).
constexpr std::uintptr_t kApart = std::uintptr_t{1} << 55;

bool is_apart(std::uintptr_t address) { return (address & kApart) != 0; }

struct Reached {
  std::mutex mutex;
  std::condition_variable changed;
  bool yes = false;

  void set() {
    const std::lock_guard lock(mutex);
    yes = true;
    changed.notify_all();
  }
  void wait() {
    std::unique_lock lock(mutex);
    changed.wait(lock, [this] { return yes; });
  }
};

// The same delays in every run.
void dawdle(std::int64_t number) {
  if (number % 3 == 0) std::this_thread::sleep_for(std::chrono::microseconds(40 * (number % 5)));
}

}  // namespace

// Work in the order given, on a thread of its own. Its first error is every waiter's.
class ApartDevice::Stream {
 public:
  Stream() : thread_([this] { loop(); }) {}
  ~Stream() {
    {
      const std::lock_guard lock(mutex_);
      if (copies_ > 0) {
        std::fputs("the device was ended while copies were under way\n", stderr);
        std::abort();
      }
      stopping_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }

  void add(std::function<void()> work, bool copies = false) {
    {
      const std::lock_guard lock(mutex_);
      queue_.emplace_back(std::move(work), copies);
      ++added_;
      copies_ += copies ? 1 : 0;
    }
    changed_.notify_all();
  }
  [[nodiscard]] std::int64_t added() {
    const std::lock_guard lock(mutex_);
    return added_;
  }
  [[nodiscard]] bool done(std::int64_t count) {
    const std::lock_guard lock(mutex_);
    return done_ >= count;
  }
  void wait(std::int64_t count) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return done_ >= count; });
    if (error_) std::rethrow_exception(error_);
  }

 private:
  void loop() {
    std::unique_lock lock(mutex_);
    while (true) {
      changed_.wait(lock, [this] { return stopping_ || !queue_.empty(); });
      if (queue_.empty()) return;
      const auto [work, copies] = std::move(queue_.front());
      queue_.pop_front();
      const bool works = !error_;
      lock.unlock();
      std::exception_ptr error;
      try {
        if (works) work();
      } catch (...) {
        error = std::current_exception();
      }
      lock.lock();
      if (error) error_ = error;
      ++done_;
      copies_ -= copies ? 1 : 0;
      changed_.notify_all();
    }
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::pair<std::function<void()>, bool>> queue_;
  std::int64_t added_ = 0, done_ = 0, copies_ = 0;
  std::exception_ptr error_;
  bool stopping_ = false;
  std::thread thread_;  // last: it uses the others
};

ApartDevice::ApartDevice(const ApartFaults& faults)
    : faults_(faults), compute_(std::make_unique<Stream>()) {}

ApartDevice::~ApartDevice() { compute_->wait(compute_->added()); }

DevicePtr ApartDevice::address(void* memory) const {
  return DevicePtr(reinterpret_cast<std::uintptr_t>(memory) | kApart);
}

void ApartDevice::begin_thread() {
  const std::lock_guard lock(mutex_);
  lanes_[std::this_thread::get_id()].stream = std::make_unique<Stream>();
}

ApartDevice::Lane* ApartDevice::lane() {
  const std::lock_guard lock(mutex_);
  const auto found = lanes_.find(std::this_thread::get_id());
  return found == lanes_.end() ? nullptr : &found->second;
}

DeviceCopies::Mark ApartDevice::mark() {
  if (lane() != nullptr) throw Error("a mark is set on the thread that issues compute");
  auto reached = std::make_shared<Reached>();
  const std::int64_t number = marks_++;
  compute_->add([reached, number] {
    dawdle(number + 1);
    reached->set();
  });
  return reached;
}

void ApartDevice::after(const Mark& mark) {
  Lane* const here = lane();
  if (!mark || here == nullptr) return;
  here->marked = true;
  here->stream->add([mark] { std::static_pointer_cast<Reached>(mark)->wait(); });
}

void ApartDevice::to_host(void* to, DevicePtr from, std::int64_t bytes) {
  if (!is_apart(from.address())) throw Error("what is copied to the host is on the host");
  copy(to, reinterpret_cast<const void*>(from.address() & ~kApart), bytes, true);
}

// In ascending order no value is overwritten before it is rounded.
void ApartDevice::to_host_bf16(void* to, DevicePtr from, std::int64_t elems) {
  Lane* const here = lane();
  if (here == nullptr) throw Error("a copy on a thread that has not begun");
  if (!is_apart(from.address())) throw Error("what is rounded on the device is on the host");
  auto* const values = reinterpret_cast<std::byte*>(from.address() & ~kApart);
  here->stream->add([values, elems] {
    for (std::int64_t i = 0; i < elems; ++i) {
      float value = 0;
      std::memcpy(&value, values + 4 * i, sizeof value);
      const std::uint16_t bits = bf16_bits(value);
      std::memcpy(values + 2 * i, &bits, sizeof bits);
    }
  });
  to_host(to, from, 2 * elems);
}

void ApartDevice::to_device(DevicePtr to, const void* from, std::int64_t bytes) {
  if (!is_apart(to.address())) throw Error("what is copied to the device goes to the host");
  copy(reinterpret_cast<void*>(to.address() & ~kApart), from, bytes, false);
}

void ApartDevice::copy(void* to, const void* from, std::int64_t bytes, bool to_host) {
  Lane* const here = lane();
  if (here == nullptr) throw Error("a copy on a thread that has not begun");
  if (!here->marked) throw Error("a copy that no mark was waited for");
  if (is_apart(reinterpret_cast<std::uintptr_t>(to_host ? to : from))) {
    throw Error("what is the host's in a copy is on the device");
  }
  const std::int64_t number = copies_++;
  if (number == faults_.refuse) {
    throw Error("copying " + std::to_string(bytes) + " bytes: refused");
  }
  here->stream->add([=, this] { move(to, from, bytes, to_host, number); }, /*copies=*/true);
}

void ApartDevice::move(void* to, const void* from, std::int64_t bytes, bool to_host,
                       std::int64_t number) {
  ++moving_[to_host ? 0 : 1];
  if (moving_[to_host ? 1 : 0] > 0) both_ways_ = true;
  dawdle(number);
  if (faults_.slow) std::this_thread::sleep_for(std::chrono::milliseconds(20));
  if (moving_[to_host ? 1 : 0] > 0) both_ways_ = true;
  if (number == faults_.fail) {
    lost_ = true;
    --moving_[to_host ? 0 : 1];
    throw Error("copying " + std::to_string(bytes) + " bytes: failed under way");
  }
  std::memcpy(to, from, static_cast<std::size_t>(bytes));
  --moving_[to_host ? 0 : 1];
}

Ticket ApartDevice::begun() {
  class Begun final : public TicketState {
   public:
    Begun(Stream& stream, std::int64_t count) : stream_(stream), count_(count) {}
    void wait() override { stream_.wait(count_); }
    [[nodiscard]] bool done() override { return stream_.done(count_); }

   private:
    Stream& stream_;
    const std::int64_t count_;
  };
  Lane* const here = lane();
  if (here == nullptr) throw Error("copies of a thread that has not begun");
  return Ticket(std::make_shared<Begun>(*here->stream, here->stream->added()));
}

void ApartDevice::settle() {
  Lane* const here = lane();
  if (here == nullptr) throw Error("a thread that has not begun is settled");
  here->marked = false;
  here->stream->wait(here->stream->added());
}

}  // namespace sluice::testing
