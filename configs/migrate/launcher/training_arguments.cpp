#include "configs/migrate/launcher/training_arguments.hpp"

#include <algorithm>
#include <array>
#include <cmath>

#include "base/format.hpp"
#include "configs/migrate/launcher/shell_command.hpp"
#include "configs/migrate/launcher/yaml_values.hpp"
#include "configs/yaml_tree.hpp"

namespace sluice::migrate {
namespace {

using Kind = HjsonNode::Kind;

// The words of Hugging Face's parser.
std::optional<bool> flag_word(std::string_view word) {
  constexpr std::array<std::string_view, 5> kTrue{"true", "yes", "t", "y", "1"};
  constexpr std::array<std::string_view, 5> kFalse{"false", "no", "f", "n", "0"};
  std::string small(word);
  for (char& c : small) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  if (std::find(kTrue.begin(), kTrue.end(), small) != kTrue.end()) return true;
  if (std::find(kFalse.begin(), kFalse.end(), small) != kFalse.end()) return false;
  return std::nullopt;
}

HjsonNode text_node(std::string_view text) {
  HjsonNode node;
  node.kind = Kind::kText;
  node.text = text;
  return node;
}

HjsonNode flag_node(bool value) {
  HjsonNode node;
  node.kind = Kind::kBool;
  node.boolean = value;
  node.text = value ? "true" : "false";
  return node;
}

// A word of a command line as a value of the key's type; nullopt if the type does not fit.
std::optional<HjsonNode> word_value(TrainerType type, const std::string& word) {
  if (type == TrainerType::kFlag) {
    const auto flag = flag_word(word);
    return flag ? std::optional(flag_node(*flag)) : std::nullopt;
  }
  if (type == TrainerType::kCount || type == TrainerType::kNumber) {
    const HjsonNode value = typed_word(word);
    if (word == "None" || word == "null") return HjsonNode{};
    const bool fits = value.kind == Kind::kNumber &&
                      (type == TrainerType::kNumber || (value.integer && !value.is_float));
    return fits ? std::optional(value) : std::nullopt;
  }
  if (type == TrainerType::kAny && word.starts_with('{')) {
    HjsonDocument document = read_hjson(word);
    if (!document.problems.empty()) return std::nullopt;
    return document.root;
  }
  return text_node(word);
}

// A value of a file, if its type fits the key's.
bool fits(TrainerType type, const HjsonNode& value) {
  if (value.kind == Kind::kNull || type == TrainerType::kAny) return true;
  if (type == TrainerType::kFlag) return value.kind == Kind::kBool;
  if (type == TrainerType::kCount) return value.kind == Kind::kNumber && value.integer.has_value();
  if (type == TrainerType::kNumber) return value.kind == Kind::kNumber;
  if (type == TrainerType::kWords) return value.kind == Kind::kText || value.kind == Kind::kList;
  return value.kind == Kind::kText || value.kind == Kind::kBool || value.items.empty();
}

std::string_view type_name(TrainerType type) {
  switch (type) {
    case TrainerType::kFlag:
      return "true or false";
    case TrainerType::kCount:
      return "a whole number";
    case TrainerType::kNumber:
      return "a number";
    case TrainerType::kWords:
      return "a word or several";
    default:
      return "text";
  }
}

class ArgumentsReading {
 public:
  explicit ArgumentsReading(std::string_view file) { values_.file = file; }

  TrainerValues read_object(std::string_view text) {
    const HjsonDocument document = read_hjson(text);
    for (const HjsonProblem& problem : document.problems) {
      values_.errors.push_back({"", format_text("{}:{}:{}: {}", values_.file, problem.line,
                                                problem.column, problem.what)});
    }
    if (!document.problems.empty()) return std::move(values_);
    for (const HjsonEntry& entry : document.root.entries) read_entry(entry);
    return std::move(values_);
  }

  TrainerValues read_words(const std::vector<std::string>& words) {
    for (std::size_t at = 0; at < words.size();) at = read_word(words, at);
    return std::move(values_);
  }

