#include "runtime/doctor/comm_rates.hpp"

#include <gtest/gtest.h>

#include "base/error.hpp"

namespace sluice {
namespace {

CommSample sample(double bytes, double seconds, const char* transport = "mapped") {
  return {transport, "all_gather", bytes, seconds};
}

TEST(CommRates, FindsTheLineBehindExactTimes) {
  std::vector<CommSample> samples;
  for (const double bytes : {4e3, 1e5, 3e6, 7e7})
    samples.push_back(sample(bytes, 2e-5 + bytes / 5e9));
  const auto link = fit_link(samples);
  ASSERT_TRUE(link);
  EXPECT_NEAR(link->latency_s, 2e-5, 1e-9);
  EXPECT_NEAR(link->bps, 5e9, 5e3);
}

TEST(CommRates, SmallTimesCountAsMuchAsLargeOnes) {
  // 30 % more at the largest size must not make the latency negative or a hundred times larger.
  const auto link = fit_link({sample(4e3, 2e-5), sample(1e6, 2.2e-4), sample(1e9, 0.26)});
  ASSERT_TRUE(link);
  EXPECT_NEAR(link->latency_s, 2e-5, 1e-5);
  EXPECT_GT(link->bps, 3.5e9);
  EXPECT_LT(link->bps, 5.5e9);
}

TEST(CommRates, NoiseNeverMakesARateThatIsNotPositive) {
  const auto falling = fit_link({sample(1e3, 1e-3), sample(1e6, 5e-4)});
  ASSERT_TRUE(falling);
  EXPECT_DOUBLE_EQ(falling->latency_s, 1e-3);
  EXPECT_DOUBLE_EQ(falling->bps, 2e9);
  const auto steep = fit_link({sample(1e6, 1e-4), sample(2e6, 1e-3)});  // the line meets -8e-4
  ASSERT_TRUE(steep);
  EXPECT_GT(steep->latency_s, 0);
  EXPECT_GT(steep->bps, 0);
}

TEST(CommRates, NeedsTwoSizesAndTimes) {
  EXPECT_FALSE(fit_link({}));
  EXPECT_FALSE(fit_link({sample(1e3, 1e-3), sample(1e3, 2e-3)}));
  EXPECT_FALSE(fit_link({sample(1e3, 0), sample(1e4, 2e-3)}));
}

TEST(CommRates, KeepsTransportsApart) {
  const auto links = fit_transports({sample(1e3, 1.1e-5, "gloo"), sample(1e6, 1e-2, "gloo"),
                                     sample(1e3, 1.1e-5, "host"), sample(1e6, 1e-3, "host"),
                                     sample(1e3, 1e-3, "mapped")});
  ASSERT_EQ(links.size(), 2U);  // one size of `mapped` is no line
  EXPECT_NEAR(links.at("host").bps / links.at("gloo").bps, 10, 0.5);
}

TEST(CommRates, ReadsWhatBenchCommPrints) {
  const auto samples = read_comm_samples(
      R"({"collectives": [{"operation": "all_gather", "transport": "host", "bytes": 8192,
          "seconds": {"median": 0.5}, "received_bytes_per_s": 8192.0}]})");
  ASSERT_EQ(samples.size(), 1U);
  EXPECT_EQ(samples[0].transport, "host");
  EXPECT_EQ(samples[0].operation, "all_gather");
  EXPECT_DOUBLE_EQ(samples[0].bytes, 4096);
  EXPECT_DOUBLE_EQ(samples[0].seconds, 0.5);
  for (const char* text : {"", "{", "[]", "{}", R"({"collectives": [{}]})"}) {
    EXPECT_THROW((void)read_comm_samples(text), IoError) << text;
  }
}

}  // namespace
}  // namespace sluice
