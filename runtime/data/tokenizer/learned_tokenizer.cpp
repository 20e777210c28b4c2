#include "runtime/data/tokenizer/learned_tokenizer.hpp"

#include <chrono>
#include <filesystem>
#include <system_error>

#include "base/bytes.hpp"
#include "base/error.hpp"
#include "base/log.hpp"
#include "runtime/data/file_io.hpp"
#include "runtime/data/text_files.hpp"
#include "runtime/data/token_cache.hpp"
#include "runtime/data/tokenizer/train_bpe.hpp"

namespace sluice {
namespace {

namespace fs = std::filesystem;

bool is_there(const std::string& folder) {
  std::error_code ignored;
  return fs::is_directory(folder, ignored);
}

// Into `folder`, which appears whole.
void learn(const LearnRequest& request, const std::string& folder) {
  const std::string size = std::to_string(request.vocab_size);
  log_info("data.tokenizer: learning a vocabulary of " + size + " ids from the training text");
  const auto started = std::chrono::steady_clock::now();
  const std::string part = folder + ".part";
  fs::remove_all(part);  // of a killed process
  const BpeTrainResult result = train_bpe({.text = request.text,
                                           .json_key = request.json_key,
                                           .vocab_size = request.vocab_size,
                                           .out_dir = part});
  if (result.vocab_size < request.vocab_size) {
    fs::remove_all(part);
    throw ConfigError("data.tokenizer: bpe:" + size + ": the training text has pairs for " +
                      std::to_string(result.vocab_size) + " ids only; write bpe:" +
                      std::to_string(result.vocab_size) + ", or add text");
  }
  fs::rename(part, folder);
  const double seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - started).count();
  log_info("data.tokenizer: learned in " + format_duration(seconds) + ", kept in " + folder);
}

}  // namespace

std::string learned_tokenizer_folder(const LearnRequest& request) {
  Hasher hasher;
  hasher.add("sluice learned tokenizer v1");
  hasher.add(request.vocab_size);
  add_text_files(hasher, find_text_files(request.text), request.json_key);
  return request.cache_dir + "/" + hasher.digest_hex() + ".bpe";
}

std::string learn_tokenizer(const LearnRequest& request) {
  const std::string folder = learned_tokenizer_folder(request);
  if (is_there(folder)) return folder;
  make_folder(request.cache_dir);
  const FileLock lock(folder + ".lock", "waiting for another process that learns the tokenizer");
  if (is_there(folder)) return folder;  // learned meanwhile
  try {
    learn(request, folder);
  } catch (const fs::filesystem_error& error) {
    throw IoError("data.tokenizer: cannot keep the tokenizer in " + folder + ": " +
                      error.code().message() + "; check data.cache_dir",
                  folder);
  }
  return folder;
}

}  // namespace sluice
