// A rank that fails while others read its memory: the ranks of a group as threads.
#include "parallel/comm/host/host_peers.hpp"

#include <gmock/gmock.h>

#include <condition_variable>
#include <map>
#include <mutex>
#include <thread>

namespace sluice {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

constexpr char kBrokenDisk[] = "rank 0 failed: its disk is broken";

class Texts {
 public:
  HostRendezvous rendezvous() {
    return {.set =
                [this](const std::string& key, const std::string& text) {
                  const std::lock_guard lock(mutex_);
                  texts_[key] = text;
                  set_.notify_all();
                },
            .get =
                [this](const std::string& key) {
                  std::unique_lock lock(mutex_);
                  set_.wait(lock, [&] { return texts_.contains(key); });
                  return texts_[key];
                }};
  }

 private:
  std::mutex mutex_;
  std::condition_variable set_;
  std::map<std::string, std::string> texts_;
};

struct PeerPair {
  Texts texts;
  std::unique_ptr<HostPeers> first, second;
  PeerPair() {
    std::thread other([this] { second = make(1); });
    first = make(0);
    other.join();
  }
  std::unique_ptr<HostPeers> make(int rank) {
    const CommOptions options{
        .rank = rank, .size = 2, .timeout = std::chrono::milliseconds{20'000}};
    return std::make_unique<HostPeers>(options, texts.rendezvous(), HostCopy::kAuto);
  }
  // Both begin an operation, in which the first shares `table`.
  void share(std::vector<HostPiece> table) {
    first->publish(first->next_record(), std::move(table));
    second->publish(second->next_record(), {});
    first->arrive();
    second->advance();
    first->await_all();
  }
};

// Some containers refuse process_vm_readv: there no rank reads a table (HostCopy::kBounce).
class HostPeersTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!pair_.second->direct()) GTEST_SKIP() << "no process may read another here";
  }
  PeerPair pair_;
};

TEST_F(HostPeersTest, ReadATableWhereItWasPublished) {
  const char byte = 'x';
  pair_.share({{}, {.input = &byte, .stride_bytes = 7, .region = {}}});
  const std::vector<HostPiece> read = pair_.second->table_of(0, 2);
  EXPECT_EQ(read[1].input, &byte);
  EXPECT_EQ(read[1].stride_bytes, 7);
}

// The rank unwinds meanwhile. Its table stays, so that no reader sees half of another object there,
// and no reader uses the addresses in it.
TEST_F(HostPeersTest, DoNotTrustTheTableOfARankThatFailed) {
  const char byte = 'x';
  pair_.share({{.input = &byte, .stride_bytes = 0, .region = {}}});
  pair_.first->fail("its disk is broken");
  EXPECT_EQ(pair_.first->record_of(0).table->input, &byte) << "the table was freed";
  const auto read = [&] { (void)pair_.second->table_of(0, 1); };
  EXPECT_THAT(read, ThrowsMessage<HostError>(kBrokenDisk));
  pair_.first.reset();
  EXPECT_THAT(read, ThrowsMessage<HostError>(kBrokenDisk));
}

// A system call that fails, because the memory is gone, names the cause and not the call.
TEST_F(HostPeersTest, NameTheFailureWhereMemoryIsGone) {
  pair_.share({{}});
  const auto* nowhere = reinterpret_cast<const char*>(8);
  std::array<char, 4> bytes{};
  const auto read = [&] { pair_.second->read(0, bytes.data(), nowhere, 4); };
  EXPECT_THAT(read, ThrowsMessage<HostError>(HasSubstr("reading the memory of rank 0")));
  pair_.first->fail("its disk is broken");
  EXPECT_THAT(read, ThrowsMessage<HostError>(kBrokenDisk));
}

}  // namespace
}  // namespace sluice
