// Faults below the store: each ends as promised, and none hangs.
#include <gmock/gmock.h>
#include <pthread.h>
#include <sys/resource.h>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <fstream>

#include "base/log.hpp"
#include "tests/offload/support.hpp"

namespace sluice {
namespace {

using testing::HasSubstr;

constexpr std::int64_t kBytes = 100001;  // 7 blocks, the last one odd

class NvmeStoreFaults : public testing::TestWithParam<IoEngine> {
 protected:
  void SetUp() override {
    if (GetParam() == IoEngine::kUring && !has_uring()) GTEST_SKIP() << "no io_uring here";
    options_ = small_options(scratch_, 2);
    options_.engine = GetParam();
    written_ = Bytes::random(kBytes, 1);
  }
  void open() {
    store_ = std::make_unique<NvmeStore>(options_);
    extent_ = store_->add("moments", "m of unit 2", kBytes);
    store_->open();
  }
  void write() { store_->write(extent_, 0, written_.data(), kBytes).wait(); }
  Bytes read() {
    Bytes got(kBytes);
    store_->read(extent_, 0, got.data(), kBytes).wait();
    return got;
  }
  // Everything later ends with the first error, at once.
  void expect_poisoned(const std::string& first) {
    EXPECT_TRUE(store_->failed());
    EXPECT_EQ(error_of<IoError>([&] { write(); }), first);
    EXPECT_EQ(error_of<IoError>([&] { store_->drain(); }), first);
    EXPECT_EQ(error_of<IoError>([&] { store_->close(); }), first);
    EXPECT_THAT(scratch_.names("p0"), testing::IsEmpty());
  }

