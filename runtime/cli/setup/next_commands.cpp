#include "runtime/cli/setup/next_commands.hpp"

#include <unistd.h>

#include "base/error.hpp"
#include "runtime/checkpoint/io/checkpoint_catalog.hpp"
#include "runtime/checkpoint/io/file_system.hpp"
#include "runtime/cli/command_output.hpp"
#include "runtime/data/chat/chat_encoder.hpp"
#include "runtime/data/data_sets.hpp"
#include "runtime/launch/hosts/agent.hpp"

namespace sluice {
namespace {

// As one word of a shell, quoted only if needed.
std::string word(const std::string& text) {
  const bool plain = text.find_first_not_of(
                         "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"
                         "._-/+=,:@") == std::string::npos;
  return plain && !text.empty() ? text : shell_quoted(text);
}

// The program as one word of a shell, indented.
std::string program_word() { return "  " + word(program_name()); }

// A run on completions alone may have no template, so that --chat fails.
bool chats(const DataOptions& options, const Tokenizer& tokenizer) {
  return !options.sft.empty() &&
         chat_template_of(tokenizer, tokenizer_spec_of(options), options.chat_template);
}

bool is_there(const std::string& path) { return ::access(path.c_str(), F_OK) == 0; }

bool holds_checkpoint(const std::string& dir) {
  FileSystem& files = local_file_system();
  try {
    return newest_complete(files, checkpoints_in(files, dir), Trust::kManifest).path.has_value();
  } catch (const Error&) {
    return false;
  }
}

}  // namespace

std::string next_commands(const LoadedConfig& config, const TrainingData& data) {
  const std::string& run = config.run.output.dir;
  const std::string& dir = config.run.checkpoint.dir.empty() ? run : config.run.checkpoint.dir;
  const std::string from = word(dir);
  const std::string program = program_word();
  const bool saved = holds_checkpoint(dir);
  const std::string settings = join_path(run, "config.yaml");
  std::string text;
  if (saved && data.tokenizer() != nullptr) {
    text += program + " generate --checkpoint " + from +
            (chats(config.run.data, *data.tokenizer()) ? " --chat\n" : " --prompt 'TEXT'\n");
  }
  if (saved && data.valid_samples() > 0 && is_there(settings)) {
    text += program + " eval " + word(settings) + " --checkpoint " + from + "\n";
  }
  if (is_there(join_path(run, "metrics.jsonl"))) text += program + " report " + word(run) + "\n";
  if (!saved) return text.empty() ? "" : "what to do with the run:\n" + text;
  return "the model is saved; what to do with it:\n" + text + program + " checkpoint export " +
         from + " -o " + word(join_path(run, "huggingface")) + "\n";
}

std::string resume_command(const std::vector<std::string>& argv) {
  std::string text = "to go on with the run:\n" + program_word();
  for (std::size_t i = 1; i < argv.size(); ++i) {
    if (argv[i] == "--resume") {
      ++i;  // its value
    } else if (!argv[i].starts_with("--resume=")) {
      text += " " + word(argv[i]);
    }
  }
  return text + " --resume auto\n";
}

}  // namespace sluice
