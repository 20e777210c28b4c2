#include "runtime/cli/setup/rank_agreement.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <map>
#include <span>
#include <string_view>
#include <utility>
#include <variant>

#include "base/error.hpp"
#include "base/job_secret.hpp"
#include "configs/schema.hpp"
#include "configs/value.hpp"
#include "parallel/comm/text_exchange.hpp"
#include "runtime/cli/help/version.hpp"

namespace sluice {
namespace {

constexpr std::array<std::string_view, 3> kOfOneHost{"launch.nproc", "launch.threads",
                                                     "launch.max_restarts"};
constexpr std::string_view kVersion = "the program's version";

std::string whether_set(bool set) { return set ? "set" : "not set"; }

// Patterns and names are read as paths are, but do not differ between hosts.
bool is_path(const Rules& rules) {
  return (rules.type == KeyType::kPath || rules.type == KeyType::kPaths) && rules.noun == "path";
}

// The value without what may differ between hosts.
std::string compared_value(const Key& key, const Value& value) {
  if (is_path(key.rules)) {
    const auto* path = std::get_if<std::string>(&value);
    const auto* paths = std::get_if<std::vector<std::string>>(&value);
    return whether_set((path != nullptr && !path->empty()) ||
                       (paths != nullptr && !paths->empty()));
  }
  if (key.rules.type != KeyType::kRecords) return write_value(key.rules, value);
  std::string text;
  for (const Record& record : std::get<std::vector<Record>>(value)) {
    text += "{";
    for (std::size_t i = 0; i < record.values.size(); ++i) {
      const Rules& rules = (*key.rules.fields)[i].rules;
      if (is_path(rules)) continue;
      text += (text.back() == '{' ? "" : ", ") + std::string((*key.rules.fields)[i].name) + ": " +
              write_value(rules, record.values[i]);
    }
    text += "}";
  }
  return "[" + text + "]";
}

std::vector<RankFact> all_facts(const RunConfig& run, const std::vector<RankFact>& more) {
  std::vector<RankFact> facts{{std::string(kVersion), std::string(build_facts().version)}};
  for (const Section& section : schema()) {
    for (const Key& key : section.keys) {
      if (std::find(kOfOneHost.begin(), kOfOneHost.end(), key.path()) != kOfOneHost.end()) continue;
      facts.push_back({key.path(), compared_value(key, key.get(run))});
    }
  }
  facts.insert(facts.end(), more.begin(), more.end());
  return facts;
}

// A name and a value end with a zero byte, which no YAML holds.
std::string facts_text(const std::vector<RankFact>& facts) {
  std::string text;
  for (const RankFact& fact : facts) {
    text.append(fact.name).append(1, '\0').append(fact.value).append(1, '\0');
  }
  return text;
}

std::map<std::string, std::string> read_facts(std::string_view text) {
  const auto next = [&text] {
    const std::string part(text.substr(0, text.find('\0')));
    text.remove_prefix(std::min(part.size() + 1, text.size()));
    return part;
  };
  std::map<std::string, std::string> facts;
  while (!text.empty()) {
    std::string name = next();
    facts[std::move(name)] = next();
  }
  return facts;
}

bool digests_agree(std::string_view text, Communicator& world) {
  const auto mine = sha256(text);
  const std::vector<std::byte> all = world.all_gather_bytes(std::as_bytes(std::span(mine)));
  const auto size = static_cast<std::ptrdiff_t>(mine.size());
  for (auto at = all.begin(); at != all.end(); at += size) {
    if (!std::equal(at, at + size, all.begin())) return false;
  }
  return true;
}

struct Difference {
  std::string name;
  std::string text;  // "rank 1 has train.seed 2, rank 0 has 1"
};

// In the order of the schema. Each names the first rank that differs from rank 0.
std::vector<Difference> differences(const std::vector<RankFact>& mine,
                                    const std::vector<std::string>& texts) {
  std::vector<std::map<std::string, std::string>> ranks;
  for (const std::string& text : texts) ranks.push_back(read_facts(text));
  std::vector<Difference> found;
  for (const RankFact& fact : mine) {
    std::string text;
    int others = -1;
    const std::string& first = ranks.front()[fact.name];
    for (std::size_t r = 1; r < ranks.size(); ++r) {
      const std::string& value = ranks[r][fact.name];
      if (value == first) continue;
      if (++others > 0) continue;
      text =
          "rank " + std::to_string(r) + " has " + fact.name + " " + value + ", rank 0 has " + first;
    }
    if (others < 0) continue;
    if (others > 0) text += " (" + std::to_string(others) + " more differ from rank 0)";
    found.push_back({fact.name, std::move(text)});
    if (fact.name == kVersion) break;  // other versions have other keys
  }
  return found;
}

// The place of the key in this rank's file or arguments; of an argument, the argument.
std::string place_of_first(const LoadedConfig& config, const std::vector<Difference>& found) {
  if (found.empty()) return config.path;
  const std::string& name = found.front().name;
  if (find_key(name) != nullptr) return config.place(name);
  return name.starts_with("--") ? name : config.path;
}

}  // namespace

void check_agreement(const LoadedConfig& config, const std::vector<RankFact>& more,
                     Communicator& world) {
  if (world.size() == 1) return;
  const std::vector<RankFact> facts = all_facts(config.run, more);
  const std::string mine = facts_text(facts);
  if (digests_agree(mine, world)) return;
  const std::vector<Difference> found = differences(facts, exchange_text(world, mine));
  world.barrier();  // no rank leaves while another one still reads
  constexpr std::size_t kShown = 3;
  std::string text;
  for (std::size_t i = 0; i < std::min(kShown, found.size()); ++i) {
    text += (text.empty() ? "" : "; ") + found[i].text;
  }
  if (found.size() > kShown) {
    text += "; and " + std::to_string(found.size() - kShown) + " more differences";
  }
  throw ConfigError(place_of_first(config, found) + ": the ranks differ: " + text +
                    "; start every rank with the same program, configuration, arguments and data");
}

}  // namespace sluice
