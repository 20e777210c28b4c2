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

bool are_equal(const std::vector<std::string>& words) {
  for (std::size_t i = 2; i < words.size(); i += 2) {
    if (words[i] != words[0]) return false;
  }
  return true;
}

void map_paths(MegatronRun& run, std::string_view from, std::string_view key) {
  const std::vector<std::string>& words = run.args.list(from);
  if (words.empty()) return;
  if (!has_weights(words)) return run.map.set(from, key, yaml_paths(words));
  std::vector<std::string> paths;
  for (std::size_t i = 1; i < words.size(); i += 2) paths.push_back(words[i]);
  run.map.set(from, key, yaml_paths(paths));
  if (paths.size() == 1) return;
  run.map.stop(from, std::string(are_equal(words) ? "equal" : "different") +
                         " weights there; here each file has the share of its tokens");
}

// Weights of training, validation and test: "969, 30, 1".
void map_split(MegatronRun& run) {
  const bool given = run.args.has("--split");
  const std::string text = given ? run.args.text("--split") : "969, 30, 1";
  std::vector<double> shares;
  std::size_t begin = 0;
  while (begin <= text.size()) {
    const std::size_t end = std::min(text.find_first_of(",/", begin), text.size());
    const std::string word = text.substr(begin, end - begin);
    if (!is_python_float(word) || std::stod(word) < 0) {
      run.map.error("--split", "found '" + text +
                                   "', expected numbers with commas; write "
                                   "--split 969,30,1");
      return;
    }
    shares.push_back(std::stod(word));
    begin = end + 1;
  }
  shares.resize(3);
  const double held = shares[1] + shares[2];
  const std::string both = "[" + format_number(shares[0]) + ", " + format_number(held) + "]";
  if (!given) {
    run.map.set_own("data.split", both,
                    "--split 969, 30, 1, the default there; the test share "
                    "is part of the validation share");
    return;
  }
  run.map.set("--split", "data.split", both);
  if (shares[2] == 0) return run.map.reclass("--split", KeyClass::kMapped, "data.split");
  run.map.changed("--split", "a test share of " + format_number(shares[2]) +
                                 " there, part of the validation share here: " + both +
                                 "; the same documents are trained on");
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
  const bool parts = args.has("--train-data-path") || args.has("--valid-data-path");
  if (args.has("--data-path") && parts) {
    run.map.error("--data-path",
                  "--train-data-path or --valid-data-path is given too, "
                  "Megatron-LM stops; give one kind");
  }
  map_paths(run, "--data-path", "data.train");
  map_paths(run, "--train-data-path", "data.train");
  map_paths(run, "--valid-data-path", "data.valid");
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
