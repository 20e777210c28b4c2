#include "configs/migrate/launcher/accelerate_file.hpp"

#include <algorithm>
#include <array>

#include "base/format.hpp"
#include "configs/migrate/launcher/yaml_values.hpp"
#include "configs/suggest.hpp"

namespace sluice::migrate {
namespace {

using Kind = HjsonNode::Kind;

// Every key of accelerate's file, the former ones included.
constexpr std::array<std::string_view, 35> kFileKeys{
    "compute_environment",
    "debug",
    "deepspeed_config",
    "distributed_type",
    "downcast_bf16",
    "dynamo_backend",
    "dynamo_config",
    "enable_cpu_affinity",
    "fp16",
    "fp8_config",
    "fsdp_config",
    "gpu_ids",
    "ipex_config",
    "machine_rank",
    "main_process_ip",
    "main_process_port",
    "main_training_function",
    "megatron_lm_config",
    "mixed_precision",
    "mpirun_config",
    "num_machines",
    "num_processes",
    "parallelism_config",
    "rdzv_backend",
    "same_network",
    "tpu_env",
    "tpu_name",
    "tpu_use_cluster",
    "tpu_use_sudo",
    "tpu_vm",
    "tpu_zone",
    "use_cpu",
    "command_file",
    "commands",
    "use_xpu",
};

constexpr std::array<std::string_view, 14> kTypes{
    "DEEPSPEED", "FSDP",      "MEGATRON_LM", "MULTI_CPU", "MULTI_GPU",  "MULTI_HPU", "MULTI_MLU",
    "MULTI_NPU", "MULTI_XPU", "NO",          "TPU",       "MULTI_MUSA", "XLA",       "MULTI_SDAA",
};

constexpr std::array<std::string_view, 4> kPrecisions{"no", "fp16", "bf16", "fp8"};

template <std::size_t N>
std::string near_miss(std::string_view word, const std::array<std::string_view, N>& words) {
  const auto found = nearest(word, std::vector<std::string_view>(words.begin(), words.end()));
  return found ? format_text("; nearest is '{}'", *found) : std::string();
}

template <std::size_t N>
bool contains(const std::array<std::string_view, N>& words, std::string_view word) {
  return std::find(words.begin(), words.end(), word) != words.end();
}

class FileReader {
 public:
  explicit FileReader(AccelerateFile& file) : file_(file) {}

  void read(const std::string& text) {
    const YamlDocument document = parse_yaml(text);
    if (!document.problems.empty()) return problems(document.problems);
    if (document.root.kind != YamlNode::Kind::kMap) {
      return error(0, 0, "", "the file has no keys; accelerate config writes such a file");
    }
    std::vector<YamlProblem> twice;
    file_.root = typed_values(document.root, twice);
    problems(twice);
    check_keys();
    read_type();
    read_precision();
  }

 private:
  void problems(const std::vector<YamlProblem>& found) {
    for (const YamlProblem& problem : found) error(problem.line, problem.column, "", problem.what);
  }
  void error(int line, int column, std::string_view path, std::string_view what) {
    std::string place = file_.file;
    if (line > 0) place += format_text(":{}:{}", line, column);
    const std::string name = path.empty() ? std::string() : std::string(path) + ": ";
    file_.errors.push_back({std::string(path), place + ": " + name + std::string(what)});
  }
  void error(const HjsonEntry& entry, std::string_view what) {
    error(entry.line, entry.column, entry.key, what);
  }
  void check_keys() {
    for (const HjsonEntry& entry : file_.root.entries) {
      if (contains(kFileKeys, entry.key)) continue;
      const std::string near = near_miss(entry.key, kFileKeys);
      error(entry, "accelerate has no such key" + (near.empty() ? "; remove the key" : near));
    }
  }
  [[nodiscard]] const HjsonEntry* entry(std::string_view key) const {
    for (const HjsonEntry& candidate : file_.root.entries) {
      if (candidate.key == key) return &candidate;
    }
    return nullptr;
  }
  void read_type() {
    const HjsonEntry* type = entry("distributed_type");
    if (type == nullptr) {
      return error(0, 0, "distributed_type",
                   "the key is missing; give DEEPSPEED, FSDP, MULTI_GPU or NO");
    }
    // Without quotes, NO is the word for false.
    file_.distributed_type = type->value.kind == Kind::kBool ? "NO" : type->value.text;
    if (contains(kTypes, file_.distributed_type)) return;
    error(*type, format_text("accelerate has no type {}{}", in_quotes(file_.distributed_type),
                             near_miss(file_.distributed_type, kTypes)));
  }
  void read_precision() {
    file_.mixed_precision = "no";
    if (const HjsonEntry* old = entry("fp16"); old != nullptr && old->value.boolean) {
      file_.mixed_precision = "fp16";
    }
    const HjsonEntry* found = entry("mixed_precision");
    if (found == nullptr || found->value.kind == Kind::kNull) return;
    file_.mixed_precision = found->value.kind == Kind::kBool ? "no" : found->value.text;
    for (char& c : file_.mixed_precision) {  // accelerate launch has no letter case here
      if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
    }
    if (contains(kPrecisions, file_.mixed_precision)) return;
    error(*found, format_text("{} is no precision; give no, fp16, bf16 or fp8",
                              in_quotes(file_.mixed_precision)));
  }

  AccelerateFile& file_;
};

}  // namespace

const HjsonNode* AccelerateFile::section(std::string_view name) const {
  const HjsonNode* found = root.find(name);
  return found != nullptr && found->kind == Kind::kObject ? found : nullptr;
}

AccelerateFile read_accelerate_file(const std::string& text, std::string_view file) {
  AccelerateFile result;
  result.file = file;
  FileReader(result).read(text);
  return result;
}

}  // namespace sluice::migrate
