// `sluice completion SHELL`.
#include "runtime/cli/command_output.hpp"
#include "runtime/cli/help/completion.hpp"

namespace sluice {

int run_completion(const std::string& shell, const CLI::App& program) {
  const CompletionTable table = completion_table(program);
  if (shell == "bash") {
    print(bash_completion(table));
  } else if (shell == "zsh") {
    print(zsh_completion(table));
  } else {
    print(fish_completion(table));
  }
  return 0;
}

}  // namespace sluice
