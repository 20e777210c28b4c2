// The program's commands. Each returns the process's exit code; main reports exceptions.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "configs/migrate/migrate.hpp"
#include "runtime/generate/token_choice.hpp"

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

struct PlanCommand {
  std::string config;
  std::vector<std::string> overrides;
  int world = 0;        // ranks of the whole job; 0: launch.nproc
  std::string profile;  // of configs/machines; empty: this machine
  bool json = false;
  bool suggest = false;
  bool compare = false;
  std::string html;         // a file to write; empty: none
  std::int64_t tokens = 0;  // tokens to report on, beside the configured run; 0: none
  std::int64_t endurance_bytes = 600'000'000'000'000;  // rated writes to a drive over its lifetime
};
// Returns 3 after printing a plan that does not fit.
int run_plan(const PlanCommand& command);

// Weights come from a folder of checkpoints, one checkpoint, or a Hugging Face folder.
struct EvalCommand {
  std::string config;
  std::vector<std::string> overrides;
  std::string checkpoint;         // empty: model.from
  std::vector<std::string> text;  // files, folders, globs; none: the validation data
  bool test = false;              // the test set instead of the validation data
  std::int64_t stride = 0;        // positions between windows; 0: model.seq
  int nproc = 1;
  bool json = false;
  std::vector<std::string> argv;  // as this process got it: the ranks get the same
};
int run_eval(const EvalCommand& command);

struct GenerateCommand {
  std::string config;  // empty: the one that goes with the weights
  std::vector<std::string> overrides;
  std::string checkpoint;             // empty: model.from
  std::optional<std::string> prompt;  // else prompt_file, else standard input
  std::string prompt_file;
  SamplingOptions sampling;
  std::int64_t max_tokens = 0;  // 0: 256, or what there is room for
  bool ignore_end_of_text = false;
  bool no_bos = false;        // nothing is put before the prompt
  bool echo = false;          // the prompt as well
  bool chat = false;          // questions and answers by the chat template
  std::string chat_template;  // empty: data.chat_template
  int nproc = 1;
  bool json = false;
  std::vector<std::string> argv;
};
int run_generate(const GenerateCommand& command);

struct MigrateCommand {
  migrate::MigrationRequest request;
  std::string out;     // the YAML file to write, which must not exist; empty: standard output
  bool json = false;   // the report as JSON on standard output
  bool check = false;  // the report alone
  bool keys = false;   // prints the table of DeepSpeed's keys instead
};
// Returns 2 after printing what stops the migration.
int run_migrate(MigrateCommand command);

int run_schema();

struct ExplainCommand {
  std::string name;  // a section, a key, or empty: all sections
  bool markdown = false;
};
int run_explain(const ExplainCommand& command);

struct TokenizerCommand {
  std::string tokenizer = "bytes";
  std::string input;  // a file, or empty: standard input
};
int run_tokenizer_encode(const TokenizerCommand& command);
int run_tokenizer_decode(const TokenizerCommand& command);

struct TokenizerTrainCommand {
  std::vector<std::string> text;
  std::string json_key = "text";
  std::int64_t vocab_size = 0;
  std::string out_dir;
};
int run_tokenizer_train(const TokenizerTrainCommand& command);

struct CorpusCommand {
  std::vector<std::string> inputs;  // files, folders, globs
  std::string output;               // a folder
  std::string json_key = "text", url_key = "url";
  bool names_urls = false;               // --url-key was given
  int threads = 0;                       // 0: the machine's, at most 16
  std::int64_t unit_bytes = 64LL << 20;  // of the input, for one output file
  bool json = false;
  std::string recipe = "none";                // clean
  std::vector<std::string> filters, without;  // clean
  std::string tokenizer;                      // clean; empty: none
  bool list = false;                          // clean: prints the filters
  std::string preset = "fineweb";             // dedupe
  std::string shingle;                        // dedupe; empty: the preset's
  int bands = 0, rows = 0;                    // dedupe; 0: the preset's
  std::optional<double> threshold;            // dedupe
  std::optional<std::uint64_t> seed;          // dedupe
  bool urls = false;                          // dedupe
  std::vector<std::string> against;           // dedupe: evaluation sets
  std::int64_t memory_bytes = 256LL << 20;    // dedupe: of the sorts
};
int run_data_clean(const CorpusCommand& command);
int run_data_dedupe(const CorpusCommand& command);

