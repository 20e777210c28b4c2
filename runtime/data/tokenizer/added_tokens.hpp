// Tokens that are recognised in a text before the text is cut into words.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace sluice {

struct AddedToken {
  std::string content;
  std::int32_t id = 0;
  bool lstrip = false, rstrip = false;  // takes the white space before, behind
  bool single_word = false;             // not within a word
  bool normalized = false;              // recognised in normalised text
  bool is_normalized = false;           // `content` is normalised text already
  bool is_text = false;                 // found, and left as ordinary text
};

// The leftmost token, and the longest among those. Thread-safe.
class AddedTokens {
 public:
  AddedTokens() = default;
  explicit AddedTokens(std::vector<AddedToken> tokens);
  [[nodiscard]] bool empty() const { return tokens_.empty(); }
  // Calls visit(part, id) for the parts of `text` in order: id -1 for ordinary text, which is not
  // empty.
  void visit(std::string_view text,
             const std::function<void(std::string_view part, std::int32_t id)>& visit) const;

 private:
  [[nodiscard]] const AddedToken* token_at(std::string_view text) const;
  // The first position from `from` on at which a token may begin; text.size(): none.
  [[nodiscard]] std::size_t next_candidate(std::string_view text, std::size_t from) const;

  std::vector<AddedToken> tokens_;
  std::array<std::vector<std::size_t>, 256> by_byte_;  // longest first
  std::string first_bytes_;                            // of the tokens, each once
};

}  // namespace sluice
