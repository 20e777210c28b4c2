#include "runtime/checkpoint/pickle.hpp"

#include <algorithm>
#include <bit>
#include <cstring>
#include <optional>
#include <unordered_map>
#include <utility>

#include "runtime/checkpoint/pickle_tensors.hpp"

namespace sluice {
namespace {

using Kind = PickleValue::Kind;

class Machine {
 public:
  Machine(std::span<const std::byte> pickle, const std::string& path, std::int64_t base,
          const PickleLimits& limits)
      : pickle_(pickle), base_(base), limits_(limits) {
    tree_.path = path;
  }

  PickleTree run() {
    if (static_cast<std::int64_t>(pickle_.size()) > limits_.bytes) {
      fail("has a pickle of " + std::to_string(pickle_.size()) + " bytes, over the limit of " +
           std::to_string(limits_.bytes));
    }
    while (!stopped_) step();
    return std::move(tree_);
  }

 private:
  [[noreturn]] void fail(const std::string& what) const {
    throw CheckpointError(what, tree_.path, "", base_ + static_cast<std::int64_t>(opcode_at_));
  }

  // --- the pickle's bytes
  std::span<const std::byte> take(std::uint64_t length) {
    if (length > pickle_.size() - at_) fail("ends within a pickle's opcode");
    const auto bytes = pickle_.subspan(at_, static_cast<std::size_t>(length));
    at_ += static_cast<std::size_t>(length);
    return bytes;
  }
  template <class T>
  T number() {
    T value = 0;
    const auto bytes = take(sizeof value);
    std::memcpy(&value, bytes.data(), sizeof value);
    return value;
  }
  std::string text(std::uint64_t length) {
    const auto bytes = take(length);
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
  }
  std::string line() {
    const auto rest = pickle_.subspan(at_);
    const auto end = std::find(rest.begin(), rest.end(), std::byte{'\n'});
    if (end == rest.end()) fail("ends within a pickle's opcode");
    std::string found = text(static_cast<std::uint64_t>(end - rest.begin()));
    ++at_;
    return found;
  }
  std::int64_t long_number(std::uint8_t length) {
    if (length > 8) fail("holds a number of " + std::to_string(length) + " bytes, over 8");
    std::uint64_t value = 0;
    const auto bytes = take(length);
    if (length == 0) return 0;
    std::memcpy(&value, bytes.data(), length);
    const unsigned shift = 64U - 8U * length;
    return static_cast<std::int64_t>(value << shift) >> shift;  // its sign
  }

  // --- stack and memo
  void push(PickleValue value) {
    if (tree_.values.size() >= limits_.values) {
      fail("holds more than " + std::to_string(limits_.values) + " values");
    }
    value.at = base_ + static_cast<std::int64_t>(opcode_at_);
    tree_.values.push_back(std::move(value));
    stack_.push_back(static_cast<PickleId>(tree_.values.size() - 1));
  }
  void push(Kind kind, std::int64_t number) {
    PickleValue value;
    value.kind = kind;
    value.number = number;
    push(std::move(value));
  }
  void push(Kind kind, std::string text, std::vector<PickleId> items = {}) {
    PickleValue value;
    value.kind = kind;
    value.text = std::move(text);
    value.items = std::move(items);
    push(std::move(value));
  }
  [[nodiscard]] std::size_t floor() const { return marks_.empty() ? 0 : marks_.back(); }
  PickleId pop() {
    if (stack_.size() <= floor()) fail("takes a value that is not there");
    const PickleId id = stack_.back();
    stack_.pop_back();
    return id;
  }
  PickleValue& top() {
    if (stack_.size() <= floor()) fail("takes a value that is not there");
    return tree_.values[stack_.back()];
  }
  std::vector<PickleId> pop_mark() {
    if (marks_.empty()) fail("ends a list that was not begun");
    std::vector<PickleId> items(stack_.begin() + static_cast<std::ptrdiff_t>(marks_.back()),
                                stack_.end());
    stack_.resize(marks_.back());
    marks_.pop_back();
    return items;
  }
  void remember(std::uint64_t index) {
    (void)top();
    memo_[index] = stack_.back();
  }
  void recall(std::uint64_t index) {
    const auto found = memo_.find(index);
    if (found == memo_.end()) fail("takes value " + std::to_string(index) + ", which is not there");
    stack_.push_back(found->second);
  }