struct DataCommand {
  std::vector<std::string> inputs;  // files, prefixes, or the YAML file
  std::vector<std::string> overrides;
  std::string output;  // a prefix
  std::string tokenizer = "bytes";
  std::string stats_tokenizer;  // stats; empty: `tokenizer` for text, none for .bin/.idx
  std::vector<std::string> json_keys{"text"};
  bool append_eod = false;
  int threads = 0;                      // 0: the machine's, at most 16
  std::vector<double> shares{95, 5};    // split
  std::uint64_t seed = 1234;            // split, shuffle
  std::int64_t memory_bytes = 1 << 30;  // shuffle
  std::int64_t first = 0;               // cat
  std::int64_t count = 0;               // cat: documents, 0: all; stats: tokens, 0: 20
  bool raw = false;                     // cat
  std::string chat_template;            // inspect; empty: data.chat_template
  std::int64_t samples = 3;             // inspect: conversations to show of each part of data.sft
  CorpusCommand corpus;                 // clean, dedupe
  bool json = false;                    // stats
  std::string html;                     // stats: a file to write; empty: none
};
// Builds the token caches of a configuration and prints their contents.
int run_data_inspect(const DataCommand& command);
// Without an output: run_data_inspect.
int run_data_prepare(const DataCommand& command);
int run_data_merge(const DataCommand& command);
int run_data_split(const DataCommand& command);
int run_data_shuffle(const DataCommand& command);
int run_data_cat(const DataCommand& command);
int run_data_stats(const DataCommand& command);

struct BenchCommand {
  bool json = false;
  int rounds = 0;                 // comm, adam; 0: the benchmark's own
  std::vector<std::string> argv;  // as this process got it
};

struct BenchStepCommand {
  std::string config;
  std::vector<std::string> overrides;
  int nproc = 0;  // 0: launch.nproc
  std::int64_t steps = 10;
  std::int64_t warmup = 3;
};
int run_bench_step(const BenchCommand& common, const BenchStepCommand& command);

struct BenchCommCommand {
  int ranks = 2;
  std::vector<std::string> bytes;       // "1MiB"; none: the benchmark's own
  std::vector<std::string> transports;  // none: all
};
int run_bench_comm(const BenchCommand& common, const BenchCommCommand& command);

struct BenchAdamCommand {
  std::string elems;  // "32M"; none: the benchmark's own
  int threads = 0;    // 0: the cores this process may use
  std::string dtype = "fp32";
};
int run_bench_adam(const BenchCommand& common, const BenchAdamCommand& command);

struct BenchNvmeCommand {
  std::vector<std::string> paths;
  std::string bytes;                // "1GiB"; none: the benchmark's own
  std::vector<std::string> blocks;  // "1MiB"; none: the benchmark's own
  std::vector<int> depths;          // none: the benchmark's own
  bool no_checksums = false;
};
int run_bench_nvme(const BenchCommand& common, const BenchNvmeCommand& command);

struct ReportCommand {
  std::vector<std::string> runs;  // folders
  std::string output;             // a file; empty: report.html in the first run's folder
  bool watch = false;             // serves the page instead, until a signal
  int port = 0;                   // 0: a free one
};
// Returns 130 after serving.
int run_report(const ReportCommand& command);

struct CheckpointCommand {
  std::string path;                          // of a checkpoint, of a folder of them; import: theirs
  std::string out;                           // convert, export, import: the folder to write
  std::string dtype = "fp32";                // export: of the weights
  std::int64_t shard_bytes = 5'000'000'000;  // export
  std::string tokenizer;                     // export: a folder with the tokenizer's files
  std::vector<std::string> overrides;        // import: "model.seq=2048"
  std::string format = "auto";               // import: hf, deepspeed, megatron
  std::string config;                        // import: a run's YAML file, for its model:
  bool weights_only = false;                 // import, convert: an optimizer's states are left out
  int files = 1;                             // convert
  std::string moments;                       // convert: fp32, bf16; empty: as they are
  bool json = false;                         // ls, verify
};
int run_checkpoint_ls(const CheckpointCommand& command);
// Returns 4 after printing damage.
int run_checkpoint_verify(const CheckpointCommand& command);
int run_checkpoint_convert(const CheckpointCommand& command);
int run_checkpoint_export(const CheckpointCommand& command);
int run_checkpoint_import(const CheckpointCommand& command);

struct DoctorCommand {
  bool json = false;
  bool quick = false;
  std::string nvme_path;          // a folder; none: the folder for temporary files
  std::string out;                // the rates file; none: machine_rates_path()
  std::vector<std::string> argv;  // as this process got it
};
int run_doctor(const DoctorCommand& command);

}  // namespace sluice