 private:
  void error(const TrainerArgument& argument, std::string_view what) {
    const std::string path = argument.path();
    const std::string place =
        argument.place.line > 0
            ? format_text("{}:{}:{}", values_.file, argument.place.line, argument.place.column)
            : format_text("{}: argument {}", values_.file, argument.place.column);
    values_.errors.push_back({path, format_text("{}: {}: {}", place, argument.written, what)});
  }
  void keep(TrainerArgument argument) {
    for (TrainerArgument& known : values_.given) {
      const bool same =
          known.name == argument.name && (known.key == nullptr) == (argument.key == nullptr);
      if (!same) continue;
      if (known.written != argument.written && argument.key != nullptr) {
        error(argument, format_text("{} is the same argument; keep one of them", known.written));
      }
      known = std::move(argument);  // the last one counts
      return;
    }
    values_.given.push_back(std::move(argument));
  }
  static void name(TrainerArgument& argument, const std::string& given) {
    argument.key = find_trainer_key(given);
    argument.name = given;
    if (argument.key == nullptr || argument.key->successor.empty()) return;
    argument.name = argument.key->successor;
    argument.key = find_trainer_key(argument.name);
  }
  void read_entry(const HjsonEntry& entry) {
    TrainerArgument argument;
    name(argument, entry.key);
    argument.written = entry.key;
    argument.place = {entry.line, entry.column};
    argument.value = entry.value;
    if (argument.key != nullptr && !fits(argument.key->type, entry.value)) {
      return error(argument, format_text("{} is not {}; give one", to_json(entry.value),
                                         type_name(argument.key->type)));
    }
    keep(std::move(argument));
  }
  // Returns the index of the next argument.
  std::size_t read_word(const std::vector<std::string>& words, std::size_t at) {
    TrainerArgument argument;
    argument.place = {0, static_cast<int>(at) + 1};
    const std::string& word = words[at++];
    const std::size_t equals = word.starts_with("--") ? word.find('=') : std::string::npos;
    argument.written = word.substr(0, equals);
    std::vector<std::string> rest;
    if (equals != std::string::npos) rest.push_back(word.substr(equals + 1));
    std::string given = argument.written.substr(word.starts_with("--") ? 2 : 0);
    std::replace(given.begin(), given.end(), '-', '_');
    const TrainerKey* negated =
        given.starts_with("no_") ? find_trainer_key(std::string_view(given).substr(3)) : nullptr;
    if (negated != nullptr && negated->type == TrainerType::kFlag && negated->fallback == "true") {
      argument.key = negated;
      argument.name = negated->name;
      argument.value = flag_node(false);
      keep(std::move(argument));
      return at;
    }
    if (word.starts_with("--")) name(argument, given);
    if (argument.name.empty()) argument.name = word;
    const bool is_single = argument.key != nullptr && argument.key->type != TrainerType::kWords;
    while (rest.empty() || (!is_single && equals == std::string::npos)) {
      if (at >= words.size() || words[at].starts_with("--") || !word.starts_with('-')) break;
      const bool is_flag = argument.key != nullptr && argument.key->type == TrainerType::kFlag;
      if (is_flag && !flag_word(words[at])) break;
      rest.push_back(words[at++]);
    }
    take(std::move(argument), rest);
    return at;
  }
  void take(TrainerArgument argument, const std::vector<std::string>& rest) {
    if (argument.name == "finetuning_type" && rest.size() == 1 && rest[0] != "full") {
      return error(argument, format_text("{}: Sluice has no adapters and trains all weights; leave "
                                         "the argument out if this is meant",
                                         in_quotes(rest[0])));
    }
    if (argument.key == nullptr) {
      argument.value = rest.size() == 1 ? typed_word(rest[0]) : flag_node(true);
      if (rest.size() > 1) argument.value = text_node(shell_join(rest));
      return keep(std::move(argument));
    }
    const TrainerType type = argument.key->type;
    if (rest.empty() && type != TrainerType::kFlag) {
      return error(argument, "the value is missing; give one after it");
    }
    if (type == TrainerType::kWords) {
      argument.value.kind = Kind::kList;
      for (const std::string& word : rest) argument.value.items.push_back(text_node(word));
      return keep(std::move(argument));
    }
    const auto value = rest.empty() ? std::optional(flag_node(true)) : word_value(type, rest[0]);
    if (!value) {
      return error(argument,
                   format_text("{} is not {}; give one", in_quotes(rest[0]), type_name(type)));
    }
    argument.value = *value;
    keep(std::move(argument));
  }

  TrainerValues values_;
};

HjsonNode effective(const TrainerValues& values, std::string_view name) {
  const TrainerArgument* given = values.find(name);
  if (given != nullptr && given->value.kind != Kind::kNull) return given->value;
  const TrainerKey* key = find_trainer_key(name);
  HjsonNode node = typed_word(key == nullptr ? "null" : key->fallback);
  if (node.text.starts_with('"')) node = text_node(node.text.substr(1, node.text.size() - 2));
  return node;
}

}  // namespace

const TrainerArgument* TrainerValues::find(std::string_view name) const {
  const auto found = std::find_if(given.begin(), given.end(),
                                  [name](const TrainerArgument& a) { return a.name == name; });
  return found == given.end() || found->key == nullptr ? nullptr : &*found;
}

double TrainerValues::number(std::string_view name) const { return effective(*this, name).number; }

std::int64_t TrainerValues::count(std::string_view name) const {
  const HjsonNode value = effective(*this, name);
  return value.integer.value_or(0);
}

bool TrainerValues::flag(std::string_view name) const { return effective(*this, name).boolean; }

std::string TrainerValues::text(std::string_view name) const {
  const HjsonNode value = effective(*this, name);
  if (value.kind == Kind::kList) {
    std::string all;
    for (const HjsonNode& item : value.items) all += (all.empty() ? "" : " ") + item.text;
    return all;
  }
  if (value.kind == Kind::kBool) return value.boolean ? "true" : "false";
  return value.kind == Kind::kNull ? std::string() : value.text;
}

std::string TrainerValues::json(std::string_view name) const {
  return to_json(effective(*this, name));
}

std::string TrainerValues::path(std::string_view name) { return "trainer." + std::string(name); }

std::string TrainerArgument::path() const {
  return key == nullptr ? "script." + name : TrainerValues::path(name);
}

TrainerValues read_training_arguments(std::string_view text, std::string_view file) {
  const std::size_t first = text.find_first_not_of(" \t\r\n");
  if (first == std::string_view::npos || text[first] != '-') {
    return ArgumentsReading(file).read_object(text);
  }
  const ShellCommand command = split_command(text, Newlines::kSeparateWords);
  TrainerValues values;
  values.file = "--trainer";
  for (const std::string& what : command.errors) {
    values.errors.push_back({"", "--trainer: " + what});
  }
  if (!values.errors.empty()) return values;
  values = read_training_arguments(command.words);
  for (const std::string& note : command.notes) values.notes.push_back("--trainer: " + note);
  return values;
}

TrainerValues read_training_arguments(const std::vector<std::string>& words) {
  return ArgumentsReading("--trainer").read_words(words);
}

}  // namespace sluice::migrate
