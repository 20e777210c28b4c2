// Rules that depend on the purpose: a run, a dry run, a plan.
#include <gtest/gtest.h>

#include <optional>

#include "base/error.hpp"
#include "configs/validate.hpp"
#include "tests/configs/scratch.hpp"

namespace sluice::testing {
namespace {

class ValidatePurpose : public ::testing::Test {
 protected:
  Scratch scratch_;
};

TEST_F(ValidatePurpose, ADryRunAndAPlanNeedNoData) {
  scratch_.write("c.yaml", "train: {steps: 5}\n");
  const LoadedConfig config = load_config("c.yaml", {});
  EXPECT_THROW(validate(config, 1), ConfigError);
  EXPECT_NO_THROW(validate(config, 1, std::nullopt, Purpose::kDryRun));
  EXPECT_NO_THROW(validate(config, 1, std::nullopt, Purpose::kPlan));
}

TEST_F(ValidatePurpose, OnlyAPlanAcceptsDrivesOfAnotherMachine) {
  scratch_.write("c.yaml", "offload: {optimizer: nvme, nvme_path: /no/such/drive/x}\n");
  const LoadedConfig config = load_config("c.yaml", {});
  EXPECT_THROW(validate(config, 1, std::nullopt, Purpose::kDryRun), ConfigError);
  EXPECT_NO_THROW(validate(config, 1, std::nullopt, Purpose::kPlan));
}

}  // namespace
}  // namespace sluice::testing
