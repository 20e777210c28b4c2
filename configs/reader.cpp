#include "configs/reader.hpp"

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <optional>
#include <utility>

#include "configs/idle_keys.hpp"
#include "configs/interpret.hpp"
#include "configs/problems.hpp"
#include "configs/suggest.hpp"
#include "configs/yaml_tree.hpp"

namespace sluice {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kMaxFileBytes = std::size_t{2} << 20;  // above what parse_yaml takes
constexpr std::size_t kMaxChain = 16;                        // files that inherit from each other

constexpr std::size_t kPathLimit = 4096;  // a path is shown whole: cut short it would lead nowhere

std::string shown_path(std::string_view path) { return printable(path, kPathLimit); }

// The file's text, or the reason why it cannot be read.
struct FileText {
  std::string text;
  std::string failure;
};

FileText read_file(const std::string& path) {
  if (!is_clean_text(path, false)) return {"", "has control characters in its name, rename it"};
  std::error_code error;
  if (fs::is_directory(path, error)) return {"", "is a folder, expected a file"};
  errno = 0;
  std::ifstream stream(path, std::ios::binary);
  if (!stream) return {"", std::string("cannot be read: ") + std::strerror(errno)};
  FileText file;
  file.text.resize(kMaxFileBytes);
  stream.read(file.text.data(), static_cast<std::streamsize>(file.text.size()));
  if (stream.bad()) return {"", std::string("cannot be read: ") + std::strerror(errno)};
  file.text.resize(static_cast<std::size_t>(stream.gcount()));
  return file;
}

// The same file by any name.
std::string identity_of(const std::string& path) {
  std::error_code error;
  const fs::path canonical = fs::weakly_canonical(path, error);
  return error ? path : canonical.string();
}

// The file that `base:` of the file `by` names: beside `by` or, where nothing is, beside the file
// that `by` is a link to.
std::string base_path(const std::string& by, const std::string& base) {
  std::string beside = (fs::path(by).parent_path() / base).lexically_normal().string();
  std::error_code error;
  if (fs::exists(beside, error)) return beside;
  const fs::path real = fs::canonical(by, error);
  if (error) return beside;
  const fs::path there = (real.parent_path() / base).lexically_normal();
  return fs::exists(there, error) ? there.string() : beside;
}

class Loader {
 public:
  GivenValues values;
  Problems problems;

  void load_file(const std::string& path) { load(path, BaseReference{}); }

  void load_override(const std::string& argument) {
    const DocumentSource source{.is_set = true, .text = argument};
    const std::size_t equals = argument.find('=');
    const std::size_t dot = argument.substr(0, equals).find('.');
    if (equals == std::string::npos || equals == 0) {
      problems.add(source.at(0, 0).place(), "", "expected section.key=value");
      return;
    }
    YamlDocument value = parse_yaml(argument.substr(equals + 1));
    for (const YamlProblem& problem : value.problems) {
      problems.add(source.at(0, 0).place(), printable(argument.substr(0, equals)), problem.what);
    }
    if (!value.problems.empty()) return;
    YamlNode root = std::move(value.root);
    if (dot != std::string::npos) root = wrap(argument.substr(dot + 1, equals - dot - 1), root);
    root = wrap(argument.substr(0, std::min(dot, equals)), root);
    (void)find_base(source, root, problems);
    interpret_document(source, root, values, problems);
  }

  void load_text(const DocumentSource& source, const std::string& text) {
    const YamlDocument document = parse_yaml(text);
    if (!document.problems.empty()) {
      const std::string foreign = foreign_text_complaint(text, shown_path(source.text));
      if (!foreign.empty()) return problems.add(shown_path(source.text), "", foreign);
    }
    for (const YamlProblem& problem : document.problems) {
      problems.add(source.at(problem.line, problem.column).place(), "", problem.what);
    }
    if (!document.problems.empty()) return;
    const YamlNode& root = document.root;
    if (root.kind == YamlNode::Kind::kNull) {
      problems.add(shown_path(source.text), "",
                   "holds nothing, expected sections such as model:, data:, train:");
    } else if (root.kind != YamlNode::Kind::kMap) {
      problems.add(source.place(root), "",
                   std::string("found ") +
                       (root.kind == YamlNode::Kind::kList ? "a list" : in_quotes(root.text)) +
                       ", expected sections such as model:, data:, train:");
    } else if (const std::string foreign = foreign_complaint(root, shown_path(source.text));
               !foreign.empty()) {
      problems.add(shown_path(source.text), "", foreign);
    } else {
      if (const auto base = find_base(source, root, problems)) {
        load(base_path(source.text, base->path), *base);
      }
      interpret_document(source, root, values, problems);
    }
  }

