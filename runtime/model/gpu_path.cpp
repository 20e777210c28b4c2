#include "runtime/model/gpu_path.hpp"

#include "base/bytes.hpp"
#include "runtime/model/model_options.hpp"

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
  constexpr std::int64_t kSmallSegment = std::int64_t{2} << 20;
  if (bytes == 0) return 0;
  const std::int64_t block = round_up(bytes, bytes < kMinLarge ? kMinBlock : kRoundLarge);
  if (block > kSmallCudaBlock) return block;
  return kSmallSegment / (kSmallSegment / block) / kMinBlock * kMinBlock;
}

std::int64_t cuda_gap_bytes(std::int64_t bytes) { return 2 * cuda_block_bytes(bytes); }

std::int64_t device_library_bytes(const ModelOptions& options) {
  constexpr std::int64_t kKiB = 1024, kMiB = 1024 * kKiB;
  constexpr std::int64_t kRestsOfSegments = 32 * kMiB;
  const int major = options.gpu.compute_capability / 10;
  const bool large = major == 9 || major == 10;
  const std::int64_t workspace = large ? 32 * kMiB : 8 * kMiB + 128 * kKiB;
  return kRestsOfSegments + (options.explicit_units ? workspace : 2 * workspace);
}

}  // namespace sluice
