// What every kind of store promises: io_uring and threads, O_DIRECT and page cache, one and three
// paths, with and without checksums.
#include <fcntl.h>
#include <gmock/gmock.h>

#include <cerrno>
#include <fstream>
#include <thread>
#include <tuple>

#include "offload/swap_file.hpp"
#include "tests/offload/support.hpp"

namespace sluice {
namespace {

using Kind = std::tuple<IoEngine, IoCache, int, bool>;

class NvmeStoreContract : public testing::TestWithParam<Kind> {
 protected:
  void SetUp() override {
    const auto [engine, cache, paths, checksums] = GetParam();
    if (engine == IoEngine::kUring && !has_uring()) GTEST_SKIP() << "no io_uring here";
    options_ = small_options(scratch_, paths);
    options_.engine = engine;
    options_.cache = cache;
    options_.checksums = checksums;
  }
  std::unique_ptr<NvmeStore> store() const { return std::make_unique<NvmeStore>(options_); }

  Scratch scratch_;
  NvmeOptions options_;
};

TEST_P(NvmeStoreContract, SizesComeBackAsWritten) {
  const auto s = store();
  const std::vector<std::int64_t> sizes{1, 511, 4096, 4097, 8192, 16384, 20000, 40960, 100001};
  std::vector<ExtentId> extents;
  std::vector<Bytes> written;
  for (const std::int64_t size : sizes) {
    extents.push_back(s->add("data", "extent " + std::to_string(size), size));
    written.push_back(Bytes::random(size, static_cast<std::uint64_t>(size)));
  }
  s->open();
  std::vector<Ticket> tickets;
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    tickets.push_back(s->write(extents[i], 0, written[i].data(), sizes[i]));
  }
  for (const Ticket& ticket : tickets) ticket.wait();
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    Bytes got(sizes[i]);
    s->read(extents[i], 0, got.data(), sizes[i]).wait();
    EXPECT_EQ(got, written[i]) << sizes[i];
    EXPECT_EQ(s->size_of(extents[i]), sizes[i]);
  }
  s->close();
}

TEST_P(NvmeStoreContract, WhatWasNeverWrittenIsZero) {
  const auto s = store();
  const ExtentId extent = s->add("data", "x", 50000);
  s->open();
  Bytes some = Bytes::random(100, 1);
  s->write(extent, 30001, some.data(), 100).wait();
  Bytes got = Bytes::random(50000, 2);
  s->read(extent, 0, got.data(), 50000).wait();
  for (std::int64_t i = 0; i < got.size(); ++i) {
    const bool inside = i >= 30001 && i < 30101;
    ASSERT_EQ(got[i], inside ? some[i - 30001] : std::byte{0}) << i;
  }
}

TEST_P(NvmeStoreContract, WholeBlocksOfAlignedMemoryAreNotCopied) {
  const auto s = store();
  const ExtentId extent = s->add("data", "x", 70000);
  s->open();
  const std::int64_t padded = NvmeStore::padded_bytes(70000);
  Bytes written = Bytes::random(padded, 3), got(padded);
  s->write(extent, 0, written.data(), padded).wait();
  s->read(extent, 0, got.data(), padded).wait();
  EXPECT_EQ(got, written);
  const std::int64_t grain = s->grain_bytes();
  s->read(extent, grain, got.data(), grain).wait();
  s->drain();
  EXPECT_EQ(s->stats().bounced_bytes, 0);
  EXPECT_EQ(s->stats().read_bytes, padded + grain);
  EXPECT_EQ(s->stats().written_bytes, padded);
  EXPECT_EQ(s->stats().requests, 3);
}

TEST_P(NvmeStoreContract, AnyMemoryWillDo) {
  const auto s = store();
  const ExtentId extent = s->add("data", "x", 50001);
  s->open();
  const Bytes written = Bytes::random(50001, 4, 13);
  s->write(extent, 0, written.data(), 50001).wait();
  Bytes got(50001, 7);
  s->read(extent, 0, got.data(), 50001).wait();
  EXPECT_EQ(got, written);
  EXPECT_GE(s->stats().bounced_bytes, 2 * 50001);
}

TEST_P(NvmeStoreContract, OverlappingRequestsRunInOrder) {
  const auto s = store();
  constexpr std::int64_t kBytes = 60000;
  const ExtentId extent = s->add("data", "x", kBytes);
  s->open();
  constexpr int kRounds = 20;
  std::vector<Bytes> written, got;
  for (int i = 0; i < kRounds; ++i) {
    written.push_back(Bytes::random(kBytes, static_cast<std::uint64_t>(i)));
    got.emplace_back(kBytes);
  }
  std::vector<Ticket> tickets;
  for (int i = 0; i < kRounds; ++i) {  // all of it out at once
    const auto n = static_cast<std::size_t>(i);
    tickets.push_back(s->write(extent, 0, written[n].data(), kBytes));
    tickets.push_back(s->read(extent, 0, got[n].data(), kBytes));
  }
  for (const Ticket& ticket : tickets) ticket.wait();
  for (std::size_t i = 0; i < kRounds; ++i) EXPECT_EQ(got[i], written[i]) << i;
}

