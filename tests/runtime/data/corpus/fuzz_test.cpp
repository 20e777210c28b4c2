#include <gtest/gtest.h>

#include "tests/fuzz/targets.hpp"
#include "tests/runtime/checkpoint/mutation.hpp"

namespace sluice::testing {
namespace {

TEST(CorpusFuzz, AnyBytesAreRecordsOrAreRejected) {
  run_mutations("corpus", fuzz_corpus,
                {"\n",
                 "\r\n",
                 "\"",
                 "\\",
                 "\\u",
                 "\\ud83d",
                 "{",
                 "}",
                 "[",
                 "\"text\":",
                 ",",
                 "&#",
                 ";",
                 "\xC3",
                 "\xE2\x80",
                 "\xF0\x9F",
                 std::string(1, '\0'),
                 "\x1b[",
                 "\xEF\xBB\xBF",
                 std::string(300, 'x')},
                [](std::string&) {});
}

}  // namespace
}  // namespace sluice::testing
