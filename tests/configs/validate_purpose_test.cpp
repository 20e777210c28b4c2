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

// A program that reads a model needs no drive.
TEST_F(ValidatePurpose, AUseNamesTheParametersTierBeforeTheDrive) {
  scratch_.write("c.yaml",
                 "data: {text: [t.txt]}\nzero: {stage: 3}\n"
                 "offload: {optimizer: nvme, parameters: nvme, nvme_path: /no/such/drive/x}\n");
  const LoadedConfig config = load_config("c.yaml", {});
  const auto message_for = [&](Purpose purpose) {
    try {
      validate(config, 1, std::nullopt, purpose);
    } catch (const ConfigError& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  const std::string drive = "'/no/such/drive/x' cannot be made";
  EXPECT_NE(message_for(Purpose::kUse)
                .find("offload.nvme_path: --set offload.parameters=device (or host) reads the "
                      "model without the folder: " +
                      drive),
            std::string::npos)
      << message_for(Purpose::kUse);
  EXPECT_NE(message_for(Purpose::kTrain).find("offload.nvme_path: " + drive), std::string::npos)
      << message_for(Purpose::kTrain);
}

}  // namespace
}  // namespace sluice::testing
