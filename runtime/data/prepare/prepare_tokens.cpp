#include "runtime/data/prepare/prepare_tokens.hpp"

#include <chrono>
#include <filesystem>
#include <optional>
#include <set>
#include <utility>

#include "base/bytes.hpp"
#include "base/error.hpp"
#include "base/log.hpp"
#include "base/posix/atomic_file.hpp"
#include "base/posix/lock_file.hpp"
#include "runtime/data/document_reader.hpp"
#include "runtime/data/file_io.hpp"
#include "runtime/data/hash.hpp"
#include "runtime/data/json_lines.hpp"
#include "runtime/data/parallel_items.hpp"
#include "runtime/data/prepare/indexed_writer.hpp"
#include "runtime/data/prepare/prepare_state.hpp"
#include "runtime/data/token_cache_writer.hpp"

namespace sluice {
namespace {

constexpr std::size_t kMostItems = 16384;  // of one round, so that short lines are few rounds

std::string output_of(const PrepareOptions& options, const std::string& key) {
  return options.prefix + "_" + key + "_document";
}

std::string state_path(const PrepareOptions& options) { return options.prefix + ".prepare"; }

std::string request_of(const PrepareOptions& options) {
  Hasher hasher;
  hasher.add("prepare v1");
  hasher.add(options.tokenizer->document_fingerprint());
  hasher.add(std::int64_t{options.append_eod});
  hasher.add(static_cast<std::int64_t>(options.piece_bytes));
  for (const std::string& key : options.json_keys) hasher.add(key);
  for (const TextFile& file : options.files) add_identity(hasher, file);
  return hasher.digest_hex();
}

// A line of JSON, or a piece of a plain document.
struct TextItem {
  std::size_t file = 0;     // index among the inputs
  std::int64_t number = 0;  // in its file, from 0
  std::string text{};
  std::int64_t line = 0;    // 0: plain
  std::int64_t offset = 0;  // of a piece, in its document
  bool ends_document = true;
  std::int64_t file_bytes = 0;
  std::vector<std::vector<std::byte>> tokens{};  // of each output
};

class Preparer {
 public:
  explicit Preparer(const PrepareOptions& options)
      : options_(options),
        type_(token_type_of(options.tokenizer->vocab_size())),
        threads_(threads_or_default(options.threads)),
        total_bytes_(bytes_of(options.files)),
        log_(total_bytes_) {}

  PrepareResult run(std::optional<PrepareState> from) {
    result_.resumed = from.has_value();
    if (from) {
      state_ = std::move(*from);
    } else {
      state_.request = request_of(options_);
      state_.outputs.resize(options_.json_keys.size());
    }
    if (!state_.finishing) write_all();
    for (std::size_t o = 0; o < state_.outputs.size(); ++o) {
      const std::string prefix = output_of(options_, options_.json_keys[o]);
      IndexedWriter::complete(prefix, type_);
      result_.outputs.push_back({prefix, state_.outputs[o].documents, state_.outputs[o].tokens});
    }
    result_.empty = state_.empty;
    std::filesystem::remove(state_path(options_));
    return std::move(result_);
  }

 private:
  void write_all() {
    for (std::size_t o = 0; o < state_.outputs.size(); ++o) {
      writers_.emplace_back(output_of(options_, options_.json_keys[o]), type_, state_.outputs[o]);
    }
    const auto first = static_cast<std::size_t>(state_.file);
    for (std::size_t file = first; file < options_.files.size(); ++file) {
      add_file(file, file == first ? state_.items : 0);
    }
    finish_round();
    std::int64_t tokens = 0;
    for (const IndexedWriter& writer : writers_) tokens += writer.position().tokens;
    if (tokens == 0) {
      throw IoError("data prepare: no token in " + std::to_string(options_.files.size()) +
                        " files; all are empty or without text",
                    options_.files.empty() ? "" : options_.files[0].path);
    }
    state_.finishing = true;
    record();
  }

  // The first `written` items are written: a run that goes on reads past them.
  void add_file(std::size_t index, std::int64_t written) {
    const TextFile& file = options_.files[index];
    std::int64_t seen = 0;
    const auto add = [&](TextItem&& item) {
      item.file = index;
      item.number = seen++;
      if (item.number < written) return;
      held_bytes_ += item.text.size();
      round_.push_back(std::move(item));
      const std::size_t most = options_.piece_bytes * static_cast<std::size_t>(threads_);
      if (held_bytes_ >= most || round_.size() >= kMostItems) finish_round();
    };
    if (has_json_lines(file, options_.json_keys[0])) {
      if (const std::string kind = kind_left_out(file); !kind.empty()) {
        return leave_out(file, kind);
      }
      read_lines(file, options_.json_keys, [&](const TextLine& line) {
        add({.text = std::string(line.text), .line = line.number, .file_bytes = line.file_bytes});
      });
    } else {
      add_plain(file, add);
    }
  }

  void add_plain(const TextFile& file, const std::function<void(TextItem&& item)>& add) {
    if (options_.json_keys.size() > 1) {
      throw ConfigError("data prepare: " + file.path +
                        " is no file of JSON lines, so it has no keys; give one --json-key");
    }
    const ReadResult read =
        read_documents(file, {.piece_bytes = options_.piece_bytes}, [&](DocumentPiece&& piece) {
          add({.text = std::move(piece.text),
               .offset = piece.offset,
               .ends_document = piece.ends_document,
               .file_bytes = piece.file_bytes});
        });
    if (!read.left_out.empty()) leave_out(file, read.left_out);
  }

