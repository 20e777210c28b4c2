// Reading ahead of the one who compares and copies: the same bytes, bounded memory, and whatever
// goes wrong in a reading thread arrives where its bytes were waited for.
#include "runtime/checkpoint/io/read_ahead.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <filesystem>
#include <functional>
#include <mutex>
#include <random>
#include <stdexcept>
#include <string>

#include "base/error.hpp"
#include "base/failpoint.hpp"
#include "base/thread_rank.hpp"
#include "runtime/checkpoint/format/checkpoint_error.hpp"
#include "runtime/checkpoint/io/page_memory.hpp"
#include "tests/runtime/checkpoint/support.hpp"

namespace sluice::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

struct Armed {
  explicit Armed(const std::string& text) { arm_failpoints(text); }
  ~Armed() { arm_failpoints(""); }
  Armed(const Armed&) = delete;
  Armed& operator=(const Armed&) = delete;
};

struct Read {
  bool once = false;
  std::int64_t offset = 0;
  std::span<std::byte> to;
};
using ReadHook = std::function<void(const Read&)>;

// The machine's own files, each read of one told to `hook`, by the thread that reads, before it.
class WatchedFiles final : public FileSystem {
 public:
  explicit WatchedFiles(ReadHook hook) : hook_(std::move(hook)) {}
  std::unique_ptr<File> create(const std::string& path) override { return local_.create(path); }
  std::unique_ptr<File> open(const std::string& path) override {
    if (!path.ends_with(".safetensors")) return local_.open(path);
    return std::make_unique<Watched>(local_.open(path), hook_);
  }
  bool make_dir(const std::string& path) override { return local_.make_dir(path); }
  void rename(const std::string& from, const std::string& to) override { local_.rename(from, to); }
  void unlink(const std::string& path) override { local_.unlink(path); }
  void remove_dir(const std::string& path) override { local_.remove_dir(path); }
  void sync_dir(const std::string& path) override { local_.sync_dir(path); }
  std::optional<FileStat> stat(const std::string& path) override { return local_.stat(path); }
  std::vector<std::string> list(const std::string& dir) override { return local_.list(dir); }

 private:
  class Watched final : public File {
   public:
    Watched(std::unique_ptr<File> inner, const ReadHook& hook)
        : inner_(std::move(inner)), hook_(hook) {}
    void write(std::int64_t offset, std::span<const std::byte> bytes) override {
      inner_->write(offset, bytes);
    }
    std::int64_t read(std::int64_t offset, std::span<std::byte> bytes) override {
      hook_({false, offset, bytes});
      return inner_->read(offset, bytes);
    }
    std::int64_t read_once(std::int64_t offset, std::span<std::byte> bytes) override {
      hook_({true, offset, bytes});
      return inner_->read_once(offset, bytes);
    }
    void start_writeback(std::int64_t, std::int64_t) override {}
    void wait_for_writeback(std::int64_t, std::int64_t) override {}
    void sync() override {}
    std::int64_t size() override { return inner_->size(); }

   private:
    std::unique_ptr<File> inner_;
    const ReadHook& hook_;
  };
  FileSystem& local_ = local_file_system();
  const ReadHook hook_;
};

// Six MiB of odd sizes in one file, in blocks that no page begins with: 16 windows of the memory
// below, which has eight slots of 400 KiB and a page. Large enough to go past the page cache.
class ReadAheadTest : public ::testing::Test {
 protected:
  ReadAheadTest() {
    std::mt19937 random(41);
    layout_ = make_layout({{"wte.weight", {257, 1999}}, {"h.0.ln", {7}}, {"lm", {11, 501}}}, {1, 1},
                          random);
    const TempDir memory;  // a save syncs far too often for a disk
    const SaveTarget saved = save(local_file_system(), memory.path(), 3, layout_, kBlock);
    path_ = dir_.path() + "/" + saved.name;
    std::filesystem::copy(saved.path(), path_);
  }
  // Calls `take` after comparing each part with what it should be.
  void read(FileSystem& files, std::span<std::byte> ahead, const std::function<void()>& take = {}) {
    Checkpoint checkpoint = open_checkpoint(files, path_);
    const std::vector<StateRange>& ranges = layout_[0];
    std::vector<std::byte> part(kPart);
    std::vector<std::byte> expected;
    std::size_t held = ranges.size();
    checkpoint.read_in_parts(ranges, part, ahead, [&](const StatePart& got) {
      if (got.wanted != held) expected = expected_bytes(ranges[got.wanted], 3);
      held = got.wanted;
      const auto from = static_cast<std::ptrdiff_t>(got.first * 4);
      ASSERT_TRUE(std::equal(got.bytes.begin(), got.bytes.end(), expected.begin() + from))
          << tensor_name(ranges[got.wanted]) << " from " << got.first;
      bytes_ += static_cast<std::int64_t>(got.bytes.size());
      if (take) take();
    });
  }
  [[nodiscard]] std::int64_t all_bytes() const {
    std::int64_t bytes = 0;
    for (const StateRange& range : layout_[0]) bytes += range.bytes();
    return bytes;
  }

