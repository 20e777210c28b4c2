// Migrates DeepSpeed configurations from standard input, one JSON text in a line after the number
// of ranks and DeepSpeed's version: "4 0.19.8 {...}". Prints two lines for each: the mistakes that
// DeepSpeed refuses too as a JSON list, and the report as `sluice migrate --json` has it. With the
// argument --keys: the table of keys, a JSON object in each line.
#include <iostream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>

#include "configs/migrate/deepspeed/deepspeed_migration.hpp"
#include "configs/migrate/report.hpp"

using namespace sluice::migrate;
using Json = nlohmann::ordered_json;

namespace {

void print_keys() {
  for (const DeepSpeedKey& key : deepspeed_keys()) {
    const bool is_open = key.type == KeyType::kSection && key.unknown == Unknown::kTakes;
    Json row{
        {"path", key.path},         {"alias", key.alias},     {"type", static_cast<int>(key.type)},
        {"variants", key.variants}, {"choices", key.choices}, {"class", class_name(key.kind)},
        {"open", is_open}};
    std::cout << row.dump() << "\n";
  }
}

std::string in_one_line(std::string text) {
  for (char& letter : text) {
    if (letter == '\n') letter = ' ';
  }
  return text;
}

void answer(const std::string& line) {
  std::istringstream words(line);
  DeepSpeedOptions options{.file = "ds.json"};
  std::string version, text;
  words >> options.parse.world >> version;
  std::getline(words, text);
  options.parse.version = parse_deepspeed_version(version).value();
  const HjsonDocument document = read_hjson(text);
  Json mistakes = Json::array();
  for (const auto& problem : document.problems) mistakes.push_back(problem.what);
  if (mistakes.empty()) {
    for (const Mistake& mistake : parse_deepspeed(document.root, options.parse).mistakes) {
      mistakes.push_back(mistake.path + ": " + mistake.what);
    }
  }
  std::cout << mistakes.dump() << "\n"
            << in_one_line(report_json(migrate_deepspeed(document.root, options))) << std::endl;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc > 1 && std::string(argv[1]) == "--keys") {
    print_keys();
    return 0;
  }
  for (std::string line; std::getline(std::cin, line);) answer(line);
}
