// Who may use a directory, what dead runs leave, and what does not fit.
#include "offload/swap_directory.hpp"

#include <gmock/gmock.h>
#include <sys/stat.h>

#include <fstream>

#include "offload/swap_file.hpp"
#include "tests/killed_process.hpp"
#include "tests/offload/support.hpp"

namespace sluice {
namespace {

using testing::HasSubstr;

NvmeOptions options_of(const Scratch& scratch, const std::string& run, int rank) {
  NvmeOptions options = small_options(scratch);
  options.run_id = run;
  options.rank = rank;
  return options;
}

std::unique_ptr<NvmeStore> opened(const NvmeOptions& options) {
  auto store = std::make_unique<NvmeStore>(options);
  store->add("t", "x", 50000);
  store->open();
  return store;
}

// A process that writes until it is killed.
pid_t start_writer(const NvmeOptions& options) {
  return start_process([&](const auto& tell) {
    NvmeStore store(options);
    const ExtentId extent = store.add("t", "x", 200000);
    store.open();
    const Bytes bytes = Bytes::random(200000, 1);
    for (int i = 0;; ++i) {
      store.write(extent, 0, bytes.data(), bytes.size()).wait();
      if (i == 0 && !tell()) break;
    }
  });
}

TEST(SwapDirectory, TwoRunsAreRefused) {
  const Scratch scratch;
  const auto first = opened(options_of(scratch, "run-a", 0));
  for (const int rank : {0, 3}) {  // of any rank
    const std::string text =
        error_of<IoError>([&] { (void)opened(options_of(scratch, "run-b", rank)); });
    EXPECT_THAT(text, HasSubstr("in use by run 'run-a'"));
    EXPECT_THAT(text, HasSubstr("pid " + std::to_string(::getpid())));
    EXPECT_THAT(text, HasSubstr("on host "));
  }
  EXPECT_THAT(scratch.names("p0"),
              testing::ElementsAre("rank-00000.lock", "rank-00000.swap", "sluice-swap.lock"));
}

TEST(SwapDirectory, RanksOfOneRunShareIt) {
  const Scratch scratch;
  auto first = opened(options_of(scratch, "run-a", 0));
  const auto second = opened(options_of(scratch, "run-a", 1));
  EXPECT_THAT(error_of<IoError>([&] { (void)opened(options_of(scratch, "run-a", 1)); }),
              HasSubstr("in use by run 'run-a'"));
  first.reset();
  EXPECT_THAT(scratch.names("p0"),
              testing::ElementsAre("rank-00001.lock", "rank-00001.swap", "sluice-swap.lock"));
  first = opened(options_of(scratch, "run-a", 0));
}

TEST(SwapDirectory, AKilledRunLeavesWhatTheNextReclaims) {
  const Scratch scratch;
  const pid_t writer = start_writer(options_of(scratch, "killed", 0));
  EXPECT_THROW((void)opened(options_of(scratch, "next", 0)), IoError);  // it lives
  kill_process(writer);
  const pid_t other = start_writer(options_of(scratch, "killed", 5));  // a rank the next lacks
  kill_process(other);
  EXPECT_THAT(scratch.names("p0"), testing::Contains("rank-00005.swap"));
  {
    NvmeStore store(options_of(scratch, "next", 0));
    const ExtentId extent = store.add("t", "x", 200000);
    store.open();
    EXPECT_THAT(scratch.names("p0"),
                testing::ElementsAre("rank-00000.lock", "rank-00000.swap", "sluice-swap.lock"));
    Bytes got = Bytes::random(200000, 1);  // nothing of the killed run is seen
    store.read(extent, 0, got.data(), got.size()).wait();
    EXPECT_EQ(std::count(got.data(), got.data() + got.size(), std::byte{0}), got.size());
  }
  EXPECT_THAT(scratch.names("p0"), testing::IsEmpty());
}

TEST(SwapDirectory, ARunThatDiedBeforeItsHeaderIsReclaimed) {
  const Scratch scratch;
  std::filesystem::create_directories(scratch.dir("p0"));
  std::ofstream(scratch.dir("p0") + "/rank-00007.swap").close();
  (void)opened(options_of(scratch, "next", 0));
  EXPECT_THAT(scratch.names("p0"), testing::IsEmpty());
}

TEST(SwapDirectory, FilesOfOthersAreNotTouched) {
  const Scratch scratch;
  std::filesystem::create_directories(scratch.dir("p0"));
  std::ofstream(scratch.dir("p0") + "/rank-00000.swap") << "my thesis";
  std::ofstream(scratch.dir("p0") + "/rank-00001.swap.bak") << "and its copy";
  EXPECT_THAT(error_of<IoError>([&] { (void)opened(options_of(scratch, "next", 0)); }),
              HasSubstr("not a swap file of Sluice"));
  EXPECT_THAT(scratch.names("p0"), testing::Contains("rank-00000.swap"));
  EXPECT_THAT(scratch.names("p0"), testing::Contains("rank-00001.swap.bak"));
}

TEST(SwapDirectory, AMissingMountIsNotMadeUp) {
  const Scratch scratch;
  NvmeOptions options = options_of(scratch, "a", 0);
  options.paths = {scratch.dir("not/mounted")};
  EXPECT_THAT(error_of<IoError>([&] { (void)opened(options); }), HasSubstr("mounted?"));
}

TEST(SwapDirectory, OnePathTwiceIsRefused) {
  const Scratch scratch;
  NvmeOptions options = options_of(scratch, "a", 0);
  options.paths = {scratch.dir("p0"), scratch.dir("p0/../p0")};
  EXPECT_THAT(error_of<ConfigError>([&] { (void)opened(options); }), HasSubstr("twice"));
}

TEST(SwapBudget, CapacityNamesTheLargestTags) {
  const Scratch scratch;
  NvmeOptions options = options_of(scratch, "a", 0);
  options.capacity_bytes = 100 * kKiB;
  NvmeStore store(options);
  store.add("moments", "m", 80 * kKiB);
  store.add("moments", "v", 80 * kKiB);
  store.add("gradients", "g", 20 * kKiB);
  const std::string text = error_of<BudgetError>([&] { store.open(); });
  EXPECT_THAT(text, HasSubstr("memory.nvme is 100 KiB"));
  EXPECT_THAT(text, HasSubstr("80.0 KiB more"));
  EXPECT_THAT(text, HasSubstr("moments 160 KiB, gradients 20.0 KiB"));
  EXPECT_FALSE(std::filesystem::exists(options.paths[0]));
}

TEST(SwapBudget, FreeSpaceSaysWhatIsMissing) {
  const Scratch scratch;
  NvmeStore store(options_of(scratch, "a", 0));
  store.add("moments", "m", std::int64_t{1} << 50);
  const std::string text = error_of<BudgetError>([&] { store.open(); });
  EXPECT_THAT(text, HasSubstr("needs 1024 TiB"));
  EXPECT_THAT(text, HasSubstr("are missing: free them"));
  EXPECT_THAT(scratch.names("p0"), testing::IsEmpty());
}

// Where a file system cannot reserve, the files of ranks that came before take their space later.
TEST(SwapBudget, FreeSpaceIsLessWhatOtherRanksHaveYetToTake) {
  const Scratch scratch;
  const auto first = opened(options_of(scratch, "a", 0));
  const std::string file = scratch.dir("p0") + "/rank-00000.swap";
  const auto bytes = std::filesystem::file_size(file);
  std::filesystem::resize_file(file, std::uintmax_t{1} << 43U);
  const std::string text =
      error_of<BudgetError>([&] { (void)opened(options_of(scratch, "a", 1)); });
  EXPECT_THAT(text, HasSubstr("rank 1 needs 56.0 KiB"));
  EXPECT_THAT(text, HasSubstr("0 B are free"));
  EXPECT_THAT(text, HasSubstr("other ranks"));
  std::filesystem::resize_file(file, bytes);
  (void)opened(options_of(scratch, "a", 1));
}

// A rank with a lock and a swap file counts once; other files do not.
TEST(SwapDirectory, TheBytesOfItsSwapFilesAreThoseOnTheDisk) {
  const Scratch scratch;
  EXPECT_EQ(swap_bytes_in(scratch.dir("p0") + "/not-there"), 0);
  const auto first = opened(options_of(scratch, "a", 0));
  const auto second = opened(options_of(scratch, "a", 1));
  std::int64_t wanted = 0;
  for (const char* name : {"/rank-00000.swap", "/rank-00001.swap"}) {
    struct stat status {};
    ASSERT_EQ(::stat((scratch.dir("p0") + name).c_str(), &status), 0);
    wanted += status.st_blocks * 512;
  }
  EXPECT_GT(wanted, 0);
  std::ofstream(scratch.dir("p0") + "/rank-00002.swap.old") << std::string(65536, 'x');
  EXPECT_EQ(swap_bytes_in(scratch.dir("p0")), wanted);
}

TEST(SwapHeader, SurvivesTheFileAndNoFlippedByte) {
  SwapHeader header{"a run", "a host", 12, 3, 1, 2, 0xdeadbeefcafeU, 123456};
  Bytes block(kSwapHeaderBytes);
  encode_header(header, block.data());
  const auto decoded = decode_header(block.data());
  ASSERT_TRUE(decoded.has_value());
  EXPECT_EQ(decoded->run_id, "a run");
  EXPECT_EQ(decoded->host, "a host");
  EXPECT_EQ(decoded->pid, 12U);
  EXPECT_EQ(decoded->rank, 3U);
  EXPECT_EQ(decoded->file, 1U);
  EXPECT_EQ(decoded->files, 2U);
  EXPECT_EQ(decoded->layout_hash, 0xdeadbeefcafeU);
  EXPECT_EQ(decoded->file_bytes, 123456U);
  for (std::int64_t i = 0; i < 256; ++i) {
    block[i] ^= std::byte{1};
    EXPECT_FALSE(decode_header(block.data()).has_value()) << i;
    block[i] ^= std::byte{1};
  }
  header.run_id.assign(1000, 'x');
  encode_header(header, block.data());
  EXPECT_EQ(decode_header(block.data())->run_id, std::string(127, 'x'));
}

}  // namespace
}  // namespace sluice
