#include "runtime/cli/data/corpus_output.hpp"

#include <algorithm>
#include <array>
#include <cstdio>
#include <filesystem>

#include "base/bytes.hpp"
#include "base/error.hpp"
#include "runtime/cli/command_output.hpp"
#include "runtime/data/corpus/corpus_files.hpp"
#include "runtime/data/file_io.hpp"

namespace sluice {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kLargestReport = 1 << 24;

std::string row_text(const std::string& name, std::int64_t count, std::int64_t documents) {
  const double share =
      documents > 0 ? 100.0 * static_cast<double>(count) / static_cast<double>(documents) : 0.0;
  std::array<char, 128> text{};
  std::snprintf(text.data(), text.size(), "%-36s%14lld  %5.1f %%\n", name.c_str(),
                static_cast<long long>(count), share);
  return text.data();
}

void refuse_output_in_input(const CorpusCommand& command, const std::string& name) {
  const fs::path out = fs::weakly_canonical(command.output);
  for (const std::string& input : command.inputs) {
    std::error_code ignored;
    if (!fs::is_directory(input, ignored)) continue;
    const fs::path folder = fs::weakly_canonical(input);
    const auto [end, unused] = std::mismatch(folder.begin(), folder.end(), out.begin(), out.end());
    if (end != folder.end()) continue;
    throw ConfigError(name + ": the output folder " + command.output + " lies in the input " +
                      input + "; a second run would read its own results; choose another folder");
  }
}

}  // namespace

std::vector<CorpusFile> corpus_inputs(const CorpusCommand& command, const std::string& name) {
  if (command.inputs.empty()) throw ConfigError(name + ": name at least one file or folder");
  if (command.output.empty()) throw ConfigError(name + ": name the output folder, -o OUT");
  refuse_output_in_input(command, name);
  return find_corpus_files(command.inputs, name);
}

void print_corpus_result(const CorpusCommand& command, const Counts& counts,
                         const std::vector<std::string>& rows,
                         std::chrono::steady_clock::time_point started) {
  if (command.json) {
    return print(read_whole_file(command.output + "/report.json", kLargestReport));
  }
  const auto of = [&](const std::string& name) {
    const auto found = counts.find(name);
    return found == counts.end() ? 0 : found->second;
  };
  const std::int64_t documents = of("documents");
  std::string text = row_text("documents", documents, documents);
  for (const std::string& row : rows) {
    if (!row.ends_with('.')) {
      text += row_text(row, of(row), documents);
      continue;
    }
    for (auto at = counts.lower_bound(row); at != counts.end() && at->first.starts_with(row);
         ++at) {
      text += row_text("  " + at->first.substr(row.size()), at->second, documents);
    }
  }
  const double seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - started).count();
  text += command.output + ": " + format_bytes(of("bytes")) + " of input, " +
          format_duration(seconds) + "\n";
  print(text);
}

}  // namespace sluice
