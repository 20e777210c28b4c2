#include "configs/offload_rules.hpp"

#include <linux/magic.h>
#include <sys/statfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <utility>

#include "configs/value.hpp"
#include "configs/yaml_tree.hpp"

namespace sluice {
namespace {
namespace fs = std::filesystem;

constexpr std::int64_t kPage = 4096;
constexpr std::int64_t kGrain = 128 * 1024;  // NvmeOptions::checksum_bytes

std::string text_of(Tier tier) { return std::string(name_of(tier)); }

class OffloadRules {
 public:
  explicit OffloadRules(const RunConfig& run) : run_(run), offload_(run.offload) {}

  std::vector<BrokenRule> check_all() {
    check_parameters();
    check_gradients();
    check_gradients_dtype();
    check_activations();
    check_device_fraction();
    check_host_fraction();
    check_speculation();
    check_image();
    check_nvme();
    return std::move(broken_);
  }

 private:
  void broken(std::string_view key, std::string what) { broken_.push_back({key, std::move(what)}); }

  void check_parameters() {
    const Tier tier = offload_.parameters;
    if (tier == Tier::kDevice) return;
    if (run_.zero.stage != 3) {
      broken("offload.parameters",
             text_of(tier) + " needs zero.stage: 3: in stage " + std::to_string(run_.zero.stage) +
                 " every rank keeps all parameters on its device; set it, or leave parameters on "
                 "the device");
    }
    check_updated_off_device("offload.parameters", "parameters", tier);
  }

  void check_gradients() {
    const Tier tier = offload_.gradients;
    if (tier == Tier::kDevice) return;
    if (run_.zero.stage < 2) {
      broken("offload.gradients",
             text_of(tier) + " needs zero.stage: 2 or 3: in stage " +
                 std::to_string(run_.zero.stage) +
                 " every rank sums all gradients on its device; set it, or leave gradients on the "
                 "device");
    }
    check_updated_off_device("offload.gradients", "gradients", tier);
  }

  void check_gradients_dtype() {
    if (offload_.gradients_dtype == DType::kFloat32) return;
    if (run_.train.dtype != DType::kBFloat16) {
      broken("offload.gradients_dtype",
             "bf16 needs train.dtype: bf16: a run in " + std::string(name_of(run_.train.dtype)) +
                 " keeps more digits than bf16 has; set it, or leave this out");
    }
  }

  void check_updated_off_device(std::string_view key, const std::string& name, Tier tier) {
    if (offload_.optimizer != Tier::kDevice) return;
    broken(key, text_of(tier) + " needs offload.optimizer: host or nvme: " + name +
                    " that live off the device are updated off it, and that is where the optimizer "
                    "must be; set it, or leave " +
                    name + " on the device");
  }

  void check_activations() {
    const Tier tier = offload_.activations;
    if (tier == Tier::kDevice || run_.recompute.mode == RecomputeMode::kFull ||
        run_.model.explicit_units) {
      return;
    }
    broken("offload.activations",
           text_of(tier) +
               " needs recompute.mode: full, or model.explicit_units: what autograd keeps cannot "
               "be parted from it; set one of them, or leave activations on the device");
  }

  void check_device_fraction() {
    const double fraction = offload_.device_fraction;
    if (fraction == 0) return;
    if (offload_.parameters != Tier::kDevice || offload_.gradients != Tier::kDevice) {
      broken("offload.device_fraction",
             format_number(fraction) +
                 " needs parameters and gradients on the device: the share that stays is updated "
                 "there; leave them on the device, or leave this out");
    }
  }

  void check_host_fraction() {
    if (offload_.host_fraction < 1) return;
    broken("offload.host_fraction",
           "1 is all of the optimizer: set offload.optimizer: host, or a share below 1");
  }

  void check_speculation() {
    if (offload_.speculate == Speculation::kNever) return;
    if (run_.parallel.pipeline > 1) {
      broken("offload.speculate",
             "auto needs parallel.pipeline: 1: the last backwards of a pipeline's stage stand "
             "between transfers that others wait for; set it, or leave this out");
    }
    if (offload_.optimizer == Tier::kHost && offload_.parameters == Tier::kHost &&
        run_.train.dtype == DType::kFloat32) {
      broken("offload.speculate",
             "auto needs train.dtype: bf16 or fp16, or parameters that are not on host: in fp32 "
             "these are their own master weights, and the step reads them; set one of them, or "
             "leave this out");
    }
  }

  // An image needs all of a step's states on NVMe, and the same step on every rank.
  void check_image() {
    if (!offload_.image) return;
    if (!run_.train.freeze.empty()) {
      broken("offload.image",
             "an image has no frozen parameters, and train.freeze names some; leave one of the two "
             "out");
      return;
    }
    check_image_has("offload.device_fraction", offload_.device_fraction, "device");
    check_image_has("offload.host_fraction", offload_.host_fraction, "host");
  }

