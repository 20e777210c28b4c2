#include "runtime/plan/page/html_page.hpp"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "runtime/page/page.hpp"
#include "runtime/page/page_text.hpp"
#include "runtime/plan/plan_text.hpp"
#include "tests/page/page_check.hpp"
#include "tests/runtime/plan/small.hpp"

namespace sluice {
namespace {

using Json = nlohmann::json;
using testing::data_of;
using testing::small_options;
using testing::tag_mistake;

RunFacts facts_of(const std::string& config) {
  RunFacts facts;
  facts.config = config;
  facts.model = "llama";
  facts.machine = "box";
  facts.rates_from = "a test";
  facts.steps = 1000;
  facts.tokens = 1'000'000;
  facts.endurance_bytes = 6e14;
  facts.hiding.fill(std::numeric_limits<double>::infinity());
  return facts;
}

RunPlan small_plan() {
  Planner planner(named_profile("cpu"));
  EngineOptions options = small_options();
  options.offload.optimizer = Tier::kNvme;
  TierBudgets budgets;
  budgets.device = 1 << 20;
  budgets.ranks_of_host = 4;
  return planner.plan({options, budgets});
}

TEST(HtmlPage, IsBalancedAndItsDataParses) {
  const RunPlan plan = small_plan();
  const std::string page = plan_html(plan, facts_of("tiny.yaml"), nullptr, nullptr);
  EXPECT_EQ(tag_mistake(page), "");
  const Json data = Json::parse(data_of(page));
  EXPECT_EQ(data["tiers"].size(), 3U);
  for (const Json& tier : data["tiers"]) {
    std::int64_t highest = 0;
    for (std::size_t i = 0; i < tier["t"].size(); ++i) {
      std::int64_t total = 0;
      for (const Json& layer : tier["layers"]) total += layer["bytes"][i].get<std::int64_t>();
      highest = std::max(highest, total);
    }
    EXPECT_EQ(highest, tier["peak"].get<std::int64_t>()) << tier["name"];
    EXPECT_EQ(tier["peak"], data["plan"]["tiers"][tier["name"].get<std::string>()]["peak"]);
  }
  EXPECT_EQ(data["tiers"][0]["budget"], 1 << 20);
  const std::size_t bars = data["bars"]["row"].size();
  EXPECT_GT(bars, 20U);
  for (const auto& [name, column] : data["bars"].items()) EXPECT_EQ(column.size(), bars) << name;
  for (const Json& row : data["bars"]["row"])
    EXPECT_LT(row.get<std::size_t>(), data["rows"].size());
  EXPECT_EQ(data["plan"]["token_budget"]["tokens"], 1'000'000);
  EXPECT_GT(data["plan"]["drive_seconds"].get<double>(), 0);
}

TEST(HtmlPage, HasTheEstimateOfNcclBesideThePeak) {
  RunPlan plan = small_plan();
  plan.memory.tiers[static_cast<std::size_t>(Tier::kDevice)].nccl = 3 << 20;
  const Json data = Json::parse(data_of(plan_html(plan, facts_of("tiny.yaml"), nullptr, nullptr)));
  EXPECT_EQ(data["tiers"][0]["nccl"], 3 << 20);
  EXPECT_EQ(data["tiers"][0]["nccl_name"], kNcclBuffers);
  EXPECT_EQ(data["tiers"][1]["nccl"], 0);
}

// Nothing that a user can name gets out of its place, and nothing is fetched.
TEST(HtmlPage, NamesStayText) {
  const std::string evil = "</script><img src=x onerror=alert(1)>&'\"<!--DATA-->/*SCRIPT*/\xff";
  RunFacts facts = facts_of(evil);
  facts.notes = {evil};
  RunPlan plan = small_plan();
  plan.unit_names = {evil};
  const std::string page = plan_html(plan, facts, nullptr, nullptr);
  EXPECT_EQ(tag_mistake(page), "");
  EXPECT_EQ(page.find("<img"), std::string::npos);
  const Json data = Json::parse(data_of(page));
  const std::string kept = data["units"][0];
  EXPECT_EQ(kept.substr(0, evil.size() - 1), evil.substr(0, evil.size() - 1));
  for (const char* fetch : {"http://", "https://", "@import", "url(", "<link"}) {
    EXPECT_EQ(page.find(fetch), std::string::npos) << fetch;
  }
}

TEST(HtmlPage, Escapes) {
  EXPECT_EQ(escape_html("<a b='c' d=\"e\">&"), "&lt;a b=&#39;c&#39; d=&quot;e&quot;&gt;&amp;");
  const std::string json = R"({"a":"</script><!-- & -->"})";
  const std::string escaped = escape_json_for_html(json);
  EXPECT_EQ(escaped.find_first_of("<>&"), std::string::npos);
  EXPECT_EQ(Json::parse(escaped), Json::parse(json));
}

TEST(HtmlPage, EveryTagHasAColour) {
  for (int tag = 0; tag < kTagCount; ++tag) {
    const std::string colour = "--c" + std::to_string(tag) + ": #";
    const std::size_t light = page_styles().find(colour);
    ASSERT_NE(light, std::string_view::npos) << name_of(static_cast<Tag>(tag));
    EXPECT_NE(page_styles().find(colour, light + 1), std::string_view::npos) << colour;
  }
}

// A step of more operations than anyone can see.
TEST(HtmlPage, CopesWithAHundredThousandOperations) {
  RunPlan plan = small_plan();
  const Program once = plan.program;
  const TimeReport time = plan.time;
  while (plan.program.ops.size() < 120'000) {
    const double shift = time.step_s * static_cast<double>(plan.program.ops.size()) /
                         static_cast<double>(once.ops.size());
    plan.program.ops.insert(plan.program.ops.end(), once.ops.begin(), once.ops.end());
    for (const OpInterval& op : time.timeline) {
      plan.time.timeline.push_back({op.begin + shift, op.end + shift});
    }
  }
  const std::string page = plan_html(plan, facts_of("large.yaml"), nullptr, nullptr);
  EXPECT_LT(page.size(), 12U << 20);
  const Json data = Json::parse(data_of(page));
  EXPECT_LE(data["bars"]["row"].size(), 100'000U);
  EXPECT_NE(data["remarks"].dump().find("slice"), std::string::npos);
}

}  // namespace
}  // namespace sluice
