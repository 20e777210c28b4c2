// The parts of saving that need no engine: when, what changed, what ranks tell each other.
#include <gtest/gtest.h>

#include <fstream>
#include <thread>

#include "runtime/engine/run_settings.hpp"
#include "runtime/engine/save_clock.hpp"
#include "runtime/engine/text_exchange.hpp"
#include "tests/runtime/observe/temporary_folder.hpp"

namespace sluice::testing {
namespace {

using Clock = SaveClock::Clock;

Clock::duration seconds(double s) {
  return std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(s));
}

TEST(SaveClock, AsksAfterTheIntervalAndAgainAfterTheSave) {
  SaveClockOptions options;
  options.every_seconds = 100;
  const Clock::time_point begin = Clock::now();
  SaveClock clock(options, begin);
  EXPECT_EQ(clock.vote(begin + seconds(99)), SaveVote::kNone);
  EXPECT_EQ(clock.vote(begin + seconds(101)), SaveVote::kSave);
  clock.saved(begin + seconds(102), 1);
  EXPECT_EQ(clock.vote(begin + seconds(200)), SaveVote::kNone);
  EXPECT_EQ(clock.vote(begin + seconds(203)), SaveVote::kSave);
}

TEST(SaveClock, StopsWhileThereIsTimeForTheStepsAndTheSave) {
  SaveClockOptions options;
  options.time_limit_seconds = 1000;
  options.first_save_estimate_seconds = 20;
  const Clock::time_point begin = Clock::now();
  SaveClock clock(options, begin);
  EXPECT_EQ(clock.vote(begin + seconds(960)), SaveVote::kNone);  // 30 and 2 in reserve
  clock.step_took(10);                                           // and two steps
  EXPECT_EQ(clock.vote(begin + seconds(940)), SaveVote::kNone);
  clock.saved(begin, 100);
  EXPECT_EQ(clock.vote(begin + seconds(820)), SaveVote::kNone);
  EXPECT_FALSE(clock.limit_reached());
  EXPECT_EQ(clock.vote(begin + seconds(829)), SaveVote::kStop);
  EXPECT_TRUE(clock.limit_reached());
}

TEST(SaveClock, TakesARequestOnce) {
  const TemporaryFolder folder;
  SaveClockOptions options;
  options.request_file = (folder.path() / "save-now").string();
  const Clock::time_point begin = Clock::now();
  SaveClock clock(options, begin);
  EXPECT_EQ(clock.vote(begin + seconds(1)), SaveVote::kNone);
  std::ofstream(options.request_file) << "";
  EXPECT_EQ(clock.vote(begin + seconds(2)), SaveVote::kSave);
  EXPECT_FALSE(std::filesystem::exists(options.request_file));
  EXPECT_EQ(clock.vote(begin + seconds(3)), SaveVote::kNone);
}

TEST(RunSettings, NamesWhatChanged) {
  EngineOptions options;
  options.model.vocab = 100;
  options.train.steps = 50;
  RunState saved;
  saved.step = 10;
  saved.samples = 80;
  saved.more = settings_of(options, 8);
  saved.more[kDataKey] = "one";
  TextMap now = settings_of(options, 8);
  now[kDataKey] = "one";
  EXPECT_EQ(changes_between(saved, now), std::vector<std::string>());

  options.optimizer.lr = 1e-3;
  options.train.steps = 60;
  now = settings_of(options, 4);
  now[kDataKey] = "two";
  const std::vector<std::string> changes = changes_between(saved, now);
  ASSERT_EQ(changes.size(), 4U);
  EXPECT_EQ(changes[0], "optimizer.lr: 3e-04 -> 0.001");
  EXPECT_EQ(changes[1], "schedule.decay_steps: 50 -> 60");
  EXPECT_EQ(changes[2],
            "train.global_batch: 8 -> 4; the order of samples is a function of step and global "
            "batch: 40 samples come again");
  EXPECT_TRUE(changes[3].starts_with("data: other tokens")) << changes[3];
}

TEST(TextExchange, CarriesEveryByteOfEveryRank) {
  const auto comms = make_local_communicators(3);
  std::vector<std::string> texts(3);
  for (int i = 0; i < 1000; ++i) texts[0] += static_cast<char>(i * 7);
  texts[2] = "x";
  std::vector<std::thread> ranks;
  for (std::size_t r = 0; r < comms.size(); ++r) {
    ranks.emplace_back([&, r] {
      EXPECT_EQ(exchange_text(*comms[r], texts[r]), texts);
      EXPECT_EQ(exchange_text(*comms[r], ""), std::vector<std::string>(3));
    });
  }
  for (std::thread& rank : ranks) rank.join();
  EXPECT_EQ(first_errors({"", "a", "", "b"}), "rank 1: a; rank 3: b");
  EXPECT_EQ(first_errors({"a", "b", "c", "d", "e"}),
            "rank 0: a; rank 1: b; rank 2: c; and 2 more ranks");
  EXPECT_EQ(first_errors({"", ""}), "");
}

}  // namespace
}  // namespace sluice::testing
