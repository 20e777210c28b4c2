// Swap files that outlive their process: what a run commits at every step, and what another one
// finds there. ("SSD as a crash-consistent image": every update goes to the place of a pair of
// extents that is not current, so the other one stays whole until the next commit.)
//
// A commit flushes the files, writes a record (offload/image_record.hpp) with the checksums of the
// current places beside the other record, and flushes them again. Whatever instant the process, or
// the power, is lost at: the newest record that is whole is of data that are.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

namespace sluice {

struct ExtentId {
  int index = -1;
};

using ImagePair = std::array<ExtentId, 2>;

struct ImageVersion {
  std::int64_t step = 0;
  int place = 0;              // which of the pairs' extents are current
  std::string state;          // as it was committed
  std::uint64_t commits = 0;  // of the image by then, whoever made them
};

// Of one rank.
struct FoundImage {
  std::string id;                      // the run that began it, whoever went on from it
  std::vector<ImageVersion> versions;  // newest first; two at most
  bool begun = false;                  // files are there, and nothing was committed
  std::string problem;                 // why there is none, where something was
};

}  // namespace sluice
