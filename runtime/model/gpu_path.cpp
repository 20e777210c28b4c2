#include "runtime/model/gpu_path.hpp"

#include "base/bytes.hpp"

namespace sluice {
namespace {

thread_local bool stands_for_gpu = false;

}  // namespace

MetaStandsForGpu::MetaStandsForGpu(bool stands) : before_(stands_for_gpu) {
  stands_for_gpu = stands;
}

MetaStandsForGpu::~MetaStandsForGpu() { stands_for_gpu = before_; }

bool meta_stands_for_gpu() { return stands_for_gpu; }

bool takes_gpu_path(const at::Tensor& x) { return x.is_cuda() || (stands_for_gpu && x.is_meta()); }

std::int64_t cuda_block_bytes(std::int64_t bytes) {
  constexpr std::int64_t kMinBlock = 512;
  constexpr std::int64_t kMinLarge = std::int64_t{10} << 20;
  constexpr std::int64_t kRoundLarge = std::int64_t{2} << 20;
  if (bytes == 0) return 0;
  return round_up(bytes, bytes < kMinLarge ? kMinBlock : kRoundLarge);
}

}  // namespace sluice
