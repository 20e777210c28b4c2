// Errors of the whole project. An error says what, where and what to do about it; layers add
// context with std::throw_with_nested and the top prints the chain (error_chain).
//
// The kinds carry the process's exit code (DESIGN section 4): 2 configuration or usage, 3 does not
// fit, 4 data, checkpoint or I/O, 5 training failed.
#pragma once

#include <cstdint>
#include <exception>
#include <source_location>
#include <stdexcept>
#include <string>
#include <string_view>

namespace sluice {

class Error : public std::runtime_error {
 public:
  explicit Error(const std::string& message);
  [[nodiscard]] virtual int exit_code() const { return 5; }
  // True where this is the echo of another rank's failure (a connection that broke, a peer that is
  // gone): the launcher names the original instead.
  [[nodiscard]] virtual bool is_secondary() const { return false; }
  // True where the same run started again would fail in the same way.
  [[nodiscard]] virtual bool recurs() const { return false; }
  // When the error was made, in nanoseconds since the Unix epoch.
  [[nodiscard]] std::int64_t time_ns() const { return time_ns_; }

 private:
  std::int64_t time_ns_;
};

// A YAML file or a command line that cannot be used. The message holds one line per mistake.
class ConfigError : public Error {
 public:
  using Error::Error;
  [[nodiscard]] int exit_code() const override { return 2; }
  [[nodiscard]] bool recurs() const override { return true; }
};

// Something is larger than the tier it has to live on.
class BudgetError : public Error {
 public:
  using Error::Error;
  [[nodiscard]] int exit_code() const override { return 3; }
  [[nodiscard]] bool recurs() const override { return true; }
};

// A file that cannot be read, written, created, or does not hold what it should.
class IoError : public Error {
 public:
  IoError(const std::string& message, std::string path, int error_number = 0)
      : Error(message), path_(std::move(path)), error_number_(error_number) {}
  [[nodiscard]] int exit_code() const override { return 4; }
  [[nodiscard]] const std::string& path() const { return path_; }
  [[nodiscard]] int error_number() const { return error_number_; }  // errno, 0 where there is none

 private:
  std::string path_;
  int error_number_;
};

// A collective that failed. `secondary` where the cause lies with another rank.
class CommError : public Error {
 public:
  CommError(const std::string& message, bool secondary) : Error(message), secondary_(secondary) {}
  [[nodiscard]] bool is_secondary() const override { return secondary_; }

 private:
  bool secondary_;
};

// Training itself went wrong: a non-finite loss, a broken invariant.
class TrainingError : public Error {
 public:
  using Error::Error;
  [[nodiscard]] bool recurs() const override { return true; }
};

// "outer: inner: innermost" of a nested exception.
[[nodiscard]] std::string error_chain(const std::exception& error);

// The sluice::Error deepest in the chain decides the exit code; 5 where there is none.
[[nodiscard]] int exit_code_of(const std::exception& error);
// True if any Error in the chain is_secondary().
[[nodiscard]] bool is_secondary(const std::exception& error);
// True if any Error in the chain recurs().
[[nodiscard]] bool recurs(const std::exception& error);
// The earliest time of the chain's Errors; now where there is none.
[[nodiscard]] std::int64_t time_ns_of(const std::exception& error);
[[nodiscard]] std::int64_t unix_time_ns();

// A condition that only a mistake of ours can break: throws Error with the place.
inline void check(bool condition, std::string_view what,
                  std::source_location where = std::source_location::current()) {
  if (!condition) [[unlikely]] {
    throw Error("internal: " + std::string(what) + " (" + where.file_name() + ":" +
                std::to_string(where.line()) + ")");
  }
}

}  // namespace sluice
