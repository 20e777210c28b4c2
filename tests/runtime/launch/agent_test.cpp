#include "runtime/launch/hosts/agent.hpp"

#include <gtest/gtest.h>

#include <array>
#include <cstdio>

#include "base/error.hpp"

namespace sluice {
namespace {

TEST(Agent, PlaceAsTextAndBack) {
  const AgentPlace place{.node = 1, .nodes = 2, .first_rank = 4, .nproc = 3, .world = 7};
  EXPECT_EQ(agent_text(place), "node=1,nodes=2,first=4,nproc=3,world=7");
  const AgentPlace back = parse_agent(agent_text(place));
  EXPECT_EQ(agent_text(back), agent_text(place));
  for (const char* text :
       {"", "1", "node=1,nodes=2,first=4,nproc=3", "node=2,nodes=2,first=4,nproc=3,world=7",
        "node=1,nodes=2,first=5,nproc=3,world=7", "node=1,nodes=2,first=4,nproc=0,world=7",
        "node=1,nodes=2,first=x,nproc=3,world=7"}) {
    EXPECT_THROW((void)parse_agent(text), ConfigError) << text;
  }
}

// Whatever the cuts, the record comes out and the rest stays as it is.
TEST(Agent, RecordIsTakenOutOfTheOutput) {
  const ErrorReport report{.rank = 5,
                           .host = "node7",
                           .time_ns = 17,
                           .exit_code = 4,
                           .secondary = true,
                           .recurs = true,
                           .message = "two\nlines, \"quoted\""};
  const std::string before = "output \x1e here, \x1eslui and \x1esluice {no record}\n";
  const std::string after = "a last line \x1esluice";
  const std::string bytes = before + agent_record(report) + after;
  for (std::size_t cut = 1; cut < 9; ++cut) {
    RecordFilter filter;
    std::string passed;
    for (std::size_t i = 0; i < bytes.size(); i += cut) {
      passed += filter.feed(std::string_view(bytes).substr(i, cut));
    }
    passed += filter.finish();
    EXPECT_EQ(passed, before + after) << cut;
    ASSERT_TRUE(filter.report());
    EXPECT_EQ(error_report_text(*filter.report()), error_report_text(report));
  }
}

TEST(Agent, OutputIsNotHeldWithoutNeed) {
  RecordFilter filter;
  EXPECT_EQ(filter.feed("step 3"), "step 3");
  EXPECT_EQ(filter.feed("\x1e"), "");
  EXPECT_EQ(filter.feed("x"), "\x1ex");
}

// What a shell makes of the command is what went in.
TEST(Agent, QuotingSurvivesAShell) {
  const std::vector<std::string> arguments{
      "a b", "it's",      "$HOME `id` \"x\"", "",
      "*",   "new\nline", "back\\slash",      "--set=train.text=[a, b]"};
  const std::string command =
      remote_command("/", {{"SLUICE_A", "x 'y' $z"}}, "/usr/bin/printf", [&] {
        std::vector<std::string> all{"%s|"};
        all.insert(all.end(), arguments.begin(), arguments.end());
        return all;
      }());
  FILE* pipe = ::popen(command.c_str(), "r");
  ASSERT_NE(pipe, nullptr);
  std::array<char, 4096> buffer;
  const std::size_t got = std::fread(buffer.data(), 1, buffer.size(), pipe);
  EXPECT_EQ(::pclose(pipe), 0);
  std::string expected;
  for (const std::string& argument : arguments) expected += argument + "|";
  EXPECT_EQ(std::string(buffer.data(), got), expected);
}

}  // namespace
}  // namespace sluice
