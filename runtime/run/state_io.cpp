#include "runtime/run/state_io.hpp"

#include <algorithm>
#include <map>

#include "base/error.hpp"
#include "kernels/cpu/cast.hpp"

namespace sluice {
namespace {

DType held_as(const StatePiece& piece, StateKind kind) {
  return kind == StateKind::kMaster ? piece.master : piece.moments;
}

// Calls f(first, elems) over a piece, at most `at_once` elements a call.
template <class F>
void in_parts(const StatePiece& piece, std::size_t at_once, F&& f) {
  const auto step = static_cast<std::int64_t>(at_once);
  for (std::int64_t first = 0; first < piece.elems(); first += step) {
    f(first, std::min(step, piece.elems() - first));
  }
}

// Calls f(range, dtype held, part) for all states of the pieces, in the order of ranges_of.
template <class F>
void read_parts(Engine& engine, const std::vector<StatePiece>& pieces, std::span<float> staging,
                F&& f) {
  std::size_t range = 0;
  for (const StatePiece& piece : pieces) {
    for (const StateKind kind : piece.states) {
      in_parts(piece, staging.size(), [&](std::int64_t first, std::int64_t elems) {
        const std::span<float> part = staging.first(static_cast<std::size_t>(elems));
        engine.read_state(piece, kind, first, part);
        f(range, held_as(piece, kind), part);
      });
      ++range;
    }
  }
}

ModelSpec whole_of(const ModelSpec& spec) {
  const bool part = spec.part.tensor > 1 || spec.part.stages > 1;
  return part ? make_model_spec(spec.options) : spec;
}

std::string difference_of(const std::map<std::string, std::vector<std::int64_t>>& here,
                          const std::map<std::string, std::vector<std::int64_t>>& there) {
  for (const auto& [name, shape] : here) {
    const auto saved = there.find(name);
    if (saved == there.end()) return name + " is not in the checkpoint";
    if (saved->second != shape) {
      return name + " is " + shape_text(saved->second) + " in the checkpoint, " +
             shape_text(shape) + " here";
    }
  }
  for (const auto& [name, shape] : there) {
    if (here.count(name) == 0) return name + " of the checkpoint is not in the model";
  }
  return "";
}

}  // namespace

std::vector<StateRange> ranges_of(const std::vector<StatePiece>& pieces) {
  std::vector<StateRange> ranges;
  for (const StatePiece& piece : pieces) {
    for (const StateKind kind : piece.states) {
      ranges.push_back({.param = piece.name,
                        .kind = kind,
                        .dtype = tensor_dtype(held_as(piece, kind)),
                        .shape = piece.shape,
                        .box = piece.box,
                        .begin = piece.begin,
                        .end = piece.end});
    }
  }
  return ranges;
}

void write_states(Engine& engine, const std::vector<StatePiece>& pieces, RankWriter& writer,
                  std::span<float> staging, const StateProgress& progress) {
  std::vector<std::byte> narrow;
  std::int64_t done = 0;
  read_parts(engine, pieces, staging,
             [&](std::size_t range, DType dtype, std::span<const float> part) {
               std::span<const std::byte> bytes = std::as_bytes(part);
               if (dtype != DType::kFloat32) {  // exact: the values come from this type
                 const auto elems = static_cast<std::int64_t>(part.size());
                 narrow.resize(static_cast<std::size_t>(elems * size_of(dtype)));
                 convert(narrow.data(), dtype, part.data(), DType::kFloat32, elems);
                 bytes = narrow;
               }
               writer.write(range, bytes);
               done += static_cast<std::int64_t>(bytes.size());
               progress(done);
             });
}

void copy_states(Engine& engine, const std::vector<StatePiece>& pieces,
                 std::span<std::byte> snapshot, std::span<float> staging) {
  check(static_cast<std::int64_t>(snapshot.size()) == bytes_of(pieces),
        "a snapshot is of the pieces' size");
  std::byte* to = snapshot.data();
  read_parts(engine, pieces, staging,
             [&](std::size_t /*range*/, DType dtype, std::span<const float> part) {
               const auto elems = static_cast<std::int64_t>(part.size());
               convert(to, dtype, part.data(), DType::kFloat32, elems);
               to += elems * size_of(dtype);
             });
}

void write_snapshot(const std::vector<StatePiece>& pieces, std::span<const std::byte> snapshot,
                    RankWriter& writer, const StateProgress& progress) {
  constexpr std::size_t kAtOnce = std::size_t{4} << 20;
  std::size_t range = 0;
  std::size_t at = 0;
  for (const StatePiece& piece : pieces) {
    for (const StateKind kind : piece.states) {
      const std::size_t end =
          at + static_cast<std::size_t>(piece.elems() * size_of(held_as(piece, kind)));
      while (at < end) {
        const std::size_t bytes = std::min(kAtOnce, end - at);
        writer.write(range, snapshot.subspan(at, bytes));
        at += bytes;
        progress(static_cast<std::int64_t>(at));
      }
      ++range;
    }
  }
}

bool has_moments(const Checkpoint& checkpoint) {
  const std::vector<StateRange>& params = checkpoint.parameters();
  return std::any_of(params.begin(), params.end(), [&](const StateRange& param) {
    return checkpoint.has(param.param, StateKind::kMoment1);
  });
}

TrainedMoments trained_moments(const ModelSpec& spec, const Checkpoint& checkpoint) {
  TrainedMoments moments;
  const ModelSpec whole = whole_of(spec);
  for (const ParamGroup& group : whole.groups) {
    if (group.frozen) continue;
    for (const ParamSpec& param : group.params) {
      ++(checkpoint.has(param.tensor.name, StateKind::kMoment1) ? moments.held : moments.missing);
    }
  }
  return moments;
}

void check_same_model(const ModelSpec& spec, const Checkpoint& checkpoint) {
  std::map<std::string, std::vector<std::int64_t>> here;
  const ModelSpec whole = whole_of(spec);
  for (const ParamGroup& group : whole.groups) {
    for (const ParamSpec& param : group.params) here[param.tensor.name] = param.tensor.shape;
  }
  std::map<std::string, std::vector<std::int64_t>> there;
  for (const StateRange& param : checkpoint.parameters()) there[param.param] = param.shape;
  const std::string difference = difference_of(here, there);
  if (difference.empty()) return;
  throw ConfigError("--resume: " + checkpoint.path() + " is of another model: " + difference +
                    "; resume with the checkpoint's own model (the checkpoint keeps its "
                    "configuration), or start anew with --resume never and another checkpoint.dir");
}

void read_states(Engine& engine, const std::vector<StatePiece>& pieces, Checkpoint& checkpoint,
                 const ReadMemory& memory, const StateProgress& progress) {
  std::int64_t done = 0;
  std::vector<StateRange> wanted;
  std::vector<const StatePiece*> piece_of;  // by wanted range
  for (const StatePiece& piece : pieces) {
    for (const StateKind kind : piece.states) {
      if (kind == StateKind::kMaster || checkpoint.has(piece.name, kind)) {
        StateRange range = whole_range(piece.name, kind, TensorDType::kF32, piece.shape);
        range.box = piece.box;
        range.begin = piece.begin;
        range.end = piece.end;
        wanted.push_back(std::move(range));
        piece_of.push_back(&piece);
        continue;
      }
      in_parts(piece, memory.staging.size(), [&](std::int64_t first, std::int64_t elems) {
        const std::span<float> part = memory.staging.first(static_cast<std::size_t>(elems));
        std::fill(part.begin(), part.end(), 0.0F);  // overwrites values of a damaged checkpoint
        engine.write_state(piece, kind, first, part);
        progress(done);
      });
    }
  }
  const std::span<std::byte> staging = std::as_writable_bytes(memory.staging);
  checkpoint.read_in_parts(wanted, staging, memory.ahead, [&](const StatePart& part) {
    const auto elems = static_cast<std::size_t>(part.elems);
    engine.write_state(*piece_of[part.wanted], wanted[part.wanted].kind, part.first,
                       memory.staging.first(elems));
    done += part.elems * 4;
    progress(done);
  });
}

}  // namespace sluice
