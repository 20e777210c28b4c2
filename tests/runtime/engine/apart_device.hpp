// A device with an address space of its own and a will of its own, in RAM: addresses it hands out
// fault where they are used, copies are made by its own threads some time after they were asked
// for, and it comes to a mark some time after that was set. Copies that no mark was waited for, or
// whose memory is on the wrong side, are errors. One for an engine.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "offload/device_copies.hpp"

namespace sluice::testing {

struct ApartFaults {
  std::int64_t refuse = -1;  // the copy with this number, from 0 on, throws where it is asked for
  std::int64_t fail = -1;    // this one fails while it is under way
  bool slow = false;         // every copy takes 20 ms
};

class ApartDevice final : public DeviceCopies {
 public:
  explicit ApartDevice(const ApartFaults& faults = {});
  ~ApartDevice() override;  // aborts the test program where copies are under way

  [[nodiscard]] DevicePtr address(void* memory) const override;
  void begin_thread() override;
  [[nodiscard]] Mark mark() override;
  void after(const Mark& mark) override;
  void to_host(void* to, DevicePtr from, std::int64_t bytes) override;
  void to_host_bf16(void* to, DevicePtr from, std::int64_t elems) override;
  void to_device(DevicePtr to, const void* from, std::int64_t bytes) override;
  [[nodiscard]] Ticket begun() override;
  void settle() override;
  [[nodiscard]] bool lost() const override { return lost_.load(); }

  [[nodiscard]] std::int64_t copies() const { return copies_.load(); }
  [[nodiscard]] std::int64_t marks() const { return marks_.load(); }
  // Whether copies were ever under way in both directions at a time.
  [[nodiscard]] bool both_ways() const { return both_ways_.load(); }

 private:
  class Stream;
  struct Lane {
    std::unique_ptr<Stream> stream;
    bool marked = false;  // by the operation that runs
  };
  [[nodiscard]] Lane* lane();
  void copy(void* to, const void* from, std::int64_t bytes, bool to_host);
  void move(void* to, const void* from, std::int64_t bytes, bool to_host, std::int64_t number);

  const ApartFaults faults_;
  mutable std::mutex mutex_;
  std::map<std::thread::id, Lane> lanes_;  // guarded by mutex_; a lane is its thread's
  std::atomic<std::int64_t> copies_{0}, marks_{0};
  std::atomic<int> moving_[2] = {0, 0};
  std::atomic<bool> both_ways_{false}, lost_{false};
  std::unique_ptr<Stream> compute_;  // comes to the marks
};

}  // namespace sluice::testing
