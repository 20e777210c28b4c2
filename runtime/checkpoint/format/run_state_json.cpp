#include "runtime/checkpoint/format/run_state_json.hpp"

#include <cmath>
#include <limits>

#include "base/error.hpp"
#include "base/format.hpp"
#include "runtime/checkpoint/format/manifest_json.hpp"
#include "runtime/checkpoint/io/tokenizer_files.hpp"

namespace sluice {
namespace {

nlohmann::ordered_json tokenizer_to_json(const TokenizerRecord& tokenizer) {
  nlohmann::ordered_json json{{"fingerprint", tokenizer.fingerprint},
                              {"vocab", tokenizer.vocab},
                              {"end_tokens", tokenizer.end_tokens}};
  json["files"] = nlohmann::ordered_json::array();
  for (const TokenizerFile& file : tokenizer.files) {
    json["files"].push_back(
        {{"name", file.name}, {"bytes", file.bytes}, {"xxh3", hex64(file.hash)}});
  }
  return json;
}

TokenizerRecord tokenizer_from_json(const nlohmann::json& value, const std::string& path) {
  const JsonFields fields(value, path, "run.tokenizer.");
  TokenizerRecord tokenizer;
  tokenizer.fingerprint = fields.text("fingerprint");
  tokenizer.vocab = fields.integer("vocab");
  for (const std::int64_t id : fields.integers("end_tokens")) {
    if (id > std::numeric_limits<std::int32_t>::max()) fields.fail("end_tokens", "is no token");
    tokenizer.end_tokens.push_back(static_cast<std::int32_t>(id));
  }
  const nlohmann::json& files = fields.list("files");
  for (std::size_t i = 0; i < files.size(); ++i) {
    const JsonFields file(files[i], path, format_text("run.tokenizer.files[{}].", i));
    tokenizer.files.push_back({file.text("name"), file.integer("bytes"), file.hash("xxh3")});
    if (!is_tokenizer_file(tokenizer.files.back().name)) file.fail("name", "is no tokenizer's");
  }
  return tokenizer;
}

}  // namespace

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
  if (run.tokenizer.known()) json["tokenizer"] = tokenizer_to_json(run.tokenizer);
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
  run.loss_scale_good_steps =
      fields.integer("loss_scale_good_steps", std::numeric_limits<std::int64_t>::min());
  run.loss_scale_lives = fields.integer("loss_scale_lives");
  run.skipped_steps = fields.integer("skipped_steps");
  run.config = fields.text("config");
  const JsonFields layout(fields.at("layout"), path, "run.layout.");
  run.layout = {layout.small_integer("world"),          layout.small_integer("data"),
                layout.small_integer("tensor"),         layout.small_integer("pipeline"),
                layout.small_integer("virtual_stages"), layout.small_integer("zero_stage")};
  if (const nlohmann::json* const tokenizer = fields.find("tokenizer")) {
    run.tokenizer = tokenizer_from_json(*tokenizer, path);
  }
  const JsonFields more(fields.at("more"), path, "run.more.");
  for (const auto& [key, text] : fields.at("more").items()) run.more[key] = more.text(key.c_str());
  return run;
}

}  // namespace sluice
