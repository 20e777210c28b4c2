// Tiers of states, NVMe folders and transfers.
#include <algorithm>
#include <filesystem>
#include <vector>

#include "base/format.hpp"
#include "configs/migrate/deepspeed/deepspeed_mapping.hpp"
#include "configs/migrate/deepspeed/deepspeed_rules.hpp"
#include "configs/schema.hpp"
#include "configs/value.hpp"

namespace sluice::migrate {
namespace {

constexpr std::string_view kOptimizer = "zero_optimization.offload_optimizer";
constexpr std::string_view kParam = "zero_optimization.offload_param";
constexpr std::string_view kRatio = "zero_optimization.offload_optimizer.ratio";

std::string in(std::string_view section, std::string_view name) {
  return std::string(section) + "." + std::string(name);
}

std::string_view tier_of(std::string_view device) {
  return device == "cpu" ? "host" : device == "nvme" ? "nvme" : "device";
}

// The key of the file that moves a section's states: its device, or the deprecated flag.
std::string mover(const DeepSpeedMapping& mapping, std::string_view section) {
  const std::string flag = section == kOptimizer ? "zero_optimization.cpu_offload"
                                                 : "zero_optimization.cpu_offload_param";
  const std::string device = in(section, "device");
  return !mapping.is_written(device) && mapping.is_written(flag) ? flag : device;
}

void map_optimizer_tier(DeepSpeedMapping& mapping, const OffloadTiers& tiers) {
  const DeepSpeedConfig& config = mapping.config();
  const std::string path = mover(mapping, kOptimizer);
  if (tiers.optimizer_follows) {
    const std::string from = mover(mapping, kParam);
    mapping.set(from, "offload.optimizer", std::string(tiers.optimizer));
    mapping.idle(path, "offload.optimizer host: the parameters are off the device");
  } else if (mapping.is_written(path)) {
    mapping.set(path, "offload.optimizer", std::string(tiers.optimizer));
  }
  if (tiers.gradients != "device") {
    const std::string from = tiers.optimizer_follows ? mover(mapping, kParam) : path;
    mapping.set(from, "offload.gradients", std::string(tiers.gradients));
  }
  const std::string device = in(kOptimizer, "device");
  if (text_of(config, device) == "nvme" && stage_of(config) != 3) {
    mapping.classify(device, KeyClass::kChanged,
                     format_text("offload.optimizer host: DeepSpeed reads nvme as cpu on stage {}; "
                                 "--set offload.optimizer=nvme moves the states to the drive",
                                 stage_of(config)));
  }
}

void map_parameter_tier(DeepSpeedMapping& mapping, const OffloadTiers& tiers) {
  const std::string path = mover(mapping, kParam);
  if (!mapping.is_written(path)) return;
  const std::int64_t stage = stage_of(mapping.config());
  if (stage < 3) {
    return mapping.classify(
        path, KeyClass::kIgnored,
        format_text("DeepSpeed uses this key on ZeRO stage 3 only, the stage is {}", stage));
  }
  mapping.set(path, "offload.parameters", std::string(tiers.parameters));
  if (!tiers.optimizer_follows) return;
  mapping.classify(path, KeyClass::kChanged,
                   format_text("offload.parameters {} and offload.optimizer host: DeepSpeed keeps "
                               "the optimizer on the device, Sluice updates parameters off the "
                               "device there",
                               tiers.parameters));
}

void map_fraction(DeepSpeedMapping& mapping, const OffloadTiers& tiers) {
  if (!mapping.is_written(kRatio)) return;
  if (tiers.optimizer == "device") {
    return mapping.idle(kRatio, "without effect: the optimizer is on the device");
  }
  const std::string ratio = mapping.shown(kRatio);
  mapping.set(kRatio, "offload.device_fraction", format_text("{:.12g}", tiers.device_fraction),
              "off the device");
  if (tiers.fraction_dropped) {
    mapping.classify(kRatio, KeyClass::kChanged,
                     format_text("offload.device_fraction 0 instead of 1 - {}: with parameters off "
                                 "the device Sluice updates all of them off the device",
                                 ratio));
  } else if (tiers.device_fraction > 0) {
    mapping.classify(
        kRatio, KeyClass::kChanged,
        format_text("offload.device_fraction {:.12g} = 1 - ratio {}; gradients stay on "
                    "the device",
                    tiers.device_fraction, ratio));
  }
}

// One folder each; "/nvme" and "/nvme/" are one folder.
std::string plain_folder(const std::string& text) {
  std::string folder = std::filesystem::path(text).lexically_normal().string();
  while (folder.size() > 1 && folder.back() == '/') folder.pop_back();
  return folder;
}

void map_folders(DeepSpeedMapping& mapping, const OffloadTiers& tiers) {
  std::vector<std::string> folders;
  std::vector<std::string> sources;
  for (const std::string_view section : {kParam, kOptimizer}) {
    const std::string path = in(section, "nvme_path");
    const std::string_view tier = section == kParam ? tiers.parameters : tiers.optimizer;
    if (tier != "nvme" || text_of(mapping.config(), path).empty()) {
      mapping.idle(path, "without effect: the states of this section are not on NVMe");
      continue;
    }
    sources.push_back(path);
    const std::string folder = plain_folder(mapping.config().text(path));
    if (std::find(folders.begin(), folders.end(), folder) == folders.end()) {
      folders.push_back(folder);
    }
  }
  if (!tiers.on_nvme()) return;
  const std::string list =
      write_value(find_key("offload.nvme_path")->rules, Value(std::move(folders)));
  for (const std::string& path : sources) mapping.set(path, "offload.nvme_path", list);
}

// Blocks are multiples of 4 KiB, above 128 KiB of 128 KiB.
std::int64_t whole_blocks(std::int64_t bytes) {
  constexpr std::int64_t kPage = 4096;
  constexpr std::int64_t kGrain = 128 * 1024;
  const std::int64_t unit = bytes > kGrain ? kGrain : kPage;
  return bytes / unit * unit;
}

void map_transfers(DeepSpeedMapping& mapping, const OffloadTiers& tiers) {
  constexpr std::string_view kBlock = "aio.block_size";
  constexpr std::string_view kDepth = "aio.queue_depth";
  if (!tiers.on_nvme()) {
    for (const std::string_view path : {kBlock, kDepth}) {
      mapping.idle(path, "without effect: nothing lives on NVMe");
    }
    return;
  }
  const std::int64_t bytes = mapping.config().count(kBlock);
  const Range& range = find_key("offload.block_bytes")->rules.range;
  const std::int64_t block = whole_blocks(std::clamp(bytes, static_cast<std::int64_t>(range.min),
                                                     static_cast<std::int64_t>(range.max)));
  mapping.set(kBlock, "offload.block_bytes", std::to_string(block), "bytes");
  if (block != bytes) {
    mapping.classify(kBlock, KeyClass::kChanged,
                     format_text("offload.block_bytes {} instead of {}: Sluice takes 4 KiB to 256 "
                                 "MiB, in whole 4 KiB, above 128 KiB in whole 128 KiB",
                                 block, bytes));
  }
  mapping.set(kDepth, "offload.queue_depth",
              mapping.clamped(kDepth, "offload.queue_depth", mapping.config().count(kDepth)));
}

void map_buffers(DeepSpeedMapping& mapping, const OffloadTiers& tiers) {
  const std::string count = in(kOptimizer, "buffer_count");
  const std::string super = in(kOptimizer, "super_offload");
  if (mapping.is_written(count)) {
    mapping.classify(count, KeyClass::kChanged,
                     format_text("not carried over: DeepSpeed keeps {} buffers of its largest "
                                 "tensor, Sluice offload.chunks 4 of offload.chunk_bytes 16777216",
                                 mapping.shown(count)));
  }
  if (!mapping.is_written(super) || !is_on(mapping.config(), super)) {
    return mapping.idle(super, "false is Sluice's default");
  }
  if (tiers.optimizer == "device") {
    mapping.idle(super, "without effect: the optimizer is on the device");
  } else if (tiers.optimizer == "host" && tiers.parameters == "host" &&
             model_dtype(mapping.config()) == "fp32") {
    mapping.idle(super, "fp32 parameters on the host are master weights that the step reads");
  } else {
    mapping.set(super, "offload.speculate", "auto");
  }
}

}  // namespace

OffloadTiers offload_tiers(const DeepSpeedConfig& config) {
  OffloadTiers tiers;
  const std::int64_t stage = stage_of(config);
  if (stage > 0) tiers.optimizer = tier_of(text_of(config, in(kOptimizer, "device")));
  if (stage < 3 && tiers.optimizer == "nvme") tiers.optimizer = "host";
  if (stage == 3) tiers.parameters = tier_of(text_of(config, in(kParam, "device")));
  if (tiers.parameters != "device" && tiers.optimizer == "device") {
    tiers.optimizer = "host";
    tiers.optimizer_follows = true;
  }
  const bool is_off = tiers.optimizer != "device";
  const double ratio = is_off && config.has(kRatio) ? config.number(kRatio) : 1;
  tiers.fraction_dropped = ratio < 1 && tiers.parameters != "device";
  if (!tiers.fraction_dropped && ratio < 1) tiers.device_fraction = 1 - ratio;
  if (is_off && stage >= 2 && tiers.device_fraction == 0) tiers.gradients = tiers.optimizer;
  // Gradients that tensor-parallel ranks add up pass through memory.
  const bool is_sliced = count_of(config, "tensor_parallel.autotp_size").value_or(0) > 1;
  if (is_sliced && tiers.gradients == "nvme") tiers.gradients = "host";
  return tiers;
}

void map_offload(DeepSpeedMapping& mapping) {
  if (stage_of(mapping.config()) == 0) {
    for (const std::string_view path : {"aio.block_size", "aio.queue_depth"}) {
      mapping.idle(path, "without effect: nothing lives on NVMe");
    }
    return;
  }
  const OffloadTiers tiers = offload_tiers(mapping.config());
  map_parameter_tier(mapping, tiers);
  map_optimizer_tier(mapping, tiers);
  map_fraction(mapping, tiers);
  map_folders(mapping, tiers);
  map_transfers(mapping, tiers);
  map_buffers(mapping, tiers);
}

}  // namespace sluice::migrate
