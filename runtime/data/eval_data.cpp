#include "runtime/data/eval_data.hpp"

#include <filesystem>

#include "base/error.hpp"
#include "runtime/data/byte_source.hpp"
#include "runtime/data/data_sets.hpp"
#include "runtime/data/document_reader.hpp"
#include "runtime/data/json_lines.hpp"
#include "runtime/data/text_files.hpp"
#include "runtime/data/token_cache.hpp"

namespace sluice {
namespace {

// Throws IoError if the file's first line is an object without a text, as a conversation is.
void check_is_text(const TextFile& file, const std::string& json_key) {
  if (file.format == TextFormat::kParquet || !has_json_lines(file, json_key)) return;
  constexpr std::size_t kLongestFirstLine = 16U << 20U;
  const auto source = open_bytes(file);
  LineReader lines(*source, kLongestFirstLine);
  std::string_view line;
  if (lines.next(line) != LineReader::Next::kLine) return;
  const JsonLine parsed = parse_json_line(line, json_key);
  if (!parsed.is_json || !parsed.is_object || parsed.has_key) return;
  throw IoError("--text: " + place_of(file, 1, 0) + ": no key '" + json_key +
                    "' (data.json_key): --text takes plain text; conversations go into data.valid "
                    "or data.test (with --test)",
                file.path);
}

std::vector<EvalStream> open_text(const DataOptions& options,
                                  const std::vector<std::string>& specs) {
  const std::unique_ptr<Tokenizer> tokenizer = make_tokenizer(options.tokenizer);
  std::vector<EvalStream> streams;
  for (const TextFile& file : find_text_files(specs, "--text")) {
    TokenCacheRequest request;
    request.folder = cache_dir_of(options);
    request.files = {file};
    request.tokenizer = tokenizer.get();
    request.read.json_key = options.json_key;
    if (!options.sft.empty()) check_is_text(file, options.json_key);
    streams.push_back({std::filesystem::path(file.path)
                           .lexically_relative(std::filesystem::current_path())
                           .string(),
                       TokenCache::open_or_build(request)});
    // A file elsewhere is best known by its whole path.
    if (streams.back().name.starts_with("..")) streams.back().name = file.path;
  }
  return streams;
}

std::string share_name(EvalShare share) {
  return share == EvalShare::kTest ? "test share" : "validation share";
}

const std::vector<MixPart>& parts_of(const DataSets& sets, EvalShare share) {
  return share == EvalShare::kTest ? sets.test : sets.valid;
}

std::vector<EvalStream> open_talks(const DataOptions& options, EvalShare share, std::int64_t seq) {
  const DataSets sets = open_data_sets(options, Caches::kBuild);
  const bool test = share == EvalShare::kTest;
  const bool named = !(test ? options.test : options.valid).empty();
  std::vector<EvalStream> streams;
  for (const MixPart& part : parts_of(sets, share)) {
    streams.push_back({named ? part.name : share_name(share) + " of " + part.name, part.source,
                       part.samples(seq)});
  }
  for (const NamedParts& set : sets.valid_sets) {
    if (test) break;
    for (const MixPart& part : set.parts) {
      const bool only = set.parts.size() == 1;
      streams.push_back(
          {only ? set.name : set.name + ": " + part.name, part.source, part.samples(seq)});
    }
  }
  return streams;
}

std::vector<EvalStream> open_share(const DataOptions& options, EvalShare share) {
  const bool test = share == EvalShare::kTest;
  const std::vector<std::string>& paths = test ? options.test : options.valid;
  std::vector<EvalStream> streams;
  DataSets sets;  // sets.tokenizer reads `paths` and the validation sets too
  if (paths.empty() && options.names_training()) {
    sets = open_data_sets(options, Caches::kBuild);
  } else if (options.tokenizer != "bytes" || reads_text(options)) {
    sets.tokenizer = make_tokenizer(options.tokenizer);
  }
  const Tokenizer* const tokenizer = sets.tokenizer.get();
  for (const std::string& path : paths) {
    streams.push_back({path, open_paths(options, {path}, tokenizer)});
  }
  if (paths.empty()) {
    const std::string name = share_name(share);
    const std::vector<MixPart>& parts = parts_of(sets, share);
    for (const MixPart& part : parts) {
      streams.push_back({parts.size() == 1 ? name : name + " of " + part.name, part.source});
    }
  }
  for (const ValidSet& set : options.valid_sets) {
    if (!test) streams.push_back({set.name, open_paths(options, set.path, tokenizer)});
  }
  return streams;
}

// Whether data.split takes a share of the training data for this set.
bool takes_share(const DataOptions& options, EvalShare share) {
  const std::size_t place = share == EvalShare::kTest ? 2 : 1;
  return options.split.size() > place && options.split[place] > 0;
}

std::string nothing_to_evaluate(const DataOptions& options, const std::vector<std::string>& text,
                                EvalShare share) {
  const bool test = share == EvalShare::kTest;
  const std::string key = test ? "data.test" : "data.valid";
  const bool paths = !(test ? options.test : options.valid).empty();
  if (text.empty() && !options.sft.empty()) {
    if (!paths && !takes_share(options, share)) {
      return "there is nothing to evaluate on: " + key + " is empty and data.split leaves " +
             (test ? "the test set" : "validation") + " no conversations; name conversations in " +
             key + ", or give data.split a " + (test ? "third" : "second") + " share";
    }
    return "there is nothing to evaluate on: no conversation of " +
           (paths ? key : std::string(test ? "the test share" : "the validation share")) +
           " has a learned token within model.seq; " +
           (paths ? "raise model.seq" : "name conversations in " + key + ", or change data.split");
  }
  return "there is nothing to evaluate on: " +
         (!text.empty() ? "no file of --text has two tokens or more; name others"
          : paths
              ? "no prefix of " + key + " has two tokens or more; name files with --text"
              : key + " is empty and data.split leaves " + (test ? "the test set" : "validation") +
                    " no tokens; name files with --text");
}

}  // namespace

std::int64_t EvalStream::counted() const {
  if (rows == nullptr) {
    std::vector<std::int64_t> starts;
    if (document_mask) source->add_starts(0, source->size(), starts);
    return source->size() - 1 - static_cast<std::int64_t>(starts.size());
  }
  std::int64_t learned = 0;
  for (std::int64_t row = 0; row < rows->samples(); ++row) learned += rows->learned(row);
  return learned;
}

std::vector<EvalStream> open_eval_streams(const DataOptions& options,
                                          const std::vector<std::string>& text, EvalShare share,
                                          std::int64_t seq) {
  std::vector<EvalStream> streams = !text.empty()          ? open_text(options, text)
                                    : !options.sft.empty() ? open_talks(options, share, seq)
                                                           : open_share(options, share);
  for (EvalStream& stream : streams) stream.document_mask = options.document_mask;
  std::erase_if(streams, [](const EvalStream& stream) { return stream.counted() < 1; });
  if (streams.empty()) throw ConfigError(nothing_to_evaluate(options, text, share));
  return streams;
}

}  // namespace sluice