  // --- containers
  void tuple(std::size_t length) {
    std::vector<PickleId> items(length);
    for (std::size_t i = length; i > 0; --i) items[i - 1] = pop();
    push(Kind::kTuple, "", std::move(items));
  }
  // Into the list or dictionary on top; what is opaque keeps nothing.
  void add(Kind kind, const std::vector<PickleId>& items) {
    PickleValue& into = top();
    if (into.kind == Kind::kOpaque) return;
    if (into.kind != kind) fail("adds elements to " + kind_text(into));
    if (kind == Kind::kDict && items.size() % 2 != 0) fail("adds a key without a value");
    into.items.insert(into.items.end(), items.begin(), items.end());
  }
  void build() {
    const PickleId state = pop();
    PickleValue& of = top();
    if (of.kind == Kind::kOpaque) {
      of.items = {state};
    } else if (of.kind != Kind::kDict && of.kind != Kind::kTensor) {
      fail("gives a state to " + kind_text(of));
    }  // what an OrderedDict or a tensor has beside its contents is not read
  }

  // --- globals
  void reduce() {
    const PickleId arguments = pop();
    const PickleValue function = tree_.values[pop()];
    const PickleValue& given = tree_.values[arguments];
    if (given.kind != Kind::kTuple) fail("calls " + function.text + " without a tuple");
    if (function.kind == Kind::kOpaque) return push(Kind::kOpaque, function.text);
    if (function.kind != Kind::kGlobal) fail("calls " + kind_text(function));
    const std::string& name = function.text;
    if (name == "collections OrderedDict") {
      if (!given.items.empty()) fail("makes an OrderedDict of something");
      return push(Kind::kDict, "");
    }
    if (name == "torch Size" && given.items.size() == 1) {
      stack_.push_back(given.items[0]);
      if (top().kind != Kind::kTuple) fail("makes a torch Size of " + kind_text(top()));
      return;
    }
    if (is_parameter_global(name) && !given.items.empty()) {
      stack_.push_back(given.items[0]);
      if (top().kind != Kind::kTensor) fail("makes a parameter of " + kind_text(top()));
      return;
    }
    if (!is_tensor_global(name)) return push(Kind::kOpaque, name);
    std::string why;
    auto tensor = tensor_of(tree_, given.items, limits_.dims, why);
    if (!tensor) fail(name + ": " + why);
    tree_.tensors.push_back(std::move(*tensor));
    push(Kind::kTensor, static_cast<std::int64_t>(tree_.tensors.size() - 1));
  }
  void make_object(bool keywords) {
    if (keywords) (void)pop();
    (void)pop();
    const PickleValue& type = tree_.values[pop()];
    if (type.kind != Kind::kGlobal) fail("makes an object of " + kind_text(type));
    if (type.text == "collections OrderedDict") return push(Kind::kDict, "");
    push(Kind::kOpaque, type.text);
  }
  void persistent() {
    const PickleValue& id = tree_.values[pop()];
    std::string why;
    auto storage = storage_of(tree_, id, why);
    if (!storage) fail("names a storage that is none: " + why);
    tree_.storages.push_back(std::move(*storage));
    push(Kind::kStorage, static_cast<std::int64_t>(tree_.storages.size() - 1));
  }
  void stack_global() {
    const PickleValue& name = tree_.values[pop()];
    const PickleValue& module = tree_.values[pop()];
    if (name.kind != Kind::kText || module.kind != Kind::kText) fail("names a global without text");
    push_global(module.text, name.text);
  }
  // Short, since what is made of one names it again.
  void push_global(const std::string& module, const std::string& name) {
    constexpr std::size_t kMost = 160;
    if (module.size() + name.size() > kMost) fail("names a global of more than 160 characters");
    push(Kind::kGlobal, module + " " + name);
  }

  void step();
  bool step_scalar(std::uint8_t opcode);
  bool step_container(std::uint8_t opcode);
  bool step_memo(std::uint8_t opcode);
  bool step_object(std::uint8_t opcode);

