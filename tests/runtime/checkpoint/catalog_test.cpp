// Which checkpoints there are, which is the newest, which go.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <random>
#include <string>

#include "base/error.hpp"
#include "runtime/checkpoint/format/step_name.hpp"
#include "tests/runtime/checkpoint/support.hpp"

namespace sluice::testing {
namespace {

namespace fs = std::filesystem;
using Names = std::vector<std::string>;

class Catalog : public ::testing::Test {
 protected:
  Catalog() {
    std::mt19937 random(41);
    layout_ = make_layout({{"w", {9, 3}}}, {2, 1}, random);
  }
  SaveTarget save_step(std::int64_t step) { return save(files_, dir_.path(), step, layout_); }
  Names names() { return files_.list(dir_.path()); }
  NewestComplete newest() { return newest_complete(files_, dir_.path(), Trust::kContents); }

  FileSystem& files_ = local_file_system();
  TempDir dir_;
  Layout layout_;
};

TEST_F(Catalog, NothingThere) {
  EXPECT_FALSE(newest().path);
  EXPECT_TRUE(ls(files_, dir_.path()).empty());
  EXPECT_TRUE(ls(files_, dir_.path() + "/none").empty());
  EXPECT_FALSE(newest_complete(files_, dir_.path() + "/none", Trust::kManifest).path);
  EXPECT_TRUE(purge(files_, dir_.path(), {}).empty());
  EXPECT_THROW((void)open_checkpoint(files_, dir_.path()), CheckpointError);
  EXPECT_THROW((void)open_checkpoint(files_, dir_.path() + "/none"), CheckpointError);
  EXPECT_FALSE(verify(files_, dir_.path()).sound());
}

TEST_F(Catalog, KeepsTheNewest) {
  for (const std::int64_t step : {1, 2, 3, 4}) save_step(step);
  EXPECT_TRUE(purge(files_, dir_.path(), {0, {}}).empty());
  EXPECT_EQ(purge(files_, dir_.path(), {2, {}}), (Names{"step-00000001", "step-00000002"}));
  EXPECT_EQ(names(), (Names{"latest", "step-00000003", "step-00000004"}));
}

TEST_F(Catalog, TheLastSavedIsTheNewestWhateverItsStep) {
  for (const std::int64_t step : {40, 50, 60}) save_step(step);
  flip_bit(dir_.path() + "/step-00000060/rank-00001.safetensors", 300);
  flip_bit(dir_.path() + "/step-00000050/manifest.json", 100);
  const NewestComplete found = newest();
  EXPECT_EQ(found.name, "step-00000040");
  ASSERT_EQ(found.refused.size(), 2U);
  // The run goes on from 40 and saves 45: not behind 60, nor purged for it.
  save_step(45);
  EXPECT_EQ(newest().name, "step-00000045");
  const auto removed = purge(files_, dir_.path(), {1, {"step-00000060"}});
  EXPECT_EQ(removed.size(), 3U);
  EXPECT_EQ(names(), (Names{"latest", "step-00000045"}));
}

TEST_F(Catalog, WhatWasRefusedDoesNotCountAsKept) {
  for (const std::int64_t step : {1, 2, 3}) save_step(step);
  EXPECT_EQ(newest_complete(files_, dir_.path(), Trust::kManifest, {"step-00000003"}).name,
            "step-00000002");
  save_step(4);
  EXPECT_EQ(purge(files_, dir_.path(), {2, {"step-00000003"}}), Names{"step-00000001"});
  save_step(5);
  EXPECT_EQ(purge(files_, dir_.path(), {2, {"step-00000003"}}),
            (Names{"step-00000002", "step-00000003"}));
}

TEST_F(Catalog, WhatIsDamagedOrMisnamedIsNotRemovedUnasked) {
  for (const std::int64_t step : {1, 2, 3}) save_step(step);
  fs::rename(dir_.path() + "/step-00000001", dir_.path() + "/step-00000007");
  fs::remove(dir_.path() + "/step-00000002/rank-00000.safetensors");
  EXPECT_TRUE(purge(files_, dir_.path(), {2, {}}).empty());
  for (const std::int64_t step : {4, 5}) save_step(step);
  EXPECT_EQ(purge(files_, dir_.path(), {2, {}}), (Names{"step-00000002", "step-00000003"}));
  EXPECT_EQ(names(), (Names{"latest", "step-00000004", "step-00000005", "step-00000007"}));
}

TEST_F(Catalog, UnfinishedOnesGoWhenTheNextSaveBegins) {
  save_step(10);
  (void)begin_save(files_, dir_.path(), 20);
  EXPECT_TRUE(purge(files_, dir_.path(), {1, {}}).empty());  // it may be under way
  const NewestComplete found = newest();
  EXPECT_EQ(found.name, "step-00000010");
  ASSERT_EQ(found.refused.size(), 1U);
  EXPECT_EQ(found.refused[0].name, "step-00000020");
  save_step(30);
  EXPECT_EQ(newest().refused.size(), 0U);
  EXPECT_EQ(names(), (Names{"latest", "step-00000010", "step-00000030"}));
  EXPECT_EQ(purge(files_, dir_.path(), {1, {}}), Names{"step-00000010"});
}

TEST_F(Catalog, AFileThatIsCalledAsACheckpointIsNone) {
  replace_durably(files_, dir_.path() + "/step-00000002", "mine");
  save_step(1);
  save_step(3);
  EXPECT_EQ(ls(files_, dir_.path()).size(), 2U);
  EXPECT_EQ(newest().name, "step-00000003");
  EXPECT_EQ(purge(files_, dir_.path(), {1, {}}), Names{"step-00000001"});
  EXPECT_EQ(names(), (Names{"latest", "step-00000002", "step-00000003"}));
  EXPECT_THROW(save_step(2), CheckpointError);
}

TEST_F(Catalog, TheSameStepAgainLosesNothing) {
  save_step(10);
  EXPECT_EQ(save_step(10).name, "step-00000010.1");
  EXPECT_EQ(save_step(10).name, "step-00000010.2");
  EXPECT_EQ(newest().name, "step-00000010.2");
  EXPECT_EQ(purge(files_, dir_.path(), {1, {}}).size(), 2U);
  EXPECT_EQ(names(), (Names{"latest", "step-00000010.2"}));
  EXPECT_EQ(save_step(10).name, "step-00000010.3");
}

TEST_F(Catalog, NothingIsPurgedWithoutACompleteOne) {
  save_step(1);
  save_step(2);
  fs::remove(dir_.path() + "/step-00000001/rank-00000.safetensors");
  fs::remove(dir_.path() + "/step-00000002/rank-00000.safetensors");
  EXPECT_TRUE(purge(files_, dir_.path(), {1, {}}).empty());
}

TEST_F(Catalog, OthersFilesStay) {
  save_step(1);
  fs::create_directories(dir_.path() + "/step-00000001/mine");
  fs::create_directories(dir_.path() + "/step-2");
  fs::create_directories(dir_.path() + "/best");
  save_step(2);
  EXPECT_EQ(purge(files_, dir_.path(), {1, {}}), Names{"step-00000001"});
  EXPECT_EQ(names(), (Names{"best", "latest", "step-00000001", "step-00000002", "step-2"}));
  EXPECT_EQ(newest().name, "step-00000002");
}

TEST_F(Catalog, WhatALinkLeadsToStays) {
  const TempDir archive;
  for (const std::int64_t step : {1, 2}) save_step(step);
  const std::string kept = archive.path() + "/kept";
  const std::string broken = archive.path() + "/broken";
  fs::rename(dir_.path() + "/step-00000001", kept);
  fs::create_directory_symlink(kept, dir_.path() + "/step-00000001");
  fs::create_directory(broken);
  replace_durably(files_, broken + "/rank-00000.safetensors", "part of a save");
  fs::create_directory_symlink(broken, dir_.path() + "/step-00000003");
  save_step(4);
  EXPECT_EQ(purge(files_, dir_.path(), {1, {}}), (Names{"step-00000001", "step-00000002"}));
  EXPECT_EQ(names(), (Names{"latest", "step-00000004"}));
  EXPECT_TRUE(verify(files_, kept).sound());
  EXPECT_TRUE(fs::exists(broken + "/rank-00000.safetensors"));
}

TEST_F(Catalog, WhatANewerVersionWroteStays) {
  for (const std::int64_t step : {1, 2}) {
    const std::string path = save_step(step).path();
    Manifest newer = open_checkpoint(files_, path).manifest();
    newer.version = 2;
    replace_durably(files_, path + "/manifest.json", encode_manifest(newer));
  }
  save_step(3);
  save_step(4);
  EXPECT_EQ(newest().name, "step-00000004");
  EXPECT_EQ(purge(files_, dir_.path(), {1, {}}), Names{"step-00000003"});
  EXPECT_EQ(names(), (Names{"latest", "step-00000001", "step-00000002", "step-00000004"}));
}

TEST_F(Catalog, Ls) {
  save_step(1);
  save_step(2);
  (void)begin_save(files_, dir_.path(), 3);
  fs::resize_file(dir_.path() + "/step-00000001/rank-00001.safetensors", 9);
  const auto list = ls(files_, dir_.path());
  ASSERT_EQ(list.size(), 3U);
  EXPECT_EQ(list[0].name, "step-00000002");
  EXPECT_TRUE(list[0].complete);
  EXPECT_TRUE(list[0].is_latest);
  EXPECT_EQ(list[0].layout, test_run_state(2).layout);
  EXPECT_GT(list[0].bytes, 9 * 3 * 4 * 3);
  EXPECT_EQ(list[0].saved_at.size(), 20U);
  EXPECT_EQ(list[1].name, "step-00000001");
  EXPECT_FALSE(list[1].complete);
  EXPECT_THAT(list[1].why_not, ::testing::HasSubstr("cut short"));
  EXPECT_EQ(list[2].name, "step-00000003");
  EXPECT_THAT(list[2].why_not, ::testing::HasSubstr("never completed"));
}

TEST_F(Catalog, NothingGoesByLatest) {
  save_step(5);
  const std::string newest_path = save_step(1).path();
  for (const char* const text : {"../../etc\n", "step-00000007\n", "step-00000005\n"}) {
    replace_durably(files_, dir_.path() + "/latest", text);
    EXPECT_EQ(open_checkpoint(files_, dir_.path()).path(), newest_path);
    EXPECT_EQ(newest().name, "step-00000001");
  }
}

TEST_F(Catalog, AFolderWhoseNewestIsDamagedDoesNotGiveAnOlderOneUnasked) {
  save_step(1);
  save_step(2);
  flip_bit(dir_.path() + "/step-00000002/manifest.json", 20);
  EXPECT_THROW((void)open_checkpoint(files_, dir_.path()), CheckpointError);
  EXPECT_EQ(newest().name, "step-00000001");
}

TEST_F(Catalog, AFolderOfAnotherStepsNameIsNotSound) {
  save_step(8);
  const std::string renamed = dir_.path() + "/step-00000010";
  fs::rename(dir_.path() + "/step-00000008", renamed);
  const auto expect_defect = [&](const std::string& name) {
    const VerifyReport report = verify(files_, renamed + "/");
    ASSERT_EQ(report.defects.size(), 1U);
    EXPECT_THAT(report.defects[0].what,
                ::testing::EndsWith("is the manifest of step 8; rename the folder to " + name));
    EXPECT_GT(report.bytes, 0);
    EXPECT_THROW((void)open_checkpoint(files_, renamed), CheckpointError);
  };
  expect_defect("step-00000008");
  save_step(8);
  expect_defect("step-00000008.1");
}

TEST(StepName, OnlyItsOwnSpelling) {
  EXPECT_EQ(step_name(42, 0), "step-00000042");
  EXPECT_EQ(step_name(123456789, 3), "step-123456789.3");
  EXPECT_EQ(parse_step_name("step-123456789.3")->attempt, 3);
  for (const char* const name :
       {"step-42", "step-", "step-0000004x", "step-00000042.0", "step--0000001", "step-00000042.",
        "step-00000042.01", "xstep-00000042", "step-99999999999999999999"}) {
    EXPECT_FALSE(parse_step_name(name)) << name;
  }
}

TEST(Paths, Parents) {
  EXPECT_EQ(parent_path("a/b"), "a");
  EXPECT_EQ(parent_path("a//b/"), "a");
  EXPECT_EQ(parent_path("a"), ".");
  EXPECT_EQ(parent_path("/a"), "/");
  EXPECT_EQ(parent_path("/"), "/");
  EXPECT_EQ(join_path("a/", "b"), "a/b");
  EXPECT_EQ(join_path("", "b"), "b");
}

}  // namespace
}  // namespace sluice::testing
