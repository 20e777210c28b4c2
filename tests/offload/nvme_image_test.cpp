// Extents that outlive their process: what a store commits, another one finds, whatever instant the
// first was lost at.
#include <gmock/gmock.h>

#include <filesystem>
#include <fstream>

#include "offload/extent_plan.hpp"
#include "offload/image_record.hpp"
#include "offload/image_size.hpp"
#include "offload/swap_file.hpp"
#include "tests/offload/power_log.hpp"
#include "tests/offload/support.hpp"

namespace sluice {
namespace {

using testing::HasSubstr;

constexpr std::int64_t kSizes[] = {50'000, 3000};  // neither ends at a grain

NvmeOptions image_options(const Scratch& scratch, int paths = 2) {
  NvmeOptions options = small_options(scratch, paths);
  options.cache = IoCache::kDirectOrBuffered;
  options.image = true;
  return options;
}

// Two pairs of extents, and one more that is nobody's state.
struct Image {
  explicit Image(NvmeOptions options, const std::string& layout = "as ever")
      : store(std::move(options)) {
    std::vector<ImagePair> all;
    for (const std::int64_t bytes : kSizes) {
      const std::string name = "m" + std::to_string(bytes);
      pairs.push_back({store.add("moments", name, bytes), {}});
      pairs.back()[1] = store.add("moments", name + ".second", bytes);
    }
    scratch = store.add("gradients", "g", 20'000);
    store.add_image(pairs, layout);
  }

  static Bytes content(std::int64_t step, std::size_t pair) {
    return Bytes::random(kSizes[pair], static_cast<std::uint64_t>(step) * 10 + pair);
  }
  void write(std::int64_t step) {
    std::vector<Ticket> tickets;
    std::vector<Bytes> kept;
    kept.reserve(2);
    for (std::size_t p = 0; p < pairs.size(); ++p) {
      kept.push_back(content(step, p));
      const std::int64_t half = kSizes[p] / 3;  // in parts that share a grain
      const ExtentId to = pairs[p][static_cast<std::size_t>(step % 2)];
      tickets.push_back(store.write(to, 0, kept.back().data(), half));
      tickets.push_back(store.write(to, half, kept.back().data() + half, kSizes[p] - half));
    }
    for (const Ticket& ticket : tickets) ticket.wait();
  }
  void commit(std::int64_t step) {
    store.commit_image(step, static_cast<int>(step % 2), "state of " + std::to_string(step)).wait();
  }
  void expect_content(std::int64_t step) {
    for (std::size_t p = 0; p < pairs.size(); ++p) {
      Bytes got(kSizes[p]);
      store.read(pairs[p][static_cast<std::size_t>(step % 2)], 0, got.data(), kSizes[p]).wait();
      EXPECT_EQ(got, content(step, p)) << "step " << step << ", extent " << p;
    }
  }

  NvmeStore store;
  std::vector<ImagePair> pairs;
  ExtentId scratch;
};

std::vector<std::int64_t> steps_of(const FoundImage& found) {
  std::vector<std::int64_t> steps;
  for (const ImageVersion& version : found.versions) steps.push_back(version.step);
  return steps;
}

void flip(const std::string& path, std::int64_t offset) {
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  file.seekg(offset);
  const auto byte = static_cast<char>(file.get() ^ 4);
  file.seekp(offset);
  file.put(byte);
}

std::string swap_file(const Scratch& scratch, int path) {
  return scratch.dir("p" + std::to_string(path)) + "/rank-00000.swap";
}

class NvmeImage : public testing::TestWithParam<IoEngine> {
 protected:
  void SetUp() override {
    if (GetParam() == IoEngine::kUring && !has_uring()) GTEST_SKIP() << "no io_uring here";
    options_ = image_options(scratch_);
    options_.engine = GetParam();
  }
  void leave(std::int64_t last) {
    Image image(options_);
    EXPECT_EQ(image.store.find_image().problem, "");
    image.store.open();
    for (std::int64_t step = 0; step <= last; ++step) {
      image.write(step);
      image.commit(step);
    }
  }
  std::string problem() {
    Image image(options_);
    return image.store.find_image().problem;
  }

  Scratch scratch_;
  NvmeOptions options_;
};

TEST_P(NvmeImage, IsFoundWithBothVersionsAndGoesOn) {
  leave(4);
  for (const std::size_t which : {std::size_t{1}, std::size_t{0}}) {
    options_.run_id = "life " + std::to_string(which);
    Image image(options_);
    const FoundImage found = image.store.find_image();
    ASSERT_EQ(found.problem, "");
    EXPECT_EQ(found.id, "test-run");  // of the one that began it
    ASSERT_EQ(steps_of(found), (std::vector<std::int64_t>{4, 3}));
    const std::int64_t from = found.versions[which].step;
    EXPECT_EQ(found.versions[which].state, "state of " + std::to_string(from));
    EXPECT_EQ(found.versions[which].place, static_cast<int>(from % 2));
    image.store.adopt(which);
    image.expect_content(from);
    for (std::int64_t step = from + 1; step <= 4; ++step) {
      image.write(step);
      image.expect_content(step - 1);
      image.commit(step);
    }
    // Parts of grains of which nothing is known, and what was written then.
    const Bytes part = Bytes::random(5000, 7);
    image.store.write(image.scratch, 3000, part.data(), 5000).wait();
    Bytes got(5000);
    image.store.read(image.scratch, 3000, got.data(), 5000).wait();
    EXPECT_EQ(got, part);
  }
}

TEST_P(NvmeImage, WhoGoesOnFromTheOlderForgetsTheNewer) {
  leave(4);
  {
    Image image(options_);
    ASSERT_EQ(steps_of(image.store.find_image()).size(), 2U);
    image.store.adopt(1);
  }
  Image image(options_);
  EXPECT_EQ(steps_of(image.store.find_image()), (std::vector<std::int64_t>{3}));
}

TEST_P(NvmeImage, LeavesNothingWhereNothingIsCommittedWithdrawnOrOver) {
  for (const char* how : {"never", "withdrawn", "over"}) {
    {
      Image image(options_);
      image.store.open();
      image.write(0);
      const bool commits = std::string(how) != "never";
      if (commits) image.commit(0);
      if (std::string(how) == "withdrawn") image.store.withdraw_image();
      if (std::string(how) == "over") image.store.end_image();
    }
    EXPECT_THAT(scratch_.names("p0"), testing::IsEmpty()) << how;
  }
}

TEST_P(NvmeImage, AFlippedBitIsFoundWhereItIsReadAndNamesTheWayOut) {
  leave(4);
  flip(swap_file(scratch_, 0), 4096 + 100);  // the first extent of place 0 begins there
  Image image(options_);
  const FoundImage found = image.store.find_image();
  ASSERT_EQ(steps_of(found).front(), 4);
  image.store.adopt(0);
  const std::string text = error_of<IoError>([&] { image.expect_content(4); });
  EXPECT_THAT(text, HasSubstr(swap_file(scratch_, 0) + " at offset 4096"));
  EXPECT_THAT(text, HasSubstr("--resume"));
}

TEST_P(NvmeImage, DamageIsSaidAndADamagedRecordLeavesTheOther) {
  // Records are the last extents: of the two files, where they begin is in the plan's own words.
  ExtentPlan plan(2, options_.block_bytes);
  for (const std::int64_t bytes : kSizes) {
    plan.add("moments", "m" + std::to_string(bytes), bytes);
    plan.add("moments", "m" + std::to_string(bytes) + ".second", bytes);
  }
  plan.add("gradients", "g", 20'000);
  const std::int64_t record = image_record_bytes(7 + 1);
  const int records[] = {plan.add("image", "image.0", record),
                         plan.add("image", "image.1", record)};
  const auto spoil = [&](int which) {
    const ExtentPlan::Place place = plan.place(records[which], 0);
    flip(swap_file(scratch_, place.file), place.offset + 300);
  };
  leave(4);  // sequences 1 to 5: step 4 is in record 1
  spoil(1);
  {
    Image image(options_);
    EXPECT_EQ(steps_of(image.store.find_image()), (std::vector<std::int64_t>{3}));
  }
  spoil(0);
  EXPECT_THAT(problem(), HasSubstr("a record is damaged"));
  spoil(1);  // as it was
  EXPECT_EQ(problem(), "");
  flip(swap_file(scratch_, 1), 20);  // its header
  EXPECT_THAT(problem(), HasSubstr("does not begin with a whole header"));
  std::filesystem::resize_file(swap_file(scratch_, 1), 100);
  EXPECT_THAT(problem(), HasSubstr("rank-00000.swap"));
  std::filesystem::remove(swap_file(scratch_, 1));
  EXPECT_THAT(problem(), HasSubstr("is missing"));
  Image image(options_);
  EXPECT_NE(image.store.find_image().problem, "");
  image.store.remove_found_image();
  EXPECT_THAT(scratch_.names("p0"), testing::ElementsAre("rank-00000.lock", "sluice-swap.lock"));
  image.store.open();
  image.write(0);
  image.expect_content(0);
}

// Of the only file: with it goes what says that something was committed.
TEST_P(NvmeImage, ADamagedHeaderIsNoFreshStart) {
  options_.paths.resize(1);
  leave(3);
  const std::string file = swap_file(scratch_, 0);
  const std::string kept = scratch_.dir("kept");
  std::filesystem::copy_file(file, kept);
  NvmeOptions plain = options_;
  plain.image = false;
  plain.spares_images = true;
  constexpr std::int64_t kAllZero = -1;
  for (const std::int64_t damage : {std::int64_t{0}, std::int64_t{8}, std::int64_t{60}, kAllZero}) {
    SCOPED_TRACE(damage);
    if (damage == kAllZero) {
      std::fstream(file, std::ios::in | std::ios::out | std::ios::binary)
          .write(std::string(kSwapHeaderBytes, '\0').data(), kSwapHeaderBytes);
    } else {
      flip(file, damage);
    }
    {
      Image image(options_);
      const FoundImage found = image.store.find_image();
      EXPECT_FALSE(found.begun);
      EXPECT_THAT(found.problem, HasSubstr("does not begin with a whole header"));
    }
    NvmeStore store(plain);
    (void)store.add("parameters", "p", 5000);
    EXPECT_THAT(error_of<IoError>([&] { store.open(); }),
                HasSubstr(damage == 0 ? "not a swap file of Sluice" : "whose header is damaged"));
    ASSERT_TRUE(std::filesystem::exists(file));
    std::filesystem::copy_file(kept, file, std::filesystem::copy_options::overwrite_existing);
    EXPECT_EQ(problem(), "");
  }
}

// The power went before the header was on the disk: there are files, and nothing was committed.
TEST_P(NvmeImage, AHeaderThatWasNeverWrittenIsAFreshStart) {
  options_.paths.resize(1);
  const std::string file = swap_file(scratch_, 0);
  const std::string kept = scratch_.dir("kept");
  {
    Image image(options_);
    image.store.open();
    image.write(0);
    std::filesystem::copy_file(file, kept);
  }
  std::fstream(kept, std::ios::in | std::ios::out | std::ios::binary)
      .write(std::string(kSwapHeaderBytes, '\0').data(), kSwapHeaderBytes);
  const auto bytes = std::filesystem::file_size(kept);
  const auto begun = [&] {
    Image image(options_);
    const FoundImage found = image.store.find_image();
    EXPECT_EQ(found.problem, "");
    return found.begun;
  };
  std::filesystem::copy_file(kept, file);
  EXPECT_TRUE(begun()) << "states, and no record";
  std::filesystem::resize_file(file, bytes - 4096);
  EXPECT_THAT(problem(), HasSubstr("whole header")) << "of what layout is not known";
  std::filesystem::resize_file(file, 0);
  EXPECT_TRUE(begun()) << "empty";
  std::filesystem::resize_file(file, bytes);
  EXPECT_TRUE(begun()) << "reserved";
  std::filesystem::resize_file(file, 2 * bytes);
  EXPECT_TRUE(begun()) << "reserved, of another layout";
  NvmeOptions plain = options_;
  plain.image = false;
  plain.spares_images = true;
  NvmeStore store(plain);
  (void)store.add("parameters", "p", 5000);
  store.open();
}

// Looking for it with fewer ranks than it is of removes nothing; going on does.
TEST_P(NvmeImage, WhatMoreRanksLeftStaysUntilAnImageIsTaken) {
  leave(2);
  const std::string other = scratch_.dir("p1") + "/rank-00001.swap";
  std::filesystem::copy_file(swap_file(scratch_, 1), other);
  EXPECT_EQ(problem(), "");
  EXPECT_TRUE(std::filesystem::exists(other));
  Image image(options_);
  (void)image.store.find_image();
  image.store.adopt(0);
  EXPECT_FALSE(std::filesystem::exists(other));
  image.expect_content(2);
}

// Rank 1 was here, and is on another host now.
TEST_P(NvmeImage, WhatARankLeftThatIsElsewhereIsRemovedWhereNothingIsGoneOnFrom) {
  leave(2);
  options_.ranks = 2;
  std::filesystem::copy_file(swap_file(scratch_, 0), scratch_.dir("p0") + "/rank-00001.swap");
  Image image(options_);
  ASSERT_EQ(image.store.find_image().problem, "");
  EXPECT_THAT(scratch_.names("p0"), testing::Contains("rank-00001.swap"));
  image.store.remove_found_image();
  EXPECT_THAT(scratch_.names("p0"), testing::ElementsAre("rank-00000.lock", "sluice-swap.lock"));
}

TEST_P(NvmeImage, OfAnotherLayoutIsNotTaken) {
  leave(2);
  {
    Image image(options_, "another stage");
    EXPECT_THAT(image.store.find_image().problem, HasSubstr("another layout"));
  }
  NvmeOptions other = options_;
  other.block_bytes *= 2;
  {
    Image image(other);
    EXPECT_THAT(image.store.find_image().problem, HasSubstr("another layout"));
  }
  EXPECT_EQ(problem(), "");  // looking changed nothing
}

// A run that is not to go on from it: training removes it, what only reads a model does not.
TEST_P(NvmeImage, IsSparedByWhoIsToldSo) {
  leave(2);
  NvmeOptions plain = options_;
  plain.image = false;
  plain.spares_images = true;
  {
    NvmeStore store(plain);
    (void)store.add("parameters", "p", 5000);
    EXPECT_THAT(error_of<IoError>([&] { store.open(); }), HasSubstr("image"));
  }
  EXPECT_EQ(problem(), "");
  plain.spares_images = false;
  NvmeStore store(plain);
  (void)store.add("parameters", "p", 5000);
  store.open();
}

TEST_P(NvmeImage, FaultsWhileCommittingEndTheStoreAndLeaveTheStepBefore) {
  for (const char* fault : {"nvme.sync@1:error", "nvme.sync@3:error", "nvme.write@1:error"}) {
    leave(3);
    {
      Image image(options_);
      ASSERT_EQ(steps_of(image.store.find_image()).front(), 3) << fault;
      image.store.adopt(0);
      image.write(4);
      const Faults faults(fault);
      EXPECT_THROW(image.commit(4), IoError) << fault;
      EXPECT_TRUE(image.store.failed());
    }
    Image image(options_);
    const FoundImage found = image.store.find_image();
    ASSERT_EQ(found.problem, "") << fault;
    // Where the record was written and only the last flush failed, it may be there.
    EXPECT_GE(found.versions.front().step, 3) << fault;
    image.store.adopt(0);
    image.expect_content(found.versions.front().step);
  }
  leave(3);
  Image image(options_);
  (void)image.store.find_image();
  image.store.adopt(0);
  image.write(4);
  const Faults faults("nvme.sync.again@1:error;nvme.sync.intr@3:error;nvme.write.short@1:error");
  image.commit(4);
  image.expect_content(4);
}

// The power goes at every instant of six steps; of what was not flushed, each time, a third is
// gone, a third is there and a third is torn.
TEST_P(NvmeImage, SurvivesALossOfPowerAtAnyInstant) {
  PowerLog log;
  const std::filesystem::path kept = scratch_.dir("before");
  options_.wrap_backend = [&](std::unique_ptr<IoBackend> inner) {
    return log.wrap(std::move(inner));
  };
  {
    Image image(options_);
    image.store.open();
    std::filesystem::create_directory(kept);
    for (int p = 0; p < 2; ++p) {
      std::filesystem::copy_file(swap_file(scratch_, p), kept / std::to_string(p));
    }
    for (std::int64_t step = 0; step < 6; ++step) {
      image.write(step);
      image.commit(step);
      log.note_committed(step);
    }
  }
  options_.wrap_backend = nullptr;
  ASSERT_GT(log.instants(), 100U);
  std::int64_t newer = 0;
  constexpr std::size_t kFates = 3;
  for (std::size_t i = 0; i < kFates * log.instants(); ++i) {
    const std::size_t instant = i / kFates;
    SCOPED_TRACE(instant);
    for (int p = 0; p < 2; ++p) {
      std::filesystem::copy_file(kept / std::to_string(p), swap_file(scratch_, p),
                                 std::filesystem::copy_options::overwrite_existing);
      log.apply(swap_file(scratch_, p), p, instant, i * 2 + static_cast<std::size_t>(p));
    }
    Image image(options_);
    const FoundImage found = image.store.find_image();
    const std::int64_t committed = log.committed_by(instant);
    if (committed < 0 && found.versions.empty()) continue;
    ASSERT_EQ(found.problem, "");
    ASSERT_GE(found.versions.front().step, committed);
    newer += found.versions.front().step > committed ? 1 : 0;
    image.store.adopt(0);
    image.expect_content(found.versions.front().step);
  }
  EXPECT_GT(newer, 0);
}

INSTANTIATE_TEST_SUITE_P(Engines, NvmeImage, testing::Values(IoEngine::kUring, IoEngine::kThreads),
                         [](const auto& engine) {
                           return engine.param == IoEngine::kUring ? "Uring" : "Threads";
                         });

TEST(ImageRecords, EveryDamagedByteOfWhatIsUsedIsNoticed) {
  const std::vector<std::uint64_t> hashes(9, 0x1234567890abcdefU);
  const ImageRecord image{.id = "run",
                          .rank = 3,
                          .layout_hash = 5,
                          .sequence = 8,
                          .step = 41,
                          .place = 1,
                          .state = "some state"};
  std::vector<std::byte> record(static_cast<std::size_t>(image_record_bytes(9)));
  std::string why;
  EXPECT_FALSE(decode_image_record(record, why));
  EXPECT_EQ(why, "");
  const std::span<const std::uint64_t> parts[] = {std::span(hashes).first(2),
                                                  std::span(hashes).subspan(2)};
  const std::int64_t used = encode_image_record(image, parts, record);
  const auto decoded = decode_image_record(record, why);
  ASSERT_TRUE(decoded);
  EXPECT_EQ(decoded->image.id, "run");
  EXPECT_EQ(decoded->image.step, 41);
  EXPECT_EQ(decoded->image.state, "some state");
  EXPECT_EQ(decoded->checksums, hashes);
  for (std::int64_t at = 0; at < used; ++at) {
    record[static_cast<std::size_t>(at)] ^= std::byte{1};
    EXPECT_FALSE(decode_image_record(record, why)) << at;
    EXPECT_NE(why, "") << at;
    record[static_cast<std::size_t>(at)] ^= std::byte{1};
  }
}

}  // namespace
}  // namespace sluice
