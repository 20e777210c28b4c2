#include "base/counted.hpp"
#include "base/format.hpp"
#include "configs/migrate/deepspeed/batch_keys.hpp"
#include "configs/migrate/deepspeed/deepspeed_rules.hpp"
#include "configs/migrate/deepspeed/deepspeed_values.hpp"

namespace sluice::migrate {
namespace {

bool is_unfilled(const DeepSpeedConfig& config, std::string_view path) {
  for (const AutoValue& value : config.autos) {
    if (value.path == path) return !value.is_filled;
  }
  return false;
}

// The global batch of a setting, for a file without the key whose third size is the quotient.
std::optional<std::int64_t> global_of_setting(const ParseOptions& options) {
  const auto fills = [&options](std::string_view path) {
    const auto found = options.autos.find(path);
    return found == options.autos.end() ? std::string_view() : std::string_view(found->second);
  };
  if (fills(kAccumulation) != "null" && fills(kMicro) != "null") return std::nullopt;
  return value_of_json(fills(kGlobal)).integer;
}

// The ranks of the product rule; 0 if the world is not known or does not divide.
void count_ranks(const ParseOptions& options, DeepSpeedConfig& config) {
  if (options.world <= 0) return;
  const std::int64_t world = options.world / options.model_ranks;
  if (options.world % options.model_ranks != 0) {
    add_mistake(config, "",
                format_text("the world of {} ranks is no multiple of the {} pipeline x tensor "
                            "ranks; change --world, or parallel.pipeline and parallel.tensor",
                            options.world, options.model_ranks));
    return;
  }
  const std::int64_t sequence = count_of(config, "sequence_parallel_size").value_or(1);
  const std::int64_t tensor =
      std::max<std::int64_t>(1, count_of(config, "tensor_parallel.autotp_size").value_or(1));
  if (world % sequence != 0) {
    add_mistake(config, "sequence_parallel_size",
                format_text("{} does not divide the {} ranks of the world; choose a divisor",
                            sequence, world));
    return;
  }
  config.batch.ranks = world / sequence;
  if (config.batch.ranks % tensor != 0) {
    add_mistake(
        config, "tensor_parallel.autotp_size",
        format_text("{} does not divide {} ranks; choose a divisor", tensor, config.batch.ranks));
    return;
  }
  config.batch.data_parallel = config.batch.ranks / tensor;
}

// Fills the missing ones of the three sizes. REQUIRES: ranks are known.
void complete(BatchSizes& batch) {
  if (batch.global && batch.micro && batch.accumulation) return;
  if (batch.global && batch.micro) {
    batch.accumulation = *batch.global / *batch.micro / batch.ranks;
  } else if (batch.global && batch.accumulation) {
    batch.micro = *batch.global / batch.ranks / *batch.accumulation;
  } else if (batch.global) {
    batch.accumulation = 1;
    batch.micro = *batch.global / batch.ranks;
  } else if (batch.micro) {
    if (!batch.accumulation) batch.accumulation = 1;
    std::int64_t product = 0;
    if (!__builtin_mul_overflow(*batch.micro, *batch.accumulation, &product) &&
        !__builtin_mul_overflow(product, batch.ranks, &product)) {
      batch.global = product;
    }
  }
}

bool is_product(const BatchSizes& batch) {
  std::int64_t product = 0;
  return batch.global && batch.micro && batch.accumulation &&
         !__builtin_mul_overflow(*batch.micro, *batch.accumulation, &product) &&
         !__builtin_mul_overflow(product, batch.ranks, &product) && product == *batch.global;
}

// "micro batch 32 x accumulation 2": the sizes that the file gives beside train_batch_size.
std::string given_factors(const BatchSizes& given) {
  std::string text;
  if (given.micro) text += format_text("micro batch {} x ", *given.micro);
  if (given.accumulation) text += format_text("accumulation {} x ", *given.accumulation);
  return text;
}

// The world that fits the sizes of the file, all else equal; 0: there is none.
std::int64_t fitting_world(const BatchSizes& given, int world) {
  std::int64_t product = 0;
  if (!given.global || !given.micro ||
      __builtin_mul_overflow(*given.micro, given.accumulation.value_or(1), &product) ||
      *given.global % product != 0) {
    return 0;
  }
  const std::int64_t ranks = *given.global / product;
  // Without accumulation any divisor of the ranks fits; the nearest below the world.
  if (given.accumulation) return ranks * (world / given.ranks);
  for (std::int64_t fewer = given.ranks; fewer > 0; --fewer) {
    if (ranks % fewer == 0) return fewer * (world / given.ranks);
  }
  return 0;
}

std::string batch_complaint(const BatchSizes& given, int world) {
  if (!given.global) {
    return format_text("{}{} make more than 2^63 samples; change one of the sizes",
                       given_factors(given), counted(given.ranks, "rank"));
  }
  const bool is_triple = given.micro && given.accumulation;
  std::string text = format_text(
      "train_batch_size {} is {} {}{}; change one of the sizes, or the world", *given.global,
      is_triple ? "not" : "no multiple of", given_factors(given), counted(given.ranks, "rank"));
  const std::int64_t fits = fitting_world(given, world);
  return fits > 0 ? text + format_text(": --world {} fits", fits) : text;
}

// The key of the first size that the file gives.
std::string_view given_size(const DeepSpeedConfig& config) {
  for (const std::string_view path : {kGlobal, kMicro, kAccumulation}) {
    if (count_of(config, path)) return path;
  }
  return {};
}

}  // namespace

void apply_batch_rule(const ParseOptions& options, DeepSpeedConfig& config) {
  count_ranks(options, config);
  BatchSizes& batch = config.batch;
  batch.global = count_of(config, kGlobal);
  if (!batch.global) batch.global = global_of_setting(options);
  batch.micro = count_of(config, kMicro);
  batch.accumulation = count_of(config, kAccumulation);
  for (const std::string_view path : {kGlobal, kMicro, kAccumulation}) {
    if (is_unfilled(config, path)) return;  // known when "auto" is filled
    // A size of another type has its own mistake.
    for (const Mistake& mistake : config.mistakes) {
      if (mistake.path == path) return;
    }
  }
  if (!batch.global && !batch.micro) {
    add_mistake(config, given_size(config),
                "neither train_batch_size nor train_micro_batch_size_per_gpu is given; write one "
                "of the two");
    return;
  }
  if (batch.ranks == 0) return;
  const BatchSizes given = batch;
  complete(batch);
  if (!is_product(batch)) {
    add_mistake(config, given_size(config), batch_complaint(given, options.world));
  }
}

}  // namespace sluice::migrate