// Four extents, requests of any place and size, several out at once, against plain memory.
TEST_P(NvmeStoreContract, EqualsAModel) {
  struct Pending {
    Ticket ticket;
    Bytes memory;
    std::vector<std::byte> expected;  // empty for a write
  };
  std::vector<Pending> pending;  // outlives the store, also where an assertion leaves
  const auto s = store();
  const std::vector<std::int64_t> sizes{16384, 33333, 4096, 90001};
  std::vector<ExtentId> extents;
  std::vector<std::vector<std::byte>> model;
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    extents.push_back(s->add("data", "x" + std::to_string(i), sizes[i]));
    model.emplace_back(static_cast<std::size_t>(sizes[i]));
  }
  s->open();
  const auto settle = [&] {
    for (const Pending& p : pending) {
      p.ticket.wait();
      if (!p.expected.empty()) {
        ASSERT_EQ(p.memory.copy(), p.expected);
      }
    }
    pending.clear();
  };
  std::mt19937_64 random(7);
  const auto below = [&](std::int64_t n) {
    return static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(n));
  };
  for (int round = 0; round < 300; ++round) {
    const auto e = static_cast<std::size_t>(below(4));
    const std::int64_t step = below(3) == 0 ? 1 : 4096;
    const std::int64_t begin = below(sizes[e]) / step * step;
    const std::int64_t bytes = 1 + below(sizes[e] - begin);
    const std::int64_t skew = below(4) == 0 ? below(100) : 0;
    auto& truth = model[e];
    if (below(2) == 0) {
      Bytes memory = Bytes::random(bytes, random(), skew);
      std::copy_n(memory.data(), bytes, truth.begin() + begin);
      Ticket ticket = s->write(extents[e], begin, memory.data(), bytes);
      pending.push_back({std::move(ticket), std::move(memory), {}});
    } else {
      Bytes memory(bytes, skew);
      Ticket ticket = s->read(extents[e], begin, memory.data(), bytes);
      pending.push_back({std::move(ticket),
                         std::move(memory),
                         {truth.begin() + begin, truth.begin() + begin + bytes}});
    }
    if (pending.size() == 12) {
      ASSERT_NO_FATAL_FAILURE(settle());
    }
  }
  ASSERT_NO_FATAL_FAILURE(settle());
}

TEST_P(NvmeStoreContract, ManyThreadsMayAsk) {
  const auto s = store();
  std::vector<ExtentId> extents;
  for (int i = 0; i < 4; ++i) extents.push_back(s->add("data", "x" + std::to_string(i), 20000));
  s->open();
  std::vector<std::thread> threads;
  std::atomic<int> wrong{0};
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&, i] {
      for (int round = 0; round < 15; ++round) {
        const Bytes written = Bytes::random(
            20000, static_cast<std::uint64_t>(i) * 100 + static_cast<std::uint64_t>(round));
        Bytes got(20000);
        const ExtentId extent = extents[static_cast<std::size_t>(i)];
        const Ticket first = s->write(extent, 0, written.data(), 20000);
        s->read(extent, 0, got.data(), 20000).wait();
        if (!first.done() || !(got == written)) ++wrong;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong.load(), 0);
}

TEST_P(NvmeStoreContract, RegisteredMemoryServesToo) {
  const auto s = store();
  const ExtentId extent = s->add("data", "x", 65536);
  Bytes memory = Bytes::random(65536, 5), got(65536);
  const std::vector<std::byte> before = memory.copy();
  s->register_buffer(memory.data(), memory.size());
  s->open();
  s->write(extent, 0, memory.data(), 65536).wait();
  std::fill_n(memory.data(), 65536, std::byte{0});
  s->read(extent, 0, memory.data(), 65536).wait();
  s->read(extent, 0, got.data(), 65536).wait();
  EXPECT_EQ(memory.copy(), before);
  EXPECT_EQ(got.copy(), before);
}

