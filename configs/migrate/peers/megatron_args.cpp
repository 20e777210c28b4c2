#include "configs/migrate/peers/megatron_args.hpp"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <optional>
#include <utility>

#include "base/error.hpp"
#include "configs/suggest.hpp"
#include "configs/yaml_tree.hpp"

namespace sluice::migrate {
namespace {

using Type = MegatronArgument::Type;
using Count = MegatronArgument::Count;

const MegatronArgument& row_of(std::string_view name) {
  const MegatronArgument* const found = find_megatron_argument(name);
  if (found == nullptr) throw Error("no argument " + std::string(name) + " in the table");
  return *found;
}

// A word that argparse takes for the name of an argument.
bool is_option(std::string_view word) {
  if (word.size() < 2 || word[0] != '-') return false;
  const std::string_view name = word.substr(0, word.find('='));
  if (find_megatron_argument(name) != nullptr) return true;
  const bool digits = word.find_first_not_of("0123456789.", 1) == std::string_view::npos;
  if (digits && is_python_float(word)) return false;
  return word.find(' ') == std::string_view::npos;
}

// Arguments of Megatron-DeepSpeed alone.
bool is_deepspeed(std::string_view name) {
  constexpr std::array kNames{std::string_view("--deepspeed"),
                              std::string_view("--deepspeed_config"),
                              std::string_view("--deepscale"),
                              std::string_view("--deepscale_config"),
                              std::string_view("--deepspeed_mpi"),
                              std::string_view("--zero-stage"),
                              std::string_view("--zero-contigious-gradients"),
                              std::string_view("--zero-reduce-scatter"),
                              std::string_view("--zero-allgather-bucket-size"),
                              std::string_view("--zero-reduce-bucket-size"),
                              std::string_view("--no-pipeline-parallel"),
                              std::string_view("--cpu-optimizer"),
                              std::string_view("--partition-activations"),
                              std::string_view("--cpu_torch_adam"),
                              std::string_view("--remote-device"),
                              std::string_view("--universal-checkpoint"),
                              std::string_view("--memory-centric-tiled-linear"),
                              std::string_view("--tile-factor"),
                              std::string_view("--use-pin-memory"),
                              std::string_view("--scattered-embeddings"),
                              std::string_view("--split-transformers"),
                              std::string_view("--enable-zbh1-pipeline")};
  return std::find(kNames.begin(), kNames.end(), name) != kNames.end() ||
         name.starts_with("--ds-") || name.starts_with("--ds_") ||
         name.starts_with("--deepspeed-") || name.starts_with("--checkpoint-in-cpu");
}

// Arguments that name the DeepSpeed file, or that the file decides.
bool is_of_deepspeed_file(std::string_view name) {
  return name == "--deepspeed" || name == "--deepspeed_config" || name == "--zero-stage";
}

std::string unknown(std::string_view name) {
  if (is_of_deepspeed_file(name)) {
    return "an argument of Megatron-DeepSpeed: give the file of --deepspeed_config too, `sluice "
           "migrate ds_config.json --megatron ...`";
  }
  if (is_deepspeed(name)) {
    return "an argument of Megatron-DeepSpeed that is not read; leave the argument out, and give "
           "the key of Sluice with --set";
  }
  const auto near = nearest(name, megatron_argument_names());
  return "no argument of Megatron-LM" +
         (near ? "; did you mean " + std::string(*near) + "?"
               : std::string("; leave the argument out, or migrate without it and set the key of "
                             "Sluice with --set"));
}

// Python reads "1_000" as 1000. A text with another '_' stays, and is a mistake.
std::string ungrouped(const std::string& text) {
  const auto is_digit = [&text](std::size_t at) {
    return at < text.size() && text[at] >= '0' && text[at] <= '9';
  };
  std::string digits;
  for (std::size_t at = 0; at < text.size(); ++at) {
    if (text[at] != '_') {
      digits += text[at];
    } else if (at == 0 || !is_digit(at - 1) || !is_digit(at + 1)) {
      return text;
    }
  }
  return digits;
}

std::string listed(const std::vector<std::string_view>& names) {
  std::string text;
  for (const std::string_view name : names) text += (text.empty() ? "" : ", ") + std::string(name);
  return text;
}

// "" where argparse accepts the values.
std::string value_mistake(const MegatronArgument& argument, const std::string& value) {
  if (argument.type == Type::kInt && !is_python_int(value)) {
    return "found " + in_quotes(value) + ", Megatron-LM expects a whole number; write digits alone";
  }
  constexpr std::int64_t kMost = std::int64_t{1} << 31;
  const bool is_large = argument.names.front().ends_with("-samples");
  if (argument.type == Type::kInt && !is_large &&
      std::abs(std::strtoll(value.c_str(), nullptr, 10)) >= kMost) {
    return "found " + in_quotes(value) + ", expected a number below 2^31; write a smaller number";
  }
  if (argument.type == Type::kFloat && !is_python_float(value)) {
    return "found " + in_quotes(value) + ", Megatron-LM expects a number; write a number";
  }
  const auto& choices = argument.choices;
  if (!choices.empty() && std::find(choices.begin(), choices.end(), value) == choices.end()) {
    return "found " + in_quotes(value) + ", expected one of " + listed(choices) +
           "; write one of these values";
  }
  return "";
}

std::string mistake(const MegatronArgument& argument, bool has_equals,
                    const std::vector<std::string>& values) {
  if (argument.count == Count::kNone) {
    return has_equals ? "a flag takes no value; leave out " + in_quotes("=" + values[0]) : "";
  }
  if (argument.count == Count::kThree && values.size() < 3) {
    return "three values are expected; write three values after the argument";
  }
  if (argument.count != Count::kAny && values.empty()) {
    return "a value is missing; write a value after the argument";
  }
  for (const std::string& value : values) {
    std::string wrong = value_mistake(argument, value);
    if (!wrong.empty()) return wrong;
  }
  return "";
}

std::string written_json(const MegatronArgument& argument, const std::vector<std::string>& values) {
  if (argument.type == Type::kSwitch) return values[0];
  if (argument.count == Count::kNone) return "true";
  std::string text;
  for (const std::string& each : values) {
    text += (text.empty() ? "" : ", ") + argument_json(argument, each);
  }
  if (argument.count != Count::kOne) return "[" + text + "]";
  return text.empty() ? "null" : text;
}

class Parser {
 public:
  Parser(const std::vector<ShellWord>& words, MigrationDraft& draft, MegatronParsing parsing)
      : words_(words), draft_(draft), parsing_(parsing) {}

