#include "runtime/program/program_text.hpp"

#include <algorithm>
#include <array>
#include <cstdio>
#include <utility>
#include <vector>

#include "base/bytes.hpp"
#include "base/index.hpp"

namespace sluice {
namespace {

constexpr std::size_t kColumns = 96;
constexpr std::size_t kRowName = 10;

using Column = std::array<std::string, kLaneCount>;

std::size_t index_of(Lane lane) { return static_cast<std::size_t>(lane); }

// A run of operations drawn together, such as a micro-batch or the update.
struct Stretch {
  std::string title;
  std::vector<Column> columns;
};

std::string numbered(char letter, int number) {
  std::string text(1, letter);
  text += std::to_string(number);
  return text;
}

// Label of a transfer between tiers, with its group, unit or bucket: r and w read and write the
// disk, s leaves the device, f goes to the device.
std::string label_of_move(const Op& op, int first_bucket) {
  const char letter = op.lane == Lane::kToHost     ? 's'
                      : op.lane == Lane::kToDevice ? 'f'
                      : op.kind == OpKind::kReadStates || op.kind == OpKind::kReadGrads ||
                              op.kind == OpKind::kReadShard || op.kind == OpKind::kReadBucket ||
                              op.kind == OpKind::kReadInput
                          ? 'r'
                          : 'w';
  if (op.bucket >= 0) return numbered(letter, op.bucket - first_bucket);
  return numbered(letter, op.unit >= 0 ? op.unit : op.group);
}

// Buckets are counted from the micro-batch's first bucket.
std::string label_of(const Op& op, int first_bucket) {
  switch (op.kind) {
    case OpKind::kGather:
      return numbered('G', op.group);
    case OpKind::kForward:
      return numbered('F', op.unit);
    case OpKind::kLossHead:
      return "L";
    case OpKind::kBackward:
      return numbered('B', op.unit);
    case OpKind::kBackwardWeights:
      return numbered('W', op.unit);
    case OpKind::kAddReplicas:
      return numbered('P', op.group);
    case OpKind::kSendActivation:
      return ">a";
    case OpKind::kReceiveActivation:
      return "<a";
    case OpKind::kSendGradient:
      return ">g";
    case OpKind::kReceiveGradient:
      return "<g";
    case OpKind::kReduceGrads:
      return numbered('R', op.bucket - first_bucket);
    case OpKind::kRoundGrads:
      return numbered('C', op.group);
    case OpKind::kAddGrads:
      return numbered('S', op.group);
    case OpKind::kGatherGrads:
      return numbered('A', op.bucket - first_bucket);
    case OpKind::kMeet:
      return "M";
    case OpKind::kNormAndScale:
      return "N";
    case OpKind::kUpdate:
      return op.chunk >= 0 ? numbered('U', op.group) : "U";
    case OpKind::kSumSquares:
      return numbered('Q', op.group);
    case OpKind::kLoadBatch:
    case OpKind::kRelease:
      return "";
    default:
      return label_of_move(op, first_bucket);
  }
}

template <class Condition>
bool any_op(const Program& program, Condition holds) {
  return std::any_of(program.ops.begin(), program.ops.end(), holds);
}

bool has_messages(const Program& program) {
  return any_op(program, [](const Op& op) { return op.lane == Lane::kPipe; });
}

// Walks the program once and tracks the lanes that are busy at each operation.
class Picture {
 public:
  explicit Picture(const Program& program)
      : program_(program), layer_major_(is_layer_major(program)), staged_(has_messages(program)) {
    stretches_.push_back({"start", {}});
    for (std::size_t i = 0; i < program.ops.size(); ++i) add(static_cast<OpId>(i));
    std::erase_if(stretches_, [](const Stretch& s) { return s.columns.empty(); });
  }

  const std::vector<Stretch>& stretches() const { return stretches_; }

 private:
  // In layer-major order the second batch is loaded before the first loss head.
  static bool is_layer_major(const Program& program) {
    int loads = 0;
    for (const Op& op : program.ops) {
      if (op.kind == OpKind::kLossHead) break;
      loads += op.kind == OpKind::kLoadBatch ? 1 : 0;
    }
    return loads > 1;
  }

  void add(OpId i) {
    const Op& op = nth(program_.ops, i);
    if (op.lane == Lane::kCompute) {
      for (const OpId w : op.waits) finish(w);
    }
    if (staged_) {
      begin_turn(op);
    } else if (op.kind == OpKind::kLoadBatch && layer_major_) {
      if (op.micro_batch == 0) begin("all micro-batches, unit by unit");
    } else if (op.kind == OpKind::kLoadBatch) {
      first_bucket_ = buckets_;
      begin("micro-batch " + std::to_string(op.micro_batch));
    }
    if (op.kind == OpKind::kNormAndScale) begin("update");
    std::string label = label_of(op, first_bucket_);
    std::string& last = last_[index_of(op.lane)];
    const bool repeated = label == last && (op.chunk >= 0 || label == "U");  // chunks of a group
    if (label.empty() || repeated) return;
    last = label;
    if (op.bucket >= 0) buckets_ = std::max(buckets_, op.bucket + 1);
    Column column;
    for (int l = 1; l < kLaneCount; ++l) {
      const auto lane = static_cast<std::size_t>(l);
      if (op.lane == Lane::kCompute && issued_[lane] > over_[lane]) {
        column[lane].assign(label.size(), '-');
      }
    }
    issued_[index_of(op.lane)] = i;
    column[index_of(op.lane)] = std::move(label);
    stretches_.back().columns.push_back(std::move(column));
  }

