// A machine's profile as it is read (machine_profile.cpp).
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "base/bytes.hpp"
#include "base/error.hpp"
#include "runtime/plan/machine_profile.hpp"

namespace sluice {

// The fields of a profile's JSON object. A function overwrites `value` where the file has the
// field; null means not measured. Each throws ConfigError with the source and the field.
class ProfileFields {
 public:
  using Json = nlohmann::json;

  ProfileFields(const Json& json, std::string source) : json_(json), source_(std::move(source)) {}

  void number(const char* key, double& value) const {
    if (const Json* field = find(json_, key)) value = positive(*field, key);
  }
  void bytes(const char* key, std::int64_t& value) const {
    auto number_of = static_cast<double>(value);
    number(key, number_of);
    value = static_cast<std::int64_t>(number_of);
  }
  void count(const char* key, int& value) const {
    if (const Json* field = find(json_, key)) {
      if (!field->is_number_integer() || field->get<double>() < 0 || field->get<double>() > 1e6) {
        fail(key, "is not a count");
      }
      value = field->get<int>();
    }
  }
  void by_dtype(const char* key, RateByDType& value) const {
    const Json* field = find(json_, key);
    if (field == nullptr) return;
    if (!field->is_object()) fail(key, "is not an object");
    if (const Json* fp32 = find(*field, "fp32")) value.fp32 = positive(*fp32, key);
    if (const Json* bf16 = find(*field, "bf16")) value.bf16 = positive(*bf16, key);
    if (const Json* fp8 = find(*field, "fp8")) value.fp8 = positive(*fp8, key);
  }
  // Refuses a file whose `key` is below `least` for a dtype. `least` may come from the base
  // profile.
  void at_least(const char* key, const RateByDType& value, const char* least_key,
                const RateByDType& least) const {
    if (find(json_, key) == nullptr) return;
    const auto compare = [&](const char* dtype, double given, double bound) {
      if (given == 0 || bound <= given) return;
      fail(key, std::string("has ") + format_count(given) + " for " + dtype + ", less than the " +
                    format_count(bound) + " of " + least_key);
    };
    compare("fp32", value.fp32, least.fp32);
    compare("bf16", value.bf16, least.bf16);
    compare("fp8", value.fp8, least.fp8);
  }
  void attention(const char* key, AttentionFlops& value) const {
    const Json* field = find(json_, key);
    if (field == nullptr) return;
    if (!field->is_object()) fail(key, "is not an object of flash and cudnn");
    value = {attention_rates(*field, "flash", key), attention_rates(*field, "cudnn", key)};
  }
  void link(const char* key, double& latency_s, double& bps) const {
    const Json* field = find(json_, key);
    if (field == nullptr) return;
    if (!field->is_object()) fail(key, "is not an object");
    if (const Json* latency = find(*field, "latency_s")) {
      if (!latency->is_number() || latency->get<double>() < 0) fail(key, "has no usable latency_s");
      latency_s = latency->get<double>();
    }
    if (const Json* rate = find(*field, "bps")) bps = positive(*rate, key);
  }
  // Refuses unknown keys, which may be misspelt figures.
  void refuse_others(std::initializer_list<std::string_view> known) const {
    for (const auto& [key, value] : json_.items()) {
      if (std::find(known.begin(), known.end(), key) == known.end()) {
        fail(key.c_str(), "is no figure of a machine");
      }
    }
  }
  void text(const char* key, std::string& value) const {
    if (const Json* field = find(json_, key); field != nullptr && field->is_string()) {
      value = field->get<std::string>();
    }
  }
  void flag(const char* key, bool& value) const {
    if (const Json* field = find(json_, key); field != nullptr && field->is_boolean()) {
      value = field->get<bool>();
    }
  }

 private:
  static const Json* find(const Json& object, const char* key) {
    const auto it = object.find(key);
    return it == object.end() || it->is_null() ? nullptr : &*it;
  }
  [[nodiscard]] std::optional<AttentionRates> attention_rates(const Json& operators,
                                                              const char* name,
                                                              const char* key) const {
    const Json* rates = find(operators, name);
    if (rates == nullptr) return std::nullopt;
    AttentionRates known;
    visit_attention(known, [&](const char* field, double& rate) {
      const Json* found = rates->is_object() ? find(*rates, field) : nullptr;
      if (found == nullptr) fail(key, std::string("has no ") + name + "." + field);
      rate = positive(*found, key);
    });
    return known;
  }
  double positive(const Json& field, const char* key) const {
    if (!field.is_number()) fail(key, "is not a number");
    const auto value = field.get<double>();
    if (!std::isfinite(value) || value <= 0) fail(key, "is not above 0");
    return value;
  }
  [[noreturn]] void fail(const char* key, const std::string& what) const {
    throw ConfigError(source_ + ": '" + key + "' " + what +
                      "; correct the file, or measure this machine with `sluice doctor`");
  }

  const Json& json_;
  std::string source_;
};

}  // namespace sluice