  MegatronArgs run() {
    while (at_ < words_.size()) {
      const ShellWord& word = words_[at_++];
      if (is_option(word.text)) {
        option(word);
      } else {
        keep(word.text, word.place, "null", KeyClass::kRefused, "");
        mistakes_.emplace_back(
            word.text, "no value is expected here; write the argument's name before the value");
      }
    }
    for (MigratedKey& key : keys_) draft_.add(std::move(key));
    for (const auto& [path, what] : mistakes_) draft_.error(path, what);
    return std::move(args_);
  }

 private:
  void option(const ShellWord& word) {
    const std::size_t equals = word.text.find('=');
    const std::string name = word.text.substr(0, equals);
    const MegatronArgument* const argument = find_megatron_argument(name);
    if (parsing_.has_deepspeed_file && is_of_deepspeed_file(name)) {
      std::string value = equals == std::string::npos ? "" : word.text.substr(equals + 1);
      if (value.empty() && name != "--deepspeed") {
        const std::vector<std::string> next = take_values(Count::kOne);
        if (!next.empty()) value = next[0];
      }
      keep(name, word.place, value.empty() ? "true" : yaml_text(value), KeyClass::kNotNeeded,
           "the DeepSpeed file beside the arguments decides");
      return;
    }
    if (argument == nullptr) {
      keep(name, word.place, "null", KeyClass::kRefused, "");
      mistakes_.emplace_back(name, unknown(name));
      while (at_ < words_.size() && !is_option(words_[at_].text)) ++at_;
      return;
    }
    const std::string path(argument->names.front());
    const bool has_value = equals != std::string::npos;
    std::vector<std::string> values =
        has_value ? std::vector{word.text.substr(equals + 1)} : take_values(argument->count);
    const bool is_number = argument->type == Type::kInt || argument->type == Type::kFloat;
    if (is_number) std::transform(values.begin(), values.end(), values.begin(), ungrouped);
    const std::string wrong = mistake(*argument, has_value, values);
    if (!wrong.empty()) mistakes_.emplace_back(path, wrong);
    if (argument->type == Type::kSwitch) {
      values = {name == argument->names.back() ? "false" : "true"};
    }
    keep(path, word.place, written_json(*argument, values), argument->kind, argument->note);
    if (wrong.empty()) args_.put(path, values);
  }

