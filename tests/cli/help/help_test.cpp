// The help of every command, its examples and values; without running a command.
#include <gmock/gmock.h>

#include <sstream>
#include <string>
#include <vector>

#include "runtime/cli/help/argument_values.hpp"
#include "runtime/cli/help/examples.hpp"
#include "runtime/cli/help/version.hpp"
#include "runtime/data/corpus/filters/filter.hpp"
#include "runtime/observe/terminal.hpp"
#include "tests/cli/help/program_arguments.hpp"

namespace sluice {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::MatchesRegex;
using testing::ProgramArguments;

// "" if the parser takes the line.
std::string refusal(const std::string& line) {
  ProgramArguments program;
  try {
    program.app.parse(line);
  } catch (const CLI::ParseError& error) {
    return error.what();
  }
  return "";
}

void visit(const CLI::App& app, const std::function<void(const CLI::App&)>& see) {
  see(app);
  for (const CLI::App* sub : app.get_subcommands({})) visit(*sub, see);
}

TEST(Help, EveryExampleIsTakenByTheParser) {
  for (const Example& example : all_examples()) {
    EXPECT_EQ(refusal(std::string(example.line)), "") << example.line;
    EXPECT_TRUE(example.line.starts_with(example.command)) << example.line;
  }
  EXPECT_NE(refusal("train my.yaml --no-such-option"), "");
}

// The parser takes any text behind --filter.
TEST(Help, TheFiltersOfExamplesExist) {
  int filters = 0;
  for (const Example& example : all_examples()) {
    std::istringstream words{std::string(example.line)};
    for (std::string word; words >> word;) {
      if (word != "--filter" || !(words >> word)) continue;
      EXPECT_NO_THROW((void)make_filter(parse_filter(word))) << example.line;
      ++filters;
    }
  }
  EXPECT_GT(filters, 0);
}

TEST(Help, EveryCommandHasAnExample) {
  const ProgramArguments program;
  visit(program.app, [](const CLI::App& command) {
    const std::string path = path_of(command);
    int examples = 0;
    for (const Example& example : all_examples()) examples += example.command == path ? 1 : 0;
    EXPECT_GT(examples, 0) << "sluice " << path;
    EXPECT_THAT(command.help(), HasSubstr("\nExamples:\n")) << path;
  });
  for (const Example& example : all_examples()) {
    bool known = false;
    visit(program.app,
          [&](const CLI::App& command) { known |= path_of(command) == example.command; });
    EXPECT_TRUE(known) << example.command;
  }
}

TEST(Help, FitsEightyColumns) {
  ::unsetenv("SLUICE_COMMAND");
  const ProgramArguments program;
  visit(program.app, [](const CLI::App& command) {
    const std::string text = command.help();
    for (std::size_t begin = 0; begin < text.size();) {
      const std::size_t end = text.find('\n', begin);
      const std::string line = text.substr(begin, end - begin);
      EXPECT_LE(columns_of(line), 80) << path_of(command) << ": " << line;
      begin = end + 1;
    }
  });
}

TEST(Help, SaysWhatAnOptionTakes) {
  ProgramArguments program;
  const std::string text = program.app.get_subcommand("train")->help();
  EXPECT_THAT(text, HasSubstr("sluice train config [options]\n"));
  EXPECT_THAT(text, HasSubstr("\n  --resume auto|never|DIR\n"));
  EXPECT_THAT(text, ::testing::ContainsRegex("\\(default:[ \n]+never\\)"));
  EXPECT_THAT(program.app.get_subcommand("checkpoint")->get_subcommand("export")->help(),
              HasSubstr("--dtype fp32|bf16|fp16"));
}

TEST(Help, EveryArgumentHasAValueToShow) {
  const ProgramArguments program;
  EXPECT_THAT(value_table_faults(program.app), IsEmpty());
}

TEST(Verbosity, IsOneOrTheOther) {
  EXPECT_EQ(refusal("train my.yaml --quiet"), "");
  EXPECT_EQ(refusal("data clean a -o b --verbose"), "");
  EXPECT_NE(refusal("train my.yaml --quiet --verbose"), "");
  EXPECT_NE(refusal("schema --quiet"), "");  // has no log
}

TEST(Options, AreGivenOnceBesideThoseThatRepeat) {
  const std::vector<std::vector<std::string>> rows = {
      {"train", "a.yaml", "--resume", "never", "--resume", "auto"},
      {"train", "a.yaml", "--nproc", "1", "--nproc", "2"},
      {"generate", "--prompt-file", "a", "--prompt-file", "b"},
      {"generate", "--prompt", "a", "--prompt", "b"}};
  for (const std::vector<std::string>& row : rows) {
    ProgramArguments program;
    EXPECT_THROW(program.app.parse(std::vector<std::string>(row.rbegin(), row.rend())),
                 CLI::ArgumentMismatch)
        << row.back();
  }
  ProgramArguments program;
  program.app.parse(std::vector<std::string>{"b=2", "--set", "a=1", "--set", "a.yaml", "train"});
  EXPECT_EQ(program.args.train.overrides, (std::vector<std::string>{"a=1", "b=2"}));
}

TEST(Version, NamesWhatTheProgramIsMadeOf) {
  const std::string text = version_text();
  EXPECT_THAT(text,
              MatchesRegex("sluice [0-9.]+\ncommit    .+\nbuild     .+\nlibtorch  .+\nCUDA      "
                           ".+\nkernels   .+\n"));
}

}  // namespace
}  // namespace sluice
