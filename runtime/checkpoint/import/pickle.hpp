// Reads pickles of torch.save as data. No global of a pickle is looked up or run. The machine knows
// the opcodes that build numbers, texts and containers, and the globals that build tensors. Every
// other global becomes an opaque value with its name and its state; so the attributes of an
// argparse.Namespace can be read.
//
// An unknown opcode or an inconsistency is a CheckpointError with file, byte, and opcode or global.
// Memory is linear in the bytes of the pickle. Pure; thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/checkpoint/format/safetensors.hpp"

namespace sluice {

using PickleId = std::uint32_t;  // index of a value in a PickleTree

struct PickleValue {
  enum class Kind : std::uint8_t {
    kNone,
    kBool,
    kInt,
    kFloat,
    kText,
    kBytes,
    kList,
    kTuple,
    kDict,     // items: key, value, key, value, ... as written; a later key replaces an earlier one
    kStorage,  // number: index into storages
    kTensor,   // number: index into tensors
    kGlobal,   // text: "module name"
    kOpaque,   // text: "module name" of its global; items: its state, if any
  };
  Kind kind = Kind::kNone;
  std::int64_t number = 0;
  double real = 0;
  std::string text;
  std::vector<PickleId> items;
  std::int64_t at = 0;  // byte in the file of the opcode that made the value
};

// A storage that the pickle names. Its bytes are the zip entry data/<key>.
struct PickleStorage {
  std::string key;
  TensorDType dtype = TensorDType::kF32;
  std::int64_t elems = 0;
};

// A view of a storage; checked to lie within the storage.
struct PickleTensor {
  std::size_t storage = 0;
  std::int64_t offset = 0;                   // elements
  std::vector<std::int64_t> shape, strides;  // elements
};

struct PickleLimits {
  std::int64_t bytes = std::int64_t{32} << 20;
  std::size_t values = 2U << 20U;
  std::size_t dims = 8;
};

// The values of a pickle. A value may contain itself, so a walk needs a limit.
struct PickleTree {
  PickleId root = 0;
  std::vector<PickleValue> values;
  std::vector<PickleStorage> storages;
  std::vector<PickleTensor> tensors;
  std::string path;

  [[nodiscard]] const PickleValue& at(PickleId id) const { return values[id]; }
  // The value of a dictionary, or the attribute of an opaque value, with this name; or nullptr.
  [[nodiscard]] const PickleValue* find(const PickleValue& in, std::string_view key) const;
  // The entries of a dictionary whose keys are texts.
  [[nodiscard]] std::map<std::string, const PickleValue*> entries(const PickleValue& in) const;
};

// `path`, and `base`, the offset of the pickle in that file, are for messages.
[[nodiscard]] PickleTree parse_pickle(std::span<const std::byte> pickle, const std::string& path,
                                      std::int64_t base = 0, const PickleLimits& limits = {});

// The kind of a value for messages: "a text", "a value of argparse Namespace".
[[nodiscard]] std::string kind_text(const PickleValue& value);

}  // namespace sluice
