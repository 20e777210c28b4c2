// `sluice migrate` without its terminal: one of the sources, and the sources beside it, become a
// Migration. Reads the files that the request names; writes none. Thread-safe.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "configs/migrate/migration.hpp"

namespace sluice::migrate {

struct MigrationRequest {
  // The source: exactly one of these, `megatron` with `deepspeed`, or a launch line that names a
  // DeepSpeed configuration.
  std::string deepspeed{};   // a path, or the JSON in urlsafe base64
  std::string megatron{};    // a command line, or a file of arguments
  std::string torchtitan{};  // a path
  std::string accelerate{};  // a path; also beside `deepspeed`
  // Sources beside a DeepSpeed configuration.
  std::string launch{};   // the command that starts the run
  std::string trainer{};  // Hugging Face training arguments: a JSON file, or a command line

  std::string from_version{};          // of DeepSpeed; "": the newest known
  int world = 0;                       // ranks; 0: what the launch line says
  std::int64_t hidden = 0;             // width of the model; 0: not known
  std::int64_t layers = 0;             // blocks of the model; 0: not known
  std::string model{};                 // a Hugging Face folder; "": not known
  std::vector<std::string> set{};      // "zero.stage=2", from left to right
  std::vector<std::string> allowed{};  // keys that may stop nothing
  std::string out = "out.yaml";        // the result's file, for the commands that start the run
};

// Mistakes of the sources are errors of the result. Throws ConfigError for a request that names no
// source or two, IoError for a file that cannot be read.
[[nodiscard]] Migration migrate(const MigrationRequest& request);

}  // namespace sluice::migrate