  // Starts a new stretch of a pipeline stage at each first forward after a backward.
  void begin_turn(const Op& op) {
    const bool forward = op.kind == OpKind::kForward;
    const bool backward = op.kind == OpKind::kBackward || op.kind == OpKind::kLossHead;
    if (forward && !forwards_) {
      first_bucket_ = buckets_;
      begin("from the forward of micro-batch " + std::to_string(op.micro_batch));
    }
    if (forward || backward) forwards_ = forward;
  }

  // Marks an operation as completed, with all operations that it waited for.
  void finish(OpId id) {
    const Op& op = nth(program_.ops, id);
    OpId& over = over_[index_of(op.lane)];
    if (op.lane == Lane::kCompute || id <= over) return;
    over = id;
    for (const OpId w : op.waits) finish(w);
  }

  // Gathers at the start of a step are drawn with the first micro-batch.
  void begin(std::string title) {
    if (stretches_.size() == 1 && stretches_[0].title == "start") {
      stretches_[0].title = std::move(title);
    } else {
      stretches_.push_back({std::move(title), {}});
    }
  }

  const Program& program_;
  const bool layer_major_;
  const bool staged_;
  bool forwards_ = false;  // the last unit operation was a forward
  std::vector<Stretch> stretches_;
  std::array<OpId, kLaneCount> issued_ = filled();  // newest operation of each lane
  std::array<OpId, kLaneCount> over_ = filled();    // newest known to have completed
  std::array<std::string, kLaneCount> last_;        // label drawn last
  int buckets_ = 0;
  int first_bucket_ = 0;

