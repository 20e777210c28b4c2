// Shared by the commands that print a result. Only for this folder's sources.
#pragma once

#include <cstdio>
#include <cstdlib>
#include <string>

#include "base/error.hpp"
#include "base/posix/atomic_file.hpp"
#include "runtime/checkpoint/io/file_system.hpp"

namespace sluice {

inline bool exists(const std::string& path) { return local_file_system().stat(path).has_value(); }

// What the user types for this program.
inline std::string program_name() {
  const char* wrapper = std::getenv("SLUICE_COMMAND");
  return wrapper == nullptr ? "sluice" : wrapper;
}

// Prints to the terminal, or the pipe behind it, at once.
inline void print(const std::string& text) {
  std::fputs(text.c_str(), stdout);
  std::fflush(stdout);
}

// Prints beside the file that -o or --html names. If the name is "-", the file's text has standard
// output for itself.
inline void print_beside(const std::string& file, const std::string& text) {
  std::FILE* const to = is_standard_output(file) ? stderr : stdout;
  std::fputs(text.c_str(), to);
  std::fflush(to);
}

[[noreturn]] inline void refuse_lost_output() {
  throw IoError("cannot write all of the output: the disk behind standard output is full or failed",
                "standard output");
}

}  // namespace sluice