  void leave_out(const TextFile& file, const std::string& kind) {
    ++result_.left_out;
    log_warning("data prepare: left out " + file.path + ": " + kind);
  }

  void encode(TextItem& item) const {
    const TextFile& file = options_.files[item.file];
    item.tokens.resize(options_.json_keys.size());
    for (std::size_t o = 0; o < options_.json_keys.size(); ++o) {
      std::string text;
      if (item.line > 0) {
        JsonLine parsed = parse_json_line(item.text, options_.json_keys[o]);
        if (!parsed.error.empty()) fail(file, item, 0, parsed.error);
        text = std::move(parsed.text);
      }
      try {
        const Tokenizer& tokenizer = *options_.tokenizer;
        const auto ids = item.line > 0     ? tokenizer.encode(text)
                         : item.offset > 0 ? tokenizer.encode_continued(item.text)
                                           : tokenizer.encode(item.text);
        store_tokens(type_, ids, item.tokens[o]);
      } catch (const TokenizeError& error) {
        fail(file, item, item.offset + error.offset(), error.what());
      }
    }
  }

  [[noreturn]] static void fail(const TextFile& file, const TextItem& item, std::int64_t offset,
                                const std::string& why) {
    throw IoError("data prepare: " + place_of(file, item.line, offset) + ": " + why, file.path);
  }

  void finish_round() {
    for_each_item(threads_, round_.size(), [this](std::size_t i) { encode(round_[i]); });
    std::vector<std::byte> end;
    const std::int32_t end_of_text = options_.tokenizer->end_of_text();
    if (options_.append_eod) store_tokens(type_, std::span(&end_of_text, 1), end);
    for (const TextItem& item : round_) {
      for (std::size_t o = 0; o < writers_.size(); ++o) {
        writers_[o].append(item.tokens[o]);
        if (!item.ends_document) continue;
        const bool empty = writers_[o].position().open_tokens == 0;
        if (!empty) writers_[o].append(end);
        writers_[o].end_document();
        state_.empty += empty ? 1 : 0;
      }
      state_.input_bytes += item.file_bytes;
      unrecorded_bytes_ += static_cast<std::int64_t>(item.text.size());
      state_.file = static_cast<std::int64_t>(item.file);
      state_.items = item.number + 1;
    }
    round_.clear();
    held_bytes_ = 0;
    if (unrecorded_bytes_ >= options_.record_bytes) record();
    report();
  }

  void record() {
    for (std::size_t o = 0; o < writers_.size(); ++o) state_.outputs[o] = writers_[o].sync();
    write_file_atomically(state_path(options_), write_prepare_state(state_));
    unrecorded_bytes_ = 0;
  }

  void report() {
    if (options_.progress) return options_.progress(state_.input_bytes, total_bytes_);
    log_.report(state_.input_bytes);
  }

  const PrepareOptions& options_;
  const TokenType type_;
  const int threads_;
  const std::int64_t total_bytes_;
  TokenisingLog log_;
  std::int64_t unrecorded_bytes_ = 0;  // of text, since the last record
  PrepareState state_;
  PrepareResult result_;
  std::vector<IndexedWriter> writers_;
  std::vector<TextItem> round_;
  std::size_t held_bytes_ = 0;  // text of round_
};

void check_request(const PrepareOptions& options) {
  check(options.tokenizer != nullptr && options.piece_bytes > 0, "prepare_tokens: no tokenizer");
  std::set<std::string> seen;
  for (const std::string& key : options.json_keys) {
    if (!seen.insert(key).second) {
      throw ConfigError("data prepare: --json-key names '" + key + "' twice");
    }
    if (key.empty() || key.find('/') != std::string::npos) {
      throw ConfigError("data prepare: --json-key '" + key +
                        "' cannot be part of a file's name; rename the key");
    }
  }
  if (options.json_keys.empty()) throw ConfigError("data prepare: --json-key names no key");
}

void check_outputs(const PrepareOptions& options) {
  for (const std::string& key : options.json_keys) {
    check_new_pair("prepare", output_of(options, key));
  }
}

// The record of an interrupted run of the same request.
std::optional<PrepareState> find_state(const PrepareOptions& options) {
  constexpr std::int64_t kLargest = 1 << 20;
  const std::string path = state_path(options);
  if (!path_exists(path)) return std::nullopt;
  std::optional<PrepareState> state = read_prepare_state(read_whole_file(path, kLargest));
  if (!state || state->outputs.size() != options.json_keys.size() ||
      state->request != request_of(options)) {
    log_warning("data prepare: " + path +
                " is of other inputs or options, or damaged; beginning again");
    return std::nullopt;
  }
  log_info("data prepare: going on after " + format_bytes(state->input_bytes));
  return state;
}

}  // namespace

PrepareResult prepare_tokens(const PrepareOptions& options) {
  check_request(options);
  make_parent_folder(options.prefix);
  LockFile lock;
  if (!lock.take(options.prefix + ".prepare.lock", std::chrono::milliseconds(0))) {
    throw ConfigError("data prepare: another process prepares " + options.prefix +
                      "; wait for its end, or give another prefix");
  }
  std::optional<PrepareState> state = find_state(options);
  if (!state || !state->finishing) check_outputs(options);
  PrepareResult result = Preparer(options).run(std::move(state));
  lock.remove();
  return result;
}

}  // namespace sluice
