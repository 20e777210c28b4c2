#include "runtime/launch/terminal_sink.hpp"

#include "tests/runtime/launch/launched_job.hpp"

namespace sluice {
namespace {

TEST(TerminalSink, FileIsAppendedTo) {
  const TemporaryFolder folder;
  const auto path = folder.path() / "out";
  const Descriptor fd(::open(path.c_str(), O_WRONLY | O_CREAT, 0600));
  ASSERT_EQ(::write(fd.get(), "before ", 7), 7);
  TerminalSink sink(fd.get());
  sink.write(std::string(10000, 'x'));
  EXPECT_FALSE(sink.pending() || sink.lost());
  EXPECT_EQ(text_of(path), "before " + std::string(10000, 'x'));
}

TEST(TerminalSink, FullPipeKeepsTheNewest) {
  int ends[2] = {-1, -1};
  ASSERT_EQ(::pipe(ends), 0);
  const Descriptor read_end(ends[0]);
  const Descriptor write_end(ends[1]);
  TerminalSink sink(write_end.get());
  const std::string line = std::string(999, 'x') + "\n";
  for (int i = 0; i < 3000; ++i) sink.write(line);
  sink.write("the end\n");
  EXPECT_TRUE(sink.pending());
  std::string got;
  std::vector<char> bytes(65536);
  while (sink.pending()) {
    const ssize_t n = ::read(read_end.get(), bytes.data(), bytes.size());
    ASSERT_GT(n, 0);
    got.append(bytes.data(), static_cast<std::size_t>(n));
    sink.flush();
  }
  const ssize_t n = ::read(read_end.get(), bytes.data(), bytes.size());
  ASSERT_GT(n, 0);
  got.append(bytes.data(), static_cast<std::size_t>(n));
  EXPECT_LT(got.size(), 3000u * 1000u);
  EXPECT_NE(got.find("output was lost here"), std::string::npos);
  EXPECT_TRUE(got.ends_with("x\nthe end\n"));
  // The descriptor that others share still blocks.
  EXPECT_EQ(::fcntl(write_end.get(), F_GETFL) & O_NONBLOCK, 0);
}

TEST(TerminalSink, SaysThatOutputWasLost) {
  const Descriptor full(::open("/dev/full", O_WRONLY));
  TerminalSink sink(full.get());
  EXPECT_FALSE(sink.lost());
  sink.write("a result");
  EXPECT_FALSE(sink.pending());
  EXPECT_TRUE(sink.lost());
}

TEST(TerminalSink, KnowsAReaderThatHasEnded) {
  int ends[2] = {-1, -1};
  ASSERT_EQ(::pipe(ends), 0);
  ASSERT_NE(::signal(SIGPIPE, SIG_IGN), SIG_ERR);
  const Descriptor write_end(ends[1]);
  TerminalSink sink(write_end.get());
  sink.write("read");
  EXPECT_FALSE(sink.reader_gone());
  ::close(ends[0]);
  sink.write("not read");
  EXPECT_TRUE(sink.reader_gone());
  const Descriptor full(::open("/dev/full", O_WRONLY));
  TerminalSink disk(full.get());
  disk.write("a result");
  EXPECT_TRUE(disk.lost());
  EXPECT_FALSE(disk.reader_gone());
}

TEST(TerminalSink, FlushHasALimit) {
  int ends[2] = {-1, -1};
  ASSERT_EQ(::pipe(ends), 0);
  const Descriptor read_end(ends[0]);
  const Descriptor write_end(ends[1]);
  TerminalSink sink(write_end.get());
  sink.write(std::string(200000, 'x'));
  sink.flush_within(30);
  EXPECT_TRUE(sink.pending());
}

}  // namespace
}  // namespace sluice
