#include <algorithm>

#include "base/error.hpp"
#include "runtime/cli/command_output.hpp"
#include "runtime/cli/data/byte_progress.hpp"
#include "runtime/cli/data/corpus_output.hpp"
#include "runtime/data/corpus/clean.hpp"
#include "runtime/data/parallel_items.hpp"

namespace sluice {
namespace {

constexpr const char* kName = "data clean";

void print_filters() {
  std::string text;
  for (const FilterKind& kind : filter_kinds()) {
    text.append(kind.name).append(": ").append(kind.meaning) += '\n';
    for (const FilterOption& option : kind.options) {
      text.append("    ").append(option.name).append("=").append(option.standard);
      text.append(": ").append(option.meaning) += '\n';
    }
  }
  print(text);
}

// The recipe, with the options of --filter over its own. Other filters follow in the order given.
std::vector<FilterSpec> filters_of(const CorpusCommand& command) {
  std::vector<FilterSpec> filters = filter_recipe(command.recipe);
  const auto named = [&](const std::string& name) {
    return std::find_if(filters.begin(), filters.end(),
                        [&](const FilterSpec& filter) { return filter.name == name; });
  };
  for (const std::string& text : command.filters) {
    const FilterSpec spec = parse_filter(text);
    const auto found = named(spec.name);
    if (found == filters.end()) {
      filters.push_back(spec);
    } else {
      for (const auto& [option, value] : spec.options) found->options[option] = value;
    }
  }
  for (const std::string& name : command.without) {
    const auto found = named(name);
    if (found == filters.end()) {
      throw ConfigError(std::string(kName) + ": --without " + name + ": the recipe '" +
                        command.recipe + "' has no such filter");
    }
    filters.erase(found);
  }
  const auto length = named("length");
  if (!command.tokenizer.empty()) {
    if (length == filters.end()) {
      throw ConfigError(std::string(kName) +
                        ": --tokenizer counts the tokens of the filter "
                        "length, which is off; add --filter length:min_tokens=N");
    }
    length->options.emplace("tokenizer", command.tokenizer);
  }
  if (command.names_urls && named("url") == filters.end()) {
    throw ConfigError(std::string(kName) +
                      ": --url-key is for the filter url, which is off; add --filter url");
  }
  return filters;
}

}  // namespace

int run_data_clean(const CorpusCommand& command) {
  if (command.list) {
    print_filters();
    return 0;
  }
  const auto started = std::chrono::steady_clock::now();
  CleanRequest request{.files = corpus_inputs(command, kName),
                       .folder = command.output,
                       .keys = {.text = command.json_key, .url = command.url_key},
                       .filters = filters_of(command),
                       .threads = threads_or_default(command.threads),
                       .unit_bytes = command.unit_bytes,
                       .needs_urls = command.names_urls};
  Counts counts;
  {
    ByteProgress progress;
    request.progress = [&](const std::string& stage, std::int64_t done, std::int64_t all) {
      progress.update(stage, done, all);
    };
    counts = clean_corpus(request);
  }
  print_corpus_result(command, counts, {"kept", "changed", "rejected", "rejected."}, started);
  return 0;
}

}  // namespace sluice
