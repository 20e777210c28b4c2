// An error in the contents of a checkpoint's file. Carries the file, the tensor (name of a range,
// or empty) and the byte offset in the file (or -1). what() contains all three.
#pragma once

#include <cstdint>
#include <string>
#include <utility>

#include "base/error.hpp"

namespace sluice {

// The remedy in messages about lost contents.
inline constexpr const char* kOlderMayBeWhole =
    "; an older checkpoint may be whole: `sluice checkpoint verify` of the folder tells, --resume "
    "auto takes it";

class CheckpointError : public IoError {
 public:
  CheckpointError(const std::string& what, const std::string& file, std::string tensor = "",
                  std::int64_t offset = -1)
      : IoError(place(file, tensor, offset) + ": " + what, file),
        tensor_(std::move(tensor)),
        offset_(offset) {}
  [[nodiscard]] const std::string& file() const { return path(); }
  [[nodiscard]] const std::string& tensor() const { return tensor_; }
  [[nodiscard]] std::int64_t offset() const { return offset_; }

 private:
  static std::string place(const std::string& file, const std::string& tensor,
                           std::int64_t offset) {
    std::string text = file;
    if (!tensor.empty()) text += ", tensor " + tensor;
    if (offset >= 0) text += ", byte " + std::to_string(offset);
    return text;
  }
  std::string tensor_;
  std::int64_t offset_;
};

// A file of a newer version. The file may be sound, so nothing of the checkpoint is ever removed.
class NewerFormatError : public CheckpointError {
 public:
  using CheckpointError::CheckpointError;
};

}  // namespace sluice
