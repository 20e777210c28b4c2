// Shared by the commands that print a result. Only for this folder's sources.
#pragma once

#include <cstdio>
#include <cstdlib>
#include <string>

#include "base/error.hpp"
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

[[noreturn]] inline void refuse_lost_output() {
  throw IoError("cannot write all of the output: the disk behind standard output is full or failed",
                "standard output");
}

}  // namespace sluice
