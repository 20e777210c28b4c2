// Words of a POSIX shell, and hosts of DeepSpeed's hostfile.
#include "configs/migrate/launcher/shell_words.hpp"

#include <gtest/gtest.h>

#include "configs/migrate/launcher/host_pool.hpp"

namespace sluice::migrate {
namespace {

using Words = std::vector<std::string>;

struct Taken {
  std::string line;
  Words words;
};

// The right column is what `printf '%s\n'` of a POSIX shell prints.
TEST(ShellWords, AreSplitAsByAShell) {
  const std::vector<Taken> cases{
      {"a b  c", {"a", "b", "c"}},
      {"a 'b c' \"d e\"", {"a", "b c", "d e"}},
      {"a b\\ c", {"a", "b c"}},
      {"a 'b\\n$X'", {"a", "b\\n$X"}},
      {"a \"b\\\"c\\\\d\\e\"", {"a", "b\"c\\d\\e"}},
      {"a '' \"\"", {"a", "", ""}},
      {"a x'y'\"z\"", {"a", "xyz"}},
      {"a \\\n  b \\\r\n c", {"a", "b", "c"}},
      {"a b\\\nc", {"a", "bc"}},
      {"\n# a comment\na b # c d\n\n", {"a", "b"}},
      {"a b#c", {"a", "b#c"}},
      {"a $ b", {"a", "$", "b"}},
      {"a {\"x\":1} [1]", {"a", "{x:1}", "[1]"}},
      {"a --x=1", {"a", "--x=1"}},
  };
  for (const Taken& taken : cases) {
    SCOPED_TRACE(taken.line);
    const ShellCommand command = split_shell(taken.line);
    EXPECT_EQ(command.error, "");
    EXPECT_EQ(command.words, taken.words);
  }
}

TEST(ShellWords, VariablesBeforeTheProgramAreItsEnvironment) {
  const ShellCommand command = split_shell("A=1 B_2='x y' run C=3");
  EXPECT_EQ(command.environment, (Words{"A=1", "B_2=x y"}));
  EXPECT_EQ(command.words, (Words{"run", "C=3"}));
}

TEST(ShellWords, QuotedWordsReadBack) {
  const Words words{"plain", "two words", "", "it's", "a\"b", "$x", "A=x y"};
  EXPECT_EQ(shell_join(words), "plain 'two words' '' 'it'\\''s' 'a\"b' '$x' A='x y'");
  EXPECT_EQ(split_shell("run " + shell_join(words)).words,
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
