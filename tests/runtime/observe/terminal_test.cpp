#include "runtime/observe/terminal.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <map>
#include <string>

namespace sluice {
namespace {

constexpr std::array kVariables = {"SLUICE_TTY", "SLUICE_STDERR_TTY", "COLUMNS", "TERM", "NO_COLOR",
                                   "LC_ALL",     "LC_CTYPE",          "LANG"};

// What is said of a pipe under these variables and no others.
TerminalInfo described(const std::map<std::string, std::string>& variables) {
  for (const char* name : kVariables) ::unsetenv(name);
  for (const auto& [name, value] : variables) ::setenv(name.c_str(), value.c_str(), 1);
  int ends[2] = {-1, -1};
  EXPECT_EQ(::pipe(ends), 0);
  const TerminalInfo info = terminal_info(ends[1]);
  ::close(ends[0]);
  ::close(ends[1]);
  for (const char* name : kVariables) ::unsetenv(name);
  return info;
}

TEST(TerminalInfo, LauncherSpeaksForThePipe) {
  EXPECT_FALSE(described({{"COLUMNS", "77"}, {"TERM", "xterm"}}).interactive);
  const TerminalInfo info = described({{"SLUICE_TTY", "1"}, {"COLUMNS", "77"}, {"TERM", "xterm"}});
  EXPECT_TRUE(info.interactive && info.rewrites && info.colors);
  EXPECT_EQ(info.columns, 77);
  EXPECT_EQ(described({{"SLUICE_TTY", "1"}, {"COLUMNS", "wide"}}).columns, 0);
  EXPECT_FALSE(described({{"SLUICE_STDERR_TTY", "1"}, {"TERM", "xterm"}}).interactive);
}

TEST(TerminalInfo, WhatATerminalCannotDo) {
  for (const char* term : {"", "dumb"}) {
    const TerminalInfo info = described({{"SLUICE_TTY", "1"}, {"TERM", term}, {"LANG", "C.UTF-8"}});
    EXPECT_TRUE(info.interactive);
    EXPECT_FALSE(info.rewrites || info.colors || info.utf8) << term;
  }
  const TerminalInfo plain = described({{"SLUICE_TTY", "1"}, {"TERM", "xterm"}, {"NO_COLOR", "1"}});
  EXPECT_TRUE(plain.rewrites);
  EXPECT_FALSE(plain.colors);
  EXPECT_TRUE(described({{"SLUICE_TTY", "1"}, {"TERM", "xterm"}, {"NO_COLOR", ""}}).colors);
}

TEST(TerminalInfo, TheFirstLocaleVariableCounts) {
  const auto utf8 = [](std::map<std::string, std::string> locale) {
    locale.insert({{"SLUICE_TTY", "1"}, {"TERM", "xterm"}});
    return described(locale).utf8;
  };
  EXPECT_TRUE(utf8({{"LANG", "de_DE.UTF-8"}}));
  EXPECT_TRUE(utf8({{"LC_CTYPE", "en_US.utf8"}, {"LANG", "C"}}));
  EXPECT_FALSE(utf8({{"LC_ALL", "C"}, {"LANG", "de_DE.UTF-8"}}));
  EXPECT_FALSE(utf8({{"LANG", "ja_JP.UTF-8"}}));
  EXPECT_FALSE(utf8({}));
}

TEST(Colors, AreTakenOffAgain) {
  TerminalInfo terminal;
  EXPECT_EQ(colored(Color::kError, "broken", terminal), "broken");
  terminal.colors = true;
  const std::string red = colored(Color::kError, "broken", terminal);
  EXPECT_EQ(red, "\x1b[31mbroken\x1b[0m");
  EXPECT_EQ(without_colors("a " + red + " b\x1b[K\x1b[1;33mc\x1b["), "a broken b\x1b[Kc\x1b[");
}

TEST(Columns, AreCodePoints) {
  EXPECT_EQ(columns_of("a\u2588b"), 3);
  EXPECT_EQ(first_columns("a\u2588b", 2), "a\u2588");
  EXPECT_EQ(first_columns("a\u2588b", 9), "a\u2588b");
  EXPECT_EQ(first_columns("\u2588\u2588", 0), "");
}

}  // namespace
}  // namespace sluice
