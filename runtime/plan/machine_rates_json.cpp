// The rates file as text: docs/formats/rates.md.
#include <cmath>
#include <nlohmann/json.hpp>

#include "base/error.hpp"
#include "runtime/plan/machine_rates.hpp"

namespace sluice {
namespace {

using Json = nlohmann::ordered_json;

constexpr char kFormatName[] = "sluice-rates";

// One list of the scalar rates, for writing and reading.
template <class Rates, class Visitor>
void visit_rates(Rates& rates, Visitor&& visit) {
  visit("memory_copy_bps", rates.memory_copy_bps);
  visit("memory_triad_bps", rates.memory_triad_bps);
  visit("memory_rmw_bps", rates.memory_rmw_bps);
  visit("h2d_bps", rates.h2d_bps);
  visit("d2h_bps", rates.d2h_bps);
  visit("h2d_d2h_bps", rates.h2d_d2h_bps);
  visit("disk_read_bps", rates.disk_read_bps);
  visit("disk_write_bps", rates.disk_write_bps);
  visit("disk_both_bps", rates.disk_both_bps);
}

// Scalar rates of a GPU, except its products.
template <class Gpu, class Visitor>
void visit_gpu(Gpu& gpu, Visitor&& visit) {
  visit("device_memory_bps", gpu.device_memory_bps);
  visit("device_triad_bps", gpu.device_triad_bps);
  visit("h2d_bps", gpu.h2d_bps);
  visit("d2h_bps", gpu.d2h_bps);
  visit("h2d_d2h_bps", gpu.h2d_d2h_bps);
}

Json number(const std::optional<double>& value) { return value ? Json(*value) : Json(nullptr); }

Json by_dtype(const DTypeRates& rates) {
  return {{"fp32", number(rates.fp32)}, {"bf16", number(rates.bf16)}};
}

Json link(const std::optional<LinkRates>& rates) {
  if (!rates) return nullptr;
  return {{"latency_s", rates->latency_s}, {"bps", rates->bps}};
}

Json attention_json(const std::optional<AttentionRates>& rates) {
  if (!rates) return nullptr;
  Json json;
  visit_attention(*rates, [&](const char* name, double value) { json[name] = value; });
  return json;
}

Json gpu_json(const std::optional<GpuRates>& gpu) {
  if (!gpu) return nullptr;
  Json json{{"name", gpu->name}, {"count", gpu->count}, {"memory_bytes", gpu->memory_bytes}};
  json["gemm_flops"] = by_dtype(gpu->gemm_flops);
  json["gemm_flops"]["fp16"] = number(gpu->gemm_fp16_flops);
  json["gemm_flops"]["fp8"] = number(gpu->gemm_fp8_flops);
  json["attention_flops"] = {{"flash", attention_json(gpu->attention_flops.flash)},
                             {"cudnn", attention_json(gpu->attention_flops.cudnn)}};
  if (gpu->compute_capability > 0) json["compute_capability"] = gpu->compute_capability / 10.0;
  if (gpu->multiprocessors > 0) json["multiprocessors"] = gpu->multiprocessors;
  visit_gpu(*gpu, [&](const char* name, const auto& value) { json[name] = number(value); });
  return json;
}

// The numbers of a unit's entry.
template <class Unit, class Visitor>
void visit_unit(Unit& unit, Visitor&& visit) {
  visit("forward_flops", unit.forward_flops);
  visit("backward_flops", unit.backward_flops);
  visit("attention_forward_flops", unit.attention_forward_flops);
  visit("attention_backward_flops", unit.attention_backward_flops);
  visit("threads_efficiency", unit.threads_efficiency);
}

Json unit_entries(const std::vector<UnitRates>& units) {
  Json entries = Json::array();
  for (const UnitRates& unit : units) {
    Json entry{{"unit", unit.unit}, {"dtype", unit.dtype}, {"hidden", unit.hidden}};
    visit_unit(unit, [&](const char* name, double value) { entry[name] = value; });
    entries.push_back(std::move(entry));
  }
  return entries;
}

// Reads fields of one object and says where a mistake is.
class Reader {
 public:
  Reader(const Json& json, std::string source, std::string place)
      : json_(json), source_(std::move(source)), place_(std::move(place)) {
    if (!json_.is_object()) fail("", "is not an object");
  }

