#include "configs/migrate/launcher/launch_parts.hpp"

#include <algorithm>
#include <array>

#include "base/counted.hpp"
#include "base/format.hpp"
#include "configs/migrate/launcher/shell_command.hpp"

namespace sluice::migrate {
namespace {

// docs/launch.md: variables that Sluice passes to other hosts by itself.
bool is_passed(std::string_view name) {
  constexpr std::array<std::string_view, 5> kPrefixes{"SLUICE_", "NCCL_", "GLOO_", "TORCH_",
                                                      "MKL_"};
  constexpr std::array<std::string_view, 6> kNames{"OMP_NUM_THREADS", "OMP_WAIT_POLICY",
                                                   "GOMP_SPINCOUNT",  "LD_LIBRARY_PATH",
                                                   "MASTER_ADDR",     "MASTER_PORT"};
  return std::any_of(kPrefixes.begin(), kPrefixes.end(),
                     [name](std::string_view prefix) { return name.starts_with(prefix); }) ||
         std::find(kNames.begin(), kNames.end(), name) != kNames.end();
}

std::string json_value(const Argument& argument) {
  HjsonNode node;
  node.kind = HjsonNode::Kind::kText;
  node.text = argument.value;
  const bool plain = argument.rule->type != ArgumentType::kText;
  return plain ? argument.value : to_json(node);
}

}  // namespace

const ArgumentReading& LaunchPart::read(const std::vector<std::string>& words, std::size_t first,
                                        std::span<const ArgumentRule> rules,
                                        const ArgumentStyle& style) {
  reading_ = read_arguments(words, first, rules, style);
  for (const ArgumentError& mistake : reading_.errors) {
    error(mistake.name, mistake.number, mistake.what);
  }
  if (reading_.script < words.size()) {
    result_.script = words[reading_.script];
    result_.script_arguments.assign(
        words.begin() + static_cast<std::ptrdiff_t>(reading_.script) + 1, words.end());
  } else if (reading_.errors.empty()) {
    result_.errors.push_back(
        {"", format_text("--launch: {} is given no script; add the script and its arguments",
                         style.program)});
  }
  return reading_;
}

std::optional<std::string> LaunchPart::file(const std::string& path) const {
  return options_.read ? options_.read(path) : std::nullopt;
}

void LaunchPart::error(std::string_view name, int number, std::string_view what) {
  result_.errors.push_back(
      {std::string(name), format_text("--launch: argument {}: {}: {}", number, name, what)});
}

void LaunchPart::error(std::string_view name, std::string_view what) {
  const Argument* argument = reading_.find(name);
  error(name, argument == nullptr ? 0 : argument->number, what);
}

void LaunchPart::decide(std::string_view name, KeyClass kind, std::string note) {
  verdicts_.insert_or_assign(std::string(name), Verdict{kind, std::move(note), false});
}

void LaunchPart::stop(std::string_view name, std::string note) {
  verdicts_.insert_or_assign(std::string(name), Verdict{KeyClass::kRefused, std::move(note), true});
}

void LaunchPart::set(std::string_view name, std::string_view key, std::string value,
                     std::string origin) {
  settings_.push_back({reading_.has(name) ? std::string(name) : std::string(),
                       {std::string(key), std::move(value)},
                       std::move(origin)});
}

void LaunchPart::set_ranks_of_host(std::string_view name, std::size_t hosts, std::size_t ranks,
                                   std::string origin) {
  set(name, "launch.nproc", std::to_string(ranks), std::move(origin));
  draft_.note(format_text(
      "the job has {}, and launch.nproc counts the ranks of one: start the hosts with the "
      "command of the report, or name each with its ranks in a file (lines of name slots={}) with "
      "--set launch.hostfile=FILE; `sluice plan` needs --world {}",
      counted(static_cast<std::int64_t>(hosts), "host"), ranks, result_.world));
}

void LaunchPart::variable(const std::string& name, const std::string& value) {
  auto& all = result_.environment;
  std::erase_if(all, [&name](const std::string& known) { return known.starts_with(name + "="); });
  all.push_back(name + "=" + value);
}

void LaunchPart::export_variables() {
  std::string names;
  for (const std::string& variable : result_.environment) {
    const std::string name = variable.substr(0, variable.find('='));
    if (!is_passed(name)) names += (names.empty() ? "" : ",") + name;
  }
  if (!names.empty()) variable("SLUICE_EXPORT", names);
}

std::string LaunchPart::config() const { return shell_quote(options_.config); }

std::string LaunchPart::command(std::string_view before) const {
  std::string text = shell_join(result_.environment);
  if (!text.empty()) text += ' ';
  if (!before.empty()) text += std::string(before) + ' ';
  return text + "./sluice train " + config();
}

void LaunchPart::finish() {
  for (const Argument& argument : reading_.arguments) {
    const std::string name(argument.rule->name);
    if (reading_.find(name) != &argument) continue;  // a later one counts
    Verdict verdict{argument.rule->kind, std::string(argument.rule->note),
                    argument.rule->kind == KeyClass::kRefused};
    if (const auto found = verdicts_.find(name); found != verdicts_.end()) verdict = found->second;
    draft_.add({.path = name,
                .place = {0, argument.number},
                .value = json_value(argument),
                .kind = verdict.kind,
                .stops = verdict.stops,
                .to = {},
                .note = verdict.note});
  }
  for (Pending& pending : settings_) {
    draft_.set(pending.from, pending.setting.key, std::move(pending.setting.value),
               std::move(pending.origin));
  }
  settings_.clear();
}

}  // namespace sluice::migrate
