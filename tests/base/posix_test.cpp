#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <filesystem>
#include <functional>
#include <string>

#include "base/error.hpp"
#include "base/posix/atomic_file.hpp"
#include "base/posix/descriptor.hpp"
#include "base/posix/io_error.hpp"
#include "base/posix/lock_file.hpp"
#include "base/posix/map.hpp"
#include "tests/killed_process.hpp"
#include "tests/runtime/observe/temporary_folder.hpp"

namespace sluice {
namespace {

using ::testing::HasSubstr;

std::span<const std::byte> bytes_of(const std::string& text) {
  return std::as_bytes(std::span(text));
}

std::string error_of(const std::function<void()>& fails) {
  try {
    fails();
  } catch (const IoError& error) {
    return error.what();
  }
  return "";
}

int files_in(const TemporaryFolder& folder) {
  return static_cast<int>(std::distance(std::filesystem::directory_iterator(folder.path()), {}));
}

TEST(Descriptor, ClosesOnce) {
  int raw = -1;
  {
    Descriptor fd = open_descriptor("/dev/null", O_RDONLY);
    raw = fd.get();
    Descriptor other = std::move(fd);
    EXPECT_FALSE(fd);  // NOLINT(bugprone-use-after-move): a moved descriptor is closed
    EXPECT_EQ(other.get(), raw);
    EXPECT_EQ(::fcntl(raw, F_GETFD), FD_CLOEXEC);
  }
  EXPECT_EQ(::fcntl(raw, F_GETFD), -1);
}

TEST(Descriptor, NoneKeepsTheCause) {
  const Descriptor none = open_descriptor("/nonexistent/f", O_RDONLY);
  EXPECT_EQ(errno, ENOENT);
  EXPECT_FALSE(none);
  EXPECT_EQ(sync_folder("/nonexistent"), ENOENT);
}

TEST(Descriptor, WritesEveryByteOrSaysWhyNot) {
  const TemporaryFolder folder;
  const std::string path = folder.file("f");
  const Descriptor file = open_descriptor(path, O_RDWR | O_CREAT);
  EXPECT_EQ(write_fully(file.get(), bytes_of("abcdef")), 0);
  std::int64_t offset = 2;
  EXPECT_EQ(write_fully_at(file.get(), bytes_of("XY"), offset), 0);
  EXPECT_EQ(offset, 4);
  EXPECT_EQ(text_of(path), "abXYef");
  EXPECT_EQ(write_fully(open_descriptor("/dev/full", O_WRONLY).get(), bytes_of("x")), ENOSPC);
}

TEST(Descriptor, ReadsToTheEndOrSaysWhyNot) {
  const TemporaryFolder folder;
  const std::string path = folder.file("f"), text(100000, 'x');
  write_file_atomically(path, text);
  std::string read;
  EXPECT_EQ(read_to_end(open_descriptor(path, O_RDONLY).get(), read), 0);
  EXPECT_TRUE(read == text);
  EXPECT_EQ(read_to_end(open_descriptor(folder.path(), O_RDONLY).get(), read), EISDIR);
}

TEST(Memfd, IsZerosThatMappingsShare) {
  const Descriptor file = make_memfd("test", 8192);
  const MappedPages writer = MappedPages::shared(file.get(), 8192, /*writable=*/true);
  const MappedPages reader = MappedPages::shared(file.get(), 8192, /*writable=*/false);
  ASSERT_TRUE(writer && reader);
  EXPECT_EQ(reader.data()[8191], std::byte{0});
  writer.data()[8191] = std::byte{7};
  EXPECT_EQ(reader.data()[8191], std::byte{7});
}

TEST(MappedPages, BeginAtTheirAlignmentAndAreZero) {
  for (const std::int64_t alignment : {4096LL, 2LL << 20}) {
    for (const std::int64_t bytes : {1LL, 4096LL, 3LL << 20}) {
      const MappedPages pages = MappedPages::anonymous(bytes, alignment);
      ASSERT_TRUE(pages);
      EXPECT_EQ(pages.bytes(), bytes);
      EXPECT_EQ(
          reinterpret_cast<std::uintptr_t>(pages.data()) % static_cast<std::uintptr_t>(alignment),
          0U);
      EXPECT_EQ(std::count(pages.data(), pages.data() + bytes, std::byte{0}), bytes);
      std::fill_n(pages.data(), bytes, std::byte{1});
    }
  }
}

// The pages around an aligned mapping are given back, and the mapping itself at the end. mincore
// refuses an address that is not mapped.
TEST(MappedPages, LeaveNothingMapped) {
  std::byte* at = nullptr;
  unsigned char in_core = 0;
  {
    const MappedPages pages = MappedPages::anonymous(4096, 2 << 20);
    at = pages.data();
    EXPECT_EQ(::mincore(at, 4096, &in_core), 0);
    MappedPages moved = MappedPages::anonymous(4096, 4096);
    std::byte* const released = moved.release();
    EXPECT_FALSE(moved);
    EXPECT_EQ(::mincore(released, 4096, &in_core), 0);
    EXPECT_EQ(::munmap(released, 4096), 0);
  }
  EXPECT_EQ(::mincore(at, 4096, &in_core), -1);
}

TEST(MappedPages, SaysThatThereIsNoMemory) {
  EXPECT_FALSE(MappedPages::anonymous(std::int64_t{1} << 60, 4096));
  EXPECT_EQ(errno, ENOMEM);
}

TEST(MappedFile, IsTheFile) {
  const TemporaryFolder folder;
  const std::string path = folder.file("f");
  write_file_atomically(path, "");
  EXPECT_TRUE(MappedFile(path).bytes().empty());
  write_file_atomically(path, "abc");
  const MappedFile file(path);
  EXPECT_TRUE(std::ranges::equal(file.bytes(), bytes_of("abc")));
  let_go(file.bytes());
  EXPECT_TRUE(std::ranges::equal(file.bytes(), bytes_of("abc")));
  EXPECT_EQ(error_of([&] { MappedFile(folder.path()); }),
            folder.path().string() + " is not a regular file");
  EXPECT_THAT(error_of([] { MappedFile("/nonexistent/f"); }),
              HasSubstr("cannot open /nonexistent/f: No such file"));
}

TEST(AtomicFile, IsWholeOrAbsent) {
  const TemporaryFolder folder;
  const std::string path = folder.file("f");
  {
    AtomicFile file(path);
    file.append("one");
    EXPECT_EQ(files_in(folder), 1);
    EXPECT_FALSE(std::filesystem::exists(path));
  }
  EXPECT_EQ(files_in(folder), 0);
  AtomicFile file(path);
  file.append("one two");
  file.append(std::string(2 << 20, 'x'));
  file.overwrite(4, bytes_of("TWO"));
  EXPECT_EQ(file.size(), 7 + (2 << 20));
  EXPECT_TRUE(file.commit());
  EXPECT_EQ(text_of(path), "one TWO" + std::string(2 << 20, 'x'));
  EXPECT_EQ(files_in(folder), 1);
}

TEST(AtomicFile, ReplacesOrKeeps) {
  const TemporaryFolder folder;
  const std::string path = folder.file("f");
  EXPECT_TRUE(write_file_atomically(path, "one", IfExists::kKeep));
  EXPECT_FALSE(write_file_atomically(path, "two", IfExists::kKeep));
  EXPECT_EQ(text_of(path), "one");
  EXPECT_TRUE(write_file_atomically(path, "three"));
  EXPECT_EQ(text_of(path), "three");
  EXPECT_EQ(files_in(folder), 1);
}

TEST(AtomicFile, RemovesWhatKilledProcessesLeft) {
  const TemporaryFolder folder;
  const std::string path = folder.file("f");
  kill_process(start_process([&](const auto& tell) {
    AtomicFile file(path);
    file.append("half");
    tell();
    ::pause();
  }));
  write_file_atomically(folder.file("g"), "other");
  EXPECT_EQ(files_in(folder), 2);
  AtomicFile::remove_leftovers(path);
  EXPECT_EQ(files_in(folder), 1);
}

TEST(OutputFile, LeavesPipesAndLinksInPlace) {
  const TemporaryFolder folder;
  const std::string pipe = folder.file("pipe");
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  const Descriptor reader = open_descriptor(pipe, O_RDONLY | O_NONBLOCK);
  write_output_file(pipe, "page");
  EXPECT_TRUE(std::filesystem::is_fifo(pipe));
  std::array<char, 8> got{};
  EXPECT_EQ(::read(reader.get(), got.data(), got.size()), 4);
  EXPECT_STREQ(got.data(), "page");

  const std::string link = folder.file("link");
  std::filesystem::create_symlink("file", folder.file("near"));  // names no file yet
  std::filesystem::create_symlink(folder.file("near"), link);
  for (const char* text : {"one", "two"}) {
    write_output_file(link, text);
    EXPECT_TRUE(std::filesystem::is_symlink(link));
    EXPECT_EQ(text_of(folder.file("file")), text);
  }
  EXPECT_THAT(error_of([&] { write_output_file(folder.path(), "x"); }), HasSubstr("name a file"));
}

// The name of a descriptor leads to a file that other output goes to.
TEST(OutputFile, WritesToAnOpenDescriptorWithoutReplacingItsFile) {
  const TemporaryFolder folder;
  const std::string notes = folder.file("notes");
  const Descriptor file = open_descriptor(notes, O_WRONLY | O_CREAT, 0600);
  ASSERT_EQ(::write(file.get(), "old,", 4), 4);
  const std::string number = std::to_string(file.get());
  write_output_file("/dev/fd/" + number, "page,");
  std::filesystem::create_symlink("/proc/self/fd/" + number, folder.file("link"));
  write_output_file(folder.file("link"), "again");
  EXPECT_EQ(text_of(notes), "old,page,again");
}

TEST(OutputFile, AMinusIsStandardOutput) {
  ::testing::internal::CaptureStdout();
  std::fputs("before,", stdout);
  write_output_file("-", "page");
  EXPECT_EQ(::testing::internal::GetCapturedStdout(), "before,page");
  EXPECT_FALSE(std::filesystem::exists("-"));
}

TEST(IoErrors, SayWhatToDo) {
  EXPECT_EQ(error_of([] { throw_io_error("write", "f", ENOSPC, write_remedy(ENOSPC)); }),
            "cannot write f: No space left on device; free space there or choose a folder on "
            "another disk");
  EXPECT_EQ(write_remedy(EACCES, "output.dir"), "; set output.dir to a folder you may write to");
  EXPECT_EQ(write_remedy(EIO), "");
}

TEST(LockFile, IsOfOneHolderUntilTheHolderDies) {
  const TemporaryFolder folder;
  const std::string path = folder.file("lock");
  const pid_t holder = start_process([&](const auto& tell) {
    LockFile lock;
    if (!lock.take(path, std::chrono::seconds(0))) return;
    lock.sign("test");
    tell();
    ::pause();
  });
  LockFile lock;
  EXPECT_TRUE(is_locked(path));
  EXPECT_FALSE(lock.take(path, std::chrono::seconds(0)));
  EXPECT_EQ(read_lock_holder(path).work, "test");
  EXPECT_EQ(read_lock_holder(path).pid, std::to_string(holder));
  kill_process(holder);
  EXPECT_TRUE(lock.take(path, std::chrono::minutes(1)));
  LockFile moved = std::move(lock);
  EXPECT_FALSE(lock.held());  // NOLINT(*-use-after-move, clang-analyzer-cplusplus.Move)
  EXPECT_TRUE(moved.held());
  moved.remove();
  EXPECT_FALSE(std::filesystem::exists(path));
}

}  // namespace
}  // namespace sluice
