// Data, checkpoints, logs and evaluation.
#include <string>
#include <utility>
#include <vector>

#include "configs/migrate/peers/megatron_map.hpp"
#include "configs/value.hpp"

namespace sluice::migrate {
namespace {

// "0.3 a 0.7 b": every second word is a path.
bool has_weights(const std::vector<std::string>& words) {
  if (words.size() < 2 || words.size() % 2 != 0) return false;
  for (std::size_t i = 0; i < words.size(); i += 2) {
    if (!is_python_float(words[i])) return false;
  }
  return true;
}

struct WeightedPath {
  double weight = 0;
  std::string path;
};

std::vector<WeightedPath> weighted_paths(const std::vector<std::string>& words) {
  std::vector<WeightedPath> parts;
  for (std::size_t i = 0; i < words.size(); i += 2) {
    parts.push_back({python_float(words[i]), words[i + 1]});
  }
  return parts;
}

std::string yaml_blend(const std::vector<WeightedPath>& parts) {
  std::string text;
  for (const WeightedPath& part : parts) {
    text += (text.empty() ? "" : ", ") + ("{path: " + yaml_text(part.path)) +
            ", weight: " + format_number(part.weight) + "}";
  }
  return "[" + text + "]";
}

// Several paths with weights are a blend, which only training data has here.
void map_paths(MegatronRun& run, std::string_view from, std::string_view key) {
  const std::vector<std::string>& words = run.args.list(from);
  if (words.empty()) return;
  if (!has_weights(words)) return run.map.set(from, key, yaml_paths(words));
  const std::vector<WeightedPath> parts = weighted_paths(words);
  if (parts.size() == 1) return run.map.set(from, key, yaml_paths({parts[0].path}));
  if (key == "data.train") {
    run.map.set(from, "data.blend", yaml_blend(parts));
    return run.map.reclass(from, KeyClass::kMapped, "data.blend");
  }
  std::vector<std::string> paths;
  for (const WeightedPath& part : parts) paths.push_back(part.path);
  run.map.set(from, key, yaml_paths(paths));
  run.map.stop(from, "weights there; here each file has the share of its tokens");
}

// Weights of training, validation and test: "969, 30, 1". Megatron-LM takes each run of digits and
// points as a number, whatever lies between.
void map_split(MegatronRun& run) {
  const bool given = run.args.has("--split");
  const std::string text = given ? run.args.text("--split") : "969, 30, 1";
  constexpr std::string_view kDigits = ".0123456789";
  std::vector<double> shares;
  bool is_number = true;
  for (std::size_t at = text.find_first_of(kDigits); at < text.size();) {
    const std::size_t end = std::min(text.find_first_not_of(kDigits, at), text.size());
    const std::string word = text.substr(at, end - at);
    is_number = is_number && is_python_float(word);
    if (is_number) shares.push_back(python_float(word));
    at = text.find_first_of(kDigits, end);
  }
  if (!is_number || shares.empty() || shares.size() > 3) {
    run.map.error("--split", "found '" + text +
                                 "', expected one to three numbers with commas; write --split "
                                 "969,30,1");
    return;
  }
  shares.resize(3);
  if (shares[2] == 0) shares.pop_back();
  std::string list;
  for (const double share : shares) list += (list.empty() ? "" : ", ") + format_number(share);
  list = "[" + list + "]";
  if (given) {
    run.map.set("--split", "data.split", list);
  } else {
    run.map.set_own("data.split", list, "--split 969, 30, 1, the default there");
  }
}

void map_checkpoints(MegatronRun& run) {
  const MegatronArgs& args = run.args;
  if (!args.has("--save")) {
    run.map.set_own("checkpoint.at_end", "false", "no --save");
    if (args.has("--save-interval")) {
      run.map.reclass("--save-interval", KeyClass::kIgnored, "no effect without --save");
    }
  } else {
    run.map.set("--save", "checkpoint.dir", yaml_text(args.text("--save")));
    if (args.count("--save-interval") < 1) {
      run.map.error("--save", "needs --save-interval, Megatron-LM stops; give both");
    } else {
      run.map.set("--save-interval", "checkpoint.every", args.text("--save-interval"));
    }
    run.map.set_own("checkpoint.keep", "0", "Megatron-LM keeps every checkpoint");
  }
  if (!args.has("--load")) return;
  if (args.has("--save") && args.text("--save") == args.text("--load")) {
    run.map.changed("--load",
                    "a start continues from the folder there; here `sluice train --resume auto` "
                    "does, and `sluice checkpoint import` reads Megatron-LM's checkpoint first");
    run.map.draft().note(
        "the run continues from its own checkpoints with `sluice train --resume auto`");
  } else {
    run.map.stop("--load",
                 "the weights come from Megatron-LM's checkpoint: `sluice checkpoint import` "
                 "makes a checkpoint of Sluice, and `sluice train --resume` continues from that");
  }
}

void map_minutes(MegatronRun& run, std::string_view from, std::string_view key) {
  const std::int64_t minutes = run.args.count(from);
  if (minutes > 0 && minutes < 1'000'000) run.map.set(from, key, std::to_string(60 * minutes));
}

}  // namespace

void map_megatron_data(MegatronRun& run) {
  const MegatronArgs& args = run.args;
  const bool parts = args.has("--train-data-path") || args.has("--valid-data-path") ||
                     args.has("--test-data-path");
  if (args.has("--data-path") && parts) {
    run.map.error("--data-path",
                  "--train-data-path, --valid-data-path or --test-data-path is given too, "
                  "Megatron-LM stops; give one kind");
  }
  map_paths(run, "--data-path", "data.train");
  map_paths(run, "--train-data-path", "data.train");
  map_paths(run, "--valid-data-path", "data.valid");
  map_paths(run, "--test-data-path", "data.test");
  if (args.has("--data-path")) {
    map_split(run);
  } else if (args.has("--split")) {
    run.map.reclass("--split", KeyClass::kIgnored, "no effect without --data-path");
  }
  if (args.text("--dataloader-type") == "single") {
    run.map.reclass("--dataloader-type", KeyClass::kNotNeeded, "one pass in one order, as here");
  }
}

void map_megatron_output(MegatronRun& run) {
  const MegatronArgs& args = run.args;
  map_checkpoints(run);
  run.map.set("--log-interval", "train.log_every", args.text("--log-interval"));
  run.map.set("--eval-iters", "train.eval_steps", args.text("--eval-iters"));
  if (args.has("--eval-interval")) {
    run.map.set("--eval-interval", "train.eval_every", args.text("--eval-interval"));
  }
  if (args.has("--tensorboard-dir")) {
    run.map.set("--tensorboard-dir", "output.tensorboard", "true");
  }
  run.map.set("--seed", "train.seed", args.text("--seed"));
  map_minutes(run, "--exit-duration-in-mins", "checkpoint.time_limit");
  map_minutes(run, "--distributed-timeout-minutes", "launch.timeout");
  if (args.has("--distributed-backend")) {
    run.map.set("--distributed-backend", "launch.backend", args.text("--distributed-backend"));
  }
}

}  // namespace sluice::migrate
