#include "runtime/launch/rank_log.hpp"

#include <sys/resource.h>

#include "base/error.hpp"
#include "tests/runtime/launch/launched_job.hpp"

namespace sluice {
namespace {

// Whatever the chunks, the lines are the same.
std::string folded_in_chunks(const std::string& text, std::size_t chunk) {
  LineFolder folder;
  std::string lines;
  for (std::size_t at = 0; at < text.size(); at += chunk) {
    folder.feed(std::string_view(text).substr(at, chunk), lines);
  }
  folder.finish(lines);
  return lines;
}

TEST(RankLog, WhatTheLauncherSaidIsLeftOutOfTheTerminal) {
  const std::vector<std::string> said{"data: 162k tokens", "on a tmpfs"};
  const auto shown = [&](std::string_view bytes) { return without_printed_lines(bytes, said); };
  EXPECT_EQ(shown("13:04:05.123 info    data: 162k tokens\nstep 1\n"), "step 1\n");
  EXPECT_EQ(shown("13:04:05.123 warning on a tmpfs\n"), "");
  EXPECT_EQ(shown("\r\x1b[K13:04:05.123 info    data: 162k tokens\n"), "");
  EXPECT_EQ(shown("13:04:05.123 info    [rank 12] data: 162k tokens\n"), "");
  EXPECT_EQ(shown("data: 162k tokens\n"), "");  // eval's and generate's have no time
  for (const char* kept :
       {"13:04:05.123 info    data: 163k tokens\n", "data: 163k tokens\n",
        "13:04:05.123 info    data: 162k tokens", "\n", "\r step 1/30", "13:04:05.123 info    \n",
        "13:04:05.123 info    [rank 1\n", "13:04:05.123 info    [rank 1] data: 163k tokens\n"}) {
    EXPECT_EQ(shown(kept), kept);
  }
}

TEST(LineFolder, KeepsTheLastFormOfALineWithoutColors) {
  const std::vector<std::pair<std::string, std::string>> cases{
      {"", ""},
      {"a\nb\n", "a\nb\n"},
      {"\n\n", "\n\n"},
      {"no break", "no break"},
      {"dos\r\nline\r\n", "dos\r\nline\r\n"},
      {"\r\x1b[K step 1\r\x1b[K step 2\nx\n", " step 2\nx\n"},
      {"\r\x1b[K step 1\r\x1b[K", ""},
      {"colour \x1b[31mred\x1b[0m\n", "colour red\n"},
      {std::string("nul \0 byte\n", 11), std::string("nul \0 byte\n", 11)},
  };
  for (const auto& [text, expected] : cases) {
    for (const std::size_t chunk : {std::size_t{1}, std::size_t{3}, std::size_t{100}}) {
      EXPECT_EQ(folded_in_chunks(text, chunk), expected) << chunk;
    }
  }
}

TEST(LineFolder, LongLinesPassAndRewrittenOnesDoNotGrow) {
  const std::string line(LineFolder::kLongestLine * 3 + 17, 'x');
  EXPECT_EQ(folded_in_chunks(line + "\n", 4096), line + "\n");
  LineFolder folder;
  std::string lines;
  for (std::size_t i = 0; i < LineFolder::kLongestLine; ++i) folder.feed("\r\x1b[K step", lines);
  EXPECT_EQ(lines, "");
  folder.feed(" done\n", lines);
  EXPECT_EQ(lines, " step done\n");
}

TEST(RankLog, RemembersTheLastLines) {
  const TemporaryFolder folder;
  const std::string path = (folder.path() / "rank-0.log").string();
  RankLog log(path);
  std::string all;
  for (int i = 0; i < 20; ++i) {
    const std::string line = "line " + std::to_string(i) + "\n";
    all += line;
    EXPECT_TRUE(log.append(line));
  }
  EXPECT_TRUE(log.append("open"));
  EXPECT_TRUE(log.append(" end"));
  EXPECT_EQ(text_of(path), all + "open end");
  const auto last = log.last_lines();
  ASSERT_EQ(last.size(), RankLog::kLastLines);
  EXPECT_EQ(last.back(), "open end");
  EXPECT_EQ(last.front(), "line 9");
}

TEST(RankLog, FullDiskIsReportedOnce) {
  const TemporaryFolder folder;
  const auto path = folder.path() / "rank-0.log";
  RankLog log(path.string());
  EXPECT_EQ(log.problem(), "");
  rlimit former{};
  ::getrlimit(RLIMIT_FSIZE, &former);
  const rlimit none{.rlim_cur = 0, .rlim_max = former.rlim_max};
  const auto handler = ::signal(SIGXFSZ, SIG_IGN);
  ::setrlimit(RLIMIT_FSIZE, &none);
  EXPECT_FALSE(log.append("a\n"));
  EXPECT_TRUE(log.append("b\n"));
  ::setrlimit(RLIMIT_FSIZE, &former);
  ::signal(SIGXFSZ, handler);
  EXPECT_EQ(log.problem(), "cannot write " + path.string() + ": File too large");
  EXPECT_EQ(log.last_lines(), (std::vector<std::string>{"a", "b"}));
}

TEST(RankLog, FolderThatIsNotThere) { EXPECT_THROW(RankLog("/nonexistent/rank-0.log"), IoError); }

}  // namespace
}  // namespace sluice
