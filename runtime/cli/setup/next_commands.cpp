#include "runtime/cli/setup/next_commands.hpp"

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

}  // namespace

std::string next_commands(const LoadedConfig& config, const TrainingData& data) {
  const std::string& run = config.run.output.dir;
  const std::string from =
      word(config.run.checkpoint.dir.empty() ? run : config.run.checkpoint.dir);
  const std::string program = program_word();
  std::string text = "the model is saved; what to do with it:\n";
  if (data.tokenizer() != nullptr) {
    text += program + " generate --checkpoint " + from +
            (chats(config.run.data, *data.tokenizer()) ? " --chat\n" : " --prompt 'TEXT'\n");
  }
  if (data.valid_samples() > 0) {
    text +=
        program + " eval " + word(join_path(run, "config.yaml")) + " --checkpoint " + from + "\n";
  }
  text += program + " report " + word(run) + "\n";
  return text + program + " checkpoint export " + from + " -o " +
         word(join_path(run, "huggingface")) + "\n";
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
