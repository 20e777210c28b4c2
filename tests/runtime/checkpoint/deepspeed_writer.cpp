#include "tests/runtime/checkpoint/deepspeed_writer.hpp"

#include <algorithm>
#include <bit>
#include <deque>
#include <fstream>
#include <span>

#include "tests/runtime/checkpoint/torch_writer.hpp"

namespace sluice::testing {
namespace {

constexpr const char* kStates[] = {"fp32", "exp_avg", "exp_avg_sq"};

// The body of a torch file and its storages.
class Body {
 public:
  std::string tensor(const std::vector<float>& values, const std::vector<std::int64_t>& shape) {
    storages_.push_back(values);
    return pickled_tensor({shape, {}, storages_.back()}, std::to_string(storages_.size() - 1));
  }
  std::string vector(const std::vector<float>& values, std::int64_t length) {
    return tensor(values, {length});
  }
  void write(const std::string& path, const std::string& body) const {
    std::vector<std::span<const float>> spans(storages_.begin(), storages_.end());
    std::ofstream(path, std::ios::binary) << torch_file(body, spans);
  }

 private:
  std::deque<std::vector<float>> storages_;
};

std::string pickled_size(const std::vector<std::int64_t>& shape) {
  std::string dims;
  for (const std::int64_t dim : shape) dims += pickled_int(static_cast<std::int32_t>(dim));
  return "ctorch\nSize\n(" + dims + "t\x85R";
}

std::string ordered(const std::string& entries) {
  return "ccollections\nOrderedDict\n)R" + entries;
}

std::int64_t up(std::int64_t value, std::int64_t to) { return (value + to - 1) / to * to; }

// Elements of padding behind parameter `i` of a group, whose next one begins at a multiple.
std::int64_t padding(const WrittenZero& zero, std::size_t group, std::size_t i, std::int64_t end) {
  return i + 1 == zero.groups[group].size() ? 0 : up(end, zero.align) - end;
}

// A group's elements of one state one after another, without the padding at the end.
std::vector<float> whole_group(const WrittenZero& zero, std::size_t group, const char* state) {
  std::vector<float> flat;
  for (std::size_t i = 0; i < zero.groups[group].size(); ++i) {
    const WrittenParam& param = zero.groups[group][i];
    for (std::int64_t e = 0; e < param.elems(); ++e) {
      flat.push_back(written_element(param.name, state, e));
    }
    flat.resize(flat.size() + static_cast<std::size_t>(
                                  padding(zero, group, i, static_cast<std::int64_t>(flat.size()))),
                -1.0F);
  }
  return flat;
}

std::vector<float> stage3_part(const std::vector<WrittenParam>& params, int rank, int world,
                               const char* state) {
  std::vector<float> flat;
  for (const WrittenParam& param : params) {
    const std::int64_t each = up(param.elems(), world) / world;
    for (std::int64_t e = rank * each; e < (rank + 1) * each; ++e) {
      flat.push_back(e < param.elems() ? written_element(param.name, state, e) : -1.0F);
    }
  }
  return flat;
}

// The part of a rank, of equal size on each, and its length without the padding.
std::pair<std::vector<float>, std::int64_t> own_part(const WrittenZero& zero, std::size_t group,
                                                     int rank, const char* state) {
  if (zero.stage == 3) {
    auto flat = stage3_part(zero.groups[group], rank, zero.world, state);
    const auto length = static_cast<std::int64_t>(flat.size());
    return {std::move(flat), length};
  }
  std::vector<float> flat = whole_group(zero, group, state);
  const auto elems = static_cast<std::int64_t>(flat.size());
  const std::int64_t size = up(elems, 2 * zero.world) / zero.world;
  flat.resize(static_cast<std::size_t>(size * zero.world), -1.0F);
  return {{flat.begin() + rank * size, flat.begin() + (rank + 1) * size},
          std::clamp<std::int64_t>(elems - rank * size, 0, size)};
}

std::string mappings(const WrittenZero& zero, int rank) {
  std::vector<std::string> groups;
  for (std::size_t g = 0; g < zero.groups.size(); ++g) {
    const auto size = static_cast<std::int64_t>(own_part(zero, g, rank, "fp32").first.size());
    std::string entries;
    std::int64_t at = 0;
    for (std::size_t i = 0; i < zero.groups[g].size(); ++i) {
      const WrittenParam& param = zero.groups[g][i];
      const std::int64_t first = std::max(at, rank * size);
      const std::int64_t last = std::min(at + param.elems(), (rank + 1) * size);
      if (first < last) {
        entries += pickled_entry(
            param.name,
            pickled_object(
                "deepspeed.utils.tensor_fragment", "fragment_address",
                pickled_entry("numel", pickled_int(static_cast<int>(last - first))) +
                    pickled_entry("start", pickled_int(static_cast<int>(first - rank * size)))));
      }
      at += param.elems();
      at += padding(zero, g, i, at);
    }
    groups.push_back(ordered(entries));
  }
  return pickled_list(groups);
}

std::string paddings(const WrittenZero& zero) {
  std::vector<std::string> groups;
  for (std::size_t g = 0; g < zero.groups.size(); ++g) {
    std::vector<std::string> values;
    std::int64_t at = 0;
    for (std::size_t i = 0; i < zero.groups[g].size(); ++i) {
      at += zero.groups[g][i].elems();
      const std::int64_t behind = padding(zero, g, i, at);
      values.push_back(pickled_int(static_cast<int>(behind)));
      at += behind;
    }
    groups.push_back(pickled_list(values));
  }
  return pickled_list(groups);
}

std::string moments(const WrittenZero& zero, int rank, Body& body) {
  std::string states;
  for (std::size_t g = 0; zero.moments && g < zero.groups.size(); ++g) {
    std::string entries =
        zero.step_in_group ? "" : pickled_entry("step", pickled_int(zero.updates));
    for (const char* const state : {"exp_avg", "exp_avg_sq"}) {
      const std::vector<float> part = own_part(zero, g, rank, state).first;
      entries += pickled_entry(state, body.vector(part, static_cast<std::int64_t>(part.size())));
    }
    states += pickled_int(static_cast<int>(g)) + pickled_dictionary(entries) + "s";
  }
  std::string group = pickled_entry("lr", pickled_float(0.25));
  if (zero.step_in_group) group += pickled_entry("step", pickled_int(zero.updates));
  const std::string groups =
      pickled_list(std::vector<std::string>(zero.groups.size(), pickled_dictionary(group)));
  return pickled_dictionary(pickled_entry("state", pickled_dictionary(states)) +
                            pickled_entry("param_groups", groups));
}

void write_optimizer(const std::string& dir, const WrittenZero& zero, int rank) {
  Body body;
  std::vector<std::string> weights;
  for (std::size_t g = 0; g < zero.groups.size(); ++g) {
    const auto [part, length] = own_part(zero, g, rank, "fp32");
    weights.push_back(
        body.vector(part, zero.padded ? static_cast<std::int64_t>(part.size()) : length));
  }
  const std::string count = pickled_int(zero.said_world > 0 ? zero.said_world : zero.world);
  std::string states =
      pickled_entry("zero_stage", "cdeepspeed.runtime.zero.config\nZeroStageEnum\n" +
                                      pickled_int(zero.stage) + "\x85R");
  if (zero.stage == 3) {
    states += pickled_entry("partition_count", count) +
              pickled_entry("fp32_flat_groups", pickled_list(weights)) +
              pickled_entry("optimizer_state_dict", moments(zero, rank, body));
  } else {
    const std::vector<std::string> counts(zero.groups.size(), count);
    states += pickled_entry("partition_count", pickled_list(counts)) +
              pickled_entry("single_partition_of_fp32_groups", pickled_list(weights)) +
              pickled_entry("base_optimizer_state", moments(zero, rank, body));
    if (zero.mappings) states += pickled_entry("param_slice_mappings", mappings(zero, rank));
    if (zero.align > 1) states += pickled_entry("param_alignment_paddings", paddings(zero));
  }
  body.write(dir + "/" + zero.prefix + "zero_pp_rank_" + std::to_string(rank) +
                 "_mp_rank_00_optim_states.pt",
             pickled_dictionary(pickled_entry("optimizer_state_dict",
                                              pickled_dictionary(states + zero.more_states)) +
                                pickled_entry("ds_config", zero.config)));
}

std::string frozen_shards(const WrittenZero& zero, int rank, Body& body) {
  std::string shapes;
  std::string fragments;
  for (const WrittenParam& param : zero.frozen) {
    shapes += pickled_entry(param.name, pickled_size(param.shape));
    const std::vector<float> part = stage3_part({param}, rank, zero.world, "fp32");
    fragments +=
        pickled_entry(param.name, body.vector(part, static_cast<std::int64_t>(part.size())));
  }
  return pickled_entry("frozen_param_shapes", ordered(shapes)) +
         pickled_entry("frozen_param_fragments", ordered(fragments));
}

// The module's tensors that are no trained parameters.
std::string module_of(const WrittenZero& zero, Body& body) {
  std::string entries = pickled_entry("mask", body.vector({1, 1}, 2));
  for (const WrittenParam& param : zero.frozen) {
    std::vector<float> values;
    for (std::int64_t e = 0; e < param.elems(); ++e) {
      values.push_back(written_element(param.name, "fp32", e));
    }
    entries += pickled_entry(param.name, body.tensor(values, param.shape));
  }
  for (const auto& [name, holder] : zero.shared) {
    entries += pickled_entry(name, body.vector({2, 2}, 2));
  }
  return pickled_entry("module", ordered(entries)) +
         pickled_entry("buffer_names", pickled_list({pickled_text("mask")}));
}

void write_model(const std::string& dir, const WrittenZero& zero, int rank) {
  Body body;
  std::vector<std::string> groups;
  for (const std::vector<WrittenParam>& group : zero.groups) {
    std::string shapes;
    for (const WrittenParam& param : group) {
      shapes += pickled_entry(param.name, pickled_size(param.shape));
    }
    groups.push_back(ordered(shapes));
  }
  std::string entries = pickled_entry("param_shapes", pickled_list(groups)) +
                        pickled_entry("global_steps", pickled_int(zero.step)) +
                        pickled_entry("global_samples", pickled_int(4 * zero.step)) +
                        pickled_entry("skipped_steps", pickled_int(1));
  entries += zero.stage == 3 ? frozen_shards(zero, rank, body) : module_of(zero, body);
  std::string shared;
  for (const auto& [name, holder] : zero.shared)
    shared += pickled_entry(name, pickled_text(holder));
  entries += pickled_entry("shared_params", pickled_dictionary(shared));
  const std::string rank_text =
      zero.stage == 3 ? "zero_pp_rank_" + std::to_string(rank) + "_" : std::string();
  body.write(dir + "/" + rank_text + "mp_rank_00_model_states.pt",
             pickled_dictionary(entries + zero.more_model));
}

}  // namespace

std::int64_t WrittenParam::elems() const {
  std::int64_t elems = 1;
  for (const std::int64_t dim : shape) elems *= dim;
  return elems;
}

float written_element(const std::string& param, const std::string& state, std::int64_t i) {
  std::int64_t salt = 0;
  for (const char c : param + state) salt = (salt * 31 + c) % 8191;
  return static_cast<float>(salt * 1024 + i);
}

void write_zero(const std::string& dir, const WrittenZero& zero) {
  for (int rank = 0; rank < zero.world; ++rank) {
    write_optimizer(dir, zero, rank);
    if (rank == 0 || zero.stage == 3) write_model(dir, zero, rank);
  }
}

std::string pickled_entry(const std::string& key, const std::string& value) {
  return pickled_text(key) + value + "s";
}

std::string pickled_dictionary(const std::string& entries) { return "}" + entries; }

std::string pickled_list(const std::vector<std::string>& values) {
  std::string out = "]";
  for (const std::string& value : values) out += value + "a";
  return out;
}

std::string pickled_float(double value) {
  std::string out = "G";
  auto bits = std::bit_cast<std::uint64_t>(value);
  for (int shift = 56; shift >= 0; shift -= 8) out += static_cast<char>(bits >> shift & 0xFFU);
  return out;
}

std::string pickled_object(const std::string& module, const std::string& type,
                           const std::string& entries) {
  return "c" + module + "\n" + type + "\n)\x81}" + entries + "b";
}

}  // namespace sluice::testing