  std::vector<std::string> take_values(Count count) {
    std::vector<std::string> values;
    std::size_t most = words_.size();
    if (count == Count::kNone) most = 0;
    if (count == Count::kOne) most = 1;
    if (count == Count::kThree) most = 3;
    while (values.size() < most && at_ < words_.size() && !is_option(words_[at_].text)) {
      values.push_back(words_[at_++].text);
    }
    return values;
  }

  // The last occurrence of an argument counts.
  void keep(const std::string& path, Place place, std::string value, KeyClass kind,
            std::string_view note) {
    const auto [at, is_new] = index_.try_emplace(path, keys_.size());
    if (is_new) keys_.emplace_back();
    MigratedKey& key = keys_[at->second];
    key.path = path;
    key.place = place;
    key.value = std::move(value);
    key.kind = kind;
    key.note = std::string(note) + (is_new ? "" : "; the last of several occurrences counts");
  }

  const std::vector<ShellWord>& words_;
  MigrationDraft& draft_;
  MegatronParsing parsing_;
  std::size_t at_ = 0;
  std::vector<MigratedKey> keys_;
  std::map<std::string, std::size_t> index_;
  std::vector<std::pair<std::string, std::string>> mistakes_;
  MegatronArgs args_;
};

}  // namespace

bool MegatronArgs::has(std::string_view name) const {
  const auto found = values_.find(name);
  if (found == values_.end()) return false;
  return row_of(name).type != Type::kSwitch || found->second[0] == "true";
}

std::string MegatronArgs::text(std::string_view name) const {
  const auto found = values_.find(name);
  if (found != values_.end()) return found->second.empty() ? "" : found->second[0];
  const std::string_view fallback = row_of(name).fallback;
  return fallback == "null" ? "" : std::string(fallback);
}

const std::vector<std::string>& MegatronArgs::list(std::string_view name) const {
  static const std::vector<std::string> kNone;
  const auto found = values_.find(name);
  return found == values_.end() ? kNone : found->second;
}

std::int64_t MegatronArgs::count(std::string_view name) const {
  return std::strtoll(text(name).c_str(), nullptr, 10);
}

double MegatronArgs::number(std::string_view name) const {
  return std::strtod(text(name).c_str(), nullptr);
}

std::string MegatronArgs::json(std::string_view name) const {
  const auto found = values_.find(name);
  return found == values_.end() ? default_json(row_of(name))
                                : written_json(row_of(name), found->second);
}

void MegatronArgs::put(std::string_view name, std::vector<std::string> values) {
  values_[std::string(name)] = std::move(values);
}

MegatronArgs parse_megatron_args(const std::vector<ShellWord>& words, MigrationDraft& draft,
                                 MegatronParsing parsing) {
  return Parser(words, draft, parsing).run();
}

}  // namespace sluice::migrate
