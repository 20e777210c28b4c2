// Findings about a GPU and its link to the host.
#include <algorithm>

#include "base/bytes.hpp"
#include "base/counted.hpp"
#include "runtime/bench/table.hpp"
#include "runtime/doctor/findings.hpp"

namespace sluice {
namespace {

// Published rates of copy engines are 0.79 to 0.84 of the link's rate after its line code.
constexpr double kShareOfLink = 0.7;
// Both directions at once relative to the faster one: nearly 2 if they share no resource.
constexpr double kOverlaps = 1.3;
// Of the GPU's memory, free before this program allocated anything: a context takes under 1 %.
constexpr double kMostlyFree = 0.9;
constexpr double kNarrowGains = 1.5;  // 16-bit products over fp32's: tensor cores give 8 and more
// Worth a key: attention is a tenth of a step and more.
constexpr double kFasterAttention = 1.1;
constexpr int kCudnnByDefault = 90;  // train.attention: auto takes cuDNN's on Hopper
// An optimizer on the host, a parameter: an fp32 gradient comes, 16-bit weights go back.
constexpr double kGradientBytes = 4;
constexpr double kWeightBytes = 2;
constexpr double kParameters = 1e9;

class GpuFindings {
 public:
  GpuFindings(const MachineFacts& facts, const GpuFacts& gpu, const GpuRates& rates)
      : facts_(facts), gpu_(gpu), rates_(rates), name_("GPU " + std::to_string(gpu.index)) {}

  std::vector<Finding> all() {
    link();
    copies();
    place();
    products();
    attention();
    memory();
    others();
    return std::move(found_);
  }

 private:
  void add(FindingKind kind, std::string what, std::string why, std::string remedy) {
    found_.push_back({kind, std::move(what), std::move(why), std::move(remedy)});
  }

  [[nodiscard]] std::string link_name() const {
    return name_of_link(gpu_.link.gt_per_s, gpu_.link.lanes);
  }
  // Waiting of a step with the optimizer on the host if compute hides nothing.
  [[nodiscard]] std::string cost() const {
    std::string text = "all that is offloaded crosses it";
    if (rates_.h2d_bps && rates_.d2h_bps) {
      text += ": a step with its optimizer on the host takes " +
              format_seconds(kParameters *
                             (kGradientBytes / *rates_.d2h_bps + kWeightBytes / *rates_.h2d_bps)) +
              " of copies per 1e9 parameters (4 bytes of gradient down, 2 of weights up)";
    }
    return text;
  }

  void link() {
    const std::string most = name_of_link(gpu_.link.most_gt_per_s, gpu_.link.most_lanes);
    const auto now = link_bps(gpu_.link.gt_per_s, gpu_.link.lanes);
    const auto best = link_bps(gpu_.link.most_gt_per_s, gpu_.link.most_lanes);
    if (!now || !best || *now >= *best) return;
    add(FindingKind::kSlow, name_ + " is linked by " + link_name() + " and could be by " + most,
        cost(),
        "look at the slot's lanes and generation in the firmware, risers, and what shares its "
        "lanes; in a virtual machine ask the host (lspci -vv: LnkSta beside LnkCap)");
  }

  void copies() {
    const auto most = link_bps(gpu_.link.gt_per_s, gpu_.link.lanes);
    const auto slow = [&](const std::optional<double>& rate, const std::string& way) {
      if (!rate || !most || *rate >= kShareOfLink * *most) return;
      add(FindingKind::kSlow,
          name_ + " copies " + way + " at " + format_byte_rate(*rate) + ", " +
              format_percent(*rate / *most) + " of its link's " + format_byte_rate(*most) + " (" +
              link_name() + ")",
          cost(),
          "keep ranks and their memory on the GPU's memory node, and other traffic off the link; "
          "in a virtual machine look for an IOMMU that translates each page");
    };
    slow(rates_.h2d_bps, "from the host");
    slow(rates_.d2h_bps, "to the host");
    if (!rates_.h2d_bps || !rates_.d2h_bps || !rates_.h2d_d2h_bps) return;
    const double faster = std::max(*rates_.h2d_bps, *rates_.d2h_bps);
    if (*rates_.h2d_d2h_bps >= kOverlaps * faster) return;
    add(FindingKind::kSlow,
        name_ + " moves " + format_byte_rate(*rates_.h2d_d2h_bps) + " both ways at once, " +
            format_byte_rate(faster) + " one way",
        "gradients that leave and weights that come wait for each other, where a step is planned "
        "with both at once",
        gpu_.copy_engines < 2 ? "this GPU has one copy engine: offload less" : "");
  }

