#include "configs/migrate/launcher/launch_line.hpp"

#include <algorithm>
#include <array>

#include "base/format.hpp"
#include "configs/migrate/launcher/launch_parts.hpp"
#include "configs/migrate/launcher/shell_command.hpp"
#include "configs/yaml_tree.hpp"

namespace sluice::migrate {
namespace {

// The program of a line and where its arguments begin.
struct Program {
  Launcher launcher = Launcher::kPython;
  std::size_t first = 0;
  std::string error;
};

std::string base_name(std::string_view path) {
  return std::string(path.substr(path.rfind('/') + 1));
}

bool is_python(std::string_view name) {
  return name.starts_with("python") &&
         name.find_first_not_of("0123456789.", std::string_view("python").size()) ==
             std::string_view::npos;
}

// The launcher that `python -m MODULE` runs.
std::optional<Launcher> launcher_module(std::string_view module) {
  if (module == "torch.distributed.run" || module == "torch.distributed.launch") {
    return Launcher::kTorchrun;
  }
  if (module == "accelerate.commands.launch") return Launcher::kAccelerate;
  if (module == "deepspeed.launcher.runner") return Launcher::kDeepSpeed;
  return std::nullopt;
}

// python [-u ...] script, or python -m module.
Program find_python(const std::vector<std::string>& words, std::size_t at) {
  constexpr std::string_view kWithValue = "WX";
  ++at;
  while (at < words.size() && words[at].size() > 1 && words[at][0] == '-') {
    if (words[at] == "-m") {
      const auto launcher =
          at + 1 < words.size() ? launcher_module(words[at + 1]) : std::optional<Launcher>();
      return launcher ? Program{*launcher, at + 2, ""} : Program{Launcher::kPython, at + 1, ""};
    }
    if (words[at] == "-c") {
      return {Launcher::kPython, at, "python -c is no script; give the file of the script"};
    }
    const bool takes = words[at].size() == 2 && kWithValue.find(words[at][1]) != kWithValue.npos;
    at += takes ? 2 : 1;
  }
  return {Launcher::kPython, at, ""};
}

bool is_shell(std::string_view name) { return name == "bash" || name == "sh" || name == "zsh"; }

// A file of commands in place of a command: run.sh, or bash run.sh.
std::string script_of_shell(const std::vector<std::string>& words, std::size_t at,
                            const TextReader& read) {
  if (is_shell(base_name(words[at]))) ++at;
  const bool may_be = at < words.size() && !words[at].ends_with(".py");
  return may_be && read && read(words[at]) ? words[at] : std::string();
}

Program find_program(const std::vector<std::string>& words, const TextReader& read) {
  constexpr std::array<std::string_view, 4> kBefore{"exec", "nohup", "time", "env"};
  std::size_t at = 0;
  while (at < words.size() &&
         std::find(kBefore.begin(), kBefore.end(), words[at]) != kBefore.end()) {
    ++at;
  }
  if (at == words.size()) return {Launcher::kPython, at, "the line has no program; give one"};
  const std::string name = base_name(words[at]);
  if (name == "deepspeed" || name == "ds") return {Launcher::kDeepSpeed, at + 1, ""};
  if (name == "torchrun") return {Launcher::kTorchrun, at + 1, ""};
  if (name == "accelerate-launch") return {Launcher::kAccelerate, at + 1, ""};
  if (name == "accelerate") {
    if (at + 1 < words.size() && words[at + 1] == "launch") {
      return {Launcher::kAccelerate, at + 2, ""};
    }
    return {Launcher::kPython, at,
            "accelerate starts a training as 'accelerate launch'; give that"};
  }
  if (is_python(name)) return find_python(words, at);
  if (name == "srun" || name == "mpirun" || name == "mpiexec") {
    return {Launcher::kPython, at,
            format_text("{} starts the ranks; give the command after it, and the ranks as --world",
                        name)};
  }
  if (const std::string script = script_of_shell(words, at, read); !script.empty()) {
    return {Launcher::kPython, at,
            format_text("{} is a file, and no file of commands is run; give the line in it that "
                        "starts the training, in quotes",
                        in_quotes(script))};
  }
  return {Launcher::kPython, at,
          format_text("{} is no launcher that Sluice knows; give deepspeed, accelerate launch, "
                      "torchrun or python",
                      in_quotes(name))};
}

// Variables of the source's libraries mean nothing to Sluice.
std::string_view library_of(std::string_view name) {
  struct Prefix {
    std::string_view prefix, library;
  };
  constexpr std::array<Prefix, 9> kPrefixes{{{"PYTHON", "Python"},
                                             {"HF_", "Hugging Face's libraries"},
                                             {"TRANSFORMERS_", "Hugging Face's libraries"},
                                             {"TOKENIZERS_", "Hugging Face's tokenizers"},
                                             {"ACCELERATE_", "accelerate"},
                                             {"WANDB_", "Weights & Biases"},
                                             {"DS_", "DeepSpeed"},
                                             {"PYTORCH_", "PyTorch's allocators"},
                                             {"TORCHINDUCTOR_", "PyTorch's compiler"}}};
  for (const Prefix& row : kPrefixes) {
    if (name.starts_with(row.prefix)) return row.library;
  }
  return {};
}

void add_variables(const std::vector<std::string>& variables, LaunchPart& part) {
  for (const std::string& variable : variables) {
    const std::size_t equals = variable.find('=');
    const std::string name = variable.substr(0, equals);
    const std::string_view library = library_of(name);
    HjsonNode value;
    value.kind = HjsonNode::Kind::kText;
    value.text = variable.substr(equals + 1);
    part.draft().add({.path = name,
                      .place = {},
                      .value = to_json(value),
                      .kind = library.empty() ? KeyClass::kMapped : KeyClass::kNotNeeded,
                      .to = {},
                      .note = library.empty() ? "a variable of the command that starts the run"
                                              : format_text("a variable of {}", library)});
    if (library.empty()) part.variable(name, value.text);
  }
}

void map_python(LaunchPart& part, const std::vector<std::string>& words, std::size_t first) {
  LaunchLine& result = part.result();
  result.world = 1;
  if (first >= words.size()) {
    result.errors.push_back({"", "--launch: python is given no script; add the script"});
    return;
  }
  result.script = words[first];
  result.script_arguments.assign(words.begin() + static_cast<std::ptrdiff_t>(first) + 1,
                                 words.end());
  part.set("", "launch.nproc", "1", "python starts one rank");
  part.finish();
  result.commands.push_back(part.command());
}

// --deepspeed ds.json (Trainer), --deepspeed_config ds.json (DeepSpeed), --deepspeed=ds.json.
std::string find_deepspeed_config(const std::vector<std::string>& arguments) {
  std::string found;
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    for (const std::string_view name :
         {"--deepspeed_config", "--deepspeed-config", "--deepspeed"}) {
      const bool is_section = name != "--deepspeed";
      std::string value;
      if (arguments[i] == name && i + 1 < arguments.size() && arguments[i + 1][0] != '-') {
        value = arguments[i + 1];
      } else if (arguments[i].starts_with(std::string(name) + "=")) {
        value = arguments[i].substr(name.size() + 1);
      }
      if (!value.empty() && (is_section || found.empty())) found = value;
    }
  }
  return found;
}

}  // namespace

