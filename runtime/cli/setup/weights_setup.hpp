// Weights for use, not for training: from a checkpoint or a Hugging Face folder, with the
// configuration that belongs to them. Functions of their arguments and of the files; thread-safe.
#pragma once

#include <chrono>
#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "configs/reader.hpp"
#include "runtime/checkpoint/io/writer_lock.hpp"
#include "runtime/engine/initial_weights.hpp"

namespace sluice {

class Checkpoint;
class FileSystem;

struct WeightsRequest {
  std::string config;                  // a YAML file; empty: the one that goes with the weights
  std::string checkpoint;              // a folder; empty: model.from of the configuration
  std::vector<std::string> overrides;  // "section.key=value"
  int world = 1;
  // model.seq of a rotary Hugging Face model if the user gives none: this value, or the smaller one
  // of config.json. 0: as in training.
  std::int64_t rotary_positions = 0;
};

// A configuration that only reads parameters, in its own dtype, sharded by stage 3 if they live
// off-device. Its model is the weights'.
struct UsedWeights {
  LoadedConfig config;
  InitialWeights source;              // reads a rank's share; one thread at a time
  std::string path;                   // the folder, or the step's folder in it
  std::int64_t step = -1;             // of our own checkpoint
  std::set<std::int32_t> end_tokens;  // that end a text, of the files that came with the model
  std::vector<std::string> notes;     // to be told once
  bool own_tokenizer = false;         // data.tokenizer is the checkpoint's
};

// Throws ConfigError, IoError or CheckpointError: no folder given, a folder without weights, a
// model that differs from the configuration's, a configuration that is invalid for `world`.
[[nodiscard]] UsedWeights use_weights(const WeightsRequest& request);

// Data in tokens leaves data.tokenizer at `bytes` if no tokenizer is known; a command that encodes
// text must ask for one. Throws ConfigError.
void check_tokenizer(const UsedWeights& weights);

// Throws ConfigError if the folder of -o is a checkpoint or holds some: its newest checkpoint could
// then be another model's, with another tokenizer.
void check_holds_no_checkpoint(const std::string& out);
// How long a writing command waits for another one that is ending.
inline constexpr std::chrono::milliseconds kOutputPatience{1000};
// Locks the folder while `command` writes checkpoints; IoError if a run writes there. Creates the
// folder and checks again that it holds no checkpoint. ConfigError if it is a run's folder, whose
// checkpoints lie one folder deeper and would no longer be found.
[[nodiscard]] WriterLock lock_output(const std::string& out, const std::string& command);

// The folder, beside a step's folder, to which `checkpoint import` copies files that belong to a
// model.
inline constexpr char kCompanions[] = "huggingface";
[[nodiscard]] std::string companions_of(const std::string& step_dir);
// Copies these files of `from`, and its config.json, into that folder of `checkpoint_dir`. Returns
// the names of copy_hf_companions. Does nothing without `from`.
std::vector<std::string> carry_companions(FileSystem& files, const std::string& from,
                                          const std::string& checkpoint_dir);

// Rows of the token table; 0 if unknown.
[[nodiscard]] std::int64_t stored_vocab(const Checkpoint& checkpoint);

// A YAML scalar that means `text`. REQUIRES: no line break in it.
[[nodiscard]] std::string yaml_quoted(const std::string& text);

}  // namespace sluice