  void place() {
    if (!gpu_.link.numa_node || facts_.nodes.size() < 2) return;
    add(FindingKind::kNote,
        name_ + " is at memory node " + std::to_string(*gpu_.link.numa_node) + " of " +
            std::to_string(facts_.nodes.size()),
        "copies from memory of another node cross the processors' link as well", "");
  }

  void products() {
    const auto wide = rates_.gemm_flops.fp32;
    const auto narrow = std::max(rates_.gemm_flops.bf16, rates_.gemm_fp16_flops);
    if (!wide || !narrow || *narrow >= kNarrowGains * *wide) return;
    add(FindingKind::kSlow,
        name_ + " multiplies 16 bits at " + format_flop_rate(*narrow) + ", fp32 at " +
            format_flop_rate(*wide),
        "16-bit training saves memory here, not time", "");
  }

  // The operator that train.attention: auto does not take is faster, whatever the heads and rows.
  void attention() {
    const auto& [flash, cudnn] = rates_.attention_flops;
    if (!flash || !cudnn) return;
    const bool by_default = rates_.compute_capability == kCudnnByDefault;
    const AttentionRates& taken = by_default ? *cudnn : *flash;
    const AttentionRates& other = by_default ? *flash : *cudnn;
    const double gain = std::min({other.head_64 / taken.head_64, other.head_128 / taken.head_128,
                                  other.head_128_long / taken.head_128_long});
    if (gain < kFasterAttention) return;
    const std::string name = by_default ? "flash attention" : "cuDNN's attention";
    add(FindingKind::kNote,
        name_ + " computes " + name + " at " + format_flop_rate(other.head_64) + ", " +
            (by_default ? "cuDNN's" : "flash attention") + " at " +
            format_flop_rate(taken.head_64) + " (heads of 64, rows of 1024 tokens)",
        "train.attention: auto takes the slower one on this GPU",
        std::string("train.attention: ") + (by_default ? "flash" : "cudnn"));
  }

  void memory() {
    if (gpu_.memory_bytes <= 0) return;
    const auto all = static_cast<double>(gpu_.memory_bytes);
    if (static_cast<double>(gpu_.free_bytes) >= kMostlyFree * all) return;
    add(FindingKind::kNote,
        format_bytes(gpu_.free_bytes) + " of the " + format_bytes(gpu_.memory_bytes) + " of " +
            name_ + " are free",
        "a plan counts on all of it, and others' work on the GPU was measured with ours",
        "end what uses it (nvidia-smi), or set memory.device below it");
  }

  void others() {
    if (facts_.gpus < 2) return;
    add(FindingKind::kNote,
        std::to_string(facts_.gpus) + " GPUs are visible, and " + name_ + " alone was measured",
        "a plan takes the others to be alike, their links to the host to be their own, and the "
        "rate between GPUs from a profile",
        "");
  }

  const MachineFacts& facts_;
  const GpuFacts& gpu_;
  const GpuRates& rates_;
  const std::string name_;
  std::vector<Finding> found_;
};

}  // namespace

std::vector<Finding> find_gpu_faults(const MachineFacts& facts, const MachineRates& rates) {
  if (!facts.gpu_fault.empty()) {
    return {{FindingKind::kOff, facts.gpu_fault,
             "train, eval, generate and plan are refused here unless launch.backend is gloo or "
             "local, which run on the CPU",
             facts.gpu_remedy}};
  }
  if (facts.gpu && rates.gpu) return GpuFindings(facts, *facts.gpu, *rates.gpu).all();
  if (facts.gpus == 0 && facts.hidden_gpus.empty()) return {};
  if (facts.gpus == 0) {
    return {{FindingKind::kNote, facts.hidden_gpus,
             "train, eval, generate and plan take the CPU here",
             "unset the variable, or name GPUs that nvidia-smi -L lists"}};
  }
  const auto reason = rates.not_measured.find("gpu");
  return {{FindingKind::kNote,
           counted(facts.gpus, "GPU") + (facts.gpus == 1 ? " is" : " are") +
               " visible, and not measured",
           "their products and copies are taken from a profile by a plan" +
               (reason == rates.not_measured.end() ? "" : " (" + reason->second + ")"),
           ""}};
}

}  // namespace sluice
