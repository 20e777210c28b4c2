// Pickles of torch.save, read as data. Nothing that a pickle names is looked up or run: the machine
// knows the opcodes that build numbers, texts and containers, and of all globals those that say
// what a tensor is. Whatever else a pickle names becomes an opaque value: its name, and the state
// it was given (an argparse.Namespace is so read by its attributes).
//
// Every opcode that is not known, and whatever does not hold together, is a CheckpointError with
// file, byte and opcode or global. Memory is linear in the pickle's bytes. Pure; thread-safe.
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

using PickleId = std::uint32_t;  // of a value of one PickleTree

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
    kOpaque,   // text: "module name" of what would make it; items: its state, if it was given one
  };
  Kind kind = Kind::kNone;
  std::int64_t number = 0;
  double real = 0;
  std::string text;
  std::vector<PickleId> items;
  std::int64_t at = 0;  // of the opcode that made it, in the file
};

// Named by the pickle; its bytes are the zip's entry data/<key>.
struct PickleStorage {
  std::string key;
  TensorDType dtype = TensorDType::kF32;
  std::int64_t elems = 0;
};

// Lies within its storage: checked.
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

// May hold itself: do not walk it without a limit.
struct PickleTree {
  PickleId root = 0;
  std::vector<PickleValue> values;
  std::vector<PickleStorage> storages;
  std::vector<PickleTensor> tensors;
  std::string path;

  [[nodiscard]] const PickleValue& at(PickleId id) const { return values[id]; }
  // A dictionary's value, or an opaque value's attribute, of this name. nullptr: there is none.
  [[nodiscard]] const PickleValue* find(const PickleValue& in, std::string_view key) const;
  // Every entry of a dictionary whose key is a text.
  [[nodiscard]] std::map<std::string, const PickleValue*> entries(const PickleValue& in) const;
};

// `path` and `base`, the offset of the pickle in that file, are for messages.
[[nodiscard]] PickleTree parse_pickle(std::span<const std::byte> pickle, const std::string& path,
                                      std::int64_t base = 0, const PickleLimits& limits = {});

// "a text", "a value of argparse Namespace": for messages.
[[nodiscard]] std::string kind_text(const PickleValue& value);

}  // namespace sluice
