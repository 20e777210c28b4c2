#include "runtime/observe/file_io.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>

#include "base/error.hpp"
#include "base/posix/atomic_file.hpp"
#include "tests/runtime/observe/temporary_folder.hpp"

namespace sluice {
namespace {

TEST(FileIo, NoSpaceNamesPathCauseAndRemedy) {
  const Descriptor full(::open("/dev/full", O_WRONLY));
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

TEST(FileIo, AFolderThatIsMissingIsSaid) {
  try {
    (void)open_for_append("/nonexistent/f");
    FAIL();
  } catch (const IoError& error) {
    EXPECT_STREQ(error.what(),
                 "cannot open /nonexistent/f: No such file or directory; the folder has to exist");
  }
}

TEST(FileIo, FormerFilesAreKept) {
  const TemporaryFolder folder;
  const std::string path = folder.file("f");
  keep_former_file(path);  // nothing there
  for (const char* text : {"one", "two"}) {
    write_file_atomically(path, text);
    keep_former_file(path);
    EXPECT_FALSE(std::filesystem::exists(path));
  }
  EXPECT_EQ(text_of(path + ".1"), "one");
  EXPECT_EQ(text_of(path + ".2"), "two");
}

}  // namespace
}  // namespace sluice
