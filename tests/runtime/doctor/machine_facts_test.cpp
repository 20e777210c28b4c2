#include "runtime/doctor/machine_facts.hpp"

#include <gtest/gtest.h>

#include "base/bytes.hpp"

namespace sluice {
namespace {

TEST(MachineFacts, TheChosenSettingStandsInBrackets) {
  EXPECT_EQ(chosen_setting("always [madvise] never\n"), "madvise");
  EXPECT_EQ(chosen_setting("[always] madvise never"), "always");
  EXPECT_EQ(chosen_setting(""), "");
  EXPECT_EQ(chosen_setting("never"), "");
  EXPECT_EQ(chosen_setting("] ["), "");
}

TEST(MachineFacts, CacheSizes) {
  EXPECT_EQ(parse_cache_size("32768K"), 32 * kMiB);
  EXPECT_EQ(parse_cache_size("2M"), 2 * kMiB);
  EXPECT_EQ(parse_cache_size("512"), 512);
  for (const char* text : {"", "K", "-1K", "1X", "99999999999999999999K"}) {
    EXPECT_EQ(parse_cache_size(text), 0) << text;
  }
}

TEST(MachineFacts, TheDeepestMountHoldsAPath) {
  const std::string mounts =
      "21 1 254:0 / / rw,relatime - ext4 /dev/vda rw\n"
      "22 21 0:5 / /data rw shared:1 master:2 - xfs /dev/nvme0n1 rw\n"
      "23 22 0:6 / /data/my\\040disk rw - tmpfs tmpfs rw\n"
      "24 22 0:7 / /data rw - btrfs /dev/sdb rw\n"  // covers the xfs
      "broken line\n";
  const auto kind = [&](const char* path) {
    const auto mount = mount_of(mounts, path);
    return mount ? mount->file_system + " " + mount->device : "none";
  };
  EXPECT_EQ(kind("/"), "ext4 /dev/vda");
  EXPECT_EQ(kind("/database"), "ext4 /dev/vda");
  EXPECT_EQ(kind("/data"), "btrfs /dev/sdb");
  EXPECT_EQ(kind("/data/x"), "btrfs /dev/sdb");
  EXPECT_EQ(kind("/data/my disk/x"), "tmpfs tmpfs");
  EXPECT_EQ(kind("relative"), "none");
  EXPECT_FALSE(mount_of("", "/"));
}

TEST(MachineFacts, OfThisMachine) {
  const MachineFacts facts = read_machine_facts(3);
  EXPECT_EQ(facts.gpus, 3);
  EXPECT_GE(facts.cores, 1);
  EXPECT_GE(facts.hardware_threads, facts.cores);
  ASSERT_TRUE(facts.memory_bytes && facts.available_bytes);
  EXPECT_GT(*facts.available_bytes, 0);
  EXPECT_LE(*facts.available_bytes, *facts.memory_bytes);
  EXPECT_NE(facts.memlock_unlimited, facts.memlock_bytes.has_value());
  EXPECT_TRUE(facts.amx_reported || !facts.amx_usable);
  int cores = 0;
  for (const NodeFact& node : facts.nodes) cores += node.cores;
  EXPECT_EQ(cores, facts.cores);
}

}  // namespace
}  // namespace sluice
