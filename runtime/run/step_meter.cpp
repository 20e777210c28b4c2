#include "runtime/run/step_meter.hpp"

#include "runtime/engine/gpu_memory.hpp"
#include "runtime/model/counting_allocator.hpp"
#include "runtime/run/machine.hpp"
#include "runtime/run/trainer.hpp"

namespace sluice {

std::int64_t global_batch_of(const EngineOptions& options) {
  return micro_batches_of(options) * options.train.micro_batch * options.dp;
}

StepMeter::StepMeter(const TrainerOptions& options, at::Device device, double gemm_rate, int ranks)
    : options_(options),
      device_(device),
      ranks_(ranks),
      baseline_(options.ranks_of_process == 1 ? allocation_count(CountedDevice::kHost).live : 0),
      peak_rate_(gemm_rate) {}

void StepMeter::begin_step(const Engine& engine) {
  began_ = Clock::now();
  reset_allocation_peak(CountedDevice::kHost);
  if (options_.on_gpu) reset_reserved_peak(device_);
  whole_step_ = engine.next_step_is_whole();
}

StepRecord StepMeter::record(const Engine& engine, const StepInput& input,
                             const StepResult& result) {
  const std::chrono::duration<double, std::milli> took = Clock::now() - began_;
  const double step_ms = took.count();
  const std::int64_t batch_tokens = global_batch_of(options_.engine) * options_.engine.model.seq;
  StepRecord record;
  record.step = input.step;
  record.loss = result.loss;
  record.grad_norm = result.grad_norm;
  record.lr = input.lr;
  record.loss_scale = input.loss_scale;
  record.step_ms = step_ms;
  record.tokens_per_s = static_cast<double>(batch_tokens) / step_ms * 1e3;
  const double flops = engine.plan().model_flops_per_step / ranks_ / step_ms * 1e3;
  record.tflops = flops * 1e-12;
  record.mfu = peak_rate_.share(flops);
  if (options_.card_flops > 0) record.mfu_of_card = flops / options_.card_flops;
  record.memory.device_peak = options_.on_gpu
                                  ? reserved_peak_bytes(device_)
                                  : allocation_count(CountedDevice::kHost).peak - baseline_;
  const TierStore* tiers = engine.tiers();
  record.memory.host_peak = tiers != nullptr ? tiers->host_peak_bytes() : 0;
  record.memory.pinned = tiers != nullptr ? tiers->pinned_bytes() : 0;
  record.memory.resident_peak = peak_resident_bytes();
  record.memory.nvme = tiers != nullptr ? tiers->nvme_bytes() : 0;
  record.timers_ms = {result.times.forward,   result.times.backward, result.times.comm,
                      result.times.optimizer, result.times.io,       result.times.data};
  return record;
}

CountedTiers StepMeter::counted(const Engine& engine) const {
  const bool stores = engine.tiers() != nullptr;
  const bool alone = options_.ranks_of_process == 1;  // otherwise counts include other ranks
  return {
      .device = options_.on_gpu || alone, .host = stores, .nvme = stores, .step_time = whole_step_};
}

}  // namespace sluice
