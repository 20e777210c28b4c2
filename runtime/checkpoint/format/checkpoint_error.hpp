// What a checkpoint's file says wrongly, or fails to say: file, tensor (a range's name, empty where
// the trouble is not inside one) and byte offset in the file (-1 where there is none). what() holds
// all three.
#pragma once

#include <cstdint>
#include <string>
#include <utility>

#include "base/error.hpp"

namespace sluice {

// The remedy where contents are gone.
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

// Written by a newer version: nothing is wrong with it, so nothing of it is ever removed.
class NewerFormatError : public CheckpointError {
 public:
  using CheckpointError::CheckpointError;
};

}  // namespace sluice