  void check_image_has(const std::string& key, double fraction, const std::string& tier) {
    if (fraction == 0) return;
    broken("offload.image", "an image is of all optimizer states, which must live on nvme, and " +
                                key + " keeps " + format_number(fraction) + " of them on the " +
                                tier + "; set that to 0, or leave this out");
  }

  void check_nvme() {
    const std::vector<PlacedState> states = placed_states(offload_);
    const auto on_nvme = std::find_if(states.begin(), states.end(), [](const PlacedState& state) {
      return state.tier == Tier::kNvme;
    });
    if (on_nvme == states.end()) return;
    if (offload_.nvme_path.empty()) {
      broken(on_nvme->key, "nvme needs offload.nvme_path: a folder on the drive");
    } else {
      check_block();
      check_folders();
    }
  }

  // Hashes are of whole grains, transfers of whole pages.
  void check_block() {
    const std::int64_t block = offload_.block_bytes;
    if (block % (block > kGrain ? kGrain : kPage) == 0) return;
    broken("offload.block_bytes",
           std::to_string(block) +
               " is not a multiple of 128KiB, or of 4KiB where it is less than that; the nearest "
               "below is " +
               std::to_string(block > kGrain ? block / kGrain * kGrain : block / kPage * kPage));
  }

  void check_folders() {
    std::vector<fs::path> seen;
    for (const std::string& folder : offload_.nvme_path) {
      std::error_code ignored;
      const fs::path path = fs::weakly_canonical(fs::absolute(folder), ignored);
      if (std::find(seen.begin(), seen.end(), path) != seen.end()) {
        broken("offload.nvme_path",
               in_quotes(folder) + " is named twice; name each drive's folder once");
        continue;
      }
      seen.push_back(path);
      const std::string trouble = trouble_with(folder);
      if (!trouble.empty()) broken("offload.nvme_path", trouble);
    }
  }

  // A run creates only the last part of the path. A missing parent is most likely a drive that is
  // not mounted.
  std::string trouble_with(const std::string& folder) const {
    std::error_code error;
    if (fs::exists(folder, error)) {
      if (!fs::is_directory(folder, error)) {
        return in_quotes(folder) + " is a file; name a folder on the drive";
      }
      return writable(folder) ? "" : no_permission(folder);
    }
    fs::path parent = fs::path(folder).lexically_normal();
    if (!parent.has_filename()) parent = parent.parent_path();
    parent = parent.has_parent_path() ? parent.parent_path() : fs::path(".");
    if (!fs::is_directory(parent, error)) {
      if (is_made_with_output(parent)) return "";
      return in_quotes(folder) + " cannot be made: " + in_quotes(parent.string()) +
             " is no folder; is the drive mounted?";
    }
    return writable(parent.string()) ? "" : no_permission(parent.string());
  }

  // output.dir is made, with the folders above it, before a rank looks for its swap folder.
  bool is_made_with_output(const fs::path& folder) const {
    const fs::path output = fs::absolute(run_.output.dir).lexically_normal();
    const fs::path from_there = output.lexically_relative(fs::absolute(folder).lexically_normal());
    return !run_.output.dir.empty() && !from_there.empty() && *from_there.begin() != "..";
  }

  static bool writable(const std::string& folder) {
    return ::access(folder.c_str(), W_OK | X_OK) == 0;
  }
  static std::string no_permission(const std::string& folder) {
    return in_quotes(folder) + " cannot be written (" + std::strerror(errno) +
           "); name a folder that this user may write to";
  }

  const RunConfig& run_;
  const OffloadOptions& offload_;
  std::vector<BrokenRule> broken_;
};

}  // namespace

std::vector<BrokenRule> broken_offload_rules(const RunConfig& run) {
  return OffloadRules(run).check_all();
}

std::vector<PlacedState> placed_states(const OffloadOptions& offload) {
  return {{"offload.optimizer", "optimizer", offload.optimizer},
          {"offload.parameters", "parameters", offload.parameters},
          {"offload.gradients", "gradients", offload.gradients},
          {"offload.activations", "activations", offload.activations}};
}

bool is_on_nvme(const OffloadOptions& offload) {
  const std::vector<PlacedState> states = placed_states(offload);
  return std::any_of(states.begin(), states.end(),
                     [](const PlacedState& state) { return state.tier == Tier::kNvme; });
}

std::vector<std::string> folders_in_memory(const OffloadOptions& offload) {
  std::vector<std::string> found;
  if (!is_on_nvme(offload)) return found;
  for (const std::string& folder : offload.nvme_path) {
    std::error_code ignored;
    const fs::path path = fs::absolute(folder, ignored).lexically_normal();
    const fs::path there = fs::exists(path, ignored) ? path : path.parent_path();
    struct statfs status {};
    if (::statfs(there.c_str(), &status) != 0) continue;
    if (status.f_type == TMPFS_MAGIC || status.f_type == RAMFS_MAGIC) found.push_back(folder);
  }
  return found;
}

}  // namespace sluice
