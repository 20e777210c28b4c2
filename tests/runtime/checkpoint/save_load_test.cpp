// A checkpoint written by one layout and read by others.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <random>
#include <string>
#include <thread>

#include "base/error.hpp"
#include "tests/runtime/checkpoint/support.hpp"

namespace sluice::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

std::string message_of(const std::function<void()>& f) {
  try {
    f();
  } catch (const Error& error) {
    return error.what();
  }
  return "nothing was thrown";
}

TEST(SaveLoad, TheSameLayoutComesBack) {
  TempDir dir;
  FileSystem& files = local_file_system();
  std::mt19937 random(1);
  const Layout layout = make_layout(test_model(), {3, 2, TensorDType::kBF16}, random);
  const SaveTarget target = save(files, dir.path() + "/a/b", 42, layout);
  EXPECT_EQ(target.name, "step-00000042");
  EXPECT_EQ(target.generation, 1);
  expect_loads(files, target.path(), 42, layout);
  expect_loads(files, target.dir, 42, layout);  // by `latest`
  const VerifyReport report = verify(files, target.path());
  EXPECT_TRUE(report.sound());
  EXPECT_EQ(report.files, 7);  // of six ranks, and the tokenizer's
  auto on_disk =
      static_cast<std::int64_t>(std::filesystem::file_size(target.path() + "/merges.txt"));
  for (int rank = 0; rank < 6; ++rank) {
    on_disk += static_cast<std::int64_t>(
        std::filesystem::file_size(target.path() + "/" + rank_file_name(rank)));
  }
  EXPECT_EQ(report.bytes, on_disk);
}

TEST(SaveLoad, AnyLayoutToAnyLayout) {
  FileSystem& files = local_file_system();
  std::mt19937 random(2);
  const auto draw = [&] {
    const std::array dtypes{TensorDType::kF32, TensorDType::kBF16, TensorDType::kF16};
    return LayoutOptions{static_cast<int>(1 + random() % 5), static_cast<int>(1 + random() % 4),
                         dtypes[random() % dtypes.size()], random() % 2 == 0};
  };
  for (int round = 0; round < 12; ++round) {
    TempDir dir;
    const SaveTarget target =
        save(files, dir.path(), round, make_layout(test_model(), draw(), random), 8 << round % 5);
    for (int reader = 0; reader < 6; ++reader) {
      expect_loads(files, target.path(), round, make_layout(test_model(), draw(), random));
    }
  }
}

TEST(SaveLoad, ARankReadsOnlyWhatItNeeds) {
  TempDir dir;
  FileSystem& files = local_file_system();
  std::mt19937 random(3);
  const std::vector<TestParam> model{{"w", {64, 64}}};
  const SaveTarget target = save(files, dir.path(), 1, make_layout(model, {4, 1}, random), 256);
  const Checkpoint checkpoint = open_checkpoint(files, target.path());
  const auto bytes = [&](const StateRange& range) {
    return checkpoint.bytes_to_read(checkpoint.plan_reads({&range, 1}));
  };
  StateRange rows = whole_range("w", StateKind::kMaster, TensorDType::kF32, {64, 64});
  EXPECT_EQ(bytes(rows), 64 * 64 * 4);
  rows.begin = 8 * 64;
  rows.end = 24 * 64;  // half of one rank's, half of the next one's
  EXPECT_EQ(bytes(rows), 16 * 64 * 4);
  rows.end = rows.begin + 1;
  EXPECT_EQ(bytes(rows), 256);
  // A rank's quarter of another cut, for the whole model and all states.
  std::int64_t total = 0;
  for (const auto& ranges : make_layout(model, {2, 2}, random)) {
    total += checkpoint.bytes_to_read(checkpoint.plan_reads(ranges));
  }
  EXPECT_GE(total, 3 * 64 * 64 * 4);
  EXPECT_LE(total, 2 * 3 * 64 * 64 * 4);  // columns of half a block
}

