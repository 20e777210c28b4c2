#include "runtime/checkpoint/run_state_json.hpp"

#include <cmath>

#include "kernels/base/error.hpp"
#include "runtime/checkpoint/manifest_json.hpp"

namespace sluice {

nlohmann::ordered_json run_state_to_json(const RunState& run) {
  if (!std::isfinite(run.loss_scale) || !std::isfinite(run.learning_rate)) {
    throw Error("a checkpoint cannot hold a loss scale or learning rate that is not finite");
  }
  const WorldLayout& layout = run.layout;
  nlohmann::ordered_json json{
      {"step", run.step},
      {"updates", run.updates},
      {"seed", run.seed},
      {"samples", run.samples},
      {"tokens", run.tokens},
      {"learning_rate", run.learning_rate},
      {"loss_scale", run.loss_scale},
      {"loss_scale_good_steps", run.loss_scale_good_steps},
      {"loss_scale_lives", run.loss_scale_lives},
      {"skipped_steps", run.skipped_steps},
      {"config", run.config},
  };
  json["layout"] = {{"world", layout.world},
                    {"data", layout.data},
                    {"tensor", layout.tensor},
                    {"pipeline", layout.pipeline},
                    {"virtual_stages", layout.virtual_stages},
                    {"zero_stage", layout.zero_stage}};
  json["more"] = nlohmann::ordered_json::object();
  for (const auto& [key, value] : run.more) json["more"][key] = value;
  return json;
}

RunState run_state_from_json(const nlohmann::json& value, const std::string& path) {
  const JsonFields fields(value, path, "run.");
  RunState run;
  run.step = fields.integer("step");
  run.updates = fields.integer("updates");
  run.seed = fields.unsigned_integer("seed");
  run.samples = fields.integer("samples");
  run.tokens = fields.integer("tokens");
  run.learning_rate = fields.number("learning_rate");
  run.loss_scale = fields.number("loss_scale");
  run.loss_scale_good_steps = fields.integer("loss_scale_good_steps");
  run.loss_scale_lives = fields.integer("loss_scale_lives");
  run.skipped_steps = fields.integer("skipped_steps");
  run.config = fields.text("config");
  const JsonFields layout(fields.at("layout"), path, "run.layout.");
  run.layout = {layout.small_integer("world"),          layout.small_integer("data"),
                layout.small_integer("tensor"),         layout.small_integer("pipeline"),
                layout.small_integer("virtual_stages"), layout.small_integer("zero_stage")};
  const JsonFields more(fields.at("more"), path, "run.more.");
  for (const auto& [key, text] : fields.at("more").items()) run.more[key] = more.text(key.c_str());
  return run;
}

}  // namespace sluice
