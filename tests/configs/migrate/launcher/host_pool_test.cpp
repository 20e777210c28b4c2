// Hosts of DeepSpeed's hostfile and their filters; words quoted for a shell.
#include "configs/migrate/launcher/host_pool.hpp"

#include <gtest/gtest.h>

#include "configs/migrate/launcher/shell_command.hpp"

namespace sluice::migrate {
namespace {

using Words = std::vector<std::string>;

TEST(ShellCommand, VariablesBeforeTheProgramAreItsEnvironment) {
  const ShellCommand command = split_command("A=1 B_2='x y' run C=3");
  EXPECT_EQ(command.environment, (Words{"A=1", "B_2=x y"}));
  EXPECT_EQ(command.words, (Words{"run", "C=3"}));
}

TEST(ShellCommand, QuotedWordsReadBack) {
  const Words words{"plain", "two words", "", "it's", "a\"b", "$x", "A=x y"};
  EXPECT_EQ(shell_join(words), "plain 'two words' '' 'it'\\''s' 'a\"b' '$x' A='x y'");
  EXPECT_EQ(split_command("run " + shell_join(words)).words,
            (Words{"run", "plain", "two words", "", "it's", "a\"b", "$x", "A=x y"}));
}

HostPool pool() { return read_hostfile("# two\nw0 slots=4\n\n w1\tslots=2 # x\n", "h"); }

TEST(Hosts, AreReadFromTheHostfile) {
  EXPECT_EQ(pool().lines(), "w0 slots=4\nw1 slots=2\n");
  EXPECT_EQ(pool().ranks(), 6);
}

TEST(Hosts, AreFiltered) {
  const HostPool kept = include_hosts(pool(), "w1@w0:2,0,2");
  ASSERT_EQ(kept.error, "");
  EXPECT_EQ(kept.lines(), "w0 slots=2\nw1 slots=2\n");
  EXPECT_EQ(kept.hosts[0].devices(), "0,2");
  EXPECT_FALSE(kept.hosts[0].has_first_slots());
  EXPECT_TRUE(kept.hosts[1].has_first_slots());

  EXPECT_EQ(exclude_hosts(pool(), "w0").lines(), "w1 slots=2\n");
  const HostPool rest = exclude_hosts(pool(), "w0:0@w1:1");
  EXPECT_EQ(rest.lines(), "w0 slots=3\nw1 slots=1\n");
  EXPECT_EQ(rest.hosts[0].devices(), "1,2,3");
}

}  // namespace
}  // namespace sluice::migrate
