#include "runtime/launch/error_report.hpp"

#include <gmock/gmock.h>

#include <chrono>
#include <stdexcept>
#include <system_error>
#include <thread>

#include "base/error.hpp"
#include "base/posix/host_name.hpp"
#include "tests/runtime/launch/launched_job.hpp"

namespace sluice {
namespace {

TEST(ErrorReport, RoundTripAndFirstOneStays) {
  const TemporaryFolder folder;
  const std::string path = (folder.path() / "rank-3.error.json").string();
  EXPECT_FALSE(read_error_report(path));
  const ErrorReport report{.rank = 3,
                           .host = "host7",
                           .time_ns = 1763730000123456789,
                           .exit_code = 4,
                           .secondary = true,
                           .recurs = true,
                           .message = "a \"quoted\"\nline \xc3\xa9"};
  write_error_report(path, report);
  write_error_report(path, {.rank = 3, .host = "", .message = "later"});
  const auto read = read_error_report(path);
  ASSERT_TRUE(read);
  EXPECT_EQ(read->rank, 3);
  EXPECT_EQ(read->host, "host7");
  EXPECT_EQ(read->time_ns, report.time_ns);
  EXPECT_EQ(read->exit_code, 4);
  EXPECT_TRUE(read->secondary);
  EXPECT_TRUE(read->recurs);
  EXPECT_EQ(read->message, report.message);
  // No sibling is left.
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder.path()), {}), 1);
}

TEST(ErrorReport, AThreadThatCannotStartNamesTheLimits) {
  const auto message = [](std::errc code) {
    return make_error_report(std::system_error(std::make_error_code(code))).message;
  };
  EXPECT_THAT(message(std::errc::resource_unavailable_try_again),
              ::testing::AllOf(::testing::HasSubstr("Resource temporarily unavailable; "),
                               ::testing::HasSubstr("ulimit -u is "),
                               ::testing::HasSubstr("launch.nproc")));
  EXPECT_THAT(message(std::errc::invalid_argument), ::testing::Not(::testing::HasSubstr("ulimit")));
  // What another library made of it, and told once.
  const CommError wrapped("the rendezvous failed: Resource temporarily unavailable", false);
  const std::string once = make_error_report(wrapped).message;
  EXPECT_THAT(once, ::testing::HasSubstr("ulimit -u is "));
  EXPECT_EQ(make_error_report(Error(once)).message, once);
}

// A rank that needs long to end after its error is still the one that failed first.
TEST(ErrorReport, HasTheTimeOfTheFirstErrorOfItsChain) {
  std::int64_t first = 0;
  try {
    try {
      throw CommError("all_gather #13: not done 8000 ms after the call", true);
    } catch (const CommError& error) {
      first = error.time_ns();
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
      std::throw_with_nested(Error("NormAndScale"));
    }
  } catch (const Error& error) {
    EXPECT_GT(error.time_ns(), first);
    EXPECT_EQ(make_error_report(error).time_ns, first);
  }
  EXPECT_NE(first, 0);
  const std::int64_t before = unix_time_ns();
  EXPECT_GE(make_error_report(std::runtime_error("another library's")).time_ns, before);
}

TEST(ErrorReport, BrokenFileIsNoReport) {
  const TemporaryFolder folder;
  const auto path = folder.path() / "r.json";
  for (const char* text : {"", "{", "[]", "{\"rank\": 1}", "{\"rank\": \"1\"}"}) {
    std::ofstream(path, std::ios::trunc) << text;
    EXPECT_FALSE(read_error_report(path.string())) << text;
  }
}

TEST(ErrorReport, MessageThatIsNotUtf8) {
  const TemporaryFolder folder;
  const std::string path = (folder.path() / "r.json").string();
  write_error_report(path, {.rank = 0, .host = "h", .message = "byte \xff"});
  EXPECT_TRUE(read_error_report(path));
}

TEST(ErrorReport, WhatRecurs) {
  const TemporaryFolder folder;
  const auto recurs = [&](const std::exception& error, const char* name) {
    const std::string path = (folder.path() / name).string();
    ::setenv("SLUICE_ERROR_FILE", path.c_str(), 1);
    (void)report_failure(error);
    ::unsetenv("SLUICE_ERROR_FILE");
    const auto read = read_error_report(path);
    return read && read->recurs;
  };
  EXPECT_TRUE(recurs(TrainingError("the loss is nan"), "training"));
  EXPECT_TRUE(recurs(ConfigError("unknown key"), "config"));
  EXPECT_FALSE(recurs(IoError("cannot read x", "x", 5), "io"));
  EXPECT_FALSE(recurs(CommError("rank 1 is gone", true), "comm"));
  try {
    try {
      throw TrainingError("the loss is nan");
    } catch (...) {
      std::throw_with_nested(Error("step 3"));
    }
  } catch (const std::exception& nested) {
    EXPECT_TRUE(recurs(nested, "nested"));
  }
}

TEST(ErrorReport, MissingFolder) {
  try {
    write_error_report("/nonexistent/r.json", {});
    FAIL();
  } catch (const IoError& error) {
    EXPECT_STREQ(error.what(),
                 "cannot write /nonexistent/r.json: No such file or directory; the folder has to "
                 "exist");
  }
}

TEST(ErrorReport, ReportFailureWritesChainAndReturnsCode) {
  const TemporaryFolder folder;
  const std::string path = (folder.path() / "r.json").string();
  ::setenv("SLUICE_ERROR_FILE", path.c_str(), 1);
  ::setenv("RANK", "2", 1);
  int code = 0;
  try {
    try {
      throw CommError("peer is gone", true);
    } catch (...) {
      std::throw_with_nested(std::runtime_error("step 7"));
    }
  } catch (const std::exception& error) {
    code = report_failure(error);
  }
  ::unsetenv("SLUICE_ERROR_FILE");
  ::unsetenv("RANK");
  EXPECT_EQ(code, 5);
  const auto read = read_error_report(path);
  ASSERT_TRUE(read);
  EXPECT_EQ(read->rank, 2);
  EXPECT_EQ(read->message, "step 7: peer is gone");
  EXPECT_TRUE(read->secondary);
  EXPECT_EQ(read->host, host_name());
  EXPECT_GT(read->time_ns, 1'500'000'000'000'000'000);
}

}  // namespace
}  // namespace sluice
