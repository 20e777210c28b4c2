#include "configs/migrate/peers/megatron.hpp"

#include <string>
#include <utility>
#include <vector>

#include "configs/migrate/peers/megatron_args.hpp"
#include "configs/migrate/peers/megatron_launch.hpp"
#include "configs/migrate/peers/megatron_map.hpp"
#include "configs/migrate/peers/peer_map.hpp"
#include "configs/migrate/shell_words.hpp"

namespace sluice::migrate {
namespace {

MigratedKey key_by_default(std::string_view path) {
  MigratedKey key;
  key.path = path;
  key.is_written = false;
  const MegatronArgument* const argument = find_megatron_argument(path);
  if (argument == nullptr) return key;
  key.value = default_json(*argument);
  key.kind = argument->kind;
  key.note = argument->note;
  return key;
}

std::vector<ShellWord> read_words(std::string_view arguments, const MegatronOptions& options,
                                  Migration& result) {
  const bool is_file = !options.file.empty();
  ShellWords split =
      split_shell_words(arguments, is_file ? Newlines::kSeparateWords : Newlines::kEndCommand);
  for (const ShellProblem& problem : split.problems) {
    const std::string place = ":" + std::to_string(problem.place.line) + ":" +
                              std::to_string(problem.place.column) + ": ";
    result.errors.push_back({"", result.file + place + problem.what});
  }
  if (!split.problems.empty() && arguments.starts_with("#!")) {
    result.notes.push_back(result.file +
                           ": a shell script is not run here; write echo before its torchrun or "
                           "python, and give the line that the script prints");
  }
  for (const std::string& note : split.notes) result.notes.push_back(result.file + ": " + note);
  if (!is_file) {
    int number = 0;
    for (ShellWord& word : split.words) word.place = {0, ++number};
  }
  return std::move(split.words);
}

bool is_default(const std::string& value, const MegatronArgument& argument) {
  const std::string fallback = default_json(argument);
  if (value == fallback) return true;
  return is_python_float(value) && is_python_float(fallback) &&
         python_float(value) == python_float(fallback);
}

// Arguments that Sluice has no counterpart for and whose values are not the defaults.
void stop_refused(const MegatronArgs& args, PeerMap& map) {
  for (MigratedKey& key : map.result().keys) {
    const MegatronArgument* const argument = find_megatron_argument(key.path);
    if (argument == nullptr || argument->kind != key.kind) continue;
    if (key.kind == KeyClass::kRefused) key.stops = !is_default(key.value, *argument);
  }
  for (const auto& [name, successor] :
       {std::pair{"--batch-size", "--micro-batch-size"},
        std::pair{"--warmup", "--lr-warmup-fraction"},
        std::pair{"--model-parallel-size", "--tensor-model-parallel-size"},
        std::pair{"--checkpoint-activations", "--recompute-granularity"}}) {
    if (!args.has(name)) continue;
    map.error(name, std::string("Megatron-LM has removed the argument and stops; give ") +
                        successor + " in its place");
  }
}

void fill_effective(const MegatronArgs& args, Migration& result) {
  for (const MegatronArgument& argument : megatron_arguments()) {
    const std::string_view name = argument.names.front();
    const bool idle = argument.kind == KeyClass::kIgnored || argument.kind == KeyClass::kRemoved;
    if (!idle || args.has(name)) result.effective.emplace(name, args.json(name));
  }
}

}  // namespace

Migration migrate_megatron(std::string_view arguments, const MegatronOptions& options) {
  Migration result;
  result.file = options.file.empty() ? "--megatron" : options.file;
  result.source = "Megatron-LM";
  const std::vector<ShellWord> words = read_words(arguments, options, result);
  if (!result.errors.empty()) return result;
  PeerMap map(result, options.settings, key_by_default);
  const MegatronCommand command = split_megatron_command(words, map);
  if (!result.errors.empty()) return result;
  const MegatronArgs args = parse_megatron_args(command.arguments, map.draft(),
                                                {.has_deepspeed_file = options.has_deepspeed_file});
  fill_effective(args, result);
  stop_refused(args, map);
  map.settle_conditions();
  map.set_world(options.world, command.world);
  if (!result.errors.empty()) return result;
  MegatronRun run{args, map, result.world};
  map_megatron_model(run);
  map_megatron_batch(run);
  map_megatron_schedule(run);
  map_megatron_optimizer(run);
  map_megatron_ranks(run);
  map_megatron_memory(run);
  map_megatron_data(run);
  map_megatron_output(run);
  return result;
}

}  // namespace sluice::migrate
