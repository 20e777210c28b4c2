// The bytes of a pickle. cli_memory_snapshot reads whole files with Python.
#include "runtime/observe/pickle_writer.hpp"

#include <gtest/gtest.h>

#include <algorithm>

namespace sluice {
namespace {

using namespace std::string_literals;

TEST(PickleWriter, WritesTheOpcodesOfProtocol2) {
  PickleWriter pickle;
  pickle.begin_dict();
  pickle.text("a");
  pickle.number(-2);
  pickle.text("pair");
  pickle.zero_pair();
  pickle.text("list");
  pickle.begin_list();
  pickle.next();
  pickle.text("a");  // stored once
  pickle.next();
  pickle.boolean(true);
  pickle.next();
  pickle.number(std::int64_t{1} << 40);
  pickle.end_list();
  pickle.end_dict();
  EXPECT_EQ(pickle.take(),
            "\x80\x02}("
            "X\x01\0\0\0ar\0\0\0\0J\xfe\xff\xff\xff"
            "X\x04\0\0\0pairr\x01\0\0\0J\0\0\0\0J\0\0\0\0\x86"
            "X\x04\0\0\0listr\x02\0\0\0](j\0\0\0\0\x88\x8a\x08\0\0\0\0\0\x01\0\0e"
            "u."s);
}

TEST(PickleWriter, ALongListComesInBatches) {
  PickleWriter pickle;
  pickle.begin_list();
  for (int i = 0; i < 2500; ++i) {
    pickle.next();
    pickle.boolean(false);
  }
  pickle.end_list();
  const std::string text = pickle.take();
  EXPECT_EQ(std::count(text.begin(), text.end(), 'e'), 3);
  EXPECT_EQ(std::count(text.begin(), text.end(), '('), 3);
  EXPECT_EQ(std::count(text.begin(), text.end(), '\x89'), 2500);
}

}  // namespace
}  // namespace sluice
