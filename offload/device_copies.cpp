#include "offload/device_copies.hpp"

#include <cstring>
#include <exception>

#include "kernels/cpu/cast.hpp"

namespace sluice {
namespace {

class HostCopies final : public DeviceCopies {
 public:
  [[nodiscard]] bool is_host() const override { return true; }
  void begin_thread() override {}
  [[nodiscard]] Mark mark() override { return {}; }
  void after(const Mark& /*mark*/) override {}
  void to_host(void* to, DevicePtr from, std::int64_t bytes) override {
    move(to, reinterpret_cast<const void*>(from.address()), bytes);
  }
  void to_device(DevicePtr to, const void* from, std::int64_t bytes) override {
    move(reinterpret_cast<void*>(to.address()), from, bytes);
  }
  void to_host_bf16(void* to, DevicePtr from, std::int64_t elems) override {
    convert(to, DType::kBFloat16, reinterpret_cast<const void*>(from.address()), DType::kFloat32,
            elems);
  }
  [[nodiscard]] Ticket begun() override { return {}; }
  void settle() override {}

 private:
  static void move(void* to, const void* from, std::int64_t bytes) {
    if (bytes > 0) std::memcpy(to, from, static_cast<std::size_t>(bytes));
  }
};

}  // namespace

CopyScope::CopyScope(DeviceCopies& copies, const DeviceCopies::Mark& mark) : copies_(copies) {
  copies_.after(mark);
}

CopyScope::~CopyScope() {
  try {
    copies_.settle();
  } catch (const std::exception&) {  // NOLINT(bugprone-empty-catch)
    // finish() or the copy's Ticket has reported the error, and lost() remembers it.
  }
}

std::shared_ptr<DeviceCopies> make_host_copies() { return std::make_shared<HostCopies>(); }

}  // namespace sluice