  static std::array<OpId, kLaneCount> filled() {
    std::array<OpId, kLaneCount> none{};
    none.fill(-1);
    return none;
  }
};

void end_row(std::string& text, std::string_view name, std::string row) {
  row.erase(row.find_last_not_of(' ') + 1);
  if (row.empty()) return;
  text.append(name).append(row) += '\n';
}

std::string draw_columns(const std::vector<Column>& columns) {
  std::string text;
  std::array<std::string, kLaneCount> rows;
  const auto flush = [&] {
    for (int l = 0; l < kLaneCount; ++l) {
      std::string name = "  " + std::string(name_of(static_cast<Lane>(l)));
      name.resize(kRowName, ' ');
      end_row(text, name, std::exchange(nth(rows, l), {}));
    }
  };
  for (const Column& column : columns) {
    std::size_t width = 0;
    for (const std::string& cell : column) width = std::max(width, cell.size());
    if (kRowName + rows[0].size() + width > kColumns) flush();
    for (std::size_t l = 0; l < rows.size(); ++l) {
      rows[l] += column[l] + std::string(width + 1 - column[l].size(), ' ');
    }
  }
  flush();
  return text;
}

std::string legend(const Program& program) {
  constexpr std::pair<OpKind, std::string_view> kMeanings[] = {
      {OpKind::kGather, "G gather a group's parameters"},
      {OpKind::kForward, "F forward"},
      {OpKind::kLossHead, "L loss head"},
      {OpKind::kBackward, "B backward"},
      {OpKind::kBackwardWeights, "W its gradients of weights"},
      {OpKind::kReduceGrads, "R reduce-scatter a bucket of gradients"},
      {OpKind::kRoundGrads, "C round (cast) a group's gradients"},
      {OpKind::kAddGrads, "S sum a group's gradient shards"},
      {OpKind::kGatherGrads, "A all-gather it"},
      {OpKind::kAddReplicas, "P add those of other ranks that hold the group"},
      {OpKind::kMeet, "M meet all ranks"},
      {OpKind::kNormAndScale, "N norm"},
      {OpKind::kUpdate, "U update"},
      {OpKind::kSumSquares, "Q sum of squares"}};
  std::string text;
  std::string line;
  for (const auto& [kind, meaning] : kMeanings) {
    if (!any_op(program, [k = kind](const Op& op) { return op.kind == k; })) continue;
    if (line.size() + 2 + meaning.size() > kColumns) text += std::exchange(line, {}) + '\n';
    line += line.empty() ? "" : ", ";
    line += meaning;
  }
  text += line + '\n';
  if (any_op(program, [](const Op& op) { return op.moved_bytes > 0; })) {
    text += "between tiers: s off the device, f to it, r and w at the disk\n";
  }
  if (has_messages(program)) {
    text += "between stages: > sent, < received; a activation, g its gradient\n";
  }
  return text;
}

// Names only the first units and the last one, because blocks are alike.
std::string unit_legend(std::span<const std::string> names) {
  constexpr std::size_t kShown = 3;
  if (names.empty()) return "";
  std::string text = "units:";
  for (std::size_t u = 0; u < names.size(); ++u) {
    const bool last = u + 1 == names.size();
    if (u < kShown || last) {
      text.append(" ").append(std::to_string(u)).append(" ").append(names[u]);
      if (!last) text += ',';
    } else if (u == kShown) {
      text += " ...,";
    }
  }
  return text + '\n';
}

// "3 5-9"
std::string ranges_of(std::vector<OpId> ids) {
  std::sort(ids.begin(), ids.end());
  std::string text;
  for (std::size_t i = 0; i < ids.size();) {
    std::size_t last = i;
    while (last + 1 < ids.size() && ids[last + 1] - ids[last] <= 1) ++last;
    if (!text.empty()) text += ' ';
    text += std::to_string(ids[i]);
    if (ids[last] > ids[i]) text.append("-").append(std::to_string(ids[last]));
    i = last + 1;
  }
  return text;
}

std::string name_with_place(const Op& op) {
  std::string text(op.ahead ? "ReadAhead" : name_of(op.kind));
  if (op.unit >= 0) text += " unit " + std::to_string(op.unit);
  if (op.group >= 0) text += " group " + std::to_string(op.group);
  if (op.bucket >= 0) text += " bucket " + std::to_string(op.bucket);
  if (op.chunk >= 0) text += " chunk " + std::to_string(op.chunk);
  if (op.speculative) text += " early";
  if (op.split) text += " input";
  if (op.recompute) text += " again";
  if (op.accumulate) text += " +=";
  return text;
}

}  // namespace

std::string draw(const Program& program, std::span<const std::string> unit_names) {
  std::string text = legend(program) + unit_legend(unit_names) + list_exchanges(program);
  const Picture picture(program);
  const std::vector<Stretch>& all = picture.stretches();
  for (std::size_t i = 0; i < all.size();) {
    const std::string drawn = draw_columns(all[i].columns);
    std::size_t last = i;
    while (last + 1 < all.size() && draw_columns(all[last + 1].columns) == drawn) ++last;
    text += all[i].title;
    if (last > i) text += ", and the same to " + all[last].title;
    text += '\n' + drawn;
    i = last + 1;
  }
  return text;
}

std::vector<ExchangeUse> exchange_uses(const Program& program) {
  std::vector<ExchangeUse> uses;
  for (const Op& op : program.ops) {
    if (op.exchanges < 0) continue;
    auto use = std::find_if(uses.begin(), uses.end(), [&](const ExchangeUse& known) {
      return known.kind == op.kind && known.exchanges == op.exchanges;
    });
    if (use == uses.end()) use = uses.insert(use, {op.kind, op.exchanges});
    ++use->times;
    const auto place = std::lower_bound(use->units.begin(), use->units.end(), op.unit);
    const bool known = place != use->units.end() && *place == op.unit;
    if (op.unit >= 0 && !known) use->units.insert(place, op.unit);
  }
  return uses;
}

std::string list_exchanges(const Program& program) {
  std::string text;
  for (const ExchangeUse& use : exchange_uses(program)) {
    const std::string units = ranges_of(use.units);
    for (const Exchange& exchange : nth(program.exchanges, use.exchanges)) {
      if (exchange.ranks == ExchangeRanks::kWorld) continue;
      text.append("  ").append(name_of(use.kind));
      if (!units.empty()) text += " " + units;
      text += ": " + describe(exchange) + '\n';
    }
  }
  return text.empty() ? "" : "exchanges inside operations, bytes that a rank sends\n" + text;
}

std::string list(const Program& program) {
  constexpr const char* kLine = "%4s %-7s %-26s %2s %9s %9s %9s  ";
  char line[160];
  std::snprintf(line, sizeof line, kLine, "#", "lane", "operation", "mb", "live", "dead", "held");
  std::string text = std::string(line) + "waits for\n";
  std::int64_t held = 0;
  for (std::size_t i = 0; i < program.ops.size(); ++i) {
    const Op& op = program.ops[i];
    const auto sum = [&](const std::vector<BufferId>& ids) {
      std::int64_t bytes = 0;
      for (const BufferId b : ids) bytes += nth(program.buffers, b).bytes;
      return bytes;
    };
    const auto shown = [](std::int64_t bytes) { return bytes > 0 ? format_bytes(bytes) : "-"; };
    const std::int64_t live = sum(op.live);
    const std::int64_t before = sum(op.dead_before);
    const std::int64_t after = sum(op.dead_after);
    held += live - before;
    const std::string batch = op.micro_batch >= 0 ? std::to_string(op.micro_batch) : "-";
    std::snprintf(line, sizeof line, kLine, std::to_string(i).c_str(),
                  std::string(name_of(op.lane)).c_str(), name_with_place(op).c_str(), batch.c_str(),
                  shown(live).c_str(), shown(before + after).c_str(),
                  shown(held + op.workspace_bytes).c_str());
    text += line + ranges_of(op.waits);
    text.erase(text.find_last_not_of(' ') + 1);
    text += '\n';
    held -= after;
  }
  return text;
}

}  // namespace sluice
