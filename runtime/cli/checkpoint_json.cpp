#include "runtime/cli/checkpoint_json.hpp"

#include <nlohmann/json.hpp>

namespace sluice {
namespace {

using Json = nlohmann::ordered_json;

std::string text_of(const Json& json) {
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace

std::string ls_json(const std::vector<CheckpointSummary>& checkpoints) {
  Json list = Json::array();
  for (const CheckpointSummary& c : checkpoints) {
    list.push_back({{"name", c.name},
                    {"path", c.path},
                    {"step", c.step},
                    {"bytes", c.bytes},
                    {"saved_at", c.saved_at},
                    {"world", c.layout.world},
                    {"zero_stage", c.layout.zero_stage},
                    {"complete", c.complete},
                    {"latest", c.is_latest},
                    {"why_not", c.why_not}});
  }
  return text_of({{"checkpoints", list}});
}

std::string verify_json(const std::vector<VerifiedCheckpoint>& checkpoints) {
  Json list = Json::array();
  for (const VerifiedCheckpoint& c : checkpoints) {
    Json defects = Json::array();
    for (const Defect& d : c.report.defects) {
      defects.push_back(
          {{"file", d.file}, {"tensor", d.tensor}, {"offset", d.offset}, {"what", d.what}});
    }
    list.push_back({{"path", c.path},
                    {"files", c.report.files},
                    {"bytes", c.report.bytes},
                    {"sound", c.report.sound()},
                    {"defects", defects}});
  }
  return text_of({{"checkpoints", list}});
}

}  // namespace sluice
