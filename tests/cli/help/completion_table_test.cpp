// The table from which shells complete a command line.
#include <gmock/gmock.h>

#include "runtime/cli/help/completion.hpp"
#include "tests/cli/help/program_arguments.hpp"

namespace sluice {
namespace {

using testing::ProgramArguments;

TEST(Completion, KnowsCommandsValuesAndKeys) {
  const ProgramArguments program;
  const CompletionTable table = completion_table(program.app);
  bool resume = false, stage = false;
  for (const CompletedCommand& command : table.commands) {
    for (const CompletedOption& option : command.options) {
      if (command.path != "train" || option.names.front() != "--resume") continue;
      EXPECT_THAT(option.value.words, ::testing::ElementsAre("auto", "never"));
      EXPECT_TRUE(option.value.folders && !option.value.files);
      resume = true;
    }
  }
  for (const CompletedKey& key : table.keys) {
    if (key.path != "train.dtype") continue;
    EXPECT_THAT(key.values, ::testing::Contains("bf16"));
    stage = true;
  }
  EXPECT_TRUE(resume && stage);
}

}  // namespace
}  // namespace sluice
