#include "configs/migrate/peers/torchtitan.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <string>
#include <tuple>
#include <utility>

#include "base/error.hpp"
#include "configs/migrate/peers/toml_reader.hpp"
#include "configs/migrate/peers/torchtitan_keys.hpp"
#include "configs/migrate/peers/torchtitan_map.hpp"
#include "configs/suggest.hpp"
#include "configs/yaml_tree.hpp"

namespace sluice::migrate {
namespace {

using Kind = HjsonNode::Kind;
using Type = TorchtitanKey::Type;

const TorchtitanKey* find_key_of(std::string_view path) {
  const auto& all = torchtitan_keys();
  const auto found = std::find_if(all.begin(), all.end(),
                                  [&](const TorchtitanKey& key) { return key.path == path; });
  return found == all.end() ? nullptr : &*found;
}

bool is_section(std::string_view path) {
  const std::string begin = std::string(path) + ".";
  const auto& all = torchtitan_keys();
  return std::any_of(all.begin(), all.end(),
                     [&](const TorchtitanKey& key) { return key.path.starts_with(begin); });
}

MigratedKey default_key(std::string_view path) {
  MigratedKey key;
  key.path = path;
  key.is_written = false;
  if (const TorchtitanKey* const row = find_key_of(path)) {
    key.value = row->fallback;
    key.kind = row->kind;
    key.note = row->note;
  }
  return key;
}

std::string_view type_name(Type type) {
  if (type == Type::kBool) return "true or false";
  if (type == Type::kInt) return "a whole number";
  if (type == Type::kFloat) return "a number";
  return type == Type::kText ? "text" : "a list";
}

bool has_type(const HjsonNode& node, Type type) {
  if (type == Type::kBool) return node.kind == Kind::kBool;
  if (type == Type::kInt) return node.kind == Kind::kNumber && !node.is_float;
  if (type == Type::kFloat) return node.kind == Kind::kNumber;
  if (type == Type::kText) return node.kind == Kind::kText;
  return node.kind == Kind::kList || node.kind == Kind::kText;
}

bool is_choice(std::string_view choices, std::string_view word) {
  const std::string all = "," + std::string(choices) + ",";
  return choices.empty() || all.find("," + std::string(word) + ",") != std::string::npos;
}

// "a,b" as "a, b".
std::string with_blanks(std::string_view words) {
  std::string text;
  for (const char c : words) text += c == ',' ? std::string(", ") : std::string(1, c);
  return text;
}

// Former names of keys, and the names that took their place.
constexpr std::array<std::pair<std::string_view, std::string_view>, 8> kRenamed{{
    {"training.compile", "compile.enable"},
    {"training.batch_size", "training.local_batch_size"},
    {"checkpoint.enable_checkpoint", "checkpoint.enable"},
    {"checkpoint.last_save_model_weights_only", "checkpoint.last_save_model_only"},
    {"lr_scheduler.lr_min", "lr_scheduler.min_lr_factor"},
    {"training.warmup_steps", "lr_scheduler.warmup_steps"},
    {"training.seed", "debug.seed"},
    {"training.deterministic", "debug.deterministic"},
}};

class FileWalk {
 public:
  FileWalk(TorchtitanValues& values, PeerMap& map) : values_(values), map_(map) {}

  void run(const HjsonNode& root) {
    for (const TorchtitanKey& row : torchtitan_keys()) {
      const HjsonDocument value = read_hjson("{\"v\": " + std::string(row.fallback) + "}");
      values_.put(row.path, *value.root.find("v"));
    }
    collect(root, "");
    std::sort(found_.begin(), found_.end(), [](const Found& a, const Found& b) {
      return std::tie(a.key.line, a.key.column) < std::tie(b.key.line, b.key.column);
    });
    for (const Found& each : found_) take(each);
  }

 private:
  struct Found {
    std::string path;
    HjsonEntry key;
  };

  void collect(const HjsonNode& object, const std::string& prefix) {
    for (const HjsonEntry& entry : object.entries) {
      const std::string path = prefix + entry.key;
      if (entry.value.kind == Kind::kObject && is_section(path)) {
        collect(entry.value, path + ".");
      } else {
        found_.push_back({path, entry});
      }
    }
  }

