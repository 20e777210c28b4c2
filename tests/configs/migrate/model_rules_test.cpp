// Rules between a migrated configuration and the sizes of its model.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "configs/migrate/migrate.hpp"
#include "configs/migrate/report.hpp"
#include "tests/configs/scratch.hpp"

namespace sluice::migrate {
namespace {

// GPT-2 small's 12 layers and heads are no rule for a model that the user fills in.
TEST(ModelRules, RulesOnSizesWaitForTheModel) {
  testing::Scratch scratch;
  scratch.write("ds.json",
                "{\"train_micro_batch_size_per_gpu\": 1, \"zero_optimization\": {\"stage\": 3, "
                "\"stage3_prefetch_bucket_size\": 5e8}, \"optimizer\": {\"type\": \"AdamW\", "
                "\"params\": {\"lr\": 1e-3}}}");
  MigrationRequest request{
      .deepspeed = "ds.json",
      .world = 16,
      .hidden = 1024,
      .set = {"parallel.tensor=8", "parallel.pipeline=2", "parallel.stage_layers=[16,16]"}};
  EXPECT_EQ(error_text(migrate(request)), "");
  request.model = "folder";  // the program checks with the folder's sizes
  EXPECT_EQ(error_text(migrate(request)), "");
  request.model = "";
  request.set.push_back("model.layers=30");
  EXPECT_THAT(error_text(migrate(request)),
              ::testing::HasSubstr("model.heads must be a multiple of tensor: 12 % 8 = 4"));
  EXPECT_THAT(error_text(migrate(request)),
              ::testing::HasSubstr("the sum must be model.layers: 16 + 16 = 32 != 30"));
}

}  // namespace
}  // namespace sluice::migrate
