// ZeRO's stage and sizes.
#include <algorithm>
#include <cmath>

#include "base/format.hpp"
#include "configs/migrate/deepspeed/deepspeed_mapping.hpp"
#include "configs/migrate/deepspeed/deepspeed_rules.hpp"
#include "configs/value.hpp"

namespace sluice::migrate {
namespace {

constexpr std::string_view kStage = "zero_optimization.stage";

void map_stage(DeepSpeedMapping& mapping) {
  const std::string stage = std::to_string(stage_of(mapping.config()));
  // zero_optimization: true or false, the form before stages.
  const bool old_form = !mapping.is_written(kStage) && mapping.config().is_written(kStage);
  if (old_form) {
    mapping.set_from("zero_optimization", "zero.stage", stage, "zero_optimization in its old form");
    return;
  }
  mapping.set(kStage, "zero.stage", stage);
  if (mapping.is_written(kStage)) return;
  mapping.classify(kStage, KeyClass::kMapped,
                   "zero.stage 0: DeepSpeed without the key shards nothing, Sluice's default is 1");
}

// Sluice counts the bytes of fp32 gradients.
void map_bucket(DeepSpeedMapping& mapping) {
  constexpr std::string_view kPath = "zero_optimization.reduce_bucket_size";
  constexpr std::int64_t kBytes = 4;
  if (!mapping.is_written(kPath)) return;
  const std::int64_t elements = mapping.config().count(kPath);
  std::int64_t bytes = 0;
  if (__builtin_mul_overflow(elements, kBytes, &bytes)) {
    return mapping.error(kPath, format_text("{} elements of 4 bytes are more than 2^63 bytes; "
                                            "write a smaller number",
                                            elements));
  }
  if (elements == 0) {
    return mapping.classify(kPath, KeyClass::kChanged,
                            "zero.bucket_bytes keeps Sluice's default: DeepSpeed reduces each "
                            "gradient alone");
  }
  mapping.set(kPath, "zero.bucket_bytes", std::to_string(bytes), "elements");
  mapping.classify(kPath, KeyClass::kChanged,
                   format_text("zero.bucket_bytes {}: {} elements of fp32; DeepSpeed counts "
                               "elements, Sluice counts bytes",
                               bytes, mapping.shown(kPath)));
}

// A block of a transformer has about 12 hidden^2 elements.
void map_prefetch(DeepSpeedMapping& mapping) {
  constexpr std::string_view kPath = "zero_optimization.prefetch_bucket_size";
  constexpr std::string_view kKey = "zero.prefetch_units";
  if (!mapping.is_written(kPath)) return;
  if (const auto units = setting_of(mapping.options().set, kKey)) {
    return mapping.set(kPath, kKey, *units);
  }
  const std::int64_t elements = mapping.config().count(kPath);
  const auto hidden = static_cast<double>(mapping.options().hidden);
  if (elements > 0 && hidden <= 0) {
    mapping.classify(kPath, KeyClass::kChanged,
                     format_text("zero.prefetch_units keeps Sluice's default 1: {} elements are a "
                                 "number of units with --hidden-size only",
                                 mapping.shown(kPath)));
    return;
  }
  std::int64_t units = 0;
  constexpr double kMostUnits = 2147483647;
  if (elements > 0) {
    const double wanted = std::ceil(static_cast<double>(elements) / (12 * hidden * hidden));
    units = static_cast<std::int64_t>(std::clamp(wanted, 1.0, kMostUnits));
  }
  // The unit that runs is gathered already: the embedding, the blocks and the head but one.
  const std::int64_t layers = mapping.options().layers;
  const bool is_cut = layers > 0 && units > layers + 1;
  if (is_cut) units = layers + 1;
  mapping.set(kPath, kKey, std::to_string(units), "elements");
  mapping.classify(kPath, KeyClass::kChanged,
                   format_text("zero.prefetch_units {}: DeepSpeed gathers {} elements ahead, "
                               "Sluice gathers whole units{}",
                               units, mapping.shown(kPath), is_cut ? ", here all units" : ""));
}

void map_persistence(DeepSpeedMapping& mapping) {
  constexpr std::string_view kPath = "zero_optimization.param_persistence_threshold";
  if (!mapping.is_written(kPath)) return;
  const std::string elements = std::to_string(mapping.config().count(kPath));
  mapping.set(kPath, "zero.persist_below", elements, "elements");
  mapping.classify(kPath, KeyClass::kChanged,
                   format_text("zero.persist_below {}: DeepSpeed keeps each parameter of so few "
                               "elements gathered, Sluice each whole unit",
                               elements));
}

void map_sub_groups(DeepSpeedMapping& mapping) {
  constexpr std::string_view kPath = "zero_optimization.sub_group_size";
  if (!mapping.is_written(kPath)) return;
  if (offload_tiers(mapping.config()).optimizer == "device") {
    return mapping.idle(kPath,
                        "Sluice updates a shard at once where the optimizer is on the device");
  }
  const bool is_one = mapping.config().count(kPath) == 0;
  const std::string theirs = is_one ? "one parameter" : mapping.shown(kPath) + " elements";
  mapping.classify(kPath, KeyClass::kChanged,
                   format_text("not carried over: DeepSpeed updates {} at a time, Sluice "
                               "chunks of offload.chunk_bytes 16777216",
                               theirs));
}

}  // namespace

void map_zero(DeepSpeedMapping& mapping) {
  map_stage(mapping);
  const std::int64_t stage = stage_of(mapping.config());
  if (stage > 0) map_bucket(mapping);
  if (stage < 3) return;
  map_prefetch(mapping);
  map_persistence(mapping);
  map_sub_groups(mapping);
}

}  // namespace sluice::migrate
