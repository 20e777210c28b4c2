#include "runtime/launch/watchdog.hpp"

#include <gmock/gmock.h>

#include <future>

namespace sluice {
namespace {

using std::chrono::milliseconds;

// Long enough that a test on a busy machine enters its phase before the watchdog fires.
constexpr milliseconds kPatience{500};

struct Fired {
  std::promise<ErrorReport> promise;
  std::future<ErrorReport> report = promise.get_future();
  WatchdogOptions options(milliseconds timeout, milliseconds waiting = milliseconds(0)) {
    return {.timeout = timeout,
            .waiting_timeout = waiting,
            .on_hang = [this](const ErrorReport& r) { promise.set_value(r); }};
  }
};

TEST(Watchdog, NamesThePhase) {
  Fired fired;
  Watchdog watchdog(fired.options(kPatience));
  const PhaseScope outer(watchdog, "backward");
  { const PhaseScope inner(watchdog, "all-reduce", Waiting::kYes); }
  const ErrorReport report = fired.report.get();
  EXPECT_THAT(report.message,
              ::testing::MatchesRegex("made no progress for [0-9.]+ s in backward"));
  EXPECT_FALSE(report.secondary);
  EXPECT_EQ(report.exit_code, 5);
}

TEST(Watchdog, WaitingForPeersIsSecondary) {
  Fired fired;
  Watchdog watchdog(fired.options(kPatience));
  const auto begin = std::chrono::steady_clock::now();
  const PhaseScope phase(watchdog, "all-reduce", Waiting::kYes);
  const ErrorReport report = fired.report.get();
  EXPECT_GE(std::chrono::steady_clock::now() - begin, 2 * kPatience);
  EXPECT_THAT(report.message, ::testing::HasSubstr(" while waiting for its peers in all-reduce"));
  EXPECT_TRUE(report.secondary);
}

TEST(Watchdog, PulsesAndPhasesAreProgress) {
  Fired fired;
  {
    Watchdog watchdog(fired.options(milliseconds(1000)));
    for (int i = 0; i < 30; ++i) {
      std::this_thread::sleep_for(milliseconds(50));
      if (i % 2 == 0) {
        watchdog.pulse();
      } else {
        watchdog.set_phase("phase " + std::to_string(i));
      }
    }
  }
  EXPECT_EQ(fired.report.wait_for(milliseconds(0)), std::future_status::timeout);
}

// Leaving a patient phase must not leave its patience behind.
TEST(Watchdog, PatienceEndsWithThePhase) {
  Fired fired;
  Watchdog watchdog(fired.options(milliseconds(30), std::chrono::hours(1)));
  { const PhaseScope phase(watchdog, "all-reduce", Waiting::kYes); }
  EXPECT_THAT(fired.report.get().message, ::testing::EndsWith("in start-up"));
}

TEST(Watchdog, ZeroNeverFires) {
  Fired fired;
  Watchdog watchdog(fired.options(milliseconds(0)));
  watchdog.pulse();
  EXPECT_EQ(fired.report.wait_for(milliseconds(20)), std::future_status::timeout);
}

TEST(WatchdogDeathTest, EndsTheProcessByDefault) {
  ::testing::FLAGS_gtest_death_test_style = "threadsafe";
  EXPECT_EXIT(
      {
        Watchdog watchdog({.timeout = kPatience, .waiting_timeout = {}, .on_hang = {}});
        watchdog.set_phase("data");
        while (true) std::this_thread::sleep_for(std::chrono::hours(1));
      },
      ::testing::ExitedWithCode(5), "rank 0 on .* failed: made no progress for [0-9.]+ s in data");
}

}  // namespace
}  // namespace sluice
