#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <iostream>
#include <iterator>
#include <optional>
#include <set>
#include <span>
#include <utility>

#include "base/error.hpp"
#include "base/log.hpp"
#include "runtime/cli/commands.hpp"
#include "runtime/cli/use_json.hpp"
#include "runtime/cli/use_rank.hpp"
#include "runtime/data/chat/chat_encoder.hpp"
#include "runtime/generate/text_printer.hpp"
#include "runtime/launch/stop_signal.hpp"
#include "runtime/observe/terminal.hpp"
#include "runtime/run/generator.hpp"

namespace sluice {
namespace {

constexpr std::int64_t kDefaultTokens = 256;
// Default length of a rotary model: its table of angles takes 4 bytes x head_dim a position; all
// other memory follows from the requested tokens.
constexpr std::int64_t kRotaryPositions = 8192;

std::string read_all(std::istream& in) {
  std::string text{std::istreambuf_iterator<char>(in), {}};
  if (text.ends_with('\n')) text.pop_back();  // the one that ends the last line of a file
  return text;
}

std::string read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw IoError("cannot read the prompt: there is no file " + path, path);
  try {
    return read_all(file);
  } catch (const std::ios_base::failure&) {  // of a folder, say
    const int error = errno;
    throw IoError("cannot read the prompt: " + path + ": " + std::strerror(error), path, error);
  }
}

std::string prompt_of(const GenerateCommand& command, int readers) {
  std::string text;
  if (command.prompt) {
    text = *command.prompt;
  } else if (command.prompt_file.empty()) {
    if (readers > 1) {
      throw ConfigError("each of the " + std::to_string(readers) +
                        " ranks has a standard input of its own: the prompt cannot come from "
                        "there; give --prompt TEXT or --prompt-file FILE");
    }
    if (::isatty(STDIN_FILENO) == 1) {
      std::fputs("type the prompt, then Ctrl-D at the begin of a line\n", stderr);
    }
    text = read_all(std::cin);
  } else {
    text = read_file(command.prompt_file);
  }
  if (text.empty()) {
    throw ConfigError(
        "the prompt is empty; give --prompt TEXT, --prompt-file FILE, or text on "
        "standard input");
  }
  return text;
}

// The number of tokens to generate.
std::int64_t tokens_to_make(const GenerateCommand& command, std::int64_t prompt, std::int64_t seq) {
  const std::int64_t room = seq - prompt;
  const std::string positions = "and model.seq is " + std::to_string(seq);
  if (room < 1) {
    throw ConfigError("the prompt has " + std::to_string(prompt) + " tokens, " + positions +
                      ": there is no room for another one; shorten the prompt, or raise model.seq "
                      "(--set) where positions are rotary");
  }
  if (command.max_tokens > room) {
    throw ConfigError("--max-tokens " + std::to_string(command.max_tokens) + ": the prompt has " +
                      std::to_string(prompt) + " tokens, " + positions + "; ask for at most " +
                      std::to_string(room) +
                      ", or raise model.seq (--set) where positions are rotary");
  }
  return command.max_tokens > 0 ? command.max_tokens : std::min(kDefaultTokens, room);
}

void check_prompt(const std::vector<std::int32_t>& tokens, std::int64_t vocab) {
  if (tokens.empty()) throw ConfigError("the tokenizer makes no token of the prompt");
  for (const std::int32_t token : tokens) {
    if (token < vocab) continue;
    throw ConfigError("the prompt holds token " + std::to_string(token) +
                      ", and the model's vocabulary is " + std::to_string(vocab) +
                      "; data.tokenizer is another one than the model's");
  }
}

// The input of the model: the tokenizer's leading tokens, then the prompt.
std::vector<std::int32_t> encode(const GenerateCommand& command, const Tokenizer& tokenizer,
                                 const std::string& text, std::int64_t vocab) {
  std::vector<std::int32_t> tokens = tokenizer.encode(text);
  if (tokens.empty()) throw ConfigError("the tokenizer makes no token of the prompt");
  const auto before = tokenizer.leading();
  if (!command.no_bos) tokens.insert(tokens.begin(), before.begin(), before.end());
  check_prompt(tokens, vocab);
  return tokens;
}

void warn(const GenerateCommand& command, const Tokenizer& tokenizer,
          const std::vector<std::int32_t>& tokens, const GenerateOptions& options,
          std::int64_t vocab) {
  const auto before = tokenizer.leading();
  const auto prompt = std::span(tokens).subspan(command.no_bos ? 0 : before.size());
  const bool twice = !command.no_bos && !before.empty() && prompt.size() >= before.size() &&
                     std::equal(before.begin(), before.end(), prompt.begin());
  if (twice) {
    log_warning("the prompt begins with " + tokenizer.decode(before) +
                ", and the tokenizer puts that before it once more; leave it out, or give "
                "--no-bos");
  }
  if (tokenizer.vocab_size() > vocab) {
    log_warning("data.tokenizer has " + std::to_string(tokenizer.vocab_size()) +
                " ids, and the model's vocabulary is " + std::to_string(vocab) +
                ": it may be another model's tokenizer");
  }
  const std::set<std::int32_t>& more = options.end_tokens;
  const bool ends = tokenizer.end_of_text() < vocab || (!more.empty() && *more.begin() < vocab);
  if (options.stop_at_end_of_text && !ends) {
    log_warning("the model has no end-of-text token: it goes on to --max-tokens");
  }
}

// Prints the generated text on rank 0, unless JSON is asked for.
TextPrinter printer_of(const GenerateCommand& command, bool speaks, const Tokenizer& tokenizer) {
  return {tokenizer,
          {.prints = speaks && !command.json, .escapes = terminal_info(STDOUT_FILENO).interactive}};
}

void report(const GenerateCommand& command, const UsedWeights& weights, const std::string& prompt,
            std::size_t prompt_tokens, const TextPrinter& printer, const Generated& made) {
  if (command.json) {
    const GenerateRecord record{.prompt = prompt,
                                .prompt_tokens = prompt_tokens,
                                .text = printer.text(),
                                .made = made,
                                .sampling = command.sampling,
                                .checkpoint = weights.path,
                                .step = weights.step};
    std::printf("%s\n", generate_json(record).c_str());
    std::fflush(stdout);
    return;
  }
  const auto later = static_cast<double>(made.tokens.size()) - 1;
  std::fprintf(stderr, "%zu tokens (%s); the prompt's %zu in %.0f ms, then %.1f tokens/s\n",
               made.tokens.size(), std::string(name_of(made.stop)).c_str(), prompt_tokens,
               made.prefill_seconds * 1e3, later > 0 ? later / made.decode_seconds : 0.0);
}

WeightsRequest request_of(const GenerateCommand& command, int world) {
  return {.config = command.config,
          .checkpoint = command.checkpoint,
          .overrides = command.overrides,
          .world = world,
          .rotary_positions = kRotaryPositions};
}

// Generates from the tokens and prints the text as it comes.
Generated speak(Engine& engine, UseRank& use, const Tokenizer& tokenizer,
                const std::vector<std::int32_t>& tokens, const GenerateOptions& options,
                TextPrinter& printer) {
  const auto observe = [&](std::int32_t token) {
    use.watchdog().pulse();
    printer.token(token);
    return !stop_requested() && !(use.is_rank_0() && output_has_no_reader());
  };
  Generated made = generate(engine, use.comm(), tokenizer, tokens, options, observe);
  printer.finish();
  return made;
}

int run_rank(const GenerateCommand& command, const RankEnvironment& rank) {
  const std::string prompt = prompt_of(command, rank.world_size);
  UsedWeights weights = use_weights(request_of(command, rank.world_size));
  RunConfig& run = weights.config.run;
  run.train.micro_batch = 1;
  check_tokenizer(weights);
  const std::unique_ptr<Tokenizer> tokenizer = make_tokenizer(run.data.tokenizer);
  const std::vector<std::int32_t> tokens = encode(command, *tokenizer, prompt, run.model.vocab);
  const auto given = static_cast<std::int64_t>(tokens.size());
  const GenerateOptions options{.sampling = command.sampling,
                                .max_tokens = tokens_to_make(command, given, run.model.seq),
                                .stop_at_end_of_text = !command.ignore_end_of_text,
                                .end_tokens = weights.end_tokens};
  UseRank use(weights, rank);
  if (use.is_rank_0()) warn(command, *tokenizer, tokens, options, run.model.vocab);
  EngineOptions engine_options = use.options(EnginePurpose::kGenerate);
  engine_options.generate_positions = given + options.max_tokens;
  const std::unique_ptr<Engine> engine = use.make_engine(engine_options);
  TextPrinter printer = printer_of(command, use.is_rank_0(), *tokenizer);
  if (command.echo) printer.prompt(prompt);
  const Generated made = speak(*engine, use, *tokenizer, tokens, options, printer);
  if (use.is_rank_0() && output_has_no_reader()) return kReaderGoneExitCode;
  if (use.is_rank_0()) report(command, weights, prompt, tokens.size(), printer, made);
  return made.stop == StopReason::kRequest ? kInterruptedExitCode : 0;
}

// The next question of a conversation: the prompt, once, or a line of standard input.
class Questions {
 public:
  Questions(const GenerateCommand& command, int readers)
      : once_(command.prompt || !command.prompt_file.empty() || readers > 1) {
    if (once_) prompt_ = prompt_of(command, readers);
  }
  // The first question is also the last.
  [[nodiscard]] bool once() const { return once_; }
  // A person may take any time: the watchdog does not count the wait.
  std::optional<std::string> next(Watchdog& watchdog) {
    if (once_) return std::exchange(prompt_, std::nullopt);
    const bool typed = ::isatty(STDIN_FILENO) == 1;
    for (;;) {
      if (typed) std::fputs("> ", stderr);
      std::optional<std::string> line = next_line(watchdog);
      if (!line && typed) std::fputs("\n", stderr);  // behind Ctrl-C and Ctrl-D
      if (!line) return std::nullopt;
      if (line->ends_with('\r')) line->pop_back();  // of a file from Windows
      if (!line->empty()) return line;
    }
  }