  std::span<const std::byte> pickle_;
  std::int64_t base_;
  PickleLimits limits_;
  std::size_t at_ = 0, opcode_at_ = 0;
  bool stopped_ = false;
  PickleTree tree_;
  std::vector<PickleId> stack_;
  std::vector<std::size_t> marks_;  // sizes of the stack
  std::unordered_map<std::uint64_t, PickleId> memo_;
};

bool Machine::step_scalar(std::uint8_t opcode) {
  switch (opcode) {
    case 'N':
      push(Kind::kNone, 0);
      return true;
    case 0x88:
    case 0x89:
      push(Kind::kBool, opcode == 0x88 ? 1 : 0);
      return true;
    case 'K':
      push(Kind::kInt, number<std::uint8_t>());
      return true;
    case 'M':
      push(Kind::kInt, number<std::uint16_t>());
      return true;
    case 'J':
      push(Kind::kInt, number<std::int32_t>());
      return true;
    case 0x8a:
      push(Kind::kInt, long_number(number<std::uint8_t>()));
      return true;
    case 'G': {
      PickleValue value;
      value.kind = Kind::kFloat;
      value.real = std::bit_cast<double>(__builtin_bswap64(number<std::uint64_t>()));
      push(std::move(value));
      return true;
    }
    case 'X':
      push(Kind::kText, text(number<std::uint32_t>()));
      return true;
    case 0x8c:
      push(Kind::kText, text(number<std::uint8_t>()));
      return true;
    case 0x8d:
      push(Kind::kText, text(number<std::uint64_t>()));
      return true;
    case 'B':
      push(Kind::kBytes, text(number<std::uint32_t>()));
      return true;
    case 'C':
      push(Kind::kBytes, text(number<std::uint8_t>()));
      return true;
    case 0x8e:
      push(Kind::kBytes, text(number<std::uint64_t>()));
      return true;
    default:
      return false;
  }
}

bool Machine::step_container(std::uint8_t opcode) {
  switch (opcode) {
    case '(':
      marks_.push_back(stack_.size());
      return true;
    case ')':
      tuple(0);
      return true;
    case 0x85:
    case 0x86:
    case 0x87:
      tuple(opcode - 0x84U);
      return true;
    case 't':
      push(Kind::kTuple, "", pop_mark());
      return true;
    case ']':
      push(Kind::kList, "");
      return true;
    case '}':
      push(Kind::kDict, "");
      return true;
    case 0x8f:  // a set: nothing here needs one
      push(Kind::kOpaque, "builtins set");
      return true;
    case 0x91:
      (void)pop_mark();
      push(Kind::kOpaque, "builtins frozenset");
      return true;
    case 'a': {
      const PickleId item = pop();
      add(Kind::kList, {item});
      return true;
    }
    case 's': {
      const PickleId value = pop();
      const PickleId key = pop();
      add(Kind::kDict, {key, value});
      return true;
    }
    case 'e':
    case 0x90:
      add(Kind::kList, pop_mark());
      return true;
    case 'u':
      add(Kind::kDict, pop_mark());
      return true;
    default:
      return false;
  }
}

bool Machine::step_memo(std::uint8_t opcode) {
  switch (opcode) {
    case 'q':
      remember(number<std::uint8_t>());
      return true;
    case 'r':
      remember(number<std::uint32_t>());
      return true;
    case 0x94:
      remember(memo_.size());
      return true;
    case 'h':
      recall(number<std::uint8_t>());
      return true;
    case 'j':
      recall(number<std::uint32_t>());
      return true;
    case '0':
      (void)pop();
      return true;
    case '1':
      (void)pop_mark();
      return true;
    case '2':
      (void)top();
      stack_.push_back(stack_.back());
      return true;
    default:
      return false;
  }
}

bool Machine::step_object(std::uint8_t opcode) {
  switch (opcode) {
    case 'c': {
      const std::string module = line();
      push_global(module, line());
      return true;
    }
    case 0x93:
      stack_global();
      return true;
    case 'R':
      reduce();
      return true;
    case 0x81:
    case 0x92:
      make_object(opcode == 0x92);
      return true;
    case 'b':
      build();
      return true;
    case 'Q':
      persistent();
      return true;
    default:
      return false;
  }
}

void Machine::step() {
  opcode_at_ = at_;
  const auto opcode = number<std::uint8_t>();
  if (opcode == 0x80) {
    const auto protocol = number<std::uint8_t>();
    if (protocol < 2 || protocol > 5) {
      fail("is a pickle of protocol " + std::to_string(protocol) + "; 2 to 5 are read");
    }
    return;
  }
  if (opcode == 0x95) {  // a frame: how far a stream reader may read ahead
    (void)number<std::uint64_t>();
    return;
  }
  if (opcode == '.') {
    tree_.root = pop();
    if (!stack_.empty() || !marks_.empty()) fail("ends with more than one value");
    if (at_ != pickle_.size()) fail("goes on behind the end of its pickle");
    stopped_ = true;
    return;
  }
  if (step_scalar(opcode) || step_container(opcode) || step_memo(opcode) || step_object(opcode)) {
    return;
  }
  constexpr std::string_view kDigits = "0123456789abcdef";
  fail(std::string("holds the pickle opcode 0x") + kDigits[opcode >> 4U] + kDigits[opcode & 0xFU] +
       ", which is not read: tensors, numbers, texts and containers are");
}

}  // namespace

PickleTree parse_pickle(std::span<const std::byte> pickle, const std::string& path,
                        std::int64_t base, const PickleLimits& limits) {
  return Machine(pickle, path, base, limits).run();
}

}  // namespace sluice