TEST(SaveLoad, InPartsOfBoundedMemory) {
  TempDir dir;
  FileSystem& files = local_file_system();
  std::mt19937 random(4);
  const SaveTarget target =
      save(files, dir.path(), 5, make_layout(test_model(), {2, 3}, random), 128);
  Checkpoint checkpoint = open_checkpoint(files, target.path());
  StateRange whole = whole_range("wte.weight", StateKind::kMoment2, TensorDType::kF32, {257, 7});
  std::vector<std::byte> bytes;
  for (std::int64_t begin = 0; begin < 257 * 7; begin += 100) {
    StateRange part = whole;
    part.begin = begin;
    part.end = std::min<std::int64_t>(begin + 100, 257 * 7);
    std::vector<std::byte> memory(static_cast<std::size_t>(part.bytes()));
    checkpoint.read_range(part, memory);
    bytes.insert(bytes.end(), memory.begin(), memory.end());
  }
  EXPECT_EQ(bytes, expected_bytes(whole, 5));
}

TEST(SaveLoad, WhatTheCheckpointDoesNotHold) {
  TempDir dir;
  FileSystem& files = local_file_system();
  std::mt19937 random(5);
  Layout layout = make_layout(test_model(), {1, 1}, random);
  std::erase_if(layout[0], [](const StateRange& r) { return r.kind == StateKind::kMoment2; });
  const SaveTarget target = save(files, dir.path(), 1, layout);
  const Checkpoint checkpoint = open_checkpoint(files, target.path());
  EXPECT_TRUE(checkpoint.has("temperature", StateKind::kMoment1));
  EXPECT_FALSE(checkpoint.has("temperature", StateKind::kMoment2));
  EXPECT_EQ(checkpoint.parameters().size(), test_model().size());
  const auto why = [&](const StateRange& range) {
    return message_of([&] { (void)checkpoint.plan_reads({&range, 1}); });
  };
  EXPECT_THAT(why(whole_range("h.9.w", StateKind::kMaster, TensorDType::kF32, {2})),
              HasSubstr("master of parameter h.9.w elements 0:2: the checkpoint does not hold it"));
  EXPECT_THAT(why(whole_range("temperature", StateKind::kMoment2, TensorDType::kF32, {})),
              HasSubstr("moment2 of parameter temperature"));
  EXPECT_THAT(why(whole_range("h.0.ln.weight", StateKind::kMaster, TensorDType::kF32, {8})),
              HasSubstr("shape 7 "));
  EXPECT_THAT(why(whole_range("h.0.ln.weight", StateKind::kMaster, TensorDType::kI32, {7})),
              HasSubstr("stored as F32, which does not become I32"));
  StateRange beyond = whole_range("h.0.ln.weight", StateKind::kMaster, TensorDType::kF32, {7});
  beyond.end = 8;
  EXPECT_THAT(why(beyond), HasSubstr("h.0.ln.weight elements 0:8"));
}