  void take(const Found& found) {
    const TorchtitanKey* const row = find_key_of(found.path);
    const HjsonNode& value = found.key.value;
    MigratedKey key = default_key(found.path);
    key.is_written = true;
    key.place = {found.key.line, found.key.column};
    key.value = value.kind == Kind::kObject ? "{}" : to_json(value);
    const bool same = row != nullptr && is_default(value, *row);
    key.stops = row != nullptr && row->kind == KeyClass::kRefused && !same;
    if (row == nullptr) key.kind = KeyClass::kRefused;
    map_.draft().add(std::move(key));
    if (row == nullptr) return map_.error(found.path, unknown(found.path));
    if (found.path == "training.max_norm" && is_infinite(value)) return clip_nothing(value);
    if (!has_type(value, row->type)) {
      return map_.error(found.path, "found " + std::string(kind_name(value.kind)) + ", expected " +
                                        std::string(type_name(row->type)) + "; correct the value");
    }
    constexpr std::int64_t kMost = std::int64_t{1} << 31;
    if (value.integer.value_or(0) >= kMost || value.integer.value_or(0) <= -kMost) {
      return map_.error(found.path, "found " + value.text +
                                        ", expected a number below 2^31; write a smaller number");
    }
    if (!is_choice(row->choices, value.text)) {
      return map_.error(found.path, "found " + in_quotes(value.text) + ", expected one of " +
                                        with_blanks(row->choices) + "; write one of these values");
    }
    values_.put(row->path, value);
    values_.mark_written(row->path);
  }

  // TOML has infinities, which a number of JSON is not. No norm is larger: nothing is clipped.
  static bool is_infinite(const HjsonNode& value) {
    return value.kind == Kind::kText && std::isinf(value.number) && value.number > 0;
  }
  void clip_nothing(HjsonNode value) {
    value.number = 0;  // the text stays what the file says
    values_.put("training.max_norm", value);
    values_.mark_written("training.max_norm");
  }

  [[nodiscard]] bool is_default(const HjsonNode& value, const TorchtitanKey& row) const {
    if (to_json(value) == row.fallback) return true;
    const HjsonDocument fallback = read_hjson("{\"v\": " + std::string(row.fallback) + "}");
    const HjsonNode& node = *fallback.root.find("v");
    return node.kind == Kind::kNumber && value.kind == Kind::kNumber && node.number == value.number;
  }

  static std::string unknown(const std::string& path) {
    if (is_section(path)) return "the name is a section's; write [" + path + "] and its keys";
    for (const auto& [former, name] : kRenamed) {
      if (path == former) return "torchtitan has renamed the key; write " + std::string(name);
    }
    std::vector<std::string_view> names;
    for (const TorchtitanKey& key : torchtitan_keys()) {
      names.push_back(key.path);
      names.push_back(key.path.substr(0, key.path.find('.')));
    }
    const auto near = nearest(path, names);
    return "torchtitan has no such key and stops; " +
           (near ? "did you mean " + std::string(*near) + "?" : std::string("leave the key out"));
  }

  TorchtitanValues& values_;
  PeerMap& map_;
  std::vector<Found> found_;
};

}  // namespace

bool TorchtitanValues::is_written(std::string_view path) const { return written_.contains(path); }

const HjsonNode& TorchtitanValues::at(std::string_view path) const {
  const auto found = values_.find(path);
  if (found == values_.end()) throw Error("no key " + std::string(path) + " in the table");
  return found->second;
}

std::int64_t TorchtitanValues::count(std::string_view path) const {
  return at(path).integer.value_or(0);
}

bool TorchtitanValues::is_null(std::string_view path) const {
  return at(path).kind == HjsonNode::Kind::kNull;
}

Migration migrate_torchtitan(std::string_view text, const TorchtitanOptions& options) {
  Migration result;
  result.file = options.file;
  result.source = "torchtitan";
  result.world = options.world;
  const HjsonDocument document = read_toml(text);
  for (const HjsonProblem& problem : document.problems) {
    result.errors.push_back({"", result.file + ":" + std::to_string(problem.line) + ":" +
                                     std::to_string(problem.column) + ": " + problem.what});
  }
  if (!result.errors.empty()) return result;
  PeerMap map(result, options.settings, default_key);
  TorchtitanValues values;
  FileWalk(values, map).run(document.root);
  map.settle_conditions();
  for (const auto& [path, value] : values.all()) result.effective.emplace(path, to_json(value));
  if (result.errors.empty()) map_torchtitan(values, map, options.world, options.has_model);
  return result;
}

}  // namespace sluice::migrate
