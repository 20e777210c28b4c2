#include "configs/migrate/launcher/script_arguments.hpp"

#include <algorithm>
#include <array>

#include "base/format.hpp"
#include "configs/migrate/launcher/trainer_keys.hpp"
#include "configs/yaml_tree.hpp"

namespace sluice::migrate {
namespace {

constexpr std::size_t kMostNames = 20;

template <std::size_t N>
bool is_one_of(const std::array<std::string_view, N>& names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

// Arguments that launchers and DeepSpeed's own parser add to a script.
bool is_deepspeeds(std::string_view name) {
  constexpr std::array<std::string_view, 5> kNames{"deepspeed", "deepspeed_config", "local_rank",
                                                   "deepspeed_mpi", "deepscale"};
  return is_one_of(kNames, name);
}

// Arguments of the Trainer that scripts of any kind have.
bool is_common(std::string_view name) {
  constexpr std::array<std::string_view, 4> kNames{"seed", "bf16", "fp16", "weight_decay"};
  return is_one_of(kNames, name);
}

// "--learning-rate=2e-5" -> "learning_rate"; "" of a value.
std::string plain_name(std::string_view word) {
  if (!word.starts_with("--")) return "";
  std::string name(word.substr(2, word.find('=') - 2));
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}

bool names_file(const std::vector<std::string>& arguments, std::string_view name) {
  return !script_value(arguments, name).empty();
}

}  // namespace

std::string script_value(const std::vector<std::string>& arguments, std::string_view name) {
  std::string found;
  for (std::size_t at = 0; at < arguments.size(); ++at) {
    const std::string& word = arguments[at];
    if (plain_name(word) != name) continue;
    if (const std::size_t equals = word.find('='); equals != std::string::npos) {
      found = word.substr(equals + 1);
    } else if (at + 1 < arguments.size() && !arguments[at + 1].starts_with('-')) {
      found = arguments[at + 1];
    }
  }
  return found;
}

ScriptKind script_kind(const std::vector<std::string>& arguments) {
  // --deepspeed_config is the argument of DeepSpeed's own parser, which the Trainer does not use.
  if (names_file(arguments, "deepspeed_config")) return ScriptKind::kOther;
  if (!megatron_argument_of(arguments).empty()) return ScriptKind::kOther;
  const bool has_file = names_file(arguments, "deepspeed");
  const bool is_trainers =
      std::any_of(arguments.begin(), arguments.end(), [has_file](const std::string& word) {
        const std::string name = plain_name(word);
        return !is_deepspeeds(name) && (has_file || !is_common(name)) &&
               find_trainer_key(name) != nullptr;
      });
  if (!is_trainers) return ScriptKind::kOther;
  return has_file ? ScriptKind::kTrainer : ScriptKind::kLikelyTrainer;
}

std::string_view megatron_argument_of(const std::vector<std::string>& arguments) {
  const auto has = [&](std::string_view name) {
    return std::any_of(arguments.begin(), arguments.end(), [name](const std::string& word) {
      return word.substr(0, word.find('=')) == name;
    });
  };
  for (const std::string_view name :
       {"--tensor-model-parallel-size", "--pipeline-model-parallel-size"}) {
    if (has(name)) return name;
  }
  // A script of one's own may have one of the two.
  return has("--num-layers") && has("--num-attention-heads") ? "--num-layers" : "";
}

std::string unread_arguments(const std::vector<std::string>& arguments) {
  std::vector<std::string> names;
  for (const std::string& word : arguments) {
    const std::string name = plain_name(word);
    if (name.empty() || is_deepspeeds(name)) continue;
    std::string written = word.substr(0, word.find('='));
    if (std::find(names.begin(), names.end(), written) == names.end()) {
      names.push_back(std::move(written));
    }
  }
  if (names.empty()) return "";
  std::string text = names.size() == 1
                         ? "1 argument of the script was not read: "
                         : format_text("{} arguments of the script were not read: ", names.size());
  for (std::size_t at = 0; at < std::min(names.size(), kMostNames); ++at) {
    text += (at == 0 ? "" : ", ") + printable(names[at]);
  }
  if (names.size() > kMostNames) text += format_text(", and {} more", names.size() - kMostNames);
  return text;
}

}  // namespace sluice::migrate
