#include <fcntl.h>
#include <unistd.h>

#include <cctype>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <iostream>
#include <iterator>

#include "base/error.hpp"
#include "base/posix/descriptor.hpp"
#include "base/posix/io_error.hpp"
#include "configs/json_schema.hpp"
#include "runtime/cli/commands.hpp"
#include "runtime/data/tokenizer/tokenizer.hpp"
#include "runtime/data/tokenizer/train_bpe.hpp"
#include "runtime/generate/terminal_text.hpp"
#include "runtime/observe/terminal.hpp"

namespace sluice {
namespace {

std::string read_input(const std::string& path) {
  if (path.empty()) return {std::istreambuf_iterator<char>(std::cin), {}};
  const Descriptor file = open_descriptor(path, O_RDONLY);
  std::string text;
  const int error = file ? read_to_end(file.get(), text) : errno;
  if (error != 0) {
    throw_io_error("read", path, error, "; name a file that may be read, or none: standard input");
  }
  return text;
}

}  // namespace

int run_schema() {
  std::printf("%s\n", json_schema().c_str());
  return 0;
}

int run_tokenizer_encode(const TokenizerCommand& command) {
  const auto tokenizer = make_tokenizer(command.tokenizer);
  const char* separator = "";
  for (const std::int32_t id : tokenizer->encode(read_input(command.input))) {
    std::printf("%s%d", separator, id);
    separator = " ";
  }
  std::printf("\n");
  return 0;
}

int run_tokenizer_decode(const TokenizerCommand& command) {
  const auto tokenizer = make_tokenizer(command.tokenizer);
  const std::string text = read_input(command.input);
  const std::int64_t vocab = tokenizer->vocab_size();
  std::vector<std::int32_t> ids;
  const char* at = text.c_str();
  const char* end = at + text.size();
  while (at < end) {
    if (std::isspace(static_cast<unsigned char>(*at)) != 0) {
      ++at;
      continue;
    }
    std::int64_t id = 0;
    const auto [next, error] = std::from_chars(at, end, id);
    if (error == std::errc::invalid_argument) {
      throw ConfigError("tokenizer decode: the input is not a list of token ids at byte " +
                        std::to_string(at - text.c_str()));
    }
    if (error != std::errc() || id < 0 || id >= vocab) {
      throw IoError("tokenizer decode: number " + std::to_string(ids.size() + 1) +
                        " of the ids is " + std::string(at, next) + ", and tokenizer " +
                        tokenizer->name() + " has the ids 0 to " + std::to_string(vocab - 1),
                    command.input);
    }
    ids.push_back(static_cast<std::int32_t>(id));
    at = next;
  }
  std::string decoded = tokenizer->decode(ids);
  if (terminal_info(STDOUT_FILENO).interactive) decoded = escape_controls(decoded);
  std::fwrite(decoded.data(), 1, decoded.size(), stdout);
  return 0;
}

int run_tokenizer_train(const TokenizerTrainCommand& command) {
  BpeTrainOptions options;
  options.text = command.text;
  options.json_key = command.json_key;
  options.vocab_size = command.vocab_size;
  options.out_dir = command.out_dir;
  const BpeTrainResult result = train_bpe(options);
  std::printf("%lld ids (%lld merges) from %lld distinct words, in %s\n",
              static_cast<long long>(result.vocab_size), static_cast<long long>(result.merges),
              static_cast<long long>(result.words), command.out_dir.c_str());
  return 0;
}

}  // namespace sluice
