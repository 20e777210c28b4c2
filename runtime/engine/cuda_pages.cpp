// Pages that a GPU's copy engines read and write by themselves, in the CUDA module.
#include <cuda_runtime_api.h>
#include <sys/resource.h>

#include <memory>
#include <string>
#include <utility>

#include "base/bytes.hpp"
#include "base/error.hpp"
#include "offload/host_pool.hpp"
#include "runtime/engine/tiers/cuda_tiers.hpp"

namespace sluice {
namespace {

std::string memlock_limit() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_MEMLOCK, &limit) != 0) return "unknown";
  if (limit.rlim_cur == RLIM_INFINITY) return "unlimited";
  return format_bytes(static_cast<std::int64_t>(limit.rlim_cur));
}

class RegisteredPages final : public PageSource {
 public:
  explicit RegisteredPages(std::shared_ptr<PageSource> pages) : pages_(std::move(pages)) {}

  [[nodiscard]] void* map(std::int64_t bytes) override {
    void* memory = pages_->map(bytes);
    const cudaError_t status =
        cudaHostRegister(memory, static_cast<std::size_t>(bytes), cudaHostRegisterPortable);
    if (status == cudaSuccess) return memory;
    // Clears the error, so that no later call reports it.
    (void)cudaGetLastError();
    pages_->unmap(memory, bytes);
    throw BudgetError("the GPU's driver does not register " + format_bytes(bytes) +
                      " of host memory for copies: " + cudaGetErrorString(status) +
                      "; locked memory is limited to " + memlock_limit() +
                      " (ulimit -l, or LimitMEMLOCK of the service), and a container or a cgroup "
                      "may limit it further; raise that, or lower memory.host and offload less");
  }
  // If the process ends abnormally, the driver unregisters the pages.
  void unmap(void* memory, std::int64_t bytes) noexcept override {
    if (cudaHostUnregister(memory) != cudaSuccess) (void)cudaGetLastError();
    pages_->unmap(memory, bytes);
  }
  [[nodiscard]] const char* name() const override { return "registered with the GPU"; }

 private:
  const std::shared_ptr<PageSource> pages_;
};

}  // namespace
}  // namespace sluice

extern "C" __attribute__((visibility("default"))) sluice::PageSource* sluice_make_cuda_pages(
    const std::shared_ptr<sluice::PageSource>& pages) {
  return new sluice::RegisteredPages(pages);
}
