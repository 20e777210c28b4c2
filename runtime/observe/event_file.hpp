// A TensorBoard event file: what metrics.jsonl says of each step, as scalars.
//
// TFRecord framing, little-endian, of each message:
//   uint64 its length | uint32 masked CRC-32C of these 8 bytes | the message | uint32 its own CRC
// A message is an Event of TensorFlow's event.proto. The first says the version, the second that a
// session starts at step first_step: TensorBoard then drops what other files of the folder, of a
// run before or of steps that are done again, say of that step and later ones. A step is one
// message. Values are fp32, as the format has them.
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

// In the order of the line of metrics.jsonl. What would stand there for "unknown" is left out: mfu
// and memory of 0. Pure.
[[nodiscard]] std::vector<EventScalar> event_scalars(const StepRecord& record);

// CRC-32C (Castagnoli) of RFC 3720. Pure.
[[nodiscard]] std::uint32_t crc32c(std::string_view bytes);

// Not thread-safe: one writer, on rank 0.
class EventFile {
 public:
  // Creates the folder and in it events.out.tfevents.<Unix time>.<host>; never an old file again.
  // `first_step` is the first step that will be written. Throws IoError.
  EventFile(const std::string& folder, const std::string& host, std::int64_t first_step);

  // With the system when this returns. Where it cannot be written (a full disk) the log says so,
  // the first time; the file then still ends with a whole step, and the next one is tried again.
  void write(const StepRecord& record);

  [[nodiscard]] const std::string& path() const { return path_; }

 private:
  std::string path_;
  UniqueFd file_;
  bool failed_ = false;
};

}  // namespace sluice