TEST_P(NvmeStoreContract, HeadersNameTheRunAndTheFile) {
  const auto s = store();
  s->add("data", "x", 9000);
  s->open();
  for (std::size_t i = 0; i < options_.paths.size(); ++i) {
    std::optional<SwapHeader> header;
    const std::string path = options_.paths[i] + "/rank-00000.swap";
    EXPECT_EQ(inspect_swap_file(path, &header), SwapKind::kOurs);
    ASSERT_TRUE(header.has_value());
    EXPECT_EQ(header->run_id, "test-run");
    EXPECT_EQ(header->file, i);
    EXPECT_EQ(header->files, options_.paths.size());
  }
}

TEST_P(NvmeStoreContract, ACleanEndLeavesNothing) {
  {
    const auto s = store();
    const ExtentId extent = s->add("data", "x", 9000);
    s->open();
    const Bytes written = Bytes::random(9000, 8);
    const Ticket ticket = s->write(extent, 0, written.data(), 9000);
    s->close();  // waits for it
    EXPECT_TRUE(ticket.done());
    ticket.wait();
    s->close();
    EXPECT_THROW((void)s->read(extent, 0, written.data(), 9), Error);
  }
  for (int i = 0; i < std::get<2>(GetParam()); ++i) {
    EXPECT_THAT(scratch_.names("p" + std::to_string(i)), testing::IsEmpty());
  }
}

// 0 where nobody else has the file open: then the kernel grants a lease.
int take_lease(int file) { return ::fcntl(file, F_SETLEASE, F_WRLCK) == 0 ? 0 : errno; }

// What /proc says of memory that the kernel has pinned for this process.
std::string pinned_memory() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with("VmPin:")) return line;
  }
  return "";
}

// A ring that still held its files and its memory would give them back some time after the store
// has gone, and whoever opens the next one would miss the space, or the room to lock memory.
TEST_P(NvmeStoreContract, NobodyHoldsWhatAStoreThatIsGoneHad) {
  const std::string pinned = pinned_memory();
  auto s = store();
  const ExtentId extent = s->add("data", "x", 9000);
  s->open();
  const std::string kept = scratch_.dir("kept");
  std::filesystem::create_hard_link(options_.paths[0] + "/rank-00000.swap", kept);
  const int file = ::open(kept.c_str(), O_RDWR | O_CLOEXEC);
  ASSERT_GE(file, 0);
  EXPECT_NE(take_lease(file), 0);
  const Bytes written = Bytes::random(9000, 8);
  s->write(extent, 0, written.data(), 9000).wait();
  s.reset();
  EXPECT_EQ(pinned_memory(), pinned);
  const int error = take_lease(file);
  ::close(file);
  if (error == EINVAL) GTEST_SKIP() << "the file system has no leases";
  EXPECT_EQ(error, 0);
}

TEST_P(NvmeStoreContract, ABlockOnDiskThatChangedIsNamed) {
  options_.cache = IoCache::kBuffered;  // what the test writes is seen at once
  const auto s = store();
  const ExtentId extent = s->add("data", "adam of unit 3", 40000);
  s->open();
  Bytes written = Bytes::random(40000, 9), got(40000);
  s->write(extent, 0, written.data(), 40000).wait();
  {
    std::fstream file(options_.paths[0] + "/rank-00000.swap",
                      std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(4096 + 9000);
    file.put(static_cast<char>(written[9000] ^ std::byte{4}));
  }
  const Ticket ticket = s->read(extent, 0, got.data(), 40000);
  if (!options_.checksums) return ticket.wait();
  const std::string text = error_of<IoError>([&] { ticket.wait(); });
  EXPECT_THAT(text, testing::HasSubstr("adam of unit 3"));
  EXPECT_THAT(text, testing::HasSubstr("checksum"));
  EXPECT_THAT(text, testing::HasSubstr("at its offset 8192"));
  EXPECT_THAT(text, testing::HasSubstr("offset " + std::to_string(4096 + 8192)));
  EXPECT_TRUE(s->failed());
}

std::string name_of(const testing::TestParamInfo<Kind>& info) {
  const auto& [engine, cache, paths, checksums] = info.param;
  return std::string(engine == IoEngine::kUring ? "Uring" : "Threads") +
         (cache == IoCache::kDirect ? "Direct" : "Buffered") + std::to_string(paths) +
         (checksums ? "Hashed" : "Plain");
}

INSTANTIATE_TEST_SUITE_P(Kinds, NvmeStoreContract,
                         testing::Values(Kind{IoEngine::kUring, IoCache::kDirect, 1, true},
                                         Kind{IoEngine::kUring, IoCache::kDirect, 3, false},
                                         Kind{IoEngine::kUring, IoCache::kBuffered, 1, true},
                                         Kind{IoEngine::kThreads, IoCache::kDirect, 3, true},
                                         Kind{IoEngine::kThreads, IoCache::kBuffered, 1, false}),
                         name_of);

}  // namespace
}  // namespace sluice
