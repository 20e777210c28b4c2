#include "runtime/checkpoint/import/pickle.hpp"

#include <bit>
#include <optional>
#include <utility>

#include "base/format.hpp"
#include "runtime/checkpoint/import/pickle_stack.hpp"
#include "runtime/checkpoint/import/pickle_tensors.hpp"

namespace sluice {
namespace {

using Kind = PickleValue::Kind;

// Executes the opcodes on the stack.
class Machine : private PickleStack {
 public:
  using PickleStack::PickleStack;

  PickleTree run() {
    check_size();
    while (!stopped_) step();
    return std::move(tree_);
  }

 private:
  void tuple(std::size_t length) {
    std::vector<PickleId> items(length);
    for (std::size_t i = length; i > 0; --i) items[i - 1] = pop();
    push(Kind::kTuple, "", std::move(items));
  }
  // Adds items to the list or dictionary on top of the stack. An opaque value ignores them.
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
    }  // the state of an OrderedDict or a tensor is ignored
  }

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
    if (is_typed_global(name)) return typed_tensor(given);
    make_tensor(name, given);
  }
  // A tensor of a type other than torch's own is opaque, because the meaning of its storage is
  // unknown.
  void typed_tensor(const PickleValue& given) {
    if (given.items.size() != 4) fail("makes a tensor with attributes of no four values");
    const PickleValue& function = tree_.values[given.items[0]];
    const PickleValue& type = tree_.values[given.items[1]];
    const PickleValue& arguments = tree_.values[given.items[2]];
    const bool plain = function.kind == Kind::kGlobal && type.kind == Kind::kGlobal &&
                       arguments.kind == Kind::kTuple && is_plain_type(type.text);
    if (!plain) return push(Kind::kOpaque, "torch._tensor _rebuild_from_type_v2");
    make_tensor(function.text, arguments);
  }
  void make_tensor(const std::string& name, const PickleValue& given) {
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
  // Limits the length, because every value that a global makes repeats its name.
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

  bool stopped_ = false;
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
    case 0x8f:  // a set, which no importer needs
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
  const std::uint8_t opcode = next_opcode();
  if (opcode == 0x80) {
    const auto protocol = number<std::uint8_t>();
    if (protocol < 2 || protocol > 5) {
      fail(format_text("is a pickle of protocol {}; 2 to 5 are read", protocol));
    }
    return;
  }
  if (opcode == 0x95) {  // a frame: a hint for readers of streams
    (void)number<std::uint64_t>();
    return;
  }
  if (opcode == '.') {
    tree_.root = pop();
    if (!stack_.empty() || !marks_.empty()) fail("ends with more than one value");
    if (!at_end()) fail("goes on behind the end of its pickle");
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
