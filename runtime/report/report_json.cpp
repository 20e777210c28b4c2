#include "runtime/report/report_json.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <nlohmann/json.hpp>
#include <span>

#include "runtime/page/page.hpp"
#include "runtime/report/downsample.hpp"

namespace sluice {

std::string_view report_page_body();
std::string_view report_page_script();

namespace {

using Json = nlohmann::ordered_json;

std::string dump(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

// Numbers are most of a page: they are written without a tree of values. Fewest digits that read
// back as the same number.
template <class T>
void put(std::string& out, T value) {
  if constexpr (std::is_floating_point_v<T>) {
    if (!std::isfinite(value)) {
      out += "null";
      return;
    }
  }
  std::array<char, 40> digits;
  const auto end = std::to_chars(digits.data(), digits.data() + digits.size(), value).ptr;
  out.append(digits.data(), end);
}

template <class Values, class F>
std::string list(const Values& values, const F& of) {
  std::string out = "[";
  for (const auto& value : values) {
    if (out.size() > 1) out += ',';
    put(out, of(value));
  }
  return out + "]";
}
template <class Values>
std::string list(const Values& values) {
  return list(values, [](const auto& value) { return value; });
}

// The last step of each bin.
template <class T>
std::string bin_ends(const std::vector<T>& values, std::size_t per_bin) {
  std::string out = "[";
  for (std::size_t begin = 0; begin < values.size(); begin += per_bin) {
    if (out.size() > 1) out += ',';
    put(out, values[std::min(begin + per_bin, values.size()) - 1]);
  }
  return out + "]";
}

std::string curve_json(const Curve& curve) {
  if (curve.constant) {
    std::string out = "{\"constant\":";
    put(out, curve.mean.front());
    return out + "}";
  }
  std::string out = "{\"mean\":" + list(curve.mean);
  if (!curve.least.empty()) {
    out += ",\"least\":" + list(curve.least) + ",\"most\":" + list(curve.most);
  }
  return out + "}";
}

std::string curves_json(const StepColumns& steps, std::size_t per_bin) {
  std::string out = "{";
  for (std::size_t c = 0; c < kChannels; ++c) {
    const auto channel = static_cast<Channel>(c);
    const Curve curve = downsample(steps.of(channel), per_bin);
    if (!curve.known) continue;
    if (out.size() > 1) out += ',';
    out.append("\"").append(key_of(channel)).append("\":").append(curve_json(curve));
  }
  return out + "}";
}

// Places of single steps on each axis.
template <class Items, class F>
std::string places_json(const StepColumns& steps, const Items& items, const F& step_of) {
  const auto at = [&](const auto& item) { return steps.index_of(step_of(item)); };
  const auto tokens = [&](const auto& item) {
    return at(item) < steps.size() ? steps.tokens[at(item)] : std::int64_t{0};
  };
  const auto seconds = [&](const auto& item) {
    return at(item) < steps.size() ? steps.seconds[at(item)] : 0.0;
  };
  return "{\"step\":" + list(items, step_of) + ",\"tokens\":" + list(items, tokens) +
         ",\"seconds\":" + list(items, seconds) + "}";
}

std::string evaluations_json(const StepColumns& steps) {
  const auto step_of = [](const Evaluation& e) { return e.step; };
  std::string out = "{\"x\":" + places_json(steps, steps.evaluations, step_of) + ",\"loss\":" +
                    list(steps.evaluations, [](const Evaluation& e) { return e.loss; });
  std::vector<std::string> names;
  for (const Evaluation& e : steps.evaluations) {
    for (const auto& [name, loss] : e.sets) {
      if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
    }
  }
  out += ",\"sets\":{";
  for (const std::string& name : names) {
    if (name != names.front()) out += ',';
    out += dump(name) + ":" + list(steps.evaluations, [&name](const Evaluation& e) {
             for (const auto& [set, loss] : e.sets) {
               if (set == name) return loss;
             }
             return std::nan("");
           });
  }
  return out + "}}";
}

std::string marks_json(const RunData& run) {
  std::int64_t left_out = 0;
  const std::vector<Mark> marks = marks_of(run, left_out);
  Json list_of = Json::array();
  for (const Mark& mark : marks) {
    Json json{{"kind", mark.kind}, {"text", mark.text}};
    if (mark.unix_seconds > 0) json["time"] = mark.unix_seconds;
    list_of.push_back(std::move(json));
  }
  return "{\"left_out\":" + std::to_string(left_out) + ",\"list\":" + dump(list_of) +
         ",\"x\":" + places_json(run.steps, marks, [](const Mark& mark) { return mark.step; }) +
         "}";
}

Json plan_json_of(const PlanFigures& figures) {
  Json plan{{"step_ms", figures.step_ms}, {"tiers", Json::array()}};
  for (const PlannedTier& tier : figures.tiers) {
    Json tags = Json::object();
    for (const auto& [tag, bytes] : tier.by_tag) tags[tag] = bytes;
    plan["tiers"].push_back(
        {{"name", tier.name}, {"peak", tier.peak}, {"budget", tier.budget}, {"by_tag", tags}});
  }
  return plan;
}

// Medians over all steps, which the downsampled curves do not give.
Json medians_json(const StepColumns& steps) {
  Json medians = Json::object();
  for (const Channel channel :
       {Channel::kTokensPerSecond, Channel::kMfu, Channel::kMfuOfCard, Channel::kStepMs,
        Channel::kForward, Channel::kBackward, Channel::kComm, Channel::kOptimizer, Channel::kIo,
        Channel::kData}) {
    const float value = median(steps.of(channel));
    if (!std::isnan(value)) medians[std::string(key_of(channel))] = value;
  }
  return medians;
}

std::string run_json(const RunData& run) {
  const std::size_t per_bin = steps_per_bin(run.steps.size());
  Json damage = Json::array();
  for (const Damage& found : run.damage) damage.push_back(found.text());
  Json json{{"name", run.name},
            {"folder", run.folder},
            {"steps", run.steps.size()},
            {"per_bin", per_bin},
            {"has_events", run.has_events},
            {"damage", damage},
            {"damaged", run.damaged()},
            {"medians", medians_json(run.steps)}};
  if (run.plan) json["plan"] = plan_json_of(*run.plan);
  std::string out = dump(json);
  out.pop_back();
  const std::vector<std::int64_t>& steps = run.steps.step;
  out += ",\"first_step\":" + std::to_string(steps.empty() ? 0 : steps.front());
  out += ",\"x\":{\"step\":" + bin_ends(steps, per_bin) +
         ",\"tokens\":" + bin_ends(run.steps.tokens, per_bin) + ",\"seconds\":";
  std::vector<float> seconds(run.steps.seconds.begin(), run.steps.seconds.end());
  out += bin_ends(seconds, per_bin) + "},\"curves\":" + curves_json(run.steps, per_bin) +
         ",\"evaluations\":" + evaluations_json(run.steps) + ",\"marks\":" + marks_json(run);
  if (!run.timeline.empty()) {
    out += std::string(",\"timeline_measured\":") + (run.timeline_measured ? "true" : "false") +
           ",\"timeline\":" + run.timeline;
  }
  return out + "}";
}

Json config_json(const std::vector<const RunData*>& runs) {
  std::vector<std::vector<ConfigLine>> configs;
  configs.reserve(runs.size());
  for (const RunData* run : runs) configs.push_back(run->config);
  Json rows = Json::array();
  std::int64_t equal = 0;
  for (const ConfigRow& row : compare_configs(configs)) {
    equal += row.differs ? 0 : 1;
    if (runs.size() > 1 && !row.differs) continue;
    Json cells = Json::array();
    for (const ConfigLine& line : row.of) {
      cells.push_back(line.key.empty() ? Json::array() : Json::array({line.value, line.origin}));
    }
    rows.push_back({{"key", row.key}, {"cells", std::move(cells)}});
  }
  return {{"equal", equal}, {"rows", std::move(rows)}};
}

}  // namespace

std::string runs_json(const std::vector<const RunData*>& runs) {
  std::string out = "{\"runs\":[";
  for (const RunData* run : runs) {
    if (run != runs.front()) out += ',';
    out += run_json(*run);
  }
  return out + "],\"config\":" + dump(config_json(runs)) + "}";
}

std::string runs_page(const std::vector<const RunData*>& runs, bool follows) {
  std::string title = "run " + runs.front()->name;
  if (runs.size() > 1) title = std::to_string(runs.size()) + " runs";
  return make_page({.title = title,
                    .command = "sluice report",
                    .body = report_page_body(),
                    .scripts = {curves_script(), timeline_script(), report_page_script()},
                    .json = runs_json(runs),
                    .text = runs_text(runs),
                    .follows = follows});
}

}  // namespace sluice
