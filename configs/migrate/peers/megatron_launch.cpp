#include "configs/migrate/peers/megatron_launch.hpp"

#include <algorithm>
#include <array>
#include <string>
#include <utility>

#include "configs/migrate/peers/megatron_arguments.hpp"
#include "configs/yaml_tree.hpp"

namespace sluice::migrate {
namespace {

constexpr std::array<std::string_view, 5> kFlags{"standalone", "no-python", "use-env", "u", "O"};

bool is_script(const ShellWord& word) {
  return word.text.ends_with(".py") && !word.text.starts_with('-');
}

bool is_assignment(const std::string& word) {
  const std::size_t equals = word.find('=');
  return equals != std::string::npos && equals > 0 && !word.starts_with('-');
}

std::string plain_name(std::string_view word) {
  word.remove_prefix(std::min(word.find_first_not_of('-'), word.size()));
  std::string name(word.substr(0, word.find('=')));
  std::replace(name.begin(), name.end(), '_', '-');
  return name;
}

class Launcher {
 public:
  Launcher(const std::vector<ShellWord>& words, std::size_t end, PeerMap& map)
      : words_(words), end_(end), map_(map) {}

  int world() {
    while (at_ < end_) {
      const ShellWord& word = words_[at_++];
      if (word.text.starts_with('-')) {
        option(word);
      } else if (is_assignment(word.text)) {
        const std::size_t equals = word.text.find('=');
        add(word.text.substr(0, equals), word.place, yaml_text(word.text.substr(equals + 1)),
            KeyClass::kNotNeeded, "the environment of a run is that of `sluice train`");
      }
    }
    return nodes_ * processes_;
  }

 private:
  void option(const ShellWord& word) {
    const std::string name = plain_name(word.text);
    const std::size_t equals = word.text.find('=');
    const std::string path = word.text.substr(0, equals);
    std::string value = "true";
    if (equals != std::string::npos) {
      value = word.text.substr(equals + 1);
    } else if (std::find(kFlags.begin(), kFlags.end(), name) == kFlags.end() && at_ < end_) {
      value = words_[at_++].text;
    }
    const bool number = is_python_int(value) && value.size() < 7;
    const std::string json = number ? value : yaml_text(value);
    if (name == "nproc-per-node" || name == "num-gpus") {
      add(path, word.place, json, KeyClass::kMapped, "launch.nproc");
      processes(path, value);
    } else if (name == "nnodes" || name == "num-nodes") {
      add(path, word.place, json, KeyClass::kChanged, "launch.hostfile names the hosts");
      nodes(path, value);
    } else if (name == "max-restarts") {
      add(path, word.place, json, KeyClass::kMapped, "launch.max_restarts");
      map_.set(path, "launch.max_restarts", value);
    } else {
      add(path, word.place, json, KeyClass::kNotNeeded,
          "the launcher of Sluice starts and connects the ranks");
    }
  }

  void processes(const std::string& path, const std::string& value) {
    if (value == "auto" || value == "gpu") return map_.set(path, "launch.nproc", "auto");
    if (!is_python_int(value) || value.size() > 6 || std::stoi(value) < 1) {
      map_.error(path, "found " + in_quotes(value) + ", expected a number above 0; write one");
      return;
    }
    processes_ = std::stoi(value);
    map_.set(path, "launch.nproc", value);
  }

  void nodes(const std::string& path, const std::string& value) {
    if (!is_python_int(value) || value.size() > 6 || std::stoi(value) < 1) {
      map_.error(path, "found " + in_quotes(value) +
                           ", expected a number of hosts that does not change; write one");
      return;
    }
    nodes_ = std::stoi(value);
    if (nodes_ == 1) return map_.reclass(path, KeyClass::kNotNeeded, "one host is the default");
    map_.missing(path, "launch.hostfile",
                 "--set launch.hostfile=FILE, one line for each of the " + value + " hosts");
  }

  void add(const std::string& path, Place place, std::string value, KeyClass kind,
           std::string note) {
    MigratedKey key;
    key.path = path;
    key.place = place;
    key.value = std::move(value);
    key.kind = kind;
    key.note = std::move(note);
    map_.draft().add(std::move(key));
  }

  const std::vector<ShellWord>& words_;
  std::size_t end_;
  PeerMap& map_;
  std::size_t at_ = 0;
  int nodes_ = 1;
  int processes_ = 0;
};

void check_script(const ShellWord& script, PeerMap& map) {
  const std::string name = script.text.substr(script.text.rfind('/') + 1);
  for (const std::string_view other :
       {"pretrain_bert.py", "pretrain_t5.py", "pretrain_vlm.py", "pretrain_mamba.py",
        "pretrain_hybrid.py", "pretrain_ict.py", "pretrain_retro.py", "pretrain_vision_classify.py",
        "pretrain_vision_dino.py", "pretrain_vision_inpaint.py", "train_rl.py"}) {
    if (name == other) {
      map.error("", name + " trains no model of Sluice; migrate a command of pretrain_gpt.py");
    }
  }
}

}  // namespace

MegatronCommand split_megatron_command(const std::vector<ShellWord>& words, PeerMap& map) {
  MegatronCommand command;
  if (words.empty()) {
    map.error("", "no arguments; give Megatron-LM's command line");
    return command;
  }
  const auto script = std::find_if(words.begin(), words.end(), is_script);
  if (words[0].text.starts_with("--")) {
    command.arguments = words;
    return command;
  }
  if (script == words.end()) {
    map.error("",
              "no script in the command; give the command with its .py file, or the "
              "arguments of the script alone");
    return command;
  }
  const auto end = static_cast<std::size_t>(script - words.begin());
  command.world = Launcher(words, end, map).world();
  check_script(*script, map);
  command.arguments.assign(script + 1, words.end());
  return command;
}

}  // namespace sluice::migrate
