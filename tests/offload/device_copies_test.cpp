#include "offload/device_copies.hpp"

#include <gtest/gtest.h>

#include <array>
#include <stdexcept>
#include <string>
#include <vector>

namespace sluice {
namespace {

TEST(HostCopies, AreMadeAtOnce) {
  const std::shared_ptr<DeviceCopies> copies = make_host_copies();
  EXPECT_TRUE(copies->is_host());
  std::array<int, 3> device{1, 2, 3};
  std::array<int, 3> host{};
  const DevicePtr at = copies->address(device.data());
  copies->to_host(host.data(), at + 4, 8);
  EXPECT_EQ(host, (std::array<int, 3>{2, 3, 0}));
  EXPECT_TRUE(copies->begun().done());
  copies->to_device(at, host.data() + 2, 4);
  EXPECT_EQ(device[0], 0);
  copies->to_host(nullptr, DevicePtr(), 0);  // nothing may be anywhere
  EXPECT_FALSE(copies->lost());
}

TEST(HostCopies, RoundToNearestEven) {
  const std::shared_ptr<DeviceCopies> copies = make_host_copies();
  // 1, 1 and a half unit of bf16 (to even: down), 1 and three halves (to even: up), above the half.
  std::array<float, 4> device{1, 0x1.01p0F, 0x1.03p0F, 0x1.0102p0F};
  std::array<std::uint16_t, 5> host{};
  copies->to_host_bf16(host.data(), copies->address(device.data()), 4);
  EXPECT_EQ(host, (std::array<std::uint16_t, 5>{0x3f80, 0x3f80, 0x3f82, 0x3f81, 0}));
}

// Writes down what is asked of it.
class Recorded final : public DeviceCopies {
 public:
  void begin_thread() override {}
  [[nodiscard]] Mark mark() override { return std::make_shared<int>(7); }
  void after(const Mark& mark) override {
    calls.push_back("after " + std::to_string(*std::static_pointer_cast<int>(mark)));
  }
  void to_host(void* /*to*/, DevicePtr /*from*/, std::int64_t /*bytes*/) override {
    calls.emplace_back("copy");
  }
  void to_host_bf16(void* /*to*/, DevicePtr /*from*/, std::int64_t /*elems*/) override {}
  void to_device(DevicePtr /*to*/, const void* /*from*/, std::int64_t /*bytes*/) override {}
  [[nodiscard]] Ticket begun() override { return {}; }
  void settle() override {
    calls.emplace_back("settle");
    if (fails) throw std::runtime_error("a copy failed");
  }

  std::vector<std::string> calls;
  bool fails = false;
};

TEST(CopyScope, IsOverWhenItEndsAlsoByAnError) {
  Recorded copies;
  const auto run = [&](bool throws, bool finishes) {
    copies.calls.clear();
    CopyScope scope(copies, copies.mark());
    copies.to_host(nullptr, DevicePtr(), 1);
    if (throws) throw std::runtime_error("another error");
    if (finishes) scope.finish();
  };
  run(false, false);
  EXPECT_EQ(copies.calls, (std::vector<std::string>{"after 7", "copy", "settle"}));
  EXPECT_THROW(run(true, false), std::runtime_error);
  EXPECT_EQ(copies.calls.back(), "settle");
  copies.fails = true;
  EXPECT_NO_THROW(run(false, false));
  EXPECT_THROW(run(false, true), std::runtime_error);
  try {
    run(true, false);
  } catch (const std::runtime_error& error) {
    EXPECT_STREQ(error.what(), "another error");
  }
}

}  // namespace
}  // namespace sluice
