#include "runtime/data/corpus/corpus_files.hpp"

#include <algorithm>
#include <array>
#include <filesystem>
#include <string_view>
#include <system_error>

#include "base/error.hpp"
#include "runtime/data/byte_source.hpp"

namespace sluice {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kProbeBytes = 8192;

// Globs of the corpus files below a folder.
std::vector<std::string> globs_below(const std::string& folder) {
  std::vector<std::string> globs;
  std::string escaped;
  for (const char c : folder) {
    if (std::string_view("*?[\\").find(c) != std::string_view::npos) escaped += '\\';
    escaped += c;
  }
  for (const char* extension : {".jsonl", ".ndjson", ".json", ".txt", ".text", ".md"}) {
    for (const char* packed : {"", ".gz", ".zst"}) {
      globs.push_back(escaped + "/**/*" + extension + packed);
    }
  }
  globs.push_back(escaped + "/**/*.parquet");
  return globs;
}

void add_folder(const std::string& folder, const std::string& key, std::vector<TextFile>& files) {
  const std::size_t before = files.size();
  for (const std::string& glob : globs_below(folder)) {
    try {
      const std::vector<TextFile> found = find_text_files({glob}, key);
      files.insert(files.end(), found.begin(), found.end());
    } catch (const IoError& error) {
      if (error.error_number() != 0) throw;  // no file matches this glob
    }
  }
  if (files.size() > before) return;
  throw IoError(key +
                    ": no file of JSON lines, text or Parquet (.jsonl .ndjson .json .txt .text "
                    ".md, with .gz or "
                    ".zst; .parquet) in the folder " +
                    folder + "; name the files by a glob such as " + folder + "/**/*",
                folder);
}

CorpusFile describe(const TextFile& file) {
  std::string beginning(kProbeBytes, '\0');
  beginning.resize(open_bytes(file)->read(beginning));
  if (const std::string kind = kind_without_text(file, beginning); !kind.empty()) {
    throw IoError(file.key + ": " + file.path + " is " + kind, file.path);
  }
  return {file, file.format != TextFormat::kPlain, packing_of(file) != Packing::kNone};
}

}  // namespace

std::vector<CorpusFile> find_corpus_files(const std::vector<std::string>& specs,
                                          const std::string& key) {
  std::vector<TextFile> found;
  for (const std::string& spec : specs) {
    std::error_code ignored;
    if (fs::is_directory(spec, ignored)) {
      add_folder(spec, key, found);
    } else {
      const std::vector<TextFile> files = find_text_files({spec}, key);
      found.insert(found.end(), files.begin(), files.end());
    }
  }
  std::sort(found.begin(), found.end(),
            [](const TextFile& a, const TextFile& b) { return a.path < b.path; });
  found.erase(std::unique(found.begin(), found.end(),
                          [](const TextFile& a, const TextFile& b) { return a.path == b.path; }),
              found.end());
  std::vector<CorpusFile> files;
  files.reserve(found.size());
  for (const TextFile& file : found) files.push_back(describe(file));
  return files;
}

}  // namespace sluice
