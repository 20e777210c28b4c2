#include "tests/runtime/checkpoint/crash_file_system.hpp"

#include <algorithm>
#include <cerrno>
#include <optional>
#include <utility>

#include "base/error.hpp"

namespace sluice::testing {

using Node = CrashFileSystem::Node;
using Entries = std::map<std::string, std::shared_ptr<Node>>;

struct CrashFileSystem::Node {
  struct Write {  // offset -1: the file is cut to nothing
    std::int64_t offset = 0;
    std::vector<std::byte> bytes;
  };
  struct Change {  // all of it or nothing; null: the name goes
    std::vector<std::pair<std::string, std::shared_ptr<Node>>> names;
  };
  bool directory = false;
  // As programs see it, as it was when last synced, and what happened since.
  std::vector<std::byte> bytes, synced_bytes;
  std::vector<Write> writes;
  Entries entries, synced_entries;
  std::vector<Change> changes;

  void apply(const Change& change) {
    changes.push_back(change);
    apply_to(entries, change);
  }
  static void apply_to(Entries& entries, const Change& change) {
    for (const auto& [name, node] : change.names) {
      if (node) {
        entries[name] = node;
      } else {
        entries.erase(name);
      }
    }
  }
  void apply(Write write) {
    apply_to(bytes, write);
    writes.push_back(std::move(write));
  }
  static void apply_to(std::vector<std::byte>& bytes, const Write& write) {
    if (write.offset < 0) {
      bytes.clear();
      return;
    }
    const auto end = static_cast<std::size_t>(write.offset) + write.bytes.size();
    if (bytes.size() < end) bytes.resize(end);
    std::copy(write.bytes.begin(), write.bytes.end(), bytes.begin() + write.offset);
  }
};

namespace {

constexpr std::size_t kSector = 32;  // small, as the files are

[[noreturn]] void fail(const std::string& path, int error) {
  throw IoError("cannot use " + path, path, error);
}

// What is where a sector did not arrive though the file's length did.
enum class Gap { kAsBefore, kZeros, kStale };

// A write of which only some sectors arrived, or none.
void apply_torn(std::vector<std::byte>& bytes, const Node::Write& write, Gap gap, bool none,
                std::mt19937& random) {
  const auto begin = static_cast<std::size_t>(write.offset);
  if (gap != Gap::kAsBefore && bytes.size() < begin + write.bytes.size()) {
    const std::size_t from = bytes.size();
    bytes.resize(begin + write.bytes.size());
    // What a file that is gone had there.
    for (std::size_t i = from; gap == Gap::kStale && i < bytes.size(); ++i) {
      bytes[i] = static_cast<std::byte>(random());
    }
  }
  for (std::size_t at = 0; at < write.bytes.size(); at += kSector) {
    if (none || random() % 2 == 0) continue;
    const std::size_t end = std::min(at + kSector, write.bytes.size());
    Node::apply_to(bytes, {write.offset + static_cast<std::int64_t>(at),
                           {write.bytes.begin() + static_cast<std::ptrdiff_t>(at),
                            write.bytes.begin() + static_cast<std::ptrdiff_t>(end)}});
  }
}

std::shared_ptr<Node> survivor(const Node& node, std::mt19937& random) {
  auto result = std::make_shared<Node>();
  result->directory = node.directory;
  // 0: nothing unsynced arrives, 1: all, 2: of contents only the lengths; else piece by piece, and
  // the later without the earlier.
  const unsigned fate = random() % 6;
  const auto gap = static_cast<Gap>(fate == 2 ? 1 + random() % 2 : random() % 3);
  const auto arrives = [&] { return fate == 1 || (fate > 1 && random() % 2 == 0); };
  Entries entries = node.synced_entries;
  for (const Node::Change& change : node.changes) {
    if (arrives()) Node::apply_to(entries, change);
  }
  for (const auto& [name, child] : entries) result->entries[name] = survivor(*child, random);
  result->synced_entries = result->entries;
  result->bytes = node.synced_bytes;
  for (const Node::Write& write : node.writes) {
    if (arrives() && fate != 2) {
      Node::apply_to(result->bytes, write);
    } else if (fate > 1 && write.offset >= 0) {
      apply_torn(result->bytes, write, gap, fate == 2, random);
    }
  }
  result->synced_bytes = result->bytes;
  return result;
}

std::shared_ptr<Node> duplicate(const std::shared_ptr<Node>& node,
                                std::map<const Node*, std::shared_ptr<Node>>& done) {
  if (!node) return nullptr;
  if (const auto at = done.find(node.get()); at != done.end()) return at->second;
  auto result = std::make_shared<Node>(*node);
  done[node.get()] = result;
  for (auto& [name, child] : result->entries) child = duplicate(child, done);
  for (auto& [name, child] : result->synced_entries) child = duplicate(child, done);
  for (Node::Change& change : result->changes) {
    for (auto& [name, child] : change.names) child = duplicate(child, done);
  }
  return result;
}

std::string last_name(const std::string& path) {
  const std::size_t slash = path.rfind('/');
  return slash == std::string::npos ? path : path.substr(slash + 1);
}

}  // namespace

class CrashFile final : public File {
 public:
  CrashFile(CrashFileSystem& files, std::shared_ptr<Node> node)
      : files_(files), node_(std::move(node)) {}
  void write(std::int64_t offset, std::span<const std::byte> bytes) override {
    // A call that the power ends may have done its work, or a part of it.
    node_->apply(Node::Write{offset, {bytes.begin(), bytes.end()}});
    files_.count();
  }
  std::int64_t read(std::int64_t offset, std::span<std::byte> bytes) override {
    const auto size = static_cast<std::int64_t>(node_->bytes.size());
    const std::int64_t take =
        std::clamp<std::int64_t>(size - offset, 0, static_cast<std::int64_t>(bytes.size()));
    std::copy_n(node_->bytes.begin() + std::min(offset, size), take, bytes.begin());
    return take;
  }
  void start_writeback(std::int64_t, std::int64_t) override { files_.count(); }
  void wait_for_writeback(std::int64_t, std::int64_t) override { files_.count(); }
  void sync() override {
    files_.count();
    if (files_.ignore_syncs_) return;
    node_->synced_bytes = node_->bytes;
    node_->writes.clear();
  }
  std::int64_t size() override { return static_cast<std::int64_t>(node_->bytes.size()); }

