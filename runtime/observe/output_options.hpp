// What a run leaves behind: the `output:` section.
#pragma once

#include <string>

namespace sluice {

struct OutputOptions {
  std::string dir;  // empty: runs/<name of the configuration>
  bool tensorboard = false;
  bool trace = false;  // trace.json of the last logged step, for chrome://tracing and Perfetto
};

}  // namespace sluice