TEST(SaveLoad, HolesOverlapsAndStrayRecordsAreNotCommitted) {
  TempDir dir;
  FileSystem& files = local_file_system();
  std::mt19937 random(6);
  const auto why = [&](const std::function<void(Layout&)>& change) {
    Layout layout = make_layout(test_model(), {2, 2}, random);
    change(layout);
    const std::string message = message_of([&] { save(files, dir.path(), 9, layout); });
    EXPECT_FALSE(newest_complete(files, dir.path(), Trust::kManifest).path) << message;
    return message;
  };
  EXPECT_THAT(why([](Layout& layout) { layout[3].erase(layout[3].begin()); }),
              ::testing::AllOf(HasSubstr("master of parameter wte.weight"),
                               HasSubstr("no rank holds these elements")));
  EXPECT_THAT(
      why([](Layout& layout) {
        layout[1].push_back(layout[0][1]);
        layout[1].back().end = layout[1].back().begin + 2;
      }),
      ::testing::AllOf(HasSubstr("moment1 of parameter wte.weight"), HasSubstr("overlaps")));
  EXPECT_THAT(why([](Layout& layout) {
                for (auto& ranges : layout) {
                  std::erase_if(ranges, [](const StateRange& r) {
                    return r.kind == StateKind::kMaster && r.param == "h.0.conv";
                  });
                }
              }),
              HasSubstr("h.0.conv has a moment1 but no master"));
  EXPECT_THAT(why([](Layout& layout) { layout[0].push_back(layout[0][0]); }),
              HasSubstr("two tensors called master/wte.weight"));
  // A slice that no rank has at all.
  EXPECT_THAT(why([](Layout& layout) {
                layout.resize(2);
                for (auto& ranges : layout) {
                  std::erase_if(ranges, [](const StateRange& r) { return r.shape.empty(); });
                }
              }),
              HasSubstr("the ranks hold slices with"));
  // Of another save; and a rank twice.
  const Layout layout = make_layout(test_model(), {1, 1}, random);
  const SaveTarget target = begin_save(files, dir.path(), 10);
  SaveTarget other = target;
  other.save_id = "0123456789abcdef";
  RankWriter writer(files, other, 0, layout[0]);
  for (std::size_t i = 0; i < layout[0].size(); ++i) {
    writer.write(i, expected_bytes(layout[0][i], 10));
  }
  const std::vector<std::string> records{writer.seal()};
  EXPECT_THAT(message_of([&] { commit(files, target, records, test_run_state(10)); }),
              HasSubstr("of another save"));
  const std::vector<std::string> twice{records[0], records[0]};
  EXPECT_THAT(message_of([&] { commit(files, other, twice, test_run_state(10)); }),
              HasSubstr("number 1 is that of rank 0"));
  std::filesystem::remove(other.path() + "/rank-00000.safetensors");
  const auto commit_again = [&](int local_ranks) {
    return message_of([&] { commit(files, other, records, test_run_state(10), local_ranks); });
  };
  constexpr const char* kRemoved = "it was removed before the checkpoint was complete";
  constexpr const char* kNotShared = "all hosts share";
  EXPECT_THAT(commit_again(1), AllOf(HasSubstr(kRemoved), Not(HasSubstr(kNotShared))));
  EXPECT_THAT(commit_again(0), AllOf(HasSubstr(kNotShared), Not(HasSubstr(kRemoved))));
  std::filesystem::remove_all(other.path());
  EXPECT_THAT(commit_again(0), HasSubstr(kRemoved));
}

TEST(SaveLoad, ARangeNotWrittenWholeIsNotSealed) {
  TempDir dir;
  FileSystem& files = local_file_system();
  const SaveTarget target = begin_save(files, dir.path(), 1);
  const StateRange range = whole_range("w", StateKind::kMaster, TensorDType::kF32, {3, 5});
  const std::vector<std::byte> bytes(61);
  RankWriter writer(files, target, 0, {&range, 1});
  writer.write(0, std::span(bytes).first(56));
  EXPECT_THAT(message_of([&] { (void)writer.seal(); }), HasSubstr("master/w has 56 of its 60"));
  EXPECT_THAT(message_of([&] { writer.write(0, std::span(bytes).first(5)); }),
              HasSubstr("more than its 60 bytes"));
  writer.write(0, std::span(bytes).first(4));
  EXPECT_NE(writer.seal(), "");
}

TEST(SaveLoad, ThreadsWriteTheirOwnRanges) {
  TempDir dir;
  FileSystem& files = local_file_system();
  std::mt19937 random(7);
  const Layout layout = make_layout(test_model(), {1, 1}, random);
  const SaveTarget target = begin_save(files, dir.path(), 3);
  RankWriter writer(files, target, 0, layout[0], {64, 1000, 3000});
  std::vector<std::thread> threads;
  for (std::size_t first = 0; first < 3; ++first) {
    threads.emplace_back([&, first] {
      for (std::size_t i = first; i < layout[0].size(); i += 3) {
        const std::vector<std::byte> bytes = expected_bytes(layout[0][i], 3);
        for (std::size_t at = 0; at < bytes.size(); at += 40) {
          writer.write(i,
                       std::span(bytes).subspan(at, std::min<std::size_t>(40, bytes.size() - at)));
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  const std::vector<std::string> records{writer.seal()};
  commit(files, target, records, test_run_state(3));
  expect_loads(files, dir.path(), 3, layout);
}

TEST(SaveLoad, ARankWithoutRangesIsPartOfIt) {
  TempDir dir;
  FileSystem& files = local_file_system();
  std::mt19937 random(8);
  Layout layout = make_layout(test_model(), {1, 1}, random);
  layout.emplace_back();
  const SaveTarget target = save(files, dir.path(), 2, layout);
  expect_loads(files, target.path(), 2, layout);
  std::filesystem::remove(target.path() + "/rank-00001.safetensors");
  EXPECT_THROW((void)open_checkpoint(files, target.path()), CheckpointError);
}

}  // namespace
}  // namespace sluice::testing
