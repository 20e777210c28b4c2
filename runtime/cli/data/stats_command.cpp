// `sluice data stats`.
#include <algorithm>
#include <memory>
#include <string>

#include "base/posix/atomic_file.hpp"
#include "runtime/cli/command_output.hpp"
#include "runtime/cli/commands.hpp"
#include "runtime/cli/data/stats_page.hpp"
#include "runtime/data/stats/data_stats.hpp"
#include "runtime/data/tokenizer/tokenizer.hpp"

namespace sluice {
namespace {

std::string title_of(const std::vector<std::string>& inputs) {
  std::string title = inputs.front();
  if (inputs.size() > 1) title += " and " + std::to_string(inputs.size() - 1) + " more";
  return title;
}

}  // namespace

int run_data_stats(const DataCommand& command) {
  // Text needs a tokenizer; a pair alone is counted without.
  std::string spec = command.stats_tokenizer;
  const bool all_pairs = std::all_of(command.inputs.begin(), command.inputs.end(), is_indexed_pair);
  if (spec.empty() && !all_pairs) spec = command.tokenizer;
  std::unique_ptr<Tokenizer> tokenizer;
  if (!spec.empty()) tokenizer = make_tokenizer(spec);
  const DataStats stats = measure_data({.inputs = command.inputs,
                                        .tokenizer = tokenizer.get(),
                                        .json_key = command.json_keys.front(),
                                        .threads = command.threads});
  const StatsNames names{.title = title_of(command.inputs),
                         .tokenizer = tokenizer.get(),
                         .most_frequent = command.count > 0 ? command.count : 20};
  const std::string text = stats_text(stats, names);
  if (!command.html.empty()) {
    write_output_file(command.html, stats_html(names.title, stats_page_json(stats, names), text));
  }
  print_beside(command.html, command.json ? stats_json(stats, names) : text);
  return 0;
}

}  // namespace sluice
