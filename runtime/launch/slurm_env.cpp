#include "runtime/launch/slurm_env.hpp"

#include <algorithm>
#include <charconv>
#include <cstdint>

#include "base/error.hpp"
#include "base/format.hpp"
#include "base/index.hpp"

namespace sluice {
namespace {

constexpr std::size_t kMostHosts = 1 << 20;              // only to catch nonsense
constexpr std::uint64_t kFirstSpecialStep = 4294967280;  // batch, interactive, extern, ...

template <class Int>
std::optional<Int> number(std::string_view text) {
  Int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (text.empty() || error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

[[noreturn]] void refuse_list(std::string_view list) {
  throw ConfigError("SLURM_NODELIST='" + std::string(list) +
                    "' is not a list of hosts such as node[03-05,9],login");
}

// The texts of one bracket: "03-05,9" is 03 04 05 9.
std::vector<std::string> expand_ranges(std::string_view ranges, std::string_view list) {
  std::vector<std::string> texts;
  while (true) {
    const std::string_view item = ranges.substr(0, ranges.find(','));
    const std::string_view low = item.substr(0, item.find('-'));
    const std::string_view high = low.size() < item.size() ? item.substr(low.size() + 1) : low;
    const auto first = number<std::uint64_t>(low);
    const auto last = number<std::uint64_t>(high);
    if (!first || !last || *last < *first || *last - *first >= kMostHosts) refuse_list(list);
    for (std::uint64_t value = *first; value <= *last; ++value) {
      std::string digits = std::to_string(value);
      if (digits.size() < low.size()) digits.insert(0, low.size() - digits.size(), '0');
      texts.push_back(std::move(digits));
    }
    if (item.size() == ranges.size()) return texts;
    ranges.remove_prefix(item.size() + 1);
  }
}

// One entry of the list, with any number of brackets.
std::vector<std::string> expand_name(std::string_view name, std::string_view list) {
  std::vector<std::string> hosts{std::string()};
  while (!name.empty()) {
    const std::size_t open = std::min(name.find('['), name.size());
    if (name.substr(0, open).find(']') != std::string_view::npos) refuse_list(list);
    for (std::string& host : hosts) host += name.substr(0, open);
    name.remove_prefix(open);
    if (name.empty()) break;
    const std::size_t close = name.find(']');
    if (close == std::string_view::npos) refuse_list(list);
    const std::vector<std::string> texts = expand_ranges(name.substr(1, close - 1), list);
    std::vector<std::string> longer;
    if (hosts.size() * texts.size() > kMostHosts) refuse_list(list);
    for (const std::string& host : hosts) {
      for (const std::string& text : texts) longer.push_back(host + text);
    }
    hosts = std::move(longer);
    name.remove_prefix(close + 1);
  }
  return hosts;
}

// End of the entry that begins at this position: a comma outside of brackets.
std::size_t entry_size(std::string_view list) {
  bool inside = false;
  for (std::size_t i = 0; i < list.size(); ++i) {
    if (list[i] == '[') inside = true;
    if (list[i] == ']') inside = false;
    if (list[i] == ',' && !inside) return i;
  }
  return list.size();
}

// Looks variables up and collects their mistakes.
class Slurm {
 public:
  explicit Slurm(const GetEnvironment& get) : get_(get) {}

  // Of the first name that is set.
  [[nodiscard]] std::optional<std::string> text(std::initializer_list<const char*> names) const {
    for (const char* name : names) {
      const char* value = get_(name);
      if (value != nullptr && *value != '\0') return value;
    }
    return std::nullopt;
  }
  std::optional<int> count(std::initializer_list<const char*> names, int low) {
    for (const char* name : names) {
      const auto value = text({name});
      if (!value) continue;
      const auto parsed = number<int>(*value);
      if (parsed && *parsed >= low) return parsed;
      complain(format_text("{}='{}' must be a number, at least {}", name, *value, low));
      return std::nullopt;
    }
    return std::nullopt;
  }
  int needed(std::initializer_list<const char*> names, int low) {
    const auto value = count(names, low);
    if (!value && !text(names)) {
      complain(
          std::string(*(names.end() - 1)) +
          " is not set, but SLURM_PROCID is; start the ranks with srun, or unset SLURM_PROCID");
    }
    return value.value_or(low);
  }
  void complain(const std::string& line) {
    complaints_ += (complaints_.empty() ? "" : "\n") + line;
  }
  void throw_if_any() const {
    if (!complaints_.empty()) throw ConfigError(complaints_);
  }

 private:
  const GetEnvironment& get_;
  std::string complaints_;
};

// A batch script and an interactive shell, from which srun starts tasks, also have srun's
// variables.
bool is_task(const Slurm& slurm) {
  if (!slurm.text({"SLURM_PROCID"})) return false;
  const auto step = slurm.text({"SLURM_STEP_ID", "SLURM_STEPID"});
  if (!step) return slurm.text({"ENVIRONMENT"}) != "BATCH";
  const auto id = number<std::uint64_t>(*step);
  return !id || *id < kFirstSpecialStep;
}

int tasks_of_this_node(Slurm& slurm, int world, int nodes) {
  const auto counts = slurm.text({"SLURM_STEP_TASKS_PER_NODE", "SLURM_TASKS_PER_NODE"});
  const auto node = slurm.count({"SLURM_NODEID"}, 0);
  if (counts && node) {
    const std::vector<int> tasks = expand_task_counts(*counts);
    if (static_cast<std::size_t>(*node) < tasks.size()) {
      return nth(tasks, *node);
    }
    slurm.complain(
        format_text("SLURM_NODEID={} is not a node of the {} of SLURM_TASKS_PER_NODE='{}'", *node,
                    tasks.size(), *counts));
    return 1;
  }
  if (const auto each = slurm.count({"SLURM_NTASKS_PER_NODE"}, 1)) return std::min(*each, world);
  if (world % nodes == 0) return world / nodes;
  slurm.complain(
      format_text("{} tasks are not the same number on each of {} nodes, and SLURM_TASKS_PER_NODE "
                  "with SLURM_NODEID does not say how many this one has; start the ranks with srun",
                  world, nodes));
  return 1;
}

int master_port(Slurm& slurm) {
  constexpr int kLastPort = 65535;
  if (const auto given = slurm.text({"MASTER_PORT"})) {
    const auto port = number<int>(*given);
    if (port && *port >= 1 && *port <= kLastPort) return *port;
    slurm.complain("MASTER_PORT='" + *given + "' must be a port, 1 to 65535");
    return 1;
  }
  const auto job_text = slurm.text({"SLURM_JOB_ID", "SLURM_JOBID"});
  const auto job = number<std::uint64_t>(job_text.value_or(""));
  if (!job) {
    slurm.complain(
        "neither MASTER_PORT nor SLURM_JOB_ID is set; all ranks need the same port: set "
        "MASTER_PORT");
    return 1;
  }
  const auto step =
      number<std::uint64_t>(slurm.text({"SLURM_STEP_ID", "SLURM_STEPID"}).value_or("0"));
  constexpr std::uint64_t kFirst = 10000;
  constexpr std::uint64_t kPorts = 20000;
  return static_cast<int>(kFirst + (*job + step.value_or(0)) % kPorts);
}

void check_places(Slurm& slurm, const RankEnvironment& rank, int nodes) {
  const auto below = [&slurm](const std::string& a, int x, const std::string& b, int y) {
    if (x < y) return;
    slurm.complain(format_text("{}={} must be below {}={}", a, x, b, y));
  };
  below("SLURM_PROCID", rank.rank, "SLURM_NTASKS", rank.world_size);
  below("SLURM_LOCALID", rank.local_rank, "the tasks of this node", rank.local_world_size);
  if (rank.local_world_size > rank.world_size) {
    slurm.complain(format_text("this node's {} tasks are more than SLURM_NTASKS={}",
                               rank.local_world_size, rank.world_size));
  }
  if (nodes == 1 && rank.local_world_size != rank.world_size) {
    slurm.complain(
        format_text("SLURM_NODELIST names one node, which has {} of SLURM_NTASKS={} tasks",
                    rank.local_world_size, rank.world_size));
  }
}

}  // namespace

std::vector<std::string> expand_host_list(std::string_view list) {
  const std::string_view whole = list;
  std::vector<std::string> hosts;
  while (true) {
    const std::size_t size = entry_size(list);
    const std::string_view entry = list.substr(0, size);
    if (entry.empty() || entry.find(' ') != std::string_view::npos) refuse_list(whole);
    for (std::string& host : expand_name(entry, whole)) hosts.push_back(std::move(host));
    if (hosts.size() > kMostHosts) refuse_list(whole);
    if (size == list.size()) return hosts;
    list.remove_prefix(size + 1);
  }
}

std::vector<int> expand_task_counts(std::string_view counts) {
  const std::string_view whole = counts;
  const auto refuse = [whole]() -> std::vector<int> {
    throw ConfigError("SLURM_TASKS_PER_NODE='" + std::string(whole) +
                      "' is not a list of counts such as 4(x2),1");
  };
  std::vector<int> tasks;
  while (true) {
    const std::string_view item = counts.substr(0, counts.find(','));
    const std::string_view each = item.substr(0, item.find('('));
    std::string_view times = item.substr(each.size());
    if (!times.empty()) {
      if (!times.starts_with("(x") || !times.ends_with(")")) return refuse();
      times = times.substr(2, times.size() - 3);
    }
    const auto value = number<int>(each);
    const auto repeated = each.size() == item.size() ? std::optional<int>(1) : number<int>(times);
    if (!value || *value < 1 || !repeated || *repeated < 1) return refuse();
    if (tasks.size() + static_cast<std::size_t>(*repeated) > kMostHosts) return refuse();
    tasks.insert(tasks.end(), static_cast<std::size_t>(*repeated), *value);
    if (item.size() == counts.size()) return tasks;
    counts.remove_prefix(item.size() + 1);
  }
}

std::optional<RankEnvironment> slurm_rank_environment(const GetEnvironment& get) {
  Slurm slurm(get);
  if (!is_task(slurm)) return std::nullopt;
  RankEnvironment result;
  result.rank = slurm.needed({"SLURM_PROCID"}, 0);
  result.world_size = slurm.needed({"SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"}, 1);
  result.local_rank = slurm.needed({"SLURM_LOCALID"}, 0);
  const auto list = slurm.text({"SLURM_STEP_NODELIST", "SLURM_NODELIST", "SLURM_JOB_NODELIST"});
  if (!list) {
    slurm.complain("SLURM_NODELIST is not set, but SLURM_PROCID is; start the ranks with srun");
  }
  slurm.throw_if_any();
  const std::vector<std::string> hosts = expand_host_list(list.value_or(""));
  const int nodes = static_cast<int>(hosts.size());
  result.local_world_size = tasks_of_this_node(slurm, result.world_size, nodes);
  result.master_addr = slurm.text({"MASTER_ADDR"}).value_or(hosts.front());
  result.master_port = master_port(slurm);
  slurm.throw_if_any();
  check_places(slurm, result, nodes);
  slurm.throw_if_any();
  return result;
}

}  // namespace sluice
