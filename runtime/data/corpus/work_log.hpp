// Which parts of a long work are finished: an append-only file in the work's folder. A process that
// was killed and started again continues behind the finished parts. One line a part:
//
//   stage <tab> unit <tab> name=count name=count ... <tab> XXH3-64 of the line before, hexadecimal
//
// The first line has the stage "work" and the fingerprint of inputs and options. A line that was
// cut by a crash has another hash and is removed. Not thread-safe; one process at a time (it holds
// a lock on the folder).
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>

#include "base/posix/descriptor.hpp"
#include "base/posix/lock_file.hpp"

namespace sluice {

// Names have no white space and no '='.
using Counts = std::map<std::string, std::int64_t>;
void add_counts(Counts& sum, const Counts& more);

class WorkLog {
 public:
  // Creates the folder if missing. Throws IoError if another process works in the folder, or if the
  // folder holds the work of another fingerprint.
  WorkLog(const std::string& folder, const std::string& fingerprint);
  // Counts of a finished unit; nullptr if the unit is not finished.
  [[nodiscard]] const Counts* find(const std::string& stage, std::int64_t unit) const;
  // Durable at the return. The unit's files must be durable before.
  void finish(const std::string& stage, std::int64_t unit, const Counts& counts);

 private:
  void read(const std::string& fingerprint);
  void append(const std::string& stage, const std::string& unit, const std::string& content);

  std::string folder_, path_;
  LockFile lock_;
  Descriptor file_;
  std::map<std::pair<std::string, std::int64_t>, Counts> finished_;
};

}  // namespace sluice
