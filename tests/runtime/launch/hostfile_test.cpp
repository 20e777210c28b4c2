#include "runtime/launch/hosts/hostfile.hpp"

#include <gmock/gmock.h>

#include <fstream>

#include "base/error.hpp"
#include "base/posix/host_name.hpp"
#include "tests/runtime/observe/temporary_folder.hpp"

namespace sluice {
namespace {

using ::testing::HasSubstr;

std::string refusal(const std::string& text) {
  try {
    (void)parse_hostfile(text, "hosts");
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "accepted";
}

TEST(Hostfile, HostsSlotsAndComments) {
  const auto hosts = parse_hostfile(
      "# the cluster\n\n  node1   slots=4 # first\r\n10.0.0.7\nuser@node-3.lan\tslots=1", "hosts");
  ASSERT_EQ(hosts.size(), 3U);
  EXPECT_EQ(hosts[0].host, "node1");
  EXPECT_EQ(hosts[0].slots, 4);
  EXPECT_EQ(hosts[1].host, "10.0.0.7");
  EXPECT_EQ(hosts[1].slots, 0);
  EXPECT_EQ(hosts[2].host, "user@node-3.lan");
  EXPECT_EQ(hosts[2].slots, 1);
}

TEST(Hostfile, EveryMistakeIsSaidWithItsLine) {
  const std::string said = refusal(
      "node1 slots=0\nnode2 slots=4\nnode3 cores=3\n\nnode2\n-oProxyCommand=x\nn slots=1x\n"
      "m slots=1 slots=1\n");
  EXPECT_THAT(said, HasSubstr("hosts:1: 'slots=0' is not understood"));
  EXPECT_THAT(said, HasSubstr("hosts:3: 'cores=3' is not understood"));
  EXPECT_THAT(said, HasSubstr("hosts:5: host node2 is in line 2 already"));
  EXPECT_THAT(said, HasSubstr("hosts:6: '-oProxyCommand=x' is not a host's name"));
  EXPECT_THAT(said, HasSubstr("hosts:7: 'slots=1x'"));
  EXPECT_THAT(said, HasSubstr("hosts:8: slots is given twice"));
}

TEST(Hostfile, NoHostIsAMistake) {
  EXPECT_THAT(refusal("# nobody\n\n"), HasSubstr("names no host"));
}

TEST(Hostfile, ReadFillsInTheSlots) {
  const TemporaryFolder folder;
  const std::string path = (folder.path() / "hosts").string();
  for (const auto& [wrong, why] : {std::pair(path, "No such file"),
                                   std::pair(folder.path().string(), "Is a directory; give")}) {
    try {
      (void)read_hostfile(wrong, 2);
      ADD_FAILURE() << wrong;
    } catch (const ConfigError& error) {
      EXPECT_THAT(error.what(), HasSubstr(wrong + ": " + why));
    }
  }
  std::ofstream(path) << "a\nb slots=3\n";
  const auto hosts = read_hostfile(path, 2);
  EXPECT_EQ(hosts[0].slots, 2);
  EXPECT_EQ(hosts[1].slots, 3);
}

TEST(Hostfile, ThisHost) {
  EXPECT_TRUE(is_this_host("localhost"));
  EXPECT_TRUE(is_this_host(host_name()));
  EXPECT_FALSE(is_this_host("127.0.0.2"));
  EXPECT_FALSE(is_this_host("10.255.255.1"));
  EXPECT_FALSE(is_this_host(host_name() + "x"));
}

TEST(Hostfile, HostsElsewhere) {
  EXPECT_TRUE(all_are_elsewhere({{"10.255.255.1", 1}, {host_name() + "x", 1}}));
  EXPECT_FALSE(all_are_elsewhere({{"10.255.255.1", 1}, {"localhost", 1}}));
  EXPECT_FALSE(all_are_elsewhere({})) << "no hostfile: the ranks are here";
}

}  // namespace
}  // namespace sluice
