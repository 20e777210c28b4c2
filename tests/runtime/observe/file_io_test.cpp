#include "runtime/observe/file_io.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>

#include "base/error.hpp"
#include "tests/runtime/observe/temporary_folder.hpp"

namespace sluice {
namespace {

TEST(FileIo, AtomicWriteReplacesOrKeeps) {
  const TemporaryFolder folder;
  const std::string path = folder.file("f");
  EXPECT_TRUE(write_file_atomically(path, "one", IfExists::kKeep));
  EXPECT_FALSE(write_file_atomically(path, "two", IfExists::kKeep));
  EXPECT_EQ(text_of(path), "one");
  EXPECT_TRUE(write_file_atomically(path, "three"));
  EXPECT_EQ(text_of(path), "three");
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder.path()), {}), 1);
}

TEST(FileIo, NoSpaceNamesPathCauseAndRemedy) {
  const UniqueFd full(::open("/dev/full", O_WRONLY));
  try {
    write_all(full.get(), "x", "run/metrics.jsonl");
    FAIL();
  } catch (const IoError& error) {
    EXPECT_STREQ(error.what(),
                 "cannot write run/metrics.jsonl: No space left on device; free space there or set "
                 "output.dir to another disk");
    EXPECT_EQ(error.error_number(), ENOSPC);
    EXPECT_EQ(error.path(), "run/metrics.jsonl");
  }
}

TEST(FileIo, PermissionNamesRemedy) {
  try {
    throw_io_error("open", "f", EACCES);
  } catch (const IoError& error) {
    EXPECT_STREQ(error.what(),
                 "cannot open f: Permission denied; set output.dir to a folder you may write to");
  }
}

TEST(FileIo, FormerFileIsMovedAside) {
  const TemporaryFolder folder;
  const std::string path = folder.file("f");
  keep_former_file(path);  // nothing there
  for (const char* text : {"one", "two"}) {
    write_file_atomically(path, text);
    keep_former_file(path);
    EXPECT_FALSE(std::filesystem::exists(path));
    EXPECT_EQ(text_of(path + ".1"), text);
  }
}

TEST(UniqueFd, ClosesOnce) {
  int raw = -1;
  {
    UniqueFd fd(::open("/dev/null", O_RDONLY));
    raw = fd.get();
    UniqueFd other = std::move(fd);
    EXPECT_FALSE(fd);
    EXPECT_EQ(other.get(), raw);
    EXPECT_EQ(::fcntl(raw, F_GETFD), 0);
  }
  EXPECT_EQ(::fcntl(raw, F_GETFD), -1);
}

}  // namespace
}  // namespace sluice