 private:
  static YamlNode wrap(const std::string& name, const YamlNode& value) {
    YamlNode map;
    map.kind = YamlNode::Kind::kMap;
    YamlNode key;
    key.kind = YamlNode::Kind::kScalar;
    key.text = name;
    map.entries.push_back({key, value});
    return map;
  }

  // `by` is the base: line that names this file; its place is empty for the first file.
  void load(const std::string& path, const BaseReference& by) {
    if (!enter(path, by)) return;
    const FileText file = read_file(path);
    if (file.failure.empty()) {
      load_text({.is_set = false, .text = path}, file.text);
    } else if (by.place.empty()) {
      problems.add(shown_path(path), "", file.failure);
    } else {
      problems.add(by.place, "base", in_quotes(path, kPathLimit) + " " + file.failure);
    }
    chain_.pop_back();
  }

  bool enter(const std::string& path, const BaseReference& by) {
    const std::string identity = identity_of(path);
    std::string cycle;
    for (const auto& [name, known] : chain_) {
      if (!cycle.empty() || known == identity) cycle += shown_path(name) + " -> ";
    }
    if (!cycle.empty()) {
      problems.add(by.place, "base",
                   cycle + shown_path(path) + " is a cycle, expected a chain that ends");
      return false;
    }
    if (chain_.size() >= kMaxChain) {
      problems.add(by.place, "base",
                   "a chain of more than " + std::to_string(kMaxChain) + " files");
      return false;
    }
    chain_.emplace_back(path, identity);
    return true;
  }

  std::vector<std::pair<std::string, std::string>> chain_;  // path as named, identity
};

}  // namespace

std::string Origin::place() const {
  if (is_set) return "--set " + printable(text);
  if (line <= 0) return shown_path(text);
  return shown_path(text) + ":" + std::to_string(line) + ":" + std::to_string(column);
}

bool LoadedConfig::given(std::string_view key) const { return origins.contains(key); }

bool LoadedConfig::overridden(std::string_view key, std::string_view other) const {
  const auto first = origins.find(key);
  const auto second = origins.find(other);
  if (first == origins.end() || second == origins.end()) return false;
  const Origin& a = first->second;
  const Origin& b = second->second;
  return a.is_set || b.is_set || a.text != b.text;
}

std::string LoadedConfig::place(std::string_view key) const {
  const auto found = origins.find(key);
  return found == origins.end() ? shown_path(path) + " (default)" : found->second.place();
}

namespace {

LoadedConfig finish(Loader& loader, const std::string& path,
                    const std::vector<std::string>& overrides) {
  for (const std::string& override_text : overrides) loader.load_override(override_text);
  loader.problems.throw_if_any();

  LoadedConfig loaded;
  loaded.path = path;
  for (auto& [name, given] : loader.values) {
    find_key(name)->set(loaded.run, given.value);
    loaded.origins.emplace(name, std::move(given.origin));
  }
  const fs::path file(path);
  if (loaded.run.output.dir.empty()) loaded.run.output.dir = "runs/" + file.stem().string();
  if (loaded.run.data.cache_dir.empty()) {
    loaded.run.data.cache_dir = (file.parent_path() / ".cache" / "tokens").string();
  }
  settle_idle_keys(loaded);
  return loaded;
}

// A relative path that does not exist may name a configuration that an installed package brings:
// "quickstart.yaml" and "configs/quickstart.yaml" are then this file. Otherwise `path` itself.
std::string shipped_config(const std::string& path) {
  const char* shipped = std::getenv("SLUICE_SHIPPED");  // set by the launcher of a package
  std::error_code error;
  if (shipped == nullptr || *shipped == '\0' || path.empty() || fs::path(path).is_absolute() ||
      fs::exists(path, error)) {
    return path;
  }
  for (const fs::path& folder : {fs::path(shipped), fs::path(shipped) / "configs"}) {
    const fs::path file = folder / path;
    if (file.extension() == ".yaml" && fs::is_regular_file(file, error)) return file.string();
  }
  return path;
}

}  // namespace

LoadedConfig load_config(const std::string& path, const std::vector<std::string>& overrides) {
  Loader loader;
  loader.load_file(shipped_config(path));
  return finish(loader, path, overrides);
}

LoadedConfig load_config_text(const std::string& name, const std::string& text,
                              const std::vector<std::string>& overrides) {
  Loader loader;
  loader.load_text({.is_set = false, .text = name}, text);
  return finish(loader, name, overrides);
}

}  // namespace sluice
