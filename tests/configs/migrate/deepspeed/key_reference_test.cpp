// The page of DeepSpeed's keys says what the table has.
#include "configs/migrate/deepspeed/key_reference.hpp"

#include <gtest/gtest.h>

#include <fstream>
#include <iterator>

#include "configs/migrate/deepspeed/deepspeed_keys.hpp"

namespace sluice::migrate {
namespace {

TEST(KeyReference, TheDocumentIsTheTable) {
  std::ifstream file(SLUICE_SOURCE_DIR "/docs/deepspeed-keys.md", std::ios::binary);
  const std::string written{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  EXPECT_TRUE(written == deepspeed_keys_markdown())
      << "docs/deepspeed-keys.md is not what the table says; write the page again:\n"
         "    ./sluice migrate --keys > docs/deepspeed-keys.md";
}

TEST(KeyReference, HasEveryKey) {
  const std::string page = deepspeed_keys_markdown();
  for (const DeepSpeedKey& key : deepspeed_keys()) {
    const std::string name = key.path.substr(key.path.rfind('.') + 1);
    EXPECT_TRUE(page.find("| `" + name + "` ") != std::string::npos ||
                page.find("\n## " + key.path + "\n") != std::string::npos)
        << key.path;
  }
}

TEST(KeyReference, ARowSaysDefaultClassTargetAndVersions) {
  const std::string page = deepspeed_keys_markdown();
  const auto has = [&page](const char* line) { return page.find(line) != std::string::npos; };
  EXPECT_TRUE(has("\n| `stage` | `0` | mapped | zero.stage |\n"));
  EXPECT_TRUE(
      has("| `pin_memory` | `true` | not needed | Sluice always copies through pinned "
          "memory; `false` before 0.19.5 |\n"));
  EXPECT_TRUE(
      has("| `prefetch_bucket_size` or `stage3_prefetch_bucket_size` | `5e7` | changed | "));
  EXPECT_TRUE(
      has("\n## zero_optimization.offload_param\n\nClass: mapped. offload.parameters. "
          "Strict: an unknown key is an error.\n"));
}

}  // namespace
}  // namespace sluice::migrate
