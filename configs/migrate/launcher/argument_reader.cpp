#include "configs/migrate/launcher/argument_reader.hpp"

#include <algorithm>
#include <charconv>

#include "base/format.hpp"
#include "configs/migrate/launcher/yaml_values.hpp"
#include "configs/suggest.hpp"
#include "configs/yaml_tree.hpp"

namespace sluice::migrate {
namespace {

bool is_count(std::string_view text) {
  const HjsonNode value = typed_word(text);
  return value.kind == HjsonNode::Kind::kNumber && !value.is_float && value.integer.has_value();
}

bool is_number(std::string_view text) { return typed_word(text).kind == HjsonNode::Kind::kNumber; }

bool is_choice(std::string_view choices, std::string_view word) {
  const std::string padded = format_text(" {} ", choices);
  return padded.find(format_text(" {} ", word)) != std::string::npos;
}

class Reading {
 public:
  Reading(const std::vector<std::string>& words, std::size_t first,
          std::span<const ArgumentRule> rules, const ArgumentStyle& style)
      : words_(words), first_(first), rules_(rules), style_(style) {}

  ArgumentReading read() {
    at_ = first_;
    while (at_ < words_.size() && words_[at_].size() > 1 && words_[at_][0] == '-') {
      if (words_[at_] == "--") {
        ++at_;
        break;
      }
      read_one();
    }
    result_.script = at_;
    return std::move(result_);
  }

 private:
  [[nodiscard]] int number() const { return static_cast<int>(at_ - first_) + 1; }
  void error(std::string name, int number, std::string what) {
    result_.errors.push_back({std::move(name), number, std::move(what)});
  }
  void read_one() {
    const int place = number();
    const std::string_view word = words_[at_++];
    std::string_view name = word;
    std::string_view value;
    const std::size_t equals = word.starts_with("--") ? word.find('=') : std::string_view::npos;
    const bool has_value = equals != std::string_view::npos;
    if (has_value) {
      name = word.substr(0, equals);
      value = word.substr(equals + 1);
    }
    const ArgumentRule* rule = find_rule(name, place);
    if (rule == nullptr) {
      const ArgumentRule* glued = short_rule(word);
      if (glued == nullptr) return unknown(name, place, has_value);
      return take(*glued, word.substr(2), place);
    }
    if (rule->type == ArgumentType::kFlag) {
      if (has_value) return error(std::string(rule->name), place, "takes no value; give it alone");
      result_.arguments.push_back({rule, "true", place});
      return;
    }
    if (has_value) return take(*rule, value, place);
    const bool ends = at_ >= words_.size();
    if (ends || (words_[at_].size() > 1 && words_[at_][0] == '-' && !is_number(words_[at_]))) {
      return error(std::string(rule->name), place, "the value is missing; give one after it");
    }
    take(*rule, words_[at_++], place);
  }
  // -Hfile is -H file.
  [[nodiscard]] const ArgumentRule* short_rule(std::string_view word) const {
    if (word.size() < 3 || word[1] == '-') return nullptr;
    for (const ArgumentRule& rule : rules_) {
      const bool takes = rule.type != ArgumentType::kFlag;
      if (takes && rule.alias.size() == 2 && word.starts_with(rule.alias)) return &rule;
    }
    return nullptr;
  }
  void take(const ArgumentRule& rule, std::string_view value, int place) {
    const std::string name(rule.name);
    if (rule.type == ArgumentType::kInt && !is_count(value)) {
      return error(name, place, format_text("{} is no whole number; give one", in_quotes(value)));
    }
    if (rule.type == ArgumentType::kFloat && !is_number(value)) {
      return error(name, place, format_text("{} is no number; give one", in_quotes(value)));
    }
    if (!rule.choices.empty() && !is_choice(rule.choices, value)) {
      return error(name, place,
                   format_text("{} is not one of: {}", in_quotes(value), rule.choices));
    }
    result_.arguments.push_back({&rule, std::string(value), place});
  }
  [[nodiscard]] const ArgumentRule* find_rule(std::string_view name, int place) {
    std::string written(name);
    if (style_.hyphens && written.starts_with("--")) {
      std::replace(written.begin() + 2, written.end(), '-', '_');
    }
    std::vector<const ArgumentRule*> longer;
    for (const ArgumentRule& rule : rules_) {
      if (rule.name == written || rule.alias == name || rule.alias == written) return &rule;
      const bool starts = rule.name.starts_with(written) || rule.alias.starts_with(written);
      if (style_.abbreviations && written.size() > 2 && starts) longer.push_back(&rule);
    }
    if (longer.size() < 2) return longer.empty() ? nullptr : longer[0];
    error(written, place,
          format_text("the abbreviation fits {} and {}; write the whole name", longer[0]->name,
                      longer[1]->name));
    return longer[0];
  }
  void unknown(std::string_view name, int place, bool has_value) {
    std::vector<std::string_view> names;
    for (const ArgumentRule& rule : rules_) names.push_back(rule.name);
    const auto near = nearest(name, names);
    error(std::string(name), place,
          format_text("{} has no such argument{}", style_.program,
                      near ? format_text("; nearest is {}", *near) : "; take it away"));
    // The word after an unknown argument may be its value or the script: a script has a suffix.
    const bool value_follows = !has_value && at_ + 1 < words_.size() && words_[at_][0] != '-' &&
                               !words_[at_].ends_with(".py");
    if (value_follows) ++at_;
  }

  const std::vector<std::string>& words_;
  std::size_t first_;
  std::span<const ArgumentRule> rules_;
  ArgumentStyle style_;
  std::size_t at_ = 0;
  ArgumentReading result_;
};

}  // namespace

const Argument* ArgumentReading::find(std::string_view name) const {
  const auto found = std::find_if(arguments.rbegin(), arguments.rend(),
                                  [name](const Argument& a) { return a.rule->name == name; });
  return found == arguments.rend() ? nullptr : &*found;
}

std::string ArgumentReading::text(std::string_view name, std::string_view fallback) const {
  const Argument* found = find(name);
  return found == nullptr ? std::string(fallback) : found->value;
}

std::int64_t ArgumentReading::count(std::string_view name, std::int64_t fallback) const {
  const Argument* found = find(name);
  if (found == nullptr) return fallback;
  return typed_word(found->value).integer.value_or(fallback);
}

ArgumentReading read_arguments(const std::vector<std::string>& words, std::size_t first,
                               std::span<const ArgumentRule> rules, const ArgumentStyle& style) {
  return Reading(words, first, rules, style).read();
}

}  // namespace sluice::migrate
