#include "runtime/checkpoint/import/pickle_tensors.hpp"

#include <algorithm>
#include <array>
#include <utility>

namespace sluice {
namespace {

using Kind = PickleValue::Kind;

struct StorageType {
  std::string_view global;
  TensorDType dtype;
};
constexpr std::array kStorageTypes{
    StorageType{"torch FloatStorage", TensorDType::kF32},
    StorageType{"torch BFloat16Storage", TensorDType::kBF16},
    StorageType{"torch HalfStorage", TensorDType::kF16},
    StorageType{"torch DoubleStorage", TensorDType::kF64},
    StorageType{"torch LongStorage", TensorDType::kI64},
    StorageType{"torch IntStorage", TensorDType::kI32},
    StorageType{"torch ShortStorage", TensorDType::kI16},
    StorageType{"torch CharStorage", TensorDType::kI8},
    StorageType{"torch ByteStorage", TensorDType::kU8},
    StorageType{"torch BoolStorage", TensorDType::kBool},
};

// With this limit no product of accepted values overflows. No file has 2^47 elements.
constexpr std::int64_t kMostTensorElems = std::int64_t{1} << 47;

bool numbers_of(const PickleTree& tree, const PickleValue& tuple, std::size_t most,
                std::vector<std::int64_t>& into) {
  if (tuple.kind != Kind::kTuple || tuple.items.size() > most) return false;
  for (const PickleId item : tuple.items) {
    const PickleValue& value = tree.at(item);
    if (value.kind != Kind::kInt || value.number < 0 || value.number > kMostTensorElems)
      return false;
    into.push_back(value.number);
  }
  return true;
}

// Index one past the last element of the tensor in its storage; -1: too large.
std::int64_t reach_of(const PickleTensor& tensor) {
  std::int64_t last = tensor.offset;
  std::int64_t elems = 1;
  if (std::find(tensor.shape.begin(), tensor.shape.end(), 0) != tensor.shape.end()) return last;
  for (std::size_t d = 0; d < tensor.shape.size(); ++d) {
    if (__builtin_mul_overflow(elems, tensor.shape[d], &elems) || elems > kMostTensorElems)
      return -1;
    std::int64_t more = 0;
    if (__builtin_mul_overflow(tensor.shape[d] - 1, tensor.strides[d], &more) ||
        __builtin_add_overflow(last, more, &last)) {
      return -1;
    }
  }
  return last >= kMostTensorElems ? -1 : last + 1;
}

}  // namespace

bool is_tensor_global(const std::string& name) {
  return name == "torch._utils _rebuild_tensor_v2" || name == "torch._utils _rebuild_tensor";
}

bool is_parameter_global(const std::string& name) {
  return name == "torch._utils _rebuild_parameter" ||
         name == "torch._utils _rebuild_parameter_with_state";
}

bool is_typed_global(const std::string& name) {
  return name == "torch._tensor _rebuild_from_type_v2";
}

bool is_plain_type(const std::string& name) {
  return name == "torch Tensor" || name == "torch.nn.parameter Parameter";
}

std::optional<PickleStorage> storage_of(const PickleTree& tree, const PickleValue& id,
                                        std::string& why) {
  if (id.kind != Kind::kTuple || id.items.size() != 5 || tree.at(id.items[0]).text != "storage") {
    why = "not a tuple of five that begins with 'storage'";
    return std::nullopt;
  }
  const PickleValue& type = tree.at(id.items[1]);
  const PickleValue& key = tree.at(id.items[2]);
  const PickleValue& elems = tree.at(id.items[4]);
  const auto* const row = std::find_if(kStorageTypes.begin(), kStorageTypes.end(),
                                       [&](const StorageType& r) { return r.global == type.text; });
  if (type.kind != Kind::kGlobal || row == kStorageTypes.end()) {
    why = "it is of the type " + (type.kind == Kind::kGlobal ? type.text : kind_text(type)) +
          ", which is not read";
    return std::nullopt;
  }
  constexpr std::size_t kMostKey = 32;
  if (key.kind != Kind::kText || key.text.size() > kMostKey || elems.kind != Kind::kInt ||
      elems.number < 0 || elems.number > kMostTensorElems) {
    why = "its key is no text or its size no number of elements";
    return std::nullopt;
  }
  return PickleStorage{key.text, row->dtype, elems.number};
}

std::optional<PickleTensor> tensor_of(const PickleTree& tree,
                                      const std::vector<PickleId>& arguments, std::size_t most_dims,
                                      std::string& why) {
  if (arguments.size() < 4 || tree.at(arguments[0]).kind != Kind::kStorage) {
    why = "is not given a storage, an offset, a shape and strides";
    return std::nullopt;
  }
  PickleTensor tensor;
  tensor.storage = static_cast<std::size_t>(tree.at(arguments[0]).number);
  const PickleValue& offset = tree.at(arguments[1]);
  if (offset.kind != Kind::kInt || offset.number < 0 || offset.number > kMostTensorElems ||
      !numbers_of(tree, tree.at(arguments[2]), most_dims, tensor.shape) ||
      !numbers_of(tree, tree.at(arguments[3]), most_dims, tensor.strides) ||
      tensor.shape.size() != tensor.strides.size()) {
    why = "its offset, shape or strides are none";
    return std::nullopt;
  }
  tensor.offset = offset.number;
  const std::int64_t reach = reach_of(tensor);
  if (reach < 0 || reach > tree.storages[tensor.storage].elems) {
    why = "it reaches beyond its storage " + tree.storages[tensor.storage].key;
    return std::nullopt;
  }
  return tensor;
}

const PickleValue* PickleTree::find(const PickleValue& in, std::string_view key) const {
  const PickleValue* from = &in;
  if (in.kind == Kind::kOpaque && in.items.size() == 1) from = &at(in.items[0]);
  if (from->kind != Kind::kDict) return nullptr;
  const PickleValue* found = nullptr;
  for (std::size_t i = 0; i + 1 < from->items.size(); i += 2) {
    const PickleValue& name = at(from->items[i]);
    if (name.kind == Kind::kText && name.text == key) found = &at(from->items[i + 1]);
  }
  return found;
}

std::map<std::string, const PickleValue*> PickleTree::entries(const PickleValue& in) const {
  std::map<std::string, const PickleValue*> found;
  if (in.kind != Kind::kDict) return found;
  for (std::size_t i = 0; i + 1 < in.items.size(); i += 2) {
    const PickleValue& name = at(in.items[i]);
    if (name.kind == Kind::kText) found[name.text] = &at(in.items[i + 1]);
  }
  return found;
}

std::string kind_text(const PickleValue& value) {
  switch (value.kind) {
    case Kind::kNone:
      return "None";
    case Kind::kBool:
      return "a bool";
    case Kind::kInt:
      return "an integer";
    case Kind::kFloat:
      return "a float";
    case Kind::kText:
      return "a text";
    case Kind::kBytes:
      return "bytes";
    case Kind::kList:
      return "a list";
    case Kind::kTuple:
      return "a tuple";
    case Kind::kDict:
      return "a dictionary";
    case Kind::kStorage:
      return "a storage";
    case Kind::kTensor:
      return "a tensor";
    case Kind::kGlobal:
      return "the global " + value.text;
    case Kind::kOpaque:
      break;
  }
  return "a value of " + value.text;
}

}  // namespace sluice