  [[nodiscard]] Reader object(const char* key) const {
    if (!has(key)) fail(key, "is missing");
    return {json_.at(key), source_, name(key)};
  }
  [[nodiscard]] bool has(const char* key) const {
    return json_.contains(key) && !json_.at(key).is_null();
  }
  [[nodiscard]] std::optional<double> rate(const char* key) const {
    if (!has(key)) return std::nullopt;
    const Json& value = json_.at(key);
    if (!value.is_number()) fail(key, "is not a number");
    const auto result = value.get<double>();
    if (!std::isfinite(result) || result <= 0) fail(key, "is not positive");
    return result;
  }
  [[nodiscard]] double required_rate(const char* key) const {
    const std::optional<double> value = rate(key);
    if (!value) fail(key, "is missing");
    return *value;
  }
  [[nodiscard]] int integer(const char* key, int missing) const {
    if (!has(key)) return missing;
    const Json& value = json_.at(key);
    if (!value.is_number_integer() || value.get<double>() < 0 || value.get<double>() > 1e9) {
      fail(key, "is not a count");
    }
    return value.get<int>();
  }
  [[nodiscard]] std::string text(const char* key) const {
    if (!has(key)) return "";
    if (!json_.at(key).is_string()) fail(key, "is not a text");
    return json_.at(key).get<std::string>();
  }
  [[nodiscard]] bool flag(const char* key) const {
    if (!has(key)) return false;
    if (!json_.at(key).is_boolean()) fail(key, "is not true or false");
    return json_.at(key).get<bool>();
  }
  [[nodiscard]] DTypeRates by_dtype(const char* key) const {
    if (!has(key)) return {};
    const Reader rates = object(key);
    return {rates.rate("fp32"), rates.rate("bf16")};
  }
  [[nodiscard]] std::optional<LinkRates> link(const char* key) const {
    if (!has(key)) return std::nullopt;
    const Reader rates = object(key);
    return LinkRates{rates.required_rate("latency_s"), rates.required_rate("bps")};
  }
  [[nodiscard]] const Json& json() const { return json_; }
  [[noreturn]] void fail(const std::string& key, const std::string& what) const {
    const std::string field = key.empty() ? place_ : name(key);
    throw IoError("the rates file " + source_ + " is broken: " +
                      (field.empty() ? std::string("the file") : "'" + field + "'") + " " + what +
                      "; measure again with `sluice doctor`",
                  source_);
  }

 private:
  [[nodiscard]] std::string name(const std::string& key) const {
    return place_.empty() ? key : place_ + "." + key;
  }

