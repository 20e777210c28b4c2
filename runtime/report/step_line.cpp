// Reads a line of metrics.jsonl without building a tree of its values: a long run has millions.
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "runtime/report/step_columns.hpp"

namespace sluice {
namespace {

using Sax = nlohmann::json_sax<nlohmann::json>;

// The values of one object, and of the objects inside it, by key. Deeper ones are passed over.
class StepHandler final : public Sax {
 public:
  explicit StepHandler(StepLine& line) : line_(line) {}

  [[nodiscard]] bool is_object() const { return is_object_; }

  bool null() override { return take(std::numeric_limits<double>::quiet_NaN()); }
  bool boolean(bool value) override {
    if (depth_ == 1 && key_ == "skipped") line_.skipped = value;
    return true;
  }
  bool number_integer(number_integer_t value) override { return whole(value); }
  bool number_unsigned(number_unsigned_t value) override {
    constexpr auto kMost = static_cast<number_unsigned_t>(std::numeric_limits<std::int64_t>::max());
    return whole(static_cast<std::int64_t>(std::min(value, kMost)));
  }
  bool number_float(number_float_t value, const string_t&) override { return take(value); }
  bool string(string_t&) override { return true; }
  bool binary(binary_t&) override { return true; }
  bool start_object(std::size_t) override {
    is_object_ = is_object_ || depth_ == 0;
    if (depth_ == 1) outer_ = key_ + ".";
    ++depth_;
    return true;
  }
  bool end_object() override {
    if (--depth_ == 1) outer_.clear();
    return true;
  }
  bool start_array(std::size_t) override {
    depth_ += 1;
    return true;
  }
  bool end_array() override {
    depth_ -= 1;
    return true;
  }
  bool key(string_t& name) override {
    if (depth_ <= 2) key_ = outer_ + name;
    return true;
  }
  bool parse_error(std::size_t, const std::string&, const nlohmann::detail::exception&) override {
    return false;
  }

 private:
  bool whole(std::int64_t value) {
    if (depth_ == 1 && key_ == "step") line_.step = value;
    if (depth_ == 1 && key_ == "tokens") line_.tokens = value;
    return take(static_cast<double>(value));
  }

  bool take(double value) {
    if (depth_ < 1 || depth_ > 2) return true;
    for (std::size_t c = 0; c < kChannels; ++c) {
      if (key_of(static_cast<Channel>(c)) != key_) continue;
      line_.values.at(c) = static_cast<float>(value);
      return true;
    }
    if (key_ == "eval_loss") line_.eval_loss = value;
    if (key_ == "checkpoint_ms") line_.checkpoint_ms = value;
    if (outer_ == "eval_losses.") line_.eval_sets.emplace_back(key_.substr(outer_.size()), value);
    return true;
  }

  StepLine& line_;
  bool is_object_ = false;
  int depth_ = 0;
  std::string outer_;  // "timers_ms." inside an object
  std::string key_;    // with outer_ before it
};

}  // namespace

bool parse_step_line(std::string_view text, StepLine& line) {
  line.step = 0;
  line.tokens = 0;
  line.skipped = false;
  line.values.fill(std::numeric_limits<float>::quiet_NaN());
  line.checkpoint_ms = 0;
  line.eval_loss = std::numeric_limits<double>::quiet_NaN();
  line.eval_sets.clear();
  StepHandler handler(line);
  const bool parsed = nlohmann::json::sax_parse(text, &handler);
  return parsed && handler.is_object() && line.step >= 1;
}

}  // namespace sluice