LaunchLine map_launch_line(std::string_view line, const LaunchOptions& options,
                           MigrationDraft& draft) {
  LaunchLine result;
  const ShellCommand command = split_command(line);
  for (const std::string& what : command.errors) {
    result.errors.push_back({"", "--launch: " + what});
  }
  if (!result.errors.empty()) return result;
  for (const std::string& note : command.notes) draft.note("--launch: " + note);
  std::vector<std::string> words = command.words;
  std::vector<std::string> variables = command.environment;
  // env A=1 program
  if (words[0] == "env") {
    while (words.size() > 1 && words[1].find('=') != std::string::npos && words[1][0] != '-') {
      variables.push_back(words[1]);
      words.erase(words.begin() + 1);
    }
  }
  const Program program = find_program(words, options.read);
  if (!program.error.empty()) {
    result.errors.push_back({"", "--launch: " + program.error});
    return result;
  }
  result.launcher = program.launcher;
  LaunchPart part(options, draft, result);
  add_variables(variables, part);
  if (program.launcher == Launcher::kDeepSpeed) {
    map_deepspeed_launcher(part, words, program.first);
  } else if (program.launcher == Launcher::kAccelerate) {
    map_accelerate_launcher(part, words, program.first);
  } else if (program.launcher == Launcher::kTorchrun) {
    map_torchrun(part, words, program.first);
  } else {
    map_python(part, words, program.first);
  }
  result.deepspeed_config = find_deepspeed_config(result.script_arguments);
  return result;
}

}  // namespace sluice::migrate
