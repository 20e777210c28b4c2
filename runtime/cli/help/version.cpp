#include "runtime/cli/help/version.hpp"

#include "kernels/cpu/cpu_features.hpp"
#include "parallel/comm/cuda_module.hpp"

namespace sluice {
namespace {

std::string row(const std::string& name, const std::string& text) {
  std::string line = name;
  line.resize(10, ' ');
  return line + text + "\n";
}

std::string commit_text() {
  const BuiltCommit commit = built_commit();
  if (commit.name.empty()) return "unknown: made outside of a git checkout";
  return std::string(commit.name) + (commit.changed ? ", with local changes" : "");
}

std::string build_text(const BuildFacts& facts) {
  std::string text = std::string(facts.type) + ", " + std::string(facts.compiler);
  if (!facts.sanitize.empty()) text += ", sanitizers: " + std::string(facts.sanitize);
  return text;
}

std::string cuda_text(const BuildFacts& facts) {
  if (facts.toolkit.empty()) return "no module, " + std::string(facts.no_module);
  std::string text = "module of toolkit " + std::string(facts.toolkit) + " for sm_" +
                     std::string(facts.architectures);
  if (!cuda_module_is_built()) return text + ", but its file is gone";
  if (const auto& fault = gpu_fault()) return text + "; not usable here: " + fault->reason;
  const std::string& hidden = hidden_gpus();
  return text + "; GPUs visible here: " + std::to_string(visible_gpu_count()) +
         (hidden.empty() ? "" : ", for " + hidden);
}

std::string kernels_text() {
  switch (detect_isa()) {
    case Isa::kAvx512:
      return "AVX-512, by what this CPU has";
    case Isa::kAvx2:
      return "AVX2, by what this CPU has";
    case Isa::kScalar:
      return "scalar, since this CPU has no AVX2";
  }
  return "";
}

}  // namespace

std::string version_text() {
  const BuildFacts facts = build_facts();
  return "sluice " + std::string(facts.version) + "\n" + row("commit", commit_text()) +
         row("build", build_text(facts)) + row("libtorch", std::string(facts.torch)) +
         row("CUDA", cuda_text(facts)) + row("kernels", kernels_text());
}

}  // namespace sluice
