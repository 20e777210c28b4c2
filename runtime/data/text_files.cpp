#include "runtime/data/text_files.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <filesystem>
#include <unordered_set>

#include "kernels/base/error.hpp"
#include "runtime/data/file_io.hpp"
#include "runtime/data/utf8.hpp"

namespace sluice {
namespace {

namespace fs = std::filesystem;

// Prose, markup and source code. Not data such as .json or .csv: who wants these says so with a
// glob.
constexpr std::array<std::string_view, 47> kTextExtensions{
    ".txt", ".text", ".md",  ".markdown", ".rst",   ".tex",  ".org", ".adoc", ".html",  ".htm",
    ".py",  ".pyi",  ".c",   ".h",        ".cc",    ".cpp",  ".cxx", ".hh",   ".hpp",   ".hxx",
    ".cu",  ".cuh",  ".inl", ".rs",       ".go",    ".java", ".kt",  ".js",   ".ts",    ".jsx",
    ".tsx", ".rb",   ".php", ".pl",       ".sh",    ".lua",  ".jl",  ".r",    ".swift", ".scala",
    ".hs",  ".ml",   ".sql", ".f90",      ".cmake", ".s",    ".el"};
// A text longer than this without a place to cut it is cut between two characters.
constexpr std::size_t kLongestUncut = 64U << 20U;
constexpr std::size_t kBinaryProbe = 8192;

bool is_text_name(const fs::path& path) {
  std::string extension = path.extension().string();
  for (char& c : extension) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  return std::find(kTextExtensions.begin(), kTextExtensions.end(), extension) !=
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
    throw_io("cannot read the folder", folder.string(), error.value());
  }
  std::sort(entries.begin(), entries.end());
  return entries;
}

bool is_real_folder(const fs::directory_entry& entry) {
  std::error_code ignored;
  return !entry.is_symlink(ignored) && entry.is_directory(ignored);
}

using Found = std::vector<fs::path>;

void search_folder(const fs::path& folder, Found& found) {
  for (const fs::directory_entry& entry : entries_of(folder)) {
    std::error_code ignored;
    if (is_hidden(entry.path())) continue;
    if (is_real_folder(entry)) {
      search_folder(entry.path(), found);
    } else if (entry.is_regular_file(ignored) && is_text_name(entry.path())) {
      found.push_back(entry.path());
    }
  }
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

Found files_of(const std::string& spec) {
  std::error_code ignored;
  Found found;
  if (fs::is_regular_file(spec, ignored)) {
    found.emplace_back(spec);
  } else if (fs::is_directory(spec, ignored)) {
    search_folder(spec, found);
    if (found.empty()) {
      throw IoError("data.text: no text file (.txt .md .py ...) in the folder " + spec +
                        "; name the files by a glob such as " + spec + "/**/*",
                    spec);
    }
  } else if (has_wildcard(spec)) {
    const fs::path pattern = fs::path(spec).lexically_normal();
    std::vector<std::string> components;
    for (const fs::path& part : pattern.relative_path()) {
      if (!part.empty()) components.push_back(part.string());
    }
    expand_glob(pattern.root_path(), components, 0, found);
  }
  if (found.empty()) throw IoError("data.text: no file matches '" + spec + "'", spec);
  return found;
}

TextFile describe(const fs::path& path, bool named) {
  std::error_code error;
  const fs::path canonical = fs::canonical(path, error);
  struct stat status {};
  if (error || ::stat(canonical.c_str(), &status) != 0) {
    throw_io("cannot read", path.string(), error ? error.value() : errno);
  }
  return {canonical.string(), status.st_size,
          status.st_mtim.tv_sec * 1'000'000'000 + status.st_mtim.tv_nsec, named};
}

// False where the last character may be white space. One newline after a visible character is a
// word of its own, of several the last one goes apart, but only when text follows.
bool ends_visibly(std::string_view text) {
  const auto last = static_cast<unsigned char>(text.back());
  if (last < 0x80) return last > 0x20 && last < 0x7F;
  if (text.size() < 3) return false;
  const std::string_view character = text.substr(text.size() - 3);
  const auto lead = static_cast<unsigned char>(character[0]);
  return lead >= 0xE3 && lead <= 0xEF && character != "\u3000";
}

// Bytes of the UTF-8 character at the start of `text`, 1 where it is none.
std::size_t character_length(std::string_view text) {
  const auto lead = static_cast<unsigned char>(text[0]);
  const std::size_t length = lead < 0xC2 ? 1 : lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
  return valid_utf8_prefix(text.substr(0, length)) == length ? length : 1;
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

std::vector<TextFile> find_text_files(const std::vector<std::string>& specs) {
  std::vector<TextFile> files;
  for (const std::string& spec : specs) {
    std::error_code ignored;
    const bool named = fs::is_regular_file(spec, ignored);
    for (const fs::path& path : files_of(spec)) files.push_back(describe(path, named));
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

std::size_t find_cut(std::string_view text) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  for (std::size_t i = text.size(); i-- > 1;) {
    const unsigned char before = byte(i - 1), after = byte(i);
    if (after == ' ' && before > 0x20 && before < 0x7F) return i;
    if (before != '\n' || i < 2) continue;
    const bool letter = (after >= 'a' && after <= 'z') || (after >= 'A' && after <= 'Z') ||
                        (after >= 0xE4 && after <= 0xE9);  // U+4000..U+9FFF: ideographs
    if (letter && ends_visibly(text.substr(0, i - 1))) return i;
  }
  return 0;
}

bool read_pieces(const TextFile& file, std::size_t piece_bytes,
                 const std::function<void(std::string&& text, bool is_last)>& piece) {
  const FileHandle handle(file.path, O_RDONLY, "cannot read");
  std::string text;
  std::int64_t read_bytes = 0;
  for (bool first = true; read_bytes < file.size_bytes; first = false) {
    const std::size_t held = text.size();
    const auto wanted = std::min<std::size_t>(
        std::max(piece_bytes, held), static_cast<std::size_t>(file.size_bytes - read_bytes));
    text.resize(held + wanted);
    const ssize_t count = ::pread(handle.fd(), text.data() + held, wanted, read_bytes);
    if (count < 0 && errno != EINTR) throw_io("cannot read", file.path, errno);
    if (count == 0) {
      throw IoError(file.path + " became shorter while it was read; leave the text alone meanwhile",
                    file.path);
    }
    text.resize(held + static_cast<std::size_t>(std::max<ssize_t>(count, 0)));
    read_bytes += std::max<ssize_t>(count, 0);
    const bool binary =
        first && !file.named &&
        std::string_view(text).substr(0, kBinaryProbe).find('\0') != std::string::npos;
    if (binary) return false;
    if (read_bytes == file.size_bytes) break;
    std::size_t cut = find_cut(text);
    if (cut == 0 && text.size() >= kLongestUncut) cut = valid_utf8_prefix(text);
    if (cut == 0 && text.size() >= kLongestUncut) cut = text.size();
    if (cut == 0) continue;
    std::string rest = text.substr(cut);
    text.resize(cut);
    piece(std::move(text), false);
    text = std::move(rest);
  }
  if (!text.empty()) piece(std::move(text), true);
  return true;
}

}  // namespace sluice
