#include "configs/migrate/shell_words.hpp"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace sluice::migrate {
namespace {

std::vector<std::string> texts(const ShellWords& words) {
  std::vector<std::string> result;
  for (const ShellWord& word : words.words) result.push_back(word.text);
  return result;
}

TEST(ShellWords, SplitsLikeAShell) {
  struct Case {
    std::string text;
    std::vector<std::string> words;
  };
  const std::vector<Case> cases{
      {"", {}},
      {"  \t\n ", {}},
      {"a b\tc", {"a", "b", "c"}},
      {R"(a 'b  c' "d e"f)", {"a", "b  c", "d ef"}},
      {R"(a\ b \'c \\d)", {"a b", "'c", "\\d"}},
      {"'' \"\"", {"", ""}},
      {R"("a\"b\\c\d" '\n')", {R"(a"b\c\d)", "\\n"}},
      {"--lr 1e-4 \\\n  --seed 3 \\\n", {"--lr", "1e-4", "--seed", "3"}},
      {"--l\\\nr 1 \"a\\\nb\"", {"--lr", "1", "ab"}},
      {"a # comment 'x | $Y\n", {"a"}},
      {"a#b c\\#d", {"a#b", "c#d"}},
      {"# first\n\ntorchrun x\n# last", {"torchrun", "x"}},
      {"cost$ 5$ '$HOME' \\$X", {"cost$", "5$", "$HOME", "$X"}},
      {"*.txt ~/x {a,b} a=b", {"*.txt", "~/x", "{a,b}", "a=b"}},
      {"a\r\n", {"a"}},
      {"--lr ${LR:-2e-5} \"${A:-b}c\"", {"--lr", "2e-5", "bc"}},
      {"${IP:-\"localhost\"} ${1:-'ck pt'}", {"localhost", "ck pt"}},
      {"'two\nlines'", {"two\nlines"}},
  };
  for (const Case& each : cases) {
    const ShellWords words = split_shell_words(each.text);
    EXPECT_TRUE(words.problems.empty()) << each.text;
    EXPECT_EQ(texts(words), each.words) << each.text;
  }
}

TEST(ShellWords, NotesDefaultsOfVariables) {
  EXPECT_EQ(split_shell_words("run --lr ${LR:-2e-5}").notes,
            std::vector<std::string>{"${LR:-2e-5}: the default '2e-5' was taken; if the job sets "
                                     "the variable, write its value instead"});
  EXPECT_TRUE(split_shell_words("run '${LR:-2e-5}'").notes.empty());
}

TEST(ShellWords, KnowsPlaces) {
  const ShellWords words = split_shell_words("a  'b' \\\n --c");
  ASSERT_EQ(words.words.size(), 3U);
  EXPECT_EQ(words.words[1].place.line, 1);
  EXPECT_EQ(words.words[1].place.column, 4);
  EXPECT_EQ(words.words[2].place.line, 2);
  EXPECT_EQ(words.words[2].place.column, 2);
}

TEST(ShellWords, NewlinesSeparateWordsInAFileOfArguments) {
  const ShellWords words = split_shell_words("--a 1 # one\n--b 2\n", Newlines::kSeparateWords);
  EXPECT_TRUE(words.problems.empty());
  EXPECT_EQ(texts(words), (std::vector<std::string>{"--a", "1", "--b", "2"}));
}

struct Refused {
  std::string text;
  std::string message;  // line:column: what
};

const std::vector<Refused>& refused() {
  static const std::vector<Refused> cases{
      {"a 'b", "1:3: the quote ' has no end; close the quote"},
      {"a\n\"b",
       "2:1: a second command starts here; give one command, with \\ at the end of each "
       "line that goes on"},
      {"a \"b", "1:3: the quote \" has no end; close the quote"},
      {"a \\", "1:3: a backslash ends the text; remove the backslash or add what follows"},
      {"a --lr $LR",
       "1:8: the variable $LR has no value here; write the value instead of the variable"},
      {"\"x/${DIR}/y\"",
       "1:4: the variable ${DIR} has no value here; write the value instead of the variable"},
      {"run $@", "1:5: the variable $@ has no value here; write the value instead of the variable"},
      {"run ${X", "1:5: the brace ${ has no end; close the brace"},
      {"a $(date)", "1:3: a shell would run a command here; write the command's output instead"},
      {"a $((A * (B + 1))) \"b\"",
       "1:3: the arithmetic $((A * (B + 1))) is not computed here; write its result instead"},
      {"a \"$((A\" b", "1:4: the arithmetic $(( has no end; close it with ))"},
      {"a `date`", "1:3: a shell would run a command here; write the command's output instead"},
      {"a $'b'", "1:3: quotes after $ are bash's own; write the plain text instead"},
      {"a | tee log", "1:3: the pipe | is no argument; leave out the pipe and what follows"},
      {"a > log", "1:3: the redirection > is no argument; leave it out"},
      {"a 2>> log", "1:4: the redirection >> is no argument; leave it out"},
      {"cd x && a",
       "1:6: '&&' belongs to the shell; give one command without '&&', or quote the word"},
      {"a; b", "1:2: ';' belongs to the shell; give one command without ';', or quote the word"},
      {"a &", "1:3: '&' belongs to the shell; give one command without '&', or quote the word"},
      {"f(x)", "1:2: '(' belongs to the shell; give one command without '(', or quote the word"},
      {std::string("a\1b"),
       "1:1: the text has control characters or is not UTF-8; save the text as UTF-8"},
      {std::string(kMaxShellBytes + 1, 'a'),
       "1:1: the command line has more than 1 MiB; give a shorter one"},
  };
  return cases;
}

TEST(ShellWords, RefusesWhatOnlyAShellCanComplete) {
  for (const Refused& each : refused()) {
    const ShellWords words = split_shell_words(each.text);
    ASSERT_EQ(words.problems.size(), 1U) << each.text.substr(0, 40);
    const ShellProblem& problem = words.problems[0];
    EXPECT_EQ(std::to_string(problem.place.line) + ":" + std::to_string(problem.place.column) +
                  ": " + problem.what,
              each.message);
  }
}

TEST(ShellWords, NamesEveryVariable) {
  const ShellWords words = split_shell_words("--lr $LR --seed ${SEED}");
  ASSERT_EQ(words.problems.size(), 2U);
  EXPECT_EQ(words.problems[1].what,
            "the variable ${SEED} has no value here; write the value instead of the variable");
}

TEST(ShellWords, BoundsTheNumberOfWords) {
  std::string text;
  for (std::size_t i = 0; i <= kMaxShellWords; ++i) text += "a ";
  const ShellWords words = split_shell_words(text);
  ASSERT_EQ(words.problems.size(), 1U);
  EXPECT_EQ(words.problems[0].what,
            "the command line has more than 20000 words; give a shorter one");
}

}  // namespace
}  // namespace sluice::migrate
