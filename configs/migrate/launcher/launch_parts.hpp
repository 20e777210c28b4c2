// What the mappings of the launchers share. Only for the sources of map_launch_line.
#pragma once

#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "configs/migrate/launcher/argument_reader.hpp"
#include "configs/migrate/launcher/launch_line.hpp"

namespace sluice::migrate {

// Name of the file that holds the hosts which --include and --exclude leave.
inline constexpr std::string_view kNewHostfile = "hosts";
// Why arguments of several launchers become nothing.
inline constexpr std::string_view kPython = "Sluice is a program of its own and starts no Python";
inline constexpr std::string_view kLogs = "each rank writes rank-N.log in output.dir";

// One launch line under way. Decisions on single arguments are collected; finish() hands them to
// the draft. Not thread-safe.
class LaunchPart {
 public:
  LaunchPart(const LaunchOptions& options, MigrationDraft& draft, LaunchLine& result)
      : options_(options), draft_(draft), result_(result) {}

  // Reads the launcher's arguments from words[first] and keeps the script with its arguments.
  const ArgumentReading& read(const std::vector<std::string>& words, std::size_t first,
                              std::span<const ArgumentRule> rules, const ArgumentStyle& style);
  [[nodiscard]] const ArgumentReading& given() const { return reading_; }
  [[nodiscard]] LaunchLine& result() { return result_; }
  [[nodiscard]] MigrationDraft& draft() { return draft_; }
  [[nodiscard]] std::optional<std::string> file(const std::string& path) const;

  void error(std::string_view name, int number, std::string_view what);
  // At the argument's place.
  void error(std::string_view name, std::string_view what);
  // Another class and note than the rule's.
  void decide(std::string_view name, KeyClass kind, std::string note);
  // The argument stops the migration.
  void stop(std::string_view name, std::string note);
  // Sets a key of Sluice; the argument `name` is the origin where it was given.
  void set(std::string_view name, std::string_view key, std::string value, std::string origin);
  // launch.nproc of a job that the command starts on `hosts` hosts, and a note on the hosts.
  void set_ranks_of_host(std::string_view name, std::size_t hosts, std::size_t ranks,
                         std::string origin);
  // NAME=value of the command that starts the run.
  void variable(const std::string& name, const std::string& value);
  // Names the variables that Sluice passes to other hosts only if asked.
  void export_variables();
  // Sluice's configuration as a word of a command.
  [[nodiscard]] std::string config() const;
  // "A=1 ./sluice train out.yaml" with `before` ahead of ./sluice.
  [[nodiscard]] std::string command(std::string_view before = "") const;
  // Hands keys and settings to the draft.
  void finish();

 private:
  struct Verdict {
    KeyClass kind;
    std::string note;
    bool stops;
  };
  struct Pending {
    std::string from;
    Setting setting;
    std::string origin;
  };

  const LaunchOptions& options_;
  MigrationDraft& draft_;
  LaunchLine& result_;
  ArgumentReading reading_;
  std::map<std::string, Verdict, std::less<>> verdicts_;
  std::vector<Pending> settings_;
};

void map_deepspeed_launcher(LaunchPart& part, const std::vector<std::string>& words,
                            std::size_t first);
void map_accelerate_launcher(LaunchPart& part, const std::vector<std::string>& words,
                             std::size_t first);
void map_torchrun(LaunchPart& part, const std::vector<std::string>& words, std::size_t first);

}  // namespace sluice::migrate
