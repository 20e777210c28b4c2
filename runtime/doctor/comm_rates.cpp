#include "runtime/doctor/comm_rates.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/error.hpp"

namespace sluice {

std::vector<CommSample> read_comm_samples(const std::string& bench_json) {
  std::vector<CommSample> samples;
  try {
    const auto json = nlohmann::json::parse(bench_json);
    for (const auto& row : json.at("collectives")) {
      CommSample sample;
      sample.transport = row.at("transport").get<std::string>();
      sample.operation = row.at("operation").get<std::string>();
      sample.seconds = row.at("seconds").at("median").get<double>();
      sample.bytes = row.at("received_bytes_per_s").get<double>() * sample.seconds;
      samples.push_back(std::move(sample));
    }
  } catch (const nlohmann::json::exception& error) {
    throw IoError(
        std::string("the ranks that measured collectives left no result: ") + error.what(),
        "bench comm");
  }
  return samples;
}

std::optional<LinkRates> fit_link(const std::vector<CommSample>& samples) {
  if (samples.empty()) return std::nullopt;
  const auto [least, most] = std::minmax_element(
      samples.begin(), samples.end(),
      [](const CommSample& a, const CommSample& b) { return a.bytes < b.bytes; });
  if (least->bytes >= most->bytes) return std::nullopt;
  // Weighted least squares of seconds = latency + slope * bytes with weights 1 / seconds^2.
  double w = 0, x = 0, y = 0, xx = 0, xy = 0;
  for (const CommSample& sample : samples) {
    if (sample.seconds <= 0) return std::nullopt;
    const double weight = 1 / (sample.seconds * sample.seconds);
    w += weight;
    x += weight * sample.bytes;
    y += weight * sample.seconds;
    xx += weight * sample.bytes * sample.bytes;
    xy += weight * sample.bytes * sample.seconds;
  }
  const double slope = (w * xy - x * y) / (w * xx - x * x);
  const double latency = (y - slope * x) / w;
  if (slope > 0 && latency > 0) return LinkRates{latency, 1 / slope};
  return LinkRates{least->seconds, most->bytes / most->seconds};
}

std::map<std::string, LinkRates> fit_transports(const std::vector<CommSample>& samples) {
  std::map<std::string, std::vector<CommSample>> groups;
  for (const CommSample& sample : samples) groups[sample.transport].push_back(sample);
  std::map<std::string, LinkRates> links;
  for (const auto& [transport, group] : groups) {
    if (const auto link = fit_link(group)) links[transport] = *link;
  }
  return links;
}

}  // namespace sluice