 private:
  // nullopt: standard input has ended, or a stop was asked. A read alone would not see the stop:
  // the signal may go to another thread.
  std::optional<std::string> next_line(Watchdog& watchdog) {
    constexpr int kLookMs = 100;
    while (!stop_requested()) {
      watchdog.pulse();
      if (const std::size_t end = read_.find('\n'); end != std::string::npos) {
        std::string line = read_.substr(0, end);
        read_.erase(0, end + 1);
        return line;
      }
      pollfd input{STDIN_FILENO, POLLIN, 0};
      if (::poll(&input, 1, kLookMs) <= 0) continue;
      std::array<char, 4096> bytes;
      const ssize_t got = ::read(STDIN_FILENO, bytes.data(), bytes.size());
      if (got < 0 && (errno == EINTR || errno == EAGAIN)) continue;
      if (got <= 0 && read_.empty()) return std::nullopt;
      if (got <= 0) return std::exchange(read_, {});  // a last line without a line break
      read_.append(bytes.data(), static_cast<std::size_t>(got));
    }
    return std::nullopt;
  }

  const bool once_;
  std::optional<std::string> prompt_;
  std::string read_;  // of standard input, and not yet a question
};

// A conversation as the model's input, of at most `room` tokens. Forgets the oldest messages where
// that helps. If the last question alone is too long, returns its tokens and forgets nothing.
std::vector<std::int32_t> chat_input(const ChatEncoder& encoder,
                                     std::vector<jinja::Value>& messages, std::int64_t room) {
  std::vector<jinja::Value> kept = messages;
  for (;;) {
    std::vector<std::int32_t> tokens = encoder.prompt(jinja::Value::list(kept));
    const bool fits = static_cast<std::int64_t>(tokens.size()) <= room;
    if (!fits && kept.size() >= 3) {
      kept.erase(kept.begin(), kept.begin() + 2);
      continue;
    }
    if (fits && kept.size() < messages.size()) {
      log_warning("the conversation has outgrown model.seq: its oldest " +
                  std::to_string(messages.size() - kept.size()) + " messages are forgotten");
      messages = std::move(kept);
    }
    return tokens;
  }
}

int run_chat(const GenerateCommand& command, const RankEnvironment& rank) {
  Questions questions(command, rank.world_size);
  UsedWeights weights = use_weights(request_of(command, rank.world_size));
  RunConfig& run = weights.config.run;
  run.train.micro_batch = 1;
  check_tokenizer(weights);
  const std::unique_ptr<Tokenizer> tokenizer = make_tokenizer(run.data.tokenizer);
  const ChatEncoder encoder(
      *tokenizer, run.data.tokenizer,
      command.chat_template.empty() ? run.data.chat_template : command.chat_template,
      run.data.train_on);
  if (!encoder.has_template()) {
    throw ConfigError(
        "--chat needs a chat template, and neither the model nor its tokenizer has one; give "
        "--template PATH (a chat_template.jinja, a tokenizer_config.json or a folder with either), "
        "or leave --chat out");
  }
  GenerateOptions options{.sampling = command.sampling,
                          .stop_at_end_of_text = !command.ignore_end_of_text,
                          .end_tokens = weights.end_tokens};
  if (const auto end = encoder.end_of_turn()) options.end_tokens.insert(*end);
  UseRank use(weights, rank);
  EngineOptions engine_options = use.options(EnginePurpose::kGenerate);
  engine_options.generate_positions = run.model.seq;
  const std::unique_ptr<Engine> engine = use.make_engine(engine_options);
  if (command.max_tokens >= run.model.seq) {
    throw ConfigError("--max-tokens " + std::to_string(command.max_tokens) +
                      " leaves no room for a question: model.seq is " +
                      std::to_string(run.model.seq));
  }
  std::vector<jinja::Value> messages;
  StopReason stop = StopReason::kEndOfText;
  while (const std::optional<std::string> question = questions.next(use.watchdog())) {
    messages.push_back(chat_message("user", *question));
    const std::int64_t answer = std::max<std::int64_t>(command.max_tokens, 1);
    const auto tokens = chat_input(encoder, messages, run.model.seq - answer);
    try {
      check_prompt(tokens, run.model.vocab);
      options.max_tokens =
          tokens_to_make(command, static_cast<std::int64_t>(tokens.size()), run.model.seq);
    } catch (const ConfigError& error) {
      if (questions.once()) throw;
      log_warning(std::string("this question is left out: ") + error.what());
      messages.pop_back();
      continue;
    }
    TextPrinter printer = printer_of(command, use.is_rank_0(), *tokenizer);
    const Generated made = speak(*engine, use, *tokenizer, tokens, options, printer);
    if (use.is_rank_0() && output_has_no_reader()) return kReaderGoneExitCode;
    messages.push_back(chat_message("assistant", printer.text()));
    stop = made.stop;
    if (use.is_rank_0() && command.json) {
      report(command, weights, *question, tokens.size(), printer, made);
    }
    if (stop == StopReason::kRequest) break;
  }
  return stop == StopReason::kRequest || stop_requested() ? kInterruptedExitCode : 0;
}

// The ranks get the prompt as a file: standard input is this process's, and an argument's length is
// limited.
int launch(const GenerateCommand& command) {
  const std::string prompt = prompt_of(command, 1);
  const UsedWeights weights = use_weights(request_of(command, command.nproc));
  const TemporaryFolder folder;
  const std::string path = folder.path() + "/prompt";
  std::ofstream file(path, std::ios::binary);
  file << prompt << '\n';
  file.close();
  if (!file) throw IoError("cannot write " + path + ": no space, or no permission", path, errno);
  std::vector<std::string> argv = command.argv;
  argv.insert(argv.end(), {"--prompt-file", path});
  return launch_users(command.nproc, argv, weights.config.run.launch.threads);
}

}  // namespace

int run_generate(const GenerateCommand& command) {
  check_sampling(command.sampling);
  if (starts_ranks(command.nproc)) return launch(command);
  return command.chat ? run_chat(command, own_rank()) : run_rank(command, own_rank());
}

}  // namespace sluice