  const Json& json_;
  const std::string source_, place_;
};

std::optional<AttentionRates> read_attention(const Reader& operators, const char* name) {
  if (!operators.has(name)) return std::nullopt;
  const Reader entry = operators.object(name);
  AttentionRates rates;
  visit_attention(rates,
                  [&](const char* field, double& value) { value = entry.required_rate(field); });
  return rates;
}

void read_gpu(const Reader& file, MachineRates& rates) {
  if (!file.has("gpu")) return;
  const Reader entry = file.object("gpu");
  GpuRates& gpu = rates.gpu.emplace();
  gpu.name = entry.text("name");
  gpu.count = entry.integer("count", 1);
  gpu.memory_bytes = static_cast<std::int64_t>(entry.rate("memory_bytes").value_or(0));
  gpu.gemm_flops = entry.by_dtype("gemm_flops");
  if (entry.has("gemm_flops")) {
    gpu.gemm_fp16_flops = entry.object("gemm_flops").rate("fp16");
    gpu.gemm_fp8_flops = entry.object("gemm_flops").rate("fp8");
  }
  if (entry.has("attention_flops")) {
    const Reader operators = entry.object("attention_flops");
    gpu.attention_flops = {read_attention(operators, "flash"), read_attention(operators, "cudnn")};
  }
  const double capability = entry.rate("compute_capability").value_or(0);
  gpu.compute_capability = static_cast<int>(std::lround(10 * capability));
  gpu.multiprocessors = entry.integer("multiprocessors", 0);
  visit_gpu(gpu, [&](const char* name, auto& value) { value = entry.rate(name); });
}

void read_lists(const Reader& file, const std::string& source, MachineRates& rates) {
  if (file.has("gemm_by_threads")) {
    const Json& rows = file.json().at("gemm_by_threads");
    if (!rows.is_array()) file.fail("gemm_by_threads", "is not a list");
    for (const Json& row : rows) {
      const Reader entry(row, source, "gemm_by_threads[]");
      rates.gemm_by_threads.push_back(
          {entry.integer("threads", 1), {entry.rate("fp32"), entry.rate("bf16")}});
    }
  }
  if (file.has("units")) {
    const Json& rows = file.json().at("units");
    if (!rows.is_array()) file.fail("units", "is not a list");
    for (const Json& row : rows) {
      const Reader entry(row, source, "units[]");
      UnitRates unit{.unit = entry.text("unit"), .dtype = entry.text("dtype")};
      unit.hidden = entry.integer("hidden", 0);
      if (unit.hidden == 0) entry.fail("hidden", "is not positive");
      visit_unit(unit, [&](const char* name, double& value) { value = entry.required_rate(name); });
      rates.units.push_back(std::move(unit));
    }
  }
  if (file.has("comm_by_transport")) {
    const Reader transports = file.object("comm_by_transport");
    for (const auto& [name, value] : transports.json().items()) {
      if (const auto link = transports.link(name.c_str())) rates.comm_by_transport[name] = *link;
    }
  }
  if (file.has("spread")) {
    const Reader spread = file.object("spread");
    for (const auto& [name, value] : spread.json().items()) {
      if (!value.is_number() || !(value.get<double>() >= 0)) {
        spread.fail(name, "is not a share");
      }
      rates.spread[name] = value.get<double>();
    }
  }
  if (file.has("not_measured")) {
    const Reader reasons = file.object("not_measured");
    for (const auto& [name, value] : reasons.json().items()) {
      rates.not_measured[name] = reasons.text(name.c_str());
    }
  }
}

}  // namespace

std::string machine_rates_json(const MachineRates& rates) {
  Json measured{{"gemm_flops", by_dtype(rates.gemm_flops)},
                {"adam_params_per_s", by_dtype(rates.adam_params_per_s)}};
  visit_rates(rates, [&](const char* name, const auto& value) { measured[name] = number(value); });
  measured["comm"] = link(rates.comm);
  measured["peer"] = link(rates.peer);
  Json threads = Json::array();
  for (const ThreadRates& row : rates.gemm_by_threads) {
    Json entry{{"threads", row.threads}};
    entry.update(by_dtype(row.gemm_flops));
    threads.push_back(std::move(entry));
  }
  Json transports = Json::object();
  for (const auto& [name, value] : rates.comm_by_transport) transports[name] = link(value);
  const Json file{{"format", kFormatName},
                  {"version", kRatesFormat},
                  {"host", rates.host},
                  {"measured_at", rates.measured_at},
                  {"quick", rates.quick},
                  {"threads", rates.threads},
                  {"comm_ranks", rates.comm_ranks},
                  {"nvme_path", rates.nvme_path},
                  {"rates", measured},
                  {"gpu", gpu_json(rates.gpu)},
                  {"gemm_by_threads", threads},
                  {"units", unit_entries(rates.units)},
                  {"comm_by_transport", transports},
                  {"spread", Json(rates.spread)},
                  {"not_measured", Json(rates.not_measured)}};
  return file.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

MachineRates parse_machine_rates(const std::string& text, const std::string& source) {
  const Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (json.is_discarded()) {
    throw IoError("the rates file " + source +
                      " is broken: it is not JSON; measure again with `sluice doctor`",
                  source);
  }
  const Reader file(json, source, "");
  if (file.text("format") != kFormatName) file.fail("format", "is not \"sluice-rates\"");
  if (file.integer("version", 0) != kRatesFormat) {
    file.fail("version", "is not " + std::to_string(kRatesFormat));
  }
  MachineRates rates;
  rates.host = file.text("host");
  rates.measured_at = file.text("measured_at");
  rates.quick = file.flag("quick");
  rates.threads = file.integer("threads", 1);
  rates.comm_ranks = file.integer("comm_ranks", 0);
  rates.nvme_path = file.text("nvme_path");
  const Reader measured = file.object("rates");
  rates.gemm_flops = measured.by_dtype("gemm_flops");
  rates.adam_params_per_s = measured.by_dtype("adam_params_per_s");
  visit_rates(rates, [&](const char* name, auto& value) { value = measured.rate(name); });
  rates.comm = measured.link("comm");
  rates.peer = measured.link("peer");
  read_gpu(file, rates);
  read_lists(file, source, rates);
  return rates;
}

}  // namespace sluice