 private:
  CrashFileSystem& files_;
  std::shared_ptr<Node> node_;
};

CrashFileSystem::CrashFileSystem() : root_(std::make_shared<Node>()) { root_->directory = true; }
CrashFileSystem::~CrashFileSystem() = default;

void CrashFileSystem::count() {
  if (calls_left_-- <= 0) {
    calls_left_ = 0;
    throw PowerLoss{};
  }
}

std::unique_ptr<CrashFileSystem> CrashFileSystem::copy() const {
  auto result = std::make_unique<CrashFileSystem>();
  std::map<const Node*, std::shared_ptr<Node>> done;
  result->root_ = duplicate(root_, done);
  return result;
}

std::unique_ptr<CrashFileSystem> CrashFileSystem::after_crash(std::mt19937& random) const {
  auto result = std::make_unique<CrashFileSystem>();
  result->root_ = survivor(*root_, random);
  return result;
}

std::shared_ptr<Node> CrashFileSystem::find(const std::string& path) const {
  std::shared_ptr<Node> node = root_;
  std::size_t begin = 0;
  while (node && begin < path.size()) {
    const std::size_t end = std::min(path.find('/', begin), path.size());
    const std::string name = path.substr(begin, end - begin);
    begin = end + 1;
    if (name.empty() || name == ".") continue;
    const auto at = node->entries.find(name);
    node = at == node->entries.end() ? nullptr : at->second;
  }
  return node;
}

std::shared_ptr<Node> CrashFileSystem::directory_of(const std::string& path) const {
  std::shared_ptr<Node> node = find(parent_path(path));
  if (!node || !node->directory) fail(path, ENOENT);
  return node;
}

std::unique_ptr<File> CrashFileSystem::create(const std::string& path) {
  const std::shared_ptr<Node> parent = directory_of(path);
  std::shared_ptr<Node> node = find(path);
  if (node) {
    node->apply(Node::Write{-1, {}});
  } else {
    node = std::make_shared<Node>();
    parent->apply(Node::Change{{{last_name(path), node}}});
  }
  count();
  return std::make_unique<CrashFile>(*this, node);
}

std::unique_ptr<File> CrashFileSystem::open(const std::string& path) {
  const std::shared_ptr<Node> node = find(path);
  if (!node) fail(path, ENOENT);
  return std::make_unique<CrashFile>(*this, node);
}

bool CrashFileSystem::make_dir(const std::string& path) {
  if (find(path)) return false;
  auto node = std::make_shared<Node>();
  node->directory = true;
  directory_of(path)->apply(Node::Change{{{last_name(path), node}}});
  count();
  return true;
}

void CrashFileSystem::rename(const std::string& from, const std::string& to) {
  const std::shared_ptr<Node> node = find(from);
  if (!node || directory_of(from) != directory_of(to)) fail(from, ENOENT);
  directory_of(to)->apply(Node::Change{{{last_name(to), node}, {last_name(from), nullptr}}});
  count();
}

void CrashFileSystem::remove(const std::string& path) {
  if (find(path)) directory_of(path)->apply(Node::Change{{{last_name(path), nullptr}}});
  count();
}

void CrashFileSystem::unlink(const std::string& path) {
  if (const auto node = find(path); node && node->directory) fail(path, EISDIR);
  remove(path);
}

void CrashFileSystem::remove_dir(const std::string& path) {
  if (const auto node = find(path); node && !node->entries.empty()) fail(path, ENOTEMPTY);
  remove(path);
}

void CrashFileSystem::sync_dir(const std::string& path) {
  count();
  const std::shared_ptr<Node> node = find(path);
  if (!node) fail(path, ENOENT);
  if (path == forbidden_) fail(path, EACCES);
  if (ignore_syncs_) return;
  node->synced_entries = node->entries;
  node->changes.clear();
}

std::optional<FileStat> CrashFileSystem::stat(const std::string& path) {
  const std::shared_ptr<Node> node = find(path);
  if (!node) return std::nullopt;
  return FileStat{node->directory, static_cast<std::int64_t>(node->bytes.size())};
}

std::vector<std::string> CrashFileSystem::list(const std::string& dir) {
  const std::shared_ptr<Node> node = find(dir);
  if (!node) fail(dir, ENOENT);
  std::vector<std::string> names;
  for (const auto& [name, child] : node->entries) names.push_back(name);
  return names;
}

}  // namespace sluice::testing
