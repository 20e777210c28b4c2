// The parts of saving that need no engine: when, what changed, what ranks tell each other.
#include <gtest/gtest.h>

#include <fstream>
#include <thread>

#include "base/error.hpp"
#include "parallel/comm/text_exchange.hpp"
#include "runtime/run/resume.hpp"
#include "runtime/run/run_settings.hpp"
#include "runtime/run/save_clock.hpp"
#include "runtime/run/saved_tokenizer.hpp"
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

// The last save waits for the one that is written behind the steps.
TEST(SaveClock, CountsTheSaveUnderWay) {
  SaveClockOptions options;
  options.time_limit_seconds = 1000;
  const Clock::time_point begin = Clock::now();
  const auto vote_at = [&](double now, std::optional<double> since, bool due_next = false) {
    SaveClock clock(options, begin);
    clock.step_took(10);
    clock.saved(begin, 100);
    std::optional<Clock::time_point> began;
    if (since) began = begin + seconds(*since);
    clock.expect(began, due_next);
    const SaveVote vote = clock.vote(begin + seconds(now));
    EXPECT_EQ(clock.limit_reached(), vote == SaveVote::kStop);
    return vote;
  };
  // 2 steps, 150 s for the last save and 2 s.
  EXPECT_EQ(vote_at(827, std::nullopt), SaveVote::kNone);
  EXPECT_EQ(vote_at(829, std::nullopt), SaveVote::kStop);
  // Just begun: 150 s for each of the two saves, the steps beside the first.
  EXPECT_EQ(vote_at(697, 697), SaveVote::kNone);
  EXPECT_EQ(vote_at(699, 699), SaveVote::kStop);
  // 50 s into it 100 are left of it; nearly done, the steps outlast it.
  EXPECT_EQ(vote_at(747, 697), SaveVote::kNone);
  EXPECT_EQ(vote_at(749, 699), SaveVote::kStop);
  EXPECT_EQ(vote_at(827, 690), SaveVote::kStop) << "137 s long by now, so the last takes longer";
  // Slower than the last: 200 s so far, so 100 more and 300 for the last.
  EXPECT_EQ(vote_at(597, 397), SaveVote::kNone);
  EXPECT_EQ(vote_at(599, 399), SaveVote::kStop);
  // One that the next step brings would be under way at the next vote: 2 steps and 2 saves.
  EXPECT_EQ(vote_at(677, std::nullopt, true), SaveVote::kNone);
  EXPECT_EQ(vote_at(679, std::nullopt, true), SaveVote::kStop);
  // It waits for the one under way, of which 100 s are left: 100, 150, a step, 150 and 2.
  EXPECT_EQ(vote_at(587, 537, true), SaveVote::kNone);
  EXPECT_EQ(vote_at(589, 539, true), SaveVote::kStop);
  options.every_seconds = 600;
  EXPECT_EQ(vote_at(677, std::nullopt), SaveVote::kSave);
  EXPECT_EQ(vote_at(679, std::nullopt), SaveVote::kStop) << "which saves as well";
}

