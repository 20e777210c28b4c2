// An image: swap files that outlive their process. A run commits its image at every step; a later
// run can resume from the last commit.
//
// Extents come in pairs of two places. One place of each pair is current. Every update writes the
// place that is not current, so the current place stays whole until the next commit:
//
//   commit = flush the files --> write a record --> flush the files
//
// The record (offload/image_record.hpp) holds the checksums of the current places. Two records take
// turns. If the process or the power is lost at any instant, the newest whole record describes
// whole data.
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
  int place = 0;              // the current place of every pair
  std::string state;          // the committed state of the caller
  std::uint64_t commits = 0;  // commits of the image up to this version, by all of its runs
};

// The image that one rank finds.
struct FoundImage {
  std::string id;  // id of the run that began the image; known with a problem too
  std::vector<ImageVersion> versions;  // newest first; two at most
  bool begun = false;                  // the files exist, but nothing was committed
  std::string problem;                 // why existing files are no usable image; else empty
};

// The run of an id "FOLDER of TIME": the folder. A run that is started again has a new time.
[[nodiscard]] std::string run_of(const std::string& id);

}  // namespace sluice
