// A TensorBoard event file: the values of metrics.jsonl as scalars.
//
// TFRecord framing, little-endian, of each message:
//   uint64 its length | uint32 masked CRC-32C of these 8 bytes | the message | uint32 its own CRC
// A message is an Event of TensorFlow's event.proto. The first holds the version; the second starts
// a session at step first_step. TensorBoard then drops values of that step and later ones from
// other files of the folder (an earlier run, or steps that are repeated). A step is one message.
// Values are fp32, as the format has them.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/observe/file_io.hpp"
#include "runtime/observe/step_record.hpp"

namespace sluice {

struct EventScalar {
  std::string tag;  // "train/loss"
  double value = 0;
};

// Tags in the order of metrics.jsonl. Unknown values are omitted: mfu and memory of 0. Pure.
[[nodiscard]] std::vector<EventScalar> event_scalars(const StepRecord& record);

// CRC-32C (Castagnoli) of RFC 3720. Pure.
[[nodiscard]] std::uint32_t crc32c(std::string_view bytes);

// Not thread-safe: one writer, on rank 0.
class EventFile {
 public:
  // Creates the folder and a new file events.out.tfevents.<Unix time>.<host> in it. `first_step` is
  // the first step that will be written. Throws IoError.
  EventFile(const std::string& folder, const std::string& host, std::int64_t first_step);

  // On return the system has the data. If the file cannot be written (a full disk) the log says so
  // once; the file still ends with a whole step, and the next step is tried again.
  void write(const StepRecord& record);

  [[nodiscard]] const std::string& path() const { return path_; }

 private:
  std::string path_;
  Descriptor file_;
  bool failed_ = false;
};

}  // namespace sluice
