#include <cstdlib>

#include "runtime/checkpoint/format/checkpoint_error.hpp"
#include "runtime/checkpoint/import/torch_file.hpp"
#include "tests/fuzz/targets.hpp"

namespace sluice::testing {
namespace {

// Every value refers to values, storages and tensors that are there, and a tensor lies in its
// storage.
void check_tree(const PickleTree& tree) {
  for (const PickleValue& value : tree.values) {
    for (const PickleId item : value.items) {
      if (item >= tree.values.size()) std::abort();
    }
    const auto number = static_cast<std::size_t>(value.number);
    using Kind = PickleValue::Kind;
    if (value.kind == Kind::kTensor && number >= tree.tensors.size()) std::abort();
    if (value.kind == Kind::kStorage && number >= tree.storages.size()) std::abort();
    (void)tree.find(value, "param");
    (void)tree.entries(value);
  }
  for (const PickleTensor& tensor : tree.tensors) {
    std::int64_t last = tensor.offset;
    bool empty = false;
    for (std::size_t d = 0; d < tensor.shape.size(); ++d) {
      empty = empty || tensor.shape[d] == 0;
      last += (tensor.shape[d] - 1) * tensor.strides[d];
    }
    if (!empty && last >= tree.storages[tensor.storage].elems) std::abort();
  }
}

}  // namespace

void fuzz_pickle(std::span<const std::byte> bytes) {
  try {
    check_tree(parse_pickle(bytes, "fuzz"));
  } catch (const CheckpointError&) {
    return;
  }
}

void fuzz_torch(std::span<const std::byte> bytes) {
  try {
    const TorchContents contents = parse_torch_file(bytes, "fuzz");
    check_tree(contents.tree);
    const auto size = static_cast<std::int64_t>(bytes.size());
    for (const TorchContents::Place& place : contents.storages) {
      if (place.offset < 0 || place.bytes < 0 || place.bytes > size - place.offset) std::abort();
    }
  } catch (const CheckpointError&) {
    return;
  }
}

}  // namespace sluice::testing
