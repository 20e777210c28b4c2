#include <charconv>

#include "base/error.hpp"
#include "runtime/cli/data/byte_progress.hpp"
#include "runtime/cli/data/corpus_output.hpp"
#include "runtime/data/corpus/corpus_files.hpp"
#include "runtime/data/corpus/dedupe/dedupe.hpp"
#include "runtime/data/parallel_items.hpp"

namespace sluice {
namespace {

constexpr const char* kName = "data dedupe";

// "words:5", "characters:24".
void set_shingle(const std::string& text, MinHashOptions& options) {
  const std::size_t colon = text.find(':');
  const std::string unit = text.substr(0, colon);
  const bool words = unit == "words";
  if ((words || unit == "characters") && colon != std::string::npos) {
    const char* const end = text.data() + text.size();
    const auto [stop, error] = std::from_chars(text.data() + colon + 1, end, options.shingle);
    if (error == std::errc() && stop == end && options.shingle > 0) {
      options.unit = words ? ShingleUnit::kWords : ShingleUnit::kCharacters;
      options.normalise = words;
      return;
    }
  }
  throw ConfigError(std::string(kName) + ": --shingle " + text +
                    " is not of the form words:5 or characters:24");
}

DedupeOptions options_of(const CorpusCommand& command) {
  DedupeOptions options = dedupe_preset(command.preset);
  options.url = options.url || command.urls;
  if (command.names_urls && !options.url) {
    throw ConfigError(std::string(kName) + ": --url-key is for equal URLs; add --urls");
  }
  const bool near = !command.shingle.empty() || command.bands > 0 || command.rows > 0 ||
                    command.threshold || command.seed;
  if (!near) return options;
  if (!options.near) {
    throw ConfigError(std::string(kName) +
                      ": --shingle, --bands, --rows, --threshold and --seed are for near texts; "
                      "the preset '" +
                      command.preset + "' looks for none");
  }
  if (!command.shingle.empty()) set_shingle(command.shingle, *options.near);
  if (command.bands > 0) options.near->bands = command.bands;
  if (command.rows > 0) options.near->rows = command.rows;
  if (command.seed) options.near->seed = *command.seed;
  options.threshold = command.threshold.value_or(options.threshold);
  return options;
}

}  // namespace

int run_data_dedupe(const CorpusCommand& command) {
  const auto started = std::chrono::steady_clock::now();
  DedupeRequest request{.files = corpus_inputs(command, kName),
                        .folder = command.output,
                        .keys = {.text = command.json_key, .url = command.url_key},
                        .options = options_of(command),
                        .threads = threads_or_default(command.threads),
                        .unit_bytes = command.unit_bytes,
                        .sort_bytes = command.memory_bytes,
                        .needs_urls = command.names_urls || command.urls};
  if (!command.against.empty()) {
    request.against = find_corpus_files(command.against, "data dedupe --against");
  }
  std::vector<std::string> rows{"kept", "removed", "clusters", "no_text"};
  if (!command.against.empty()) rows.insert(rows.end(), {"cut", "dropped"});
  Counts counts;
  {
    ByteProgress progress;
    request.progress = [&](const std::string& stage, std::int64_t done, std::int64_t all) {
      progress.update(stage, done, all);
    };
    counts = dedupe_corpus(request);
  }
  print_corpus_result(command, counts, rows, started);
  return 0;
}

}  // namespace sluice