// A round of a step and a save that the steps wait for holds the save that follows: not twice.
TEST(SaveClock, CountsASaveThatTheStepsWaitForOnce) {
  SaveClockOptions options;
  options.time_limit_seconds = 1000;
  const Clock::time_point begin = Clock::now();
  SaveClock clock(options, begin);
  EXPECT_EQ(clock.vote(begin), SaveVote::kNone);
  clock.step_took(10);
  clock.saved(begin + seconds(160), 100);
  clock.expect(std::nullopt, true);
  EXPECT_EQ(clock.vote(begin + seconds(160)), SaveVote::kNone);
  // 160 the round, 10, 150 and 2; votes so close that the round stays the longest.
  for (int now = 300; now < 677; now += 100) {
    EXPECT_EQ(clock.vote(begin + seconds(now)), SaveVote::kNone);
  }
  EXPECT_EQ(clock.vote(begin + seconds(677)), SaveVote::kNone);
  EXPECT_EQ(clock.vote(begin + seconds(679)), SaveVote::kStop);
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

TEST(RunSettings, NamesOtherFrozenParametersWhereTheCheckpointSaysItsOwn) {
  EngineOptions options;
  options.model.vocab = 100;
  options.model.freeze = {"wte", "h.0"};
  RunState saved;
  saved.more = settings_of(options, 8);
  options.model.freeze = {"h.0", "wte"};
  EXPECT_EQ(changes_between(saved, settings_of(options, 8)), std::vector<std::string>());
  options.model.freeze = {};
  EXPECT_EQ(changes_between(saved, settings_of(options, 8)),
            std::vector<std::string>{"train.freeze: [h.0, wte] -> []"});
  saved.more.erase("setting.train.freeze");  // of an earlier version
  EXPECT_EQ(changes_between(saved, settings_of(options, 8)), std::vector<std::string>());
}

TEST(RunSettings, NamesFormsThatChanged) {
  EngineOptions options;
  options.model.vocab = 100;
  options.train.dtype = DType::kFloat16;
  options.schedule.warmup_steps = 5;
  RunState saved;
  saved.more = settings_of(options, 8);
  options.optimizer.decay = DecayScope::kAll;
  options.optimizer.decoupled = options.optimizer.bias_correction = false;
  options.schedule.warmup = WarmupShape::kLog;
  options.schedule.warmup_min_lr = RateBound::share_of_lr(0.5);
  options.schedule.counting = StepCounting::kDeepSpeed;
  options.loss_scale.first_window = 1001;
  options.loss_scale.consecutive_hysteresis = true;
  EXPECT_EQ(changes_between(saved, settings_of(options, 8)),
            (std::vector<std::string>{
                "loss_scale.consecutive_hysteresis: false -> true",
                "loss_scale.first_window: 1000 -> 1001", "optimizer.bias_correction: true -> false",
                "optimizer.decay: matrices -> all", "optimizer.decoupled: true -> false",
                "schedule.counting: from_one -> deepspeed", "schedule.warmup: linear -> log",
                "schedule.warmup_min_lr: 0 -> 0.00015"}));
  options.loss_scale.fixed = 1024;
  EXPECT_EQ(changes_between(saved, settings_of(options, 8))[0], "loss_scale.static: none -> 1024");
}

// Eight heads of a gpt2 have the tensors of twelve.
TEST(RunSettings, RefusesAnotherModelOfEqualShapes) {
  EngineOptions options;
  options.model.vocab = 100;
  RunState saved;
  saved.more = settings_of(options, 8);
  saved.tokenizer.fingerprint = "bytes v1";
  const ResumeRequest same{.settings = saved.more, .tokenizer = "bytes v1"};
  EXPECT_NO_THROW(check_same_run(same, saved, "p"));
  EXPECT_NO_THROW(check_same_run({.settings = saved.more}, saved, "p"));  // trains on tokens
  EXPECT_NO_THROW(check_same_run(same, RunState(), "p"));                 // says nothing
  EXPECT_THROW(check_same_run({.settings = saved.more, .tokenizer = "json:1"}, saved, "p"),
               ConfigError);
  options.model.heads = 8;
  const TextMap now = settings_of(options, 8);
  EXPECT_EQ(model_changes(saved, now),
            (std::vector<std::string>{"model.heads is 8 and 12 there",
                                      "model.kv_heads is 8 and 12 there"}));
  EXPECT_THROW(check_same_run({.settings = now}, saved, "p"), ConfigError);
}

TEST(RunSettings, RefusesTheMomentsOfAnotherOptimizer) {
  EngineOptions options;
  RunState saved;
  saved.more = settings_of(options, 8);
  ResumeRequest request{.settings = settings_of(options, 8)};
  EXPECT_NO_THROW(check_same_optimizer(request, saved, "run/step-2"));
  EXPECT_NO_THROW(check_same_optimizer(request, RunState(), "of an earlier version"));
  options.optimizer.type = OptimizerType::kLion;
  request.settings = settings_of(options, 8);
  try {
    check_same_optimizer(request, saved, "run/step-2");
    FAIL() << "moments of adamw were taken for lion's";
  } catch (const ConfigError& error) {
    EXPECT_NE(std::string(error.what())
                  .find("optimizer.type is lion, and run/step-2 holds the "
                        "moments of adamw"),
              std::string::npos)
        << error.what();
  }
}

TEST(SavedTokenizer, KeepsAChatTemplateWithTheTokensOfItsFolder) {
  const TemporaryFolder folder;
  const std::string text = "{{ bos_token }}{{ messages[0].content }}{{ eos_token }}";
  std::ofstream(folder.file("chat_template.jinja")) << text;
  std::ofstream(folder.file("tokenizer_config.json"))
      << R"({"eos_token": "<|im_end|>", "pad_token": "<pad>"})";
  const auto tokenizer = make_tokenizer("bytes");
  TokenizerRecord record = tokenizer_record(*tokenizer, "bytes", {});
  for (int times = 0; times < 2; ++times) {
    add_chat_template(*tokenizer, "bytes", folder.path().string(), record);
    ASSERT_EQ(record.files.size(), 1U);
    EXPECT_EQ(record.files[0].name, "chat_template.jinja");
    EXPECT_EQ(*record.files[0].text, "{% set eos_token = \"<|im_end|>\" %}\n" + text);
  }
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
  EXPECT_EQ(
      first_errors({"", "no a: full; free space; or wait", "", "no b: full; free space; or wait"}),
      "rank 1: no a: full; rank 3: no b: full; free space; or wait");
  EXPECT_EQ(first_errors({"no a: full; free it", "no b: bad; mend it"}),
            "rank 0: no a: full; free it; rank 1: no b: bad; mend it");
  EXPECT_EQ(first_errors({"no a: full; free it"}), "rank 0: no a: full; free it");
}

}  // namespace
}  // namespace sluice::testing
