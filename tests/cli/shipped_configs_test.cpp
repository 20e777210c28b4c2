// The configurations in configs/ are valid and have a plan.
#include <gtest/gtest.h>

#include "tests/cli/program.hpp"

namespace sluice::testing {
namespace {

class ShippedConfigs : public ::testing::Test {
 protected:
  // The plan of configs/<name>.yaml for one rank; exit code 0 says that it fits.
  nlohmann::json plan(const std::string& name, const std::string& profile) {
    const Finished finished =
        run_program(scratch_, "plan " SLUICE_SOURCE_DIR "/configs/" + name +
                                  ".yaml --world 1 --json --profile " + profile);
    EXPECT_EQ(finished.exit_code, 0) << finished.output;
    nlohmann::json parsed = nlohmann::json::parse(finished.output, nullptr, false);
    EXPECT_TRUE(parsed.is_object()) << finished.output;
    return parsed;
  }
  Scratch scratch_;
};

TEST_F(ShippedConfigs, FitAnyMachine) {
  for (const char* name : {"quickstart", "nvme-tiny"}) {
    EXPECT_EQ(plan(name, "cpu")["fits"], true) << name;
  }
}

// One card of 24 GB; 11927 MB were published for Megatron-LM.
TEST_F(ShippedConfigs, Gpt2Of345MNeedsSevenTenthsOfThePublishedMemory) {
  const nlohmann::json json = plan("gpt2-345m", "rtx4090");
  EXPECT_EQ(json["fits"], true);
  const double peak_mib = json["tiers"]["device"]["peak"].get<double>() / (1 << 20);
  EXPECT_LE(peak_mib, 8340);
  EXPECT_GT(peak_mib, 6090);  // 355M parameters x 18 bytes are 6090 MiB
}

}  // namespace
}  // namespace sluice::testing