  static constexpr std::int64_t kBlock = 100'008;
  static constexpr std::size_t kPart = 333'333;
  static constexpr std::int64_t kAhead = 8 * (4 * 102'400 + kPageBytes);
  TempDir dir_{Place::kDisk};  // most have O_DIRECT
  Layout layout_;
  std::string path_;
  PageMemory ahead_{kAhead};
  std::int64_t bytes_ = 0;  // that came, in right parts
};

TEST_F(ReadAheadTest, MoreThanTheMemoryHoldsInOrder) {
  ASSERT_GT(all_bytes(), kAhead * 3 / 2);
  for (const std::int64_t bytes : {kAhead, kAhead / 2, 5 * kPageBytes + 3 * kBlock, kPageBytes}) {
    bytes_ = 0;
    read(local_file_system(), ahead_.all().first(static_cast<std::size_t>(bytes)));
    EXPECT_EQ(bytes_, all_bytes()) << bytes;
  }
  bytes_ = 0;
  read(local_file_system(), {});  // block by block
  EXPECT_EQ(bytes_, all_bytes());
}

TEST_F(ReadAheadTest, ReadsThatAreCutShortGoOn) {
  const Armed armed("checkpoint.read.short:error");
  read(local_file_system(), ahead_.all());
  EXPECT_EQ(bytes_, all_bytes());
}

TEST_F(ReadAheadTest, NothingIsReadBeyondTheMemory) {
  std::mutex mutex;
  std::int64_t read_bytes = 0, taken = 0, furthest = 0;
  int outside = 0;
  WatchedFiles files([&](const Read& read) {
    if (!read.once) return;  // the header
    const std::lock_guard lock(mutex);
    const std::byte* const end = ahead_.data() + kAhead;
    if (read.to.data() < ahead_.data() || read.to.data() + read.to.size() > end) ++outside;
    read_bytes += static_cast<std::int64_t>(read.to.size());
    furthest = std::max(furthest, read_bytes - taken);
  });
  read(files, ahead_.all(), [&] {
    const std::lock_guard lock(mutex);
    taken = bytes_;
  });
  EXPECT_EQ(bytes_, all_bytes());
  EXPECT_EQ(outside, 0);
  EXPECT_GE(read_bytes, bytes_);
  EXPECT_LE(read_bytes, bytes_ + bytes_ / 20);  // pages that two windows share
  EXPECT_LE(furthest, kAhead + static_cast<std::int64_t>(kPart) + bytes_ / 20);
}

TEST_F(ReadAheadTest, SeveralReadsAreUnderWayAtOnce) {
  std::mutex mutex;
  std::condition_variable another;
  int begun = 0;
  bool met = false;
  WatchedFiles files([&](const Read& read) {
    if (!read.once) return;
    std::unique_lock lock(mutex);
    if (++begun > 1) {
      another.notify_all();
      return;
    }
    // Which a lone reader would never begin.
    met = another.wait_for(lock, std::chrono::seconds(20), [&] { return begun > 1; });
  });
  read(files, ahead_.all());
  EXPECT_TRUE(met);
  EXPECT_EQ(bytes_, all_bytes());
}

TEST_F(ReadAheadTest, AReadThatFailsOnTheWay) {
  std::int64_t before = -1;
  int failed = 0;
  for (int time = 3;; ++time) {  // behind the manifest and the header
    const Armed armed("checkpoint.read@" + std::to_string(time) + ":error");
    bytes_ = 0;
    try {
      read(local_file_system(), ahead_.all());
      EXPECT_EQ(bytes_, all_bytes());
      break;
    } catch (const CheckpointError& error) {
      FAIL() << "taken for damage: " << error.what();
    } catch (const IoError& error) {
      ++failed;
      EXPECT_EQ(error.path(), path_ + "/rank-00000.safetensors");
      EXPECT_EQ(error.error_number(), EIO);
      EXPECT_THAT(error.what(), HasSubstr("tensor "));
      EXPECT_THAT(error.what(), HasSubstr(", byte "));
      EXPECT_THAT(error.what(), HasSubstr("cannot read " + path_));
      EXPECT_LT(bytes_, all_bytes());
      before = std::max(before, bytes_);
    }
    ASSERT_LT(time, 100);
  }
  EXPECT_GE(failed, 12);               // windows
  EXPECT_GT(before, all_bytes() / 2);  // what came before the failure was given
}

TEST_F(ReadAheadTest, TheReadersWorkForTheRankOfTheirCaller) {
  const Armed armed("checkpoint.read@6:rank=3:error");
  read(local_file_system(), ahead_.all());
  const ThreadRank works_for(3);
  EXPECT_THROW(read(local_file_system(), ahead_.all()), IoError);
}

TEST_F(ReadAheadTest, ACallerThatGivesUpLeavesNoReaderBehind) {
  std::atomic<int> reads{0};
  WatchedFiles files([&](const Read&) { ++reads; });
  int parts = 0;
  EXPECT_THROW(read(files, ahead_.all(),
                    [&] {
                      if (++parts == 2) throw std::runtime_error("enough");
                    }),
               std::runtime_error);
  // Two parts are in the first three windows, and eight may be ahead of the one in use.
  EXPECT_LE(reads.load(), 1 + 3 + 8);
}

TEST_F(ReadAheadTest, ADamagedBlockFarAlongIsNamed) {
  const Manifest manifest = open_checkpoint(local_file_system(), path_).manifest();
  const RangeRecord& record = manifest.files[0].ranges[1];
  flip_bit(path_ + "/rank-00000.safetensors", record.offset + 7 * kBlock + 12'345);
  try {
    read(local_file_system(), ahead_.all());
    ADD_FAILURE() << "read";
  } catch (const CheckpointError& error) {
    EXPECT_EQ(error.tensor(), tensor_name(record.range));
    EXPECT_EQ(error.offset(), record.offset + 7 * kBlock);
  }
  const VerifyReport report = verify(local_file_system(), path_);
  ASSERT_EQ(report.defects.size(), 1U);
  EXPECT_EQ(report.defects[0].offset, record.offset + 7 * kBlock);
}

// Columns of a matrix: every block is wanted, half of it, and the other half by another rank.
TEST_F(ReadAheadTest, WhatOthersReadTooGoesThroughThePageCache) {
  int once = 0, cached = 0;
  std::mutex mutex;
  WatchedFiles files([&](const Read& read) {
    const std::lock_guard lock(mutex);
    ++(read.once ? once : cached);
  });
  StateRange columns =
      whole_range("wte.weight", StateKind::kMaster, TensorDType::kF32, {257, 1999});
  columns.box = {{0, 1000}, {257, 999}};
  columns.end = 257 * 999;
  Checkpoint checkpoint = open_checkpoint(files, path_);
  std::vector<std::byte> memory;
  std::vector<std::byte> part(kPart);
  checkpoint.read_in_parts({&columns, 1}, part, ahead_.all(), [&](const StatePart& got) {
    memory.insert(memory.end(), got.bytes.begin(), got.bytes.end());
  });
  EXPECT_EQ(memory, expected_bytes(columns, 3));
  EXPECT_EQ(once, 0);
  EXPECT_GT(cached, 2);
}

TEST(ReadWindows, BlocksThatFollowEachOtherInWholePages) {
  Manifest manifest;
  manifest.block_bytes = 8000;
  const auto range = [&](std::int64_t offset, std::int64_t elems) {
    RangeRecord record;
    record.range = whole_range("x", StateKind::kMaster, TensorDType::kF32, {elems});
    record.offset = offset;
    return record;
  };
  FileRecord file;
  file.ranges = {range(104, 5000), range(20'104, 10), range(30'000, 2000)};
  manifest.files = {file, file};
  std::vector<BlockVisit> visits;
  const auto all_of = [&](std::size_t f, std::size_t r, std::vector<std::int64_t> bytes) {
    for (std::size_t b = 0; b < bytes.size(); ++b) {
      add_visit(visits, {f, r, static_cast<std::int64_t>(b), bytes[b]});
    }
  };
  all_of(0, 0, {8000, 8000, 4000});
  all_of(0, 1, {20});
  add_visit(visits, {0, 1, 0, 20});  // the same once more
  all_of(0, 2, {8000});
  all_of(1, 0, {8000, 200});
  ASSERT_EQ(visits.size(), 7U);
  EXPECT_EQ(visits[3].wanted_bytes, 40);
  const std::vector<ReadWindow> windows = plan_windows(manifest, visits, 20'480);
  const auto text = [](const ReadWindow& w) {
    return std::to_string(w.file) + ": " + std::to_string(w.offset) + "+" +
           std::to_string(w.bytes) + ", " + std::to_string(w.first) + "-" + std::to_string(w.end) +
           (w.once ? "" : ", cached");
  };
  std::vector<std::string> texts;
  for (const ReadWindow& window : windows) texts.push_back(text(window));
  EXPECT_THAT(texts,
              ElementsAre("0: 0+20480, 0-4", "0: 28672+12288, 4-5", "1: 0+16384, 5-7, cached"));
  EXPECT_EQ(plan_windows(manifest, visits, 16'384).size(), 4U);
}

}  // namespace
}  // namespace sluice::testing
