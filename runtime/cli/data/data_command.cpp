#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "base/bytes.hpp"
#include "base/error.hpp"
#include "base/log.hpp"
#include "configs/reader.hpp"
#include "runtime/cli/commands.hpp"
#include "runtime/cli/setup/hf_setup.hpp"
#include "runtime/data/chat/conversation_sets.hpp"
#include "runtime/data/chat/sample_view.hpp"
#include "runtime/data/prepare/document_text.hpp"
#include "runtime/data/prepare/indexed_tools.hpp"
#include "runtime/data/prepare/prepare_tokens.hpp"
#include "runtime/data/text_files.hpp"
#include "runtime/data/tokenizer/tokenizer.hpp"
#include "runtime/data/training_data.hpp"
#include "runtime/observe/terminal.hpp"

namespace sluice {
namespace {

DocumentProgress progress_of(const char* action) {
  return [action](std::int64_t done, std::int64_t total) {
    log_info(std::string(action) + ": " + std::to_string(done) + " of " + std::to_string(total));
  };
}

// Context and learned text of the first conversations of each part.
void show_conversations(const DataOptions& options, const Tokenizer& tokenizer,
                        std::int64_t samples) {
  const ChatEncoder encoder(tokenizer, options.tokenizer, options.chat_template, options.train_on);
  const SampleView view{.color = terminal_info(STDOUT_FILENO).colors};
  for (const SftPart& part : options.sft) {
    const auto cache = open_conversations(options, part, encoder);
    std::printf("\n%s: %s\n", part.path.c_str(), cache->counts().text().c_str());
    for (std::int64_t i = 0; i < std::min(samples, cache->counts().read); ++i) {
      const std::string shown = show_sample(tokenizer, cache->tokens_of(i), i + 1, view);
      std::printf("%s: %s", cache->place(i).c_str(), shown.c_str());
    }
  }
}

}  // namespace

int run_data_inspect(const DataCommand& command) {
  LoadedConfig config = load_config(command.inputs.front(), command.overrides);
  settle_model_from(config);
  const std::int64_t seq = config.run.model.seq;
  if (!command.chat_template.empty()) config.run.data.chat_template = command.chat_template;
  const TrainingData data(config.run.data, seq, config.run.train.seed);
  const auto row = [](const char* name, std::int64_t tokens, std::int64_t samples) {
    std::printf("%-12s %10s tokens  %10s samples\n", name,
                format_count(static_cast<double>(tokens)).c_str(),
                format_count(static_cast<double>(samples)).c_str());
  };
  if (data.tokenizer() != nullptr)
    std::printf("tokenizer    %s\n", data.tokenizer()->name().c_str());
  std::printf("vocabulary   %lld\n", static_cast<long long>(data.vocab_size()));
  row("training", data.train_tokens(), data.train_samples());
  row("validation", data.valid_tokens(), data.valid_samples());
  if (!config.run.data.sft.empty()) {
    show_conversations(config.run.data, *data.tokenizer(), command.samples);
    return 0;
  }
  if (data.test_tokens() > 0) row("test", data.test_tokens(), samples_in(data.test_tokens(), seq));
  return 0;
}

int run_data_prepare(const DataCommand& command) {
  if (command.output.empty()) {
    if (command.inputs.size() == 1) return run_data_inspect(command);
    throw ConfigError("data prepare: several inputs and no output; give -o PREFIX");
  }
  const auto tokenizer = make_tokenizer(command.tokenizer);
  PrepareOptions options;
  options.files = find_text_files(command.inputs, "data prepare");
  options.prefix = command.output;
  options.json_keys = command.json_keys;
  options.append_eod = command.append_eod;
  options.tokenizer = tokenizer.get();
  options.threads = command.threads;
  const PrepareResult result = prepare_tokens(options);
  for (const PreparedOutput& output : result.outputs) {
    std::printf("%s.bin: %s tokens in %s documents\n", output.prefix.c_str(),
                std::to_string(output.tokens).c_str(), std::to_string(output.documents).c_str());
  }
  if (result.empty > 0) {
    std::printf("%s documents without a token, kept in the index\n",
                std::to_string(result.empty).c_str());
  }
  if (result.left_out > 0) {
    std::printf("%s files without text left out\n", std::to_string(result.left_out).c_str());
  }
  return 0;
}

int run_data_merge(const DataCommand& command) {
  const std::int64_t documents =
      merge_indexed(command.inputs, command.output, progress_of("merging documents"));
  std::printf("%s.bin: %s documents of %zu inputs\n", command.output.c_str(),
              std::to_string(documents).c_str(), command.inputs.size());
  return 0;
}

int run_data_split(const DataCommand& command) {
  const std::vector<std::int64_t> counts = split_indexed({.input = command.inputs.front(),
                                                          .output = command.output,
                                                          .shares = command.shares,
                                                          .seed = command.seed},
                                                         progress_of("splitting documents"));
  const char* const names[] = {"train", "valid", "test"};
  for (std::size_t p = 0; p < counts.size(); ++p) {
    std::printf("%s_%s: %s documents%s\n", command.output.c_str(), names[p],
                std::to_string(counts[p]).c_str(), counts[p] == 0 ? ", not written" : "");
  }
  return 0;
}

int run_data_shuffle(const DataCommand& command) {
  const std::int64_t documents = shuffle_indexed({.input = command.inputs.front(),
                                                  .output = command.output,
                                                  .seed = command.seed,
                                                  .memory_bytes = command.memory_bytes},
                                                 progress_of("moving documents"));
  std::printf("%s.bin: %s documents\n", command.output.c_str(), std::to_string(documents).c_str());
  return 0;
}

int run_data_cat(const DataCommand& command) {
  const auto tokenizer = make_tokenizer(command.tokenizer);
  write_document_texts(command.inputs.front(), *tokenizer,
                       {.first = command.first, .count = command.count, .raw = command.raw},
                       [](std::string_view text) {
                         if (std::fwrite(text.data(), 1, text.size(), stdout) != text.size()) {
                           throw IoError("cannot write to standard output", "");
                         }
                       });
  return 0;
}

}  // namespace sluice
