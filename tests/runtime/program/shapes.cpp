#include "tests/runtime/program/shapes.hpp"

#include <vector>

#include "zero/partition_plan.hpp"

namespace sluice {
namespace {

constexpr std::int64_t kHidden = 24;
constexpr std::int64_t kVocab = 97;
constexpr std::int64_t kTokens = 12;
constexpr std::int64_t kPersistBelow = 1000;

std::vector<TensorSpec> block_tensors(int block) {
  const std::int64_t ffn = block % 3 == 2 ? 96 : 64;
  return {{"ln", {kHidden}, false},
          {"qkv", {3 * kHidden, kHidden}, true},
          {"up", {ffn, kHidden}, true},
          {"up_b", {ffn}, false},
          {"down", {kHidden, ffn}, true}};
}

UnitMemory block_memory(int block, std::int64_t element) {
  UnitMemory memory;
  memory.output = kTokens * kHidden * element;
  memory.kept = memory.output * 9 + 64 * block;
  memory.forward_peak = memory.output * 12 + 64 * block;
  memory.forward_only_peak = memory.output * 4;
  memory.backward_peak = memory.output * 6;
  memory.recompute_peak = memory.output * 15 + 64 * block;
  memory.input_gradient = memory.output;
  return memory;
}

UnitShape embedding(std::int64_t element) {
  UnitShape unit{
      .groups = {0, 1}, .backward_reads_params = false, .memory = {}, .forward_flops = 10};
  unit.memory.output = kTokens * kHidden * element;
  unit.memory.forward_peak = unit.memory.output * 2;
  unit.memory.forward_only_peak = unit.memory.output;
  unit.memory.backward_peak = 192;
  unit.memory.recompute_peak = unit.memory.output + 192;
  return unit;
}

UnitShape loss_head(const ShapeChoice& choice, std::int64_t element) {
  UnitShape unit{.groups = {choice.blocks + 2}, .memory = {}, .forward_flops = 1000};
  if (choice.tied) unit.groups.push_back(0);
  unit.memory.input_gradient = kTokens * kHidden * element;
  unit.memory.backward_peak = unit.memory.input_gradient * 3;
  unit.memory.forward_only_peak = unit.memory.input_gradient + 640;
  unit.memory.scratch = kTokens * kVocab * 4;
  return unit;
}

std::string name_of(const Placement& p) {
  const auto letter = [](Tier tier) {
    return tier == Tier::kDevice ? 'd' : tier == Tier::kHost ? 'h' : 'n';
  };
  const std::string tiers = {letter(p.optimizer), letter(p.parameters), letter(p.gradients),
                             letter(p.activations)};
  if (tiers == "dddd") return "";
  return ", tiers of optimizer, parameters, gradients, activations " + tiers + ", chunks of " +
         std::to_string(p.chunk_elems) + " in " + std::to_string(p.chunk_slots) +
         " slots, on the device " + std::to_string(p.device_fraction) +
         (p.gradients_dtype == DType::kFloat32 ? "" : ", 16-bit gradients") +
         (p.speculate ? ", speculating" : "");
}

}  // namespace

StepShape make_shape(const ShapeChoice& choice) {
  StepShape shape;
  shape.stage = choice.stage;
  shape.dp = choice.dp;
  shape.micro_batches = choice.micro_batches;
  shape.layer_major = choice.layer_major;
  shape.recompute = choice.recompute;
  shape.dtype = choice.dtype;
  shape.reduce_every = choice.reduce_every;
  shape.bucket_bytes = choice.bucket_bytes;
  shape.reduce_dtype = choice.reduce_dtype;
  shape.prefetch_units = choice.prefetch_units;
  shape.placement = choice.placement;
  shape.rounds_master = choice.rounds;
  shape.batch_bytes = kTokens * 2 * 8;
  shape.comm_staging_bytes = 1536;
  const auto add_group = [&](const std::vector<TensorSpec>& tensors) {
    const GroupPlan plan = plan_group("group", tensors, choice.dp);
    const bool small = choice.persist && plan.param_elems < kPersistBelow;
    shape.groups.push_back({plan.elems, plan.shard_elems, choice.stage < 3 || small});
  };
  const std::int64_t element = size_of(choice.dtype);
  add_group({{"wte", {kVocab, kHidden}, true}});
  add_group({{"wpe", {16, kHidden}, true}});
  shape.units.push_back(embedding(element));
  for (int b = 0; b < choice.blocks; ++b) {
    add_group(block_tensors(b));
    shape.units.push_back({.groups = {b + 2},
                           .memory = block_memory(b, element),
                           .kept_moves = b % 3 != 1,
                           .forward_flops = 100});
  }
  std::vector<TensorSpec> head = {{"ln_f", {kHidden}, false}};
  if (!choice.tied) head.push_back({"lm_head", {kVocab, kHidden}, true});
  add_group(head);
  shape.units.push_back(loss_head(choice, element));
  share_states(shape, choice.host_fraction);
  return shape;
}

std::string name_of(const ShapeChoice& c) {
  return "stage " + std::to_string(c.stage) + ", dp " + std::to_string(c.dp) + ", micro-batches " +
         std::to_string(c.micro_batches) + (c.layer_major ? ", layer-major" : "") +
         (c.recompute ? ", recompute" : "") +
         (c.reduce_every == ReduceEvery::kStep ? ", reduce every step" : "") + ", bucket " +
         std::to_string(c.bucket_bytes) +
         (c.reduce_dtype == DType::kFloat32 ? "" : ", sent in bf16") + ", prefetch " +
         std::to_string(c.prefetch_units) + (c.tied ? ", tied" : "") +
         (c.persist ? ", persist" : "") + ", " + std::string(name_of(c.dtype)) +
         (c.rounds ? ", rounds" : "") + ", blocks " + std::to_string(c.blocks) +
         name_of(c.placement) +
         (c.host_fraction > 0 ? ", on the host " + std::to_string(c.host_fraction) : "");
}

bool may_round_gradients(const ShapeChoice& choice) {
  return choice.placement.gradients != Tier::kDevice &&
         (choice.micro_batches == 1 || choice.layer_major);
}

void round_gradients(ShapeChoice& choice) {
  choice.placement.gradients_dtype = DType::kBFloat16;
  if (choice.layer_major) choice.reduce_every = ReduceEvery::kStep;
}

StepShape passing(StepShape shape, bool updates_in_backward) {
  for (int g = 0; g < static_cast<int>(shape.groups.size()); ++g) {
    if (gradient_streams(shape, g) > 1) continue;
    nth(shape.groups, g).passing_gradient_bytes = 4 * lasting_gradient_elems(shape, g);
  }
  shape.updates_in_backward = updates_in_backward;
  return shape;
}

void place(Placement& placement, int tiers) {
  const auto tier = [&](int of) { return kAllTiers[static_cast<std::size_t>(tiers / of % 3)]; };
  placement.optimizer = tier(1);
  placement.parameters = tier(3);
  placement.gradients = tier(9);
  placement.activations = tier(27);
}

bool is_legal(const ShapeChoice& choice) {
  const Placement& p = choice.placement;
  const bool params = p.parameters != Tier::kDevice;
  const bool gradients = p.gradients != Tier::kDevice;
  return (!params || choice.stage == 3) && (!gradients || choice.stage >= 2) &&
         (p.optimizer != Tier::kDevice || (!params && !gradients));
}

ShapeChoice early_gradients(bool speculate, Tier optimizer) {
  ShapeChoice choice{.stage = 3, .dp = 2, .bucket_bytes = 3000, .blocks = 6};
  choice.placement = {.optimizer = optimizer, .chunk_elems = 512, .chunk_slots = 2};
  choice.placement.speculate = speculate;
  return choice;
}

ShapeChoice vary(ShapeChoice choice, int i) {
  const auto tier = [i](int of) { return kAllTiers[static_cast<std::size_t>(i / of % 3)]; };
  choice.stage = i % 4;
  choice.micro_batches = 1 + i / 36 % 2 * 2;
  choice.layer_major = i / 72 == 1;
  choice.dtype = i % 5 < 2 ? DType::kFloat32 : DType::kBFloat16;
  choice.tied = i % 7 < 3;
  choice.persist = i % 11 < 4;
  choice.placement.chunk_slots = 1 + i % 3;
  if (choice.stage == 3) choice.placement.parameters = tier(4);
  if (choice.stage > 1) choice.placement.gradients = tier(12);
  return choice;
}

namespace {

// The choices that change memory and schedule within a stage.
void for_each_model(ShapeChoice choice, const std::function<void(const ShapeChoice&)>& visit) {
  for (const bool recompute : {false, true}) {
    for (const DType dtype : {DType::kFloat32, DType::kBFloat16, DType::kFloat16}) {
      if (dtype == DType::kFloat16 && choice.stage < 3) continue;  // rounds nothing
      for (const bool tied : {false, true}) {
        for (int blocks = 1; blocks <= 7; ++blocks) {
          choice.recompute = recompute;
          choice.dtype = dtype;
          choice.rounds = dtype == DType::kFloat16;
          choice.tied = tied;
          choice.blocks = blocks;
          choice.reduce_dtype =
              dtype == DType::kBFloat16 && blocks % 2 == 0 ? dtype : DType::kFloat32;
          visit(choice);
        }
      }
    }
  }
}

// prefetch_units and persist mean something in stage 3; reduce_every in stages 0 and 1, and in
// layer order.
void for_each_knob(ShapeChoice choice, const std::function<void(const ShapeChoice&)>& visit) {
  if (choice.stage < 3) {
    for_each_model(choice, visit);
    if (choice.stage > 1 && !choice.layer_major) return;
    choice.reduce_every = ReduceEvery::kStep;
    for_each_model(choice, visit);
    return;
  }
  for (const int prefetch : {0, 1, 2, 5, 100}) {
    for (const bool persist : {false, true}) {
      choice.prefetch_units = prefetch;
      choice.persist = persist;
      for_each_model(choice, visit);
    }
  }
}

}  // namespace

void for_each_choice(const std::function<void(const ShapeChoice&)>& all) {
  int i = 0;
  const auto visit = [&](const ShapeChoice& choice) {
    if (i++ % kCaseStride == 0) all(choice);
  };
  for (const int stage : {0, 1, 2, 3}) {
    for (const int dp : {1, 2, 3, 4}) {
      for (const int micro_batches : {1, 2, 5}) {
        for (const std::int64_t bucket : {3000L, 30'000L, 1L << 40}) {
          ShapeChoice choice;
          choice.stage = stage;
          choice.dp = dp;
          choice.micro_batches = micro_batches;
          choice.bucket_bytes = bucket;
          for_each_knob(choice, visit);
          // Order and sharding have little to do with each other.
          if (micro_batches == 1 || micro_batches * 6000 < bucket || dp % 2 == 0) continue;
          choice.layer_major = true;
          for_each_knob(choice, visit);
        }
      }
    }
  }
}

}  // namespace sluice