  Scratch scratch_;
  NvmeOptions options_;
  Bytes written_{0};
  ExtentId extent_;
  std::unique_ptr<NvmeStore> store_;
};

TEST_P(NvmeStoreFaults, ShortAndInterruptedTransfersGoOn) {
  open();
  for (const std::string place : {"write.short", "write.again", "write.intr"}) {
    for (int at = 1; at <= 8; ++at) {
      const Faults faults("nvme." + place + "@" + std::to_string(at) + ":error");
      written_ = Bytes::random(kBytes, static_cast<std::uint64_t>(at));
      write();
      ASSERT_EQ(read(), written_) << place << at;
    }
  }
  for (const std::string place : {"read.short", "read.again", "read.intr"}) {
    for (int at = 1; at <= 8; ++at) {
      const Faults faults("nvme." + place + "@" + std::to_string(at) + ":error");
      ASSERT_EQ(read(), written_) << place << at;
    }
  }
  EXPECT_GE(store_->stats().retries, 6 * 7);
}

TEST_P(NvmeStoreFaults, NoSpaceAtAnyWriteEndsTheStore) {
  for (int at = 1; at <= 7; ++at) {
    open();
    const Faults faults("nvme.write.enospc@" + std::to_string(at) + ":error");
    const std::string text = error_of<IoError>([&] { write(); });
    EXPECT_THAT(text, HasSubstr("writing "));
    EXPECT_THAT(text, HasSubstr("m of unit 2"));
    EXPECT_THAT(text, HasSubstr(scratch_.dir("")));
    EXPECT_THAT(text, HasSubstr("(errno 28)"));
    expect_poisoned(text);
  }
}

TEST_P(NvmeStoreFaults, AnIoErrorAtAnyTransferEndsTheStore) {
  for (int at = 1; at <= 7; ++at) {
    open();
    write();
    const Faults faults("nvme.read@" + std::to_string(at) + ":error");
    Bytes got(kBytes);
    const Ticket ticket = store_->read(extent_, 0, got.data(), kBytes);
    try {
      ticket.wait();
      ADD_FAILURE() << "read at " << at;
    } catch (const IoError& error) {
      EXPECT_EQ(error.error_number(), EIO);
      EXPECT_THAT(error.path(), HasSubstr(".swap"));
      EXPECT_THAT(error.what(), HasSubstr("at offset "));
      EXPECT_THROW(ticket.wait(), IoError);  // every time
      expect_poisoned(error.what());
    }
  }
}

TEST_P(NvmeStoreFaults, AnIoErrorForEverFailsAllThatIsOut) {
  open();
  write();
  const Faults faults("nvme.read:error");
  std::vector<Bytes> got;
  std::vector<Ticket> tickets;
  for (int i = 0; i < 20; ++i) got.emplace_back(kBytes);
  try {
    for (Bytes& into : got) {
      tickets.push_back(store_->read(extent_, 0, into.data(), kBytes));
      tickets.push_back(store_->write(extent_, 0, written_.data(), kBytes));  // waits for it
    }
  } catch (const IoError&) {  // the error may come before all are out
  }
  int failed = 0;
  for (const Ticket& ticket : tickets) {
    try {
      ticket.wait();
    } catch (const IoError&) {
      ++failed;
    }
  }
  EXPECT_EQ(failed, std::ssize(tickets));
}

TEST_P(NvmeStoreFaults, AFlippedBitIsNeverHandedOut) {
  for (const std::string place : {"read", "write"}) {
    for (int at = 1; at <= 7; ++at) {
      open();
      if (place == "read") write();
      const Faults faults("nvme." + place + "@" + std::to_string(at) + ":nan");
      if (place == "write") write();
      const std::string text = error_of<IoError>([&] { (void)read(); });
      EXPECT_THAT(text, HasSubstr("checksum"));
      expect_poisoned(text);
    }
  }
}

TEST_P(NvmeStoreFaults, AFlippedBitUnderAPartialWriteIsFound) {
  open();
  write();
  const Faults faults("nvme.read@1:nan");
  const std::string text =
      error_of<IoError>([&] { store_->write(extent_, 100, written_.data(), 10).wait(); });
  EXPECT_THAT(text, HasSubstr("checksum"));
}

TEST_P(NvmeStoreFaults, ASlowDeviceIsWaitedFor) {
  open();
  const Faults faults("nvme.write@2:delay=100;nvme.read@3:delay=100");
  const auto start = std::chrono::steady_clock::now();
  write();
  EXPECT_EQ(read(), written_);
  EXPECT_GE(std::chrono::steady_clock::now() - start, std::chrono::milliseconds(200));
}

TEST_P(NvmeStoreFaults, ADeviceThatNeverAnswersEndsTheStore) {
  options_.stall_timeout_s = 0.2;
  open();
  const Faults faults("nvme.write.lost@3:error");
  const Bytes other = Bytes::random(kBytes, 2);
  const Ticket first = store_->write(extent_, 0, written_.data(), kBytes);
  const Ticket second = store_->write(extent_, 0, other.data(), kBytes);  // waits for the first
  EXPECT_THROW(second.wait(), IoError);
  const std::string text = error_of<IoError>([&] { first.wait(); });
  EXPECT_THAT(text, HasSubstr("no answer from"));
  expect_poisoned(text);
}

TEST_P(NvmeStoreFaults, ATruncatedFileIsNamed) {
  open();
  write();
  const std::string path = options_.paths[1] + "/rank-00000.swap";
  ASSERT_EQ(::truncate(path.c_str(), 4096 + 16384), 0);
  const std::string text = error_of<IoError>([&] { (void)read(); });
  EXPECT_THAT(text, HasSubstr("truncated"));
  EXPECT_THAT(text, HasSubstr(path));
}

TEST_P(NvmeStoreFaults, AFileSystemWithoutDirectIoIsRefusedOrAllowed) {
  const Faults faults("nvme.open.direct:error");
  EXPECT_THAT(error_of<IoError>([&] { open(); }), HasSubstr("does not do O_DIRECT"));
  EXPECT_THAT(scratch_.names("p0"), testing::IsEmpty());
  options_.cache = IoCache::kDirectOrBuffered;
  open();
  EXPECT_THAT(store_->description(), HasSubstr("page cache"));
  write();
  EXPECT_EQ(read(), written_);
}

TEST_P(NvmeStoreFaults, WhatFailsAtOpenLeavesNothing) {
  for (const std::string place : {"nvme.open@2", "nvme.fallocate@2", "nvme.header@1"}) {
    const Faults faults(place + ":error");
    const std::string text = error_of<IoError>([&] { open(); });
    EXPECT_THAT(text, HasSubstr(".swap")) << place;
    EXPECT_THAT(scratch_.names("p0"), testing::IsEmpty()) << place;
    EXPECT_THAT(scratch_.names("p1"), testing::IsEmpty()) << place;
  }
  open();
  write();
  EXPECT_EQ(read(), written_);
}

std::int64_t open_descriptors() {
  return std::distance(std::filesystem::directory_iterator("/proc/self/fd"), {});
}

std::int64_t resident_bytes() {
  std::ifstream statm("/proc/self/statm");
  std::int64_t total = 0, resident = 0;
  statm >> total >> resident;
  return resident * ::sysconf(_SC_PAGESIZE);
}

TEST_P(NvmeStoreFaults, AThousandRequestsLeaveDescriptorsAndMemoryAsTheyWere) {
  open();
  Bytes got(kBytes);
  const auto some = [&](int count) {
    for (int i = 0; i < count; ++i) {
      const std::int64_t at = i * 37 % (kBytes - 500);
      const Ticket ticket = store_->write(extent_, at, written_.data() + at, 500);
      store_->read(extent_, at, got.data(), 500).wait();
    }
  };
  some(50);
  const std::int64_t descriptors = open_descriptors(), resident = resident_bytes();
  some(450);
  EXPECT_EQ(open_descriptors(), descriptors);
  EXPECT_LE(resident_bytes() - resident, 2 * kMiB);
}

INSTANTIATE_TEST_SUITE_P(Engines, NvmeStoreFaults,
                         testing::Values(IoEngine::kUring, IoEngine::kThreads),
                         [](const testing::TestParamInfo<IoEngine>& info) {
                           return info.param == IoEngine::kUring ? "Uring" : "Threads";
                         });

TEST(NvmeStoreEngine, TheThreadsThatStartServe) {
  const Scratch scratch;
  NvmeOptions options = small_options(scratch);
  options.engine = IoEngine::kThreads;
  std::string logged;
  set_log_sink([&](LogLevel level, std::string_view line) {
    if (level == LogLevel::kWarning) logged += line;
  });
  {
    const Faults faults("nvme.thread@3:error");
    NvmeStore store(options);
    const ExtentId extent = store.add("t", "x", 9000);
    store.open();
    EXPECT_THAT(store.description(), HasSubstr("2 threads"));
    const Bytes written = Bytes::random(9000, 1);
    Bytes got(9000);
    store.write(extent, 0, written.data(), 9000).wait();
    store.read(extent, 0, got.data(), 9000).wait();
    EXPECT_EQ(got, written);
  }
  set_log_sink({});
  EXPECT_THAT(logged, HasSubstr("the NVMe tier has 2 threads in place of"));
  const Faults faults("nvme.thread@1:error");
  NvmeStore store(options);
  store.add("t", "x", 1);
  EXPECT_THROW(store.open(), Error);
  sigset_t blocked;
  ::pthread_sigmask(SIG_BLOCK, nullptr, &blocked);
  EXPECT_EQ(sigismember(&blocked, SIGTERM), 0);
}

TEST(NvmeStoreEngine, ThreadsServeWhereTheKernelRefusesIoUring) {
  const Scratch scratch;
  const Faults faults("nvme.uring_setup:error");
  std::string logged;
  set_log_sink([&](LogLevel level, std::string_view line) {
    if (level == LogLevel::kWarning) logged += line;
  });
  NvmeOptions options = small_options(scratch);
  {
    NvmeStore store(options);
    store.add("t", "x", 1);
    store.open();
    EXPECT_THAT(store.description(), HasSubstr("threads"));
  }
  set_log_sink({});
  EXPECT_THAT(logged, HasSubstr("io_uring is refused"));
  options.engine = IoEngine::kUring;
  NvmeStore store(options);
  EXPECT_THROW(store.open(), IoError);
}

}  // namespace
}  // namespace sluice
