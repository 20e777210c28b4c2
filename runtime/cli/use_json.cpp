#include "runtime/cli/use_json.hpp"

#include <cmath>
#include <nlohmann/json.hpp>

namespace sluice {
namespace {

using Json = nlohmann::ordered_json;

// Text as it came in may hold any bytes.
std::string write(const Json& json) {
  return json.dump(2, ' ', false, Json::error_handler_t::replace);
}

void add_source(Json& json, const std::string& checkpoint, std::int64_t step) {
  json["checkpoint"] = checkpoint;
  if (step >= 0) json["step"] = step;
}

Json row(const EvalRecord::Row& r) {
  return {{"tokens", r.tokens}, {"loss", r.loss}, {"perplexity", std::exp(r.loss)}};
}

}  // namespace

std::string generate_json(const GenerateRecord& record) {
  const Generated& made = record.made;
  Json json;
  json["prompt"] = record.prompt;
  json["text"] = record.text;
  json["stop"] = name_of(made.stop);
  json["prompt_tokens"] = record.prompt_tokens;
  json["tokens"] = made.tokens;
  json["seed"] = record.sampling.seed;
  json["temperature"] = record.sampling.temperature;
  json["top_k"] = record.sampling.top_k;
  json["top_p"] = record.sampling.top_p;
  json["prefill_ms"] = made.prefill_seconds * 1e3;
  const auto later = static_cast<double>(made.tokens.size()) - 1;
  json["tokens_per_s"] = later > 0 ? later / made.decode_seconds : 0.0;
  add_source(json, record.checkpoint, record.step);
  return write(json);
}

std::string eval_json(const EvalRecord& record) {
  Json json = row(record.all);
  json["seq"] = record.seq;
  json["stride"] = record.stride;
  Json files = Json::array();
  for (const EvalRecord::Row& r : record.files) {
    Json file = {{"name", r.name}};
    file.update(row(r));
    files.push_back(file);
  }
  json["files"] = files;
  add_source(json, record.checkpoint, record.step);
  return write(json);
}

}  // namespace sluice
