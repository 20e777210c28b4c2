#include "runtime/data/text_files.hpp"

#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <filesystem>

#include "base/counted.hpp"
#include "base/error.hpp"
#include "base/log.hpp"
#include "base/posix/io_error.hpp"
#include "runtime/data/hash.hpp"
#include "runtime/data/tokenizer/utf8.hpp"

namespace sluice {
namespace {

namespace fs = std::filesystem;

// Prose, markup and source code; besides, every name of JSON lines and Parquet. Other data such as
// .json or .csv may be no text, and need a glob.
constexpr std::array<std::string_view, 47> kTextExtensions{
    ".txt", ".text", ".md",  ".markdown", ".rst",   ".tex",  ".org", ".adoc", ".html",  ".htm",
    ".py",  ".pyi",  ".c",   ".h",        ".cc",    ".cpp",  ".cxx", ".hh",   ".hpp",   ".hxx",
    ".cu",  ".cuh",  ".inl", ".rs",       ".go",    ".java", ".kt",  ".js",   ".ts",    ".jsx",
    ".tsx", ".rb",   ".php", ".pl",       ".sh",    ".lua",  ".jl",  ".r",    ".swift", ".scala",
    ".hs",  ".ml",   ".sql", ".f90",      ".cmake", ".s",    ".el"};

std::string lower_extension(const fs::path& path) {
  std::string extension = path.extension().string();
  for (char& c : extension) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  return extension;
}

bool is_packed_name(const fs::path& path) {
  const std::string extension = lower_extension(path);
  return extension == ".gz" || extension == ".zst";
}

TextFormat format_by_name(const fs::path& path) {
  if (is_packed_name(path)) {
    const TextFormat inner = format_by_name(path.stem());
    return inner == TextFormat::kParquet ? TextFormat::kPlain : inner;
  }
  const std::string extension = lower_extension(path);
  if (extension == ".parquet") return TextFormat::kParquet;
  if (extension == ".csv" || extension == ".tsv") return TextFormat::kTable;
  if (extension == ".jsonl" || extension == ".ndjson") return TextFormat::kJsonLines;
  return extension == ".json" ? TextFormat::kJson : TextFormat::kPlain;
}

// Without an ending .gz or .zst.
std::string ending_of(const fs::path& path) {
  return lower_extension(is_packed_name(path) ? path.stem() : path);
}

bool is_wanted(const fs::path& path, FolderFiles wanted) {
  const TextFormat format = format_by_name(path);
  if (format == TextFormat::kJsonLines || format == TextFormat::kParquet) return true;
  if (wanted == FolderFiles::kConversations) return format == TextFormat::kJson;
  return std::find(kTextExtensions.begin(), kTextExtensions.end(), ending_of(path)) !=
         kTextExtensions.end();
}

bool is_hidden(const fs::path& path) { return path.filename().string().starts_with('.'); }

bool has_wildcard(std::string_view text) {
  return text.find_first_of("*?[") != std::string_view::npos;
}

// Entries of a folder by name. A folder that vanished has none.
std::vector<fs::directory_entry> entries_of(const fs::path& folder) {
  std::error_code error;
  std::vector<fs::directory_entry> entries;
  fs::directory_iterator it(folder, error), end;
  for (; !error && it != end; it.increment(error)) entries.push_back(*it);
  if (error && error != std::errc::no_such_file_or_directory) {
    throw_io_error("read the folder", folder.string(), error.value());
  }
  std::sort(entries.begin(), entries.end());
  return entries;
}

bool is_real_folder(const fs::directory_entry& entry) {
  std::error_code ignored;
  return !entry.is_symlink(ignored) && entry.is_directory(ignored);
}

using Found = std::vector<fs::path>;

// The files of a folder that are not wanted and have one ending.
struct Unread {
  std::string ending;
  std::int64_t count = 0;
  std::string first;
};

void add_unread(const fs::path& path, std::vector<Unread>& unread) {
  const std::string ending = ending_of(path);
  auto at = std::find_if(unread.begin(), unread.end(),
                         [&](const Unread& kind) { return kind.ending == ending; });
  if (at == unread.end()) at = unread.insert(at, {.ending = ending, .first = path.string()});
  ++at->count;
}

// Appends the files to `found`, and those that are not wanted to `unread`.
void search_folder(const fs::path& folder, FolderFiles wanted, Found& found,
                   std::vector<Unread>& unread) {
  for (const fs::directory_entry& entry : entries_of(folder)) {
    std::error_code ignored;
    if (is_hidden(entry.path())) continue;
    if (is_real_folder(entry)) {
      search_folder(entry.path(), wanted, found, unread);
    } else if (entry.is_regular_file(ignored)) {
      if (is_wanted(entry.path(), wanted)) {
        found.push_back(entry.path());
      } else {
        add_unread(entry.path(), unread);
      }
    }
  }
}

// "3 files of the folder F (2 .json, 1 .csv), e.g. F/a.json; a glob such as F/**/*.json* takes the
// .json files". `unread` is not empty, and .json files are its first.
std::string unread_text(const std::string& folder, const std::vector<Unread>& unread) {
  constexpr std::size_t kMostKinds = 5;
  std::int64_t count = 0, told = 0;
  std::string kinds;
  for (std::size_t i = 0; i < unread.size(); ++i) {
    count += unread[i].count;
    if (i >= kMostKinds) continue;
    told = count;
    kinds += (i > 0 ? ", " : "") + std::to_string(unread[i].count) + " " +
             (unread[i].ending.empty() ? "without an ending" : unread[i].ending);
  }
  if (told < count) kinds += ", " + std::to_string(count - told) + " others";
  const std::string advice =
      "; a glob such as " + (fs::path(folder) / "**/*.json*").string() + " takes the .json files";
  return counted(count, "file") + " of the folder " + folder + " (" + kinds + "), e.g. " +
         unread.front().first + (unread.front().ending == ".json" ? advice : "");
}

Found files_below(const std::string& folder, FolderFiles wanted, const std::string& key) {
  Found found;
  std::vector<Unread> unread;
  search_folder(folder, wanted, found, unread);
  std::sort(unread.begin(), unread.end(), [](const Unread& a, const Unread& b) {
    const bool a_json = a.ending == ".json", b_json = b.ending == ".json";
    if (a_json != b_json) return a_json;
    return a.count != b.count ? a.count > b.count : a.ending < b.ending;
  });
  const bool json = !unread.empty() && unread.front().ending == ".json";
  const std::string glob = (fs::path(folder) / "**/*.json").string();
  if (found.empty()) {
    throw IoError(
        key + (wanted == FolderFiles::kConversations
                   ? ": no conversations (.jsonl, .ndjson, .json, .parquet) in the folder " + folder
                   : ": no text file (.txt .md .py ...) in the folder " + folder +
                         "; name the files by a glob such as " +
                         (json ? glob : (fs::path(folder) / "**/*").string())),
        folder);
  }
  if (!unread.empty()) log_info(key + ": not read: " + unread_text(folder, unread));
  return found;
}

// The files below `folder` that components[at...] match.
void expand_glob(const fs::path& folder, const std::vector<std::string>& components, std::size_t at,
                 Found& found) {
  const std::string& component = components[at];
  const bool last = at + 1 == components.size();
  std::error_code ignored;
  if (!has_wildcard(component)) {
    std::string name;  // without the backslashes
    for (std::size_t i = 0; i < component.size(); ++i) {
      if (component[i] == '\\' && i + 1 < component.size()) ++i;
      name += component[i];
    }
    const fs::path path = folder / name;
    if (last ? fs::is_regular_file(path, ignored) : fs::is_directory(path, ignored)) {
      last ? found.push_back(path) : expand_glob(path, components, at + 1, found);
    }
    return;
  }
  const bool any_depth = component == "**";
  if (any_depth && !last) expand_glob(folder, components, at + 1, found);
  for (const fs::directory_entry& entry : entries_of(folder.empty() ? "." : folder)) {
    const fs::path path = folder / entry.path().filename();
    if (is_hidden(path) && !component.starts_with('.')) continue;
    if (any_depth && is_real_folder(entry)) {
      expand_glob(path, components, at, found);
    } else if (matches_glob(path.filename().string(), component)) {
      if (last && entry.is_regular_file(ignored)) found.push_back(path);
      if (!last && !any_depth && is_real_folder(entry))
        expand_glob(path, components, at + 1, found);
    }
  }
}

// Of a spec that gives no file.
std::string why_nothing(const std::string& spec) {
  std::error_code ignored;
  const fs::file_status link = fs::symlink_status(spec, ignored);
  if (fs::is_symlink(link) && !fs::exists(spec, ignored)) {
    return spec + " is a link to " + fs::read_symlink(spec, ignored).string() +
           ", and nothing is there";
  }
  if (fs::exists(link)) {
    return spec + " is a pipe, a socket or a device; write its text to a file";
  }
  return "no file matches '" + spec + "'";
}

Found files_of(const std::string& spec, const std::string& key, FolderFiles wanted) {
  std::error_code ignored;
  Found found;
  if (fs::is_regular_file(spec, ignored)) {
    found.emplace_back(spec);
  } else if (fs::is_directory(spec, ignored)) {
    found = files_below(spec, wanted, key);
  } else if (has_wildcard(spec)) {
    const fs::path pattern = fs::path(spec).lexically_normal();
    std::vector<std::string> components;
    for (const fs::path& part : pattern.relative_path()) {
      if (!part.empty()) components.push_back(part.string());
    }
    expand_glob(pattern.root_path(), components, 0, found);
  }
  if (found.empty()) throw IoError(key + ": " + why_nothing(spec), spec);
  return found;
}

TextFile describe(const fs::path& path, bool named, const std::string& key) {
  std::error_code error;
  const fs::path canonical = fs::canonical(path, error);
  struct stat status {};
  if (error || ::stat(canonical.c_str(), &status) != 0) {
    throw_io_error("read", path.string(), error ? error.value() : errno);
  }
  return {canonical.string(),
          status.st_size,
          status.st_mtim.tv_sec * 1'000'000'000 + status.st_mtim.tv_nsec,
          named,
          format_by_name(path),
          key};
}

// Does the class that follows '[' in `pattern` hold the character? Sets `rest` after the ']'. A '['
// without its ']' stands for itself.
bool class_holds(std::string_view character, std::string_view pattern, std::string_view& rest) {
  std::size_t i = 0;
  const bool negated = !pattern.empty() && (pattern[0] == '!' || pattern[0] == '^');
  if (negated) ++i;
  bool inside = false;
  for (const std::size_t first = i; i < pattern.size() && (pattern[i] != ']' || i == first);) {
    const auto next = [&] {
      const std::size_t length = character_length(pattern.substr(i));
      const std::string_view result = pattern.substr(i, length);
      i += length;
      return result;
    };
    const std::string_view low = next();
    std::string_view high = low;
    if (i + 1 < pattern.size() && pattern[i] == '-' && pattern[i + 1] != ']') {
      ++i;
      high = next();
    }
    // UTF-8 sorts as its code points do.
    inside = inside || (low <= character && character <= high);
  }
  if (i >= pattern.size()) {
    rest = pattern;
    return character == "[";
  }
  rest = pattern.substr(i + 1);
  return inside != negated;
}

// The one wildcard character at the start of non-empty `pattern` against the one at the start of
// `name`.
bool matches_one(std::string_view& name, std::string_view& pattern) {
  const std::size_t length = character_length(name);
  const std::string_view character = name.substr(0, length);
  std::string_view rest;
  bool same = false;
  if (pattern[0] == '?') {
    rest = pattern.substr(1);
    same = true;
  } else if (pattern[0] == '[') {
    same = class_holds(character, pattern.substr(1), rest);
  } else {
    if (pattern[0] == '\\' && pattern.size() > 1) pattern.remove_prefix(1);
    const std::size_t wanted = character_length(pattern);
    same = pattern.substr(0, wanted) == character;
    rest = pattern.substr(wanted);
  }
  name.remove_prefix(length);
  pattern = rest;
  return same;
}

}  // namespace

// Backtracks to the last star only, which is enough: n x m steps at most.
bool matches_glob(std::string_view name, std::string_view pattern) {
  std::string_view star_name, star_pattern;
  bool starred = false;
  while (!name.empty()) {
    if (!pattern.empty() && pattern[0] == '*') {
      pattern.remove_prefix(1);
      star_name = name;
      star_pattern = pattern;
      starred = true;
      continue;
    }
    if (!pattern.empty() && matches_one(name, pattern)) continue;
    if (!starred) return false;
    star_name.remove_prefix(character_length(star_name));
    name = star_name;
    pattern = star_pattern;
  }
  return pattern.find_first_not_of('*') == std::string_view::npos;
}

std::vector<TextFile> find_text_files(const std::vector<std::string>& specs, const std::string& key,
                                      FolderFiles folder) {
  std::vector<TextFile> files;
  for (const std::string& spec : specs) {
    std::error_code ignored;
    const bool named = fs::is_regular_file(spec, ignored);
    for (const fs::path& path : files_of(spec, key, folder)) {
      files.push_back(describe(path, named, key));
    }
  }
  // A file that was named and also found counts as named.
  std::sort(files.begin(), files.end(), [](const TextFile& a, const TextFile& b) {
    return a.path != b.path ? a.path < b.path : a.named > b.named;
  });
  files.erase(std::unique(files.begin(), files.end(),
                          [](const TextFile& a, const TextFile& b) { return a.path == b.path; }),
              files.end());
  return files;
}

std::int64_t bytes_of(const std::vector<TextFile>& files) {
  std::int64_t bytes = 0;
  for (const TextFile& file : files) bytes += file.size_bytes;
  return bytes;
}

void add_identity(Hasher& hasher, const TextFile& file) {
  hasher.add(file.path);
  hasher.add(file.size_bytes);
  hasher.add(file.modified_ns);
}

}  // namespace sluice
