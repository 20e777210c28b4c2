#include "runtime/cli/checkpoint_tokenizer.hpp"

#include "base/error.hpp"
#include "runtime/checkpoint/io/tokenizer_files.hpp"
#include "runtime/cli/command_output.hpp"
#include "runtime/cli/setup/hf_setup.hpp"
#include "runtime/data/tokenizer/learned_options.hpp"
#include "runtime/data/tokenizer/tokenizer_json_write.hpp"
#include "runtime/data/tokenizer/tokenizer_source.hpp"

namespace sluice {

std::string own_tokenizer(const Checkpoint& checkpoint) {
  const TokenizerRecord& tokenizer = checkpoint.manifest().run.tokenizer;
  if (!tokenizer.known()) return "";
  const bool built_in = tokenizer.fingerprint == text_fingerprint(TokenizerKind::kBytes, {});
  return built_in ? "bytes" : checkpoint.path();
}

std::string own_chat_template(const Checkpoint& checkpoint) {
  const std::string name = "chat_template.jinja";
  const bool there = checkpoint.manifest().run.tokenizer.has_file(name);
  return there ? join_path(checkpoint.path(), name) : "";
}

void check_is_own_tokenizer(const Checkpoint& checkpoint, const std::string& spec,
                            const std::string& place) {
  const std::string theirs = tokenizer_fingerprint(spec);
  const std::string& ours = checkpoint.manifest().run.tokenizer.fingerprint;
  if (theirs == ours) return;
  // Our own export of it is the same tokenizer in another file.
  const std::string own = own_tokenizer(checkpoint);
  if (find_tokenizer(own).kind != TokenizerKind::kSentencePiece &&
      theirs == text_fingerprint(TokenizerKind::kJson, {write_tokenizer_json(own)})) {
    return;
  }
  throw ConfigError(place + ": the tokenizer " + spec + " (" + theirs +
                    ") is not the one that checkpoint " + checkpoint.path() +
                    " was trained with (" + ours + "), which lies in it: leave it out");
}

namespace {

// bpe:N names the tokenizer that the run learned, which lies in the checkpoint.
void check_is_own_size(const Checkpoint& checkpoint, const std::string& spec,
                       const std::string& place) {
  const std::int64_t vocab = checkpoint.manifest().run.tokenizer.vocab;
  if (learned_vocab(spec) == vocab) return;
  throw ConfigError(place + ": " + spec + " is not the tokenizer that checkpoint " +
                    checkpoint.path() + " was trained with, which has " + std::to_string(vocab) +
                    " ids and lies in the checkpoint: leave the key out");
}

}  // namespace

std::string take_tokenizer(LoadedConfig& config, const Written& written,
                           const Checkpoint& checkpoint) {
  std::string& spec = config.run.data.tokenizer;
  std::string named = written("data.tokenizer") ? spec : "";
  std::string place = config.place("data.tokenizer") + ": data.tokenizer";
  if (named.empty() && written("model.from")) {
    named = hf_tokenizer_of(config.run.model.from);
    place = config.place("model.from") + ": model.from";
  }
  spec = own_tokenizer(checkpoint);
  TokenizerRecord record = checkpoint.manifest().run.tokenizer;
  read_tokenizer_files(local_file_system(), checkpoint.path(), record);
  const std::string chat_template = own_chat_template(checkpoint);
  if (!chat_template.empty() && !written("data.chat_template")) {
    config.run.data.chat_template = chat_template;
  }
  const auto origin = config.origins.find("data.tokenizer");
  const bool is_set = origin != config.origins.end() && origin->second.is_set;
  if (named.empty()) return "";
  if (is_learned_tokenizer(named)) {
    check_is_own_size(checkpoint, named, place);
    return "";
  }
  if (named != "bytes" && !is_set && !exists(named)) {
    return place + ": " + named + " is not there: the tokenizer in " + checkpoint.path() +
           " is taken";
  }
  check_is_own_tokenizer(checkpoint, named, place);
  return "";
}

}  // namespace sluice
