#include "configs/yaml_tree.hpp"

#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/exceptions.h>
#include <yaml-cpp/mark.h>
#include <yaml-cpp/parser.h>

#include <array>
#include <cstddef>
#include <map>
#include <optional>
#include <sstream>
#include <utility>

#include "configs/text_check.hpp"

namespace sluice {
namespace {

constexpr std::size_t kMaxTextBytes = std::size_t{1} << 20;
constexpr std::size_t kMaxNodes = 20'000;  // a whole configuration has about 100
constexpr std::size_t kMaxDepth = 32;      // a whole configuration has 3

// Leaves the parser from inside a callback.
struct Refused {
  YamlProblem problem;
};

[[noreturn]] void refuse(const YAML::Mark& mark, std::string what) {
  throw Refused{{mark.line + 1, mark.column + 1, std::move(what)}};
}

// A long text counts as several nodes, so that the bound on nodes bounds the bytes as well.
std::size_t weight_of(std::string_view text) { return 1 + text.size() / 64; }

std::size_t weight_of(const YamlNode& node) {
  std::size_t weight = weight_of(std::string_view(node.text));
  for (const YamlNode& item : node.items) weight += weight_of(item);
  for (const YamlEntry& entry : node.entries) {
    weight += weight_of(entry.key) + weight_of(entry.value);
  }
  return weight;
}

// Builds the tree from the parser's events. Aliases become copies, within the bound on nodes.
class TreeBuilder final : public YAML::EventHandler {
 public:
  [[nodiscard]] YamlNode take_root() { return std::move(root_); }
  [[nodiscard]] int documents() const { return documents_; }

  void OnDocumentStart(const YAML::Mark& mark) override {
    if (++documents_ > 1) refuse(mark, "a second document; a configuration is one document");
  }
  void OnDocumentEnd() override {}

  void OnNull(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    add(make(YamlNode::Kind::kNull, mark), anchor, mark);
  }
  void OnAlias(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    const auto named = anchors_.find(anchor);
    if (named == anchors_.end()) refuse(mark, "an alias inside the value that it names");
    count(mark, named->second.weight);
    YamlNode copy = named->second.node;
    copy.line = mark.line + 1;
    copy.column = mark.column + 1;
    add(std::move(copy), 0, mark);
  }
  void OnScalar(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                const std::string& value) override {
    check_tag(mark, tag);
    count(mark, value.size() / 64);
    YamlNode node = make(YamlNode::Kind::kScalar, mark);
    node.text = value;
    add(std::move(node), anchor, mark);
  }
  void OnSequenceStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                       YAML::EmitterStyle::value) override {
    open(YamlNode::Kind::kList, mark, tag, anchor);
  }
  void OnSequenceEnd() override { close(); }
  void OnMapStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                  YAML::EmitterStyle::value) override {
    open(YamlNode::Kind::kMap, mark, tag, anchor);
  }
  void OnMapEnd() override { close(); }

 private:
  struct Frame {
    YamlNode node;
    YAML::anchor_t anchor = 0;
    YAML::Mark mark;
    std::optional<YamlNode> key;  // of a map: the key that waits for its value
  };
  struct Named {
    YamlNode node;
    std::size_t weight = 0;
  };

