// Weights to use rather than to train: from a checkpoint of ours or a Hugging Face folder, with the
// configuration that goes with them. Functions of their arguments and of the files; thread-safe.
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
  // model.seq of a rotary Hugging Face model where nobody gives it: so much, or what its
  // config.json says where that is less. 0: as in training.
  std::int64_t rotary_positions = 0;
};

// A configuration that only reads parameters: fp32 or 16 bits as it says, sharded by stage 3 where
// they live off the device. Its model is the weights'.
struct UsedWeights {
  LoadedConfig config;
  InitialWeights source;              // reads a rank's share; one thread at a time
  std::string path;                   // the folder, or the step's folder in it
  std::int64_t step = -1;             // of our own checkpoint
  std::set<std::int32_t> end_tokens;  // that end a text, of the files that came with the model
  std::vector<std::string> notes;     // to be told once
  bool own_tokenizer = false;         // data.tokenizer is the checkpoint's
};

// Throws ConfigError, IoError or CheckpointError: no folder given, not a folder of weights, another
// model than the configuration's, a configuration that does not hold for `world`.
[[nodiscard]] UsedWeights use_weights(const WeightsRequest& request);

// Data in tokens says `bytes` where it has no tokenizer: somebody has to ask for it before text is
// made into tokens. Throws ConfigError.
void check_tokenizer(const UsedWeights& weights);

// Throws ConfigError where the folder -o names is a checkpoint or has some: a step among another
// model's could be the newest of them, with its tokenizer beside.
void check_holds_no_checkpoint(const std::string& out);
// How long a command waits for one that is ending, where it writes.
inline constexpr std::chrono::milliseconds kOutputPatience{1000};
// For as long as `command` writes checkpoints there; where a run does, IoError. Makes the folder,
// and looks again whether it holds none.
[[nodiscard]] WriterLock lock_output(const std::string& out, const std::string& command);

// Where `checkpoint import` puts what goes with a model beside its weights, of the folder of a
// step.
inline constexpr char kCompanions[] = "huggingface";
[[nodiscard]] std::string companions_of(const std::string& step_dir);
// What `from` has of it, and its config.json, into that folder of `checkpoint_dir`. Returns the
// names of copy_hf_companions; nothing happens where there is no `from`.
std::vector<std::string> carry_companions(FileSystem& files, const std::string& from,
                                          const std::string& checkpoint_dir);

// Rows of the token table; 0: there is none.
[[nodiscard]] std::int64_t stored_vocab(const Checkpoint& checkpoint);

// A YAML scalar that means `text`. REQUIRES: no line break in it.
[[nodiscard]] std::string yaml_quoted(const std::string& text);

}  // namespace sluice
