// The conversations of one part of the data as rows of seq places (packing_plan.hpp). A row is a
// sample. Its targets are the learned tokens; unused places form a document without targets.
// Immutable after construction; thread-safe. Memory: 8 bytes a conversation.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "runtime/data/chat/conversation_cache.hpp"
#include "runtime/data/packing_plan.hpp"
#include "runtime/data/sample_source.hpp"

namespace sluice {

class PackedConversations : public SampleSource {
 public:
  // The conversations whose tokens are in `ranges`, rising ranges of whole conversations. Throws
  // ConfigError with file and line if a conversation is longer than seq and may not be.
  PackedConversations(std::shared_ptr<const ConversationCache> cache,
                      const std::vector<TokenRange>& ranges, std::int64_t seq,
                      Truncation truncation);

  [[nodiscard]] std::int64_t samples() const override { return counts_.rows; }
  std::int64_t read(std::int64_t sample, const SampleRow& row) const override;
  [[nodiscard]] std::int64_t learned(std::int64_t sample) const override;

  [[nodiscard]] const PackingCounts& counts() const { return counts_; }
  // "12 of 900 conversations are longer than model.seq (512) and are cut: FILE, line 7 (530
  // tokens)"; empty: none is.
  [[nodiscard]] const std::string& too_long() const { return too_long_; }
  // Conversations without a learned target, most of them cut, are in no row: "3 of 900
  // conversations have no learned token within model.seq (512) and are left out: FILE, line 7".
  [[nodiscard]] const std::string& unlearned() const { return unlearned_; }

 private:
  [[nodiscard]] std::span<const std::uint32_t> row(std::int64_t sample) const;
  [[nodiscard]] std::int64_t length(std::int64_t conversation) const;
  void pack(const std::vector<std::uint32_t>& conversations, Truncation truncation);
  void tell_too_long(const std::vector<std::uint32_t>& conversations, Truncation truncation);
  void leave_out_unlearned(std::vector<std::uint32_t>& conversations, Truncation truncation);
  // Learned targets of the part that is in a row.
  [[nodiscard]] std::int64_t learned_of(std::uint32_t conversation) const;

  std::shared_ptr<const ConversationCache> cache_;
  std::int64_t seq_;
  std::vector<std::uint32_t> conversations_;  // of row 0, of row 1 ...
  std::vector<std::int64_t> row_starts_{0};   // in conversations_
  PackingCounts counts_;
  std::string too_long_, unlearned_;
};

}  // namespace sluice