  YamlNode make(YamlNode::Kind kind, const YAML::Mark& mark) {
    count(mark, 1);
    YamlNode node;
    node.kind = kind;
    node.line = mark.line + 1;
    node.column = mark.column + 1;
    return node;
  }
  void count(const YAML::Mark& mark, std::size_t weight) {
    nodes_ += weight;
    if (nodes_ > kMaxNodes) {
      refuse(mark, "more than " + std::to_string(kMaxNodes) + " values, aliases included");
    }
  }
  static void check_tag(const YAML::Mark& mark, const std::string& tag) {
    // "?" is a plain value, "!" a quoted one.
    if (!tag.empty() && tag != "?" && tag != "!") {
      refuse(mark, "tag " + in_quotes(tag) + "; write the value without a tag");
    }
  }
  void open(YamlNode::Kind kind, const YAML::Mark& mark, const std::string& tag,
            YAML::anchor_t anchor) {
    check_tag(mark, tag);
    if (stack_.size() >= kMaxDepth) {
      refuse(mark, "nested more than " + std::to_string(kMaxDepth) + " levels deep");
    }
    stack_.push_back({make(kind, mark), anchor, mark, std::nullopt});
  }
  void close() {
    Frame frame = std::move(stack_.back());
    stack_.pop_back();
    add(std::move(frame.node), frame.anchor, frame.mark);
  }
  void add(YamlNode node, YAML::anchor_t anchor, const YAML::Mark& mark) {
    if (anchor != 0) anchors_[anchor] = {node, weight_of(node)};
    if (stack_.empty()) {
      root_ = std::move(node);
      return;
    }
    Frame& parent = stack_.back();
    if (parent.node.kind == YamlNode::Kind::kList) {
      parent.node.items.push_back(std::move(node));
    } else if (parent.key) {
      parent.node.entries.push_back({std::move(*parent.key), std::move(node)});
      parent.key.reset();
    } else if (node.kind == YamlNode::Kind::kScalar) {
      parent.key = std::move(node);
    } else {
      refuse(mark, "a key that is not a name");
    }
  }

  YamlNode root_;
  int documents_ = 0;
  std::size_t nodes_ = 0;
  std::vector<Frame> stack_;
  std::map<YAML::anchor_t, Named> anchors_;
};

struct Hint {
  std::string_view message;  // yaml-cpp's
  std::string_view hint;
};

// The usual causes of yaml-cpp's terse messages.
const std::array<Hint, 10> kHints{{
    {YAML::ErrorMsg::MAP_VALUE, "check the indentation, and quote a value that holds ': '"},
    {YAML::ErrorMsg::END_OF_MAP, "check the indentation of this line and of the one above"},
    {YAML::ErrorMsg::END_OF_SEQ, "check the indentation of this line and of the one above"},
    {YAML::ErrorMsg::END_OF_SEQ_FLOW, "a [ without its ]"},
    {YAML::ErrorMsg::END_OF_MAP_FLOW, "a { without its }"},
    {YAML::ErrorMsg::ALIAS_NOT_FOUND, "a value that starts with * needs quotes"},
    {YAML::ErrorMsg::CHAR_IN_ALIAS, "a value that starts with * needs quotes"},
    {YAML::ErrorMsg::UNKNOWN_ANCHOR, "a value that starts with * needs quotes"},
    {YAML::ErrorMsg::UNKNOWN_TOKEN, "a value that starts with this character needs quotes"},
    {YAML::ErrorMsg::EOF_IN_SCALAR, "a quote without its partner"},
}};

YamlProblem describe(const YAML::Exception& error) {
  YamlProblem problem;
  if (!error.mark.is_null()) {
    problem.line = error.mark.line + 1;
    problem.column = error.mark.column + 1;
  }
  problem.what = "not YAML: " + printable(error.msg);
  for (const Hint& hint : kHints) {
    if (error.msg == hint.message) problem.what += " (" + std::string(hint.hint) + ")";
  }
  return problem;
}

}  // namespace

YamlDocument parse_yaml(const std::string& text) {
  YamlDocument document;
  if (text.size() > kMaxTextBytes) {
    document.problems.push_back({0, 0, "larger than 1 MiB; this is not a configuration"});
    return document;
  }
  document.problems = find_bad_characters(text);
  if (!document.problems.empty()) return document;
  TreeBuilder builder;
  try {
    std::istringstream stream(text);
    YAML::Parser parser(stream);
    while (parser.HandleNextDocument(builder)) {
    }
    document.root = builder.take_root();
  } catch (const Refused& refused) {
    document.problems.push_back(refused.problem);
  } catch (const YAML::Exception& error) {
    document.problems.push_back(describe(error));
  }
  return document;
}

}  // namespace sluice
