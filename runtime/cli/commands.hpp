// The program's commands. Each returns the process's exit code and throws what main reports.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace sluice {

struct TrainCommand {
  std::string config;
  std::vector<std::string> overrides;  // "section.key=value"
  int nproc = 0;                       // 0: launch.nproc
  bool dry_run = false;
  std::string resume = "never";
  std::vector<std::string> argv;  // as this process got it: the ranks get the same
};
int run_train(const TrainCommand& command);

int run_schema();

struct TokenizerCommand {
  std::string tokenizer = "bytes";
  std::string input;  // a file, or empty: standard input
};
int run_tokenizer_encode(const TokenizerCommand& command);
int run_tokenizer_decode(const TokenizerCommand& command);

struct TokenizerTrainCommand {
  std::vector<std::string> text;
  std::int64_t vocab_size = 0;
  std::string out_dir;
};
int run_tokenizer_train(const TokenizerTrainCommand& command);

struct DataCommand {
  std::string config;
  std::vector<std::string> overrides;
};
// Builds the token caches of a configuration and says what is in them.
int run_data_inspect(const DataCommand& command);

}  // namespace sluice
