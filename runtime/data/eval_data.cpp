#include "runtime/data/eval_data.hpp"

#include <filesystem>

#include "base/error.hpp"
#include "runtime/data/indexed_dataset.hpp"
#include "runtime/data/text_files.hpp"
#include "runtime/data/token_cache.hpp"
#include "runtime/data/training_data.hpp"

namespace sluice {
namespace {

std::vector<EvalStream> open_text(const DataOptions& options,
                                  const std::vector<std::string>& specs) {
  const std::unique_ptr<Tokenizer> tokenizer = make_tokenizer(options.tokenizer);
  std::vector<EvalStream> streams;
  for (const TextFile& file : find_text_files(specs)) {
    TokenCacheRequest request;
    request.folder = options.cache_dir.empty() ? ".cache/tokens" : options.cache_dir;
    request.files = {file};
    request.tokenizer = tokenizer.get();
    request.read.json_key = options.json_key;
    streams.push_back({std::filesystem::path(file.path)
                           .lexically_relative(std::filesystem::current_path())
                           .string(),
                       TokenCache::open_or_build(request)});
    // A file elsewhere is best known by its whole path.
    if (streams.back().name.starts_with("..")) streams.back().name = file.path;
  }
  return streams;
}

}  // namespace

std::vector<EvalStream> open_eval_streams(const DataOptions& options,
                                          const std::vector<std::string>& text, std::int64_t seq) {
  std::vector<EvalStream> streams;
  if (!text.empty()) {
    streams = open_text(options, text);
  } else if (!options.valid.empty()) {
    for (const std::string& prefix : options.valid) {
      streams.push_back({prefix, std::make_shared<IndexedDataset>(prefix)});
    }
  } else {
    const TrainingData data(options, seq, 0);
    streams.push_back({"validation share", data.valid_source()});
  }
  std::erase_if(streams, [](const EvalStream& stream) { return stream.source->size() < 2; });
  if (streams.empty()) {
    throw ConfigError(!text.empty()
                          ? "there is nothing to evaluate on: no file of --text has two tokens or "
                            "more; name others"
                      : !options.valid.empty()
                          ? "there is nothing to evaluate on: no prefix of data.valid has two "
                            "tokens or more; name files with --text"
                          : "there is nothing to evaluate on: data.valid is empty and data.split "
                            "leaves validation no tokens; name files with --text");
  }
  return streams;
}

}  // namespace sluice
