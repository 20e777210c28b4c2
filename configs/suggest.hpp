// The name that the user most likely meant. Pure functions; thread-safe.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "configs/yaml_tree.hpp"

namespace sluice {

// The number of insertions, deletions, substitutions and swaps of neighbours that turn `a` into
// `b`; letter case is ignored.
[[nodiscard]] std::size_t edit_distance(std::string_view a, std::string_view b);

// The nearest of `names` (the first of several) if it is near enough: at most a third of the longer
// name's letters differ; one or two differences always pass in a word of four letters or more.
[[nodiscard]] std::optional<std::string_view> nearest(std::string_view name,
                                                      const std::vector<std::string_view>& names);

// Names of other trainers that users write in a configuration of Sluice, and files of other
// trainers that they give in place of one.
enum class ForeignFile { kDeepSpeed, kTrainer };

// The trainer whose file has these names at its top level; nullopt where no name says so, or where
// one is a section that only Sluice has. A file with names of both is DeepSpeed's.
[[nodiscard]] std::optional<ForeignFile> foreign_file(const std::vector<std::string_view>& names);

// What to do with a document of another trainer, as a message about `path`; empty for a document
// of Sluice.
[[nodiscard]] std::string foreign_complaint(const YamlNode& root, const std::string& path);
// The same for a text that is no YAML, such as JSON with `//` comments.
[[nodiscard]] std::string foreign_text_complaint(std::string_view text, const std::string& path);

// The same for a recipe of axolotl or LLaMA-Factory alone: some of its names are the Trainer's.
[[nodiscard]] std::string recipe_complaint(const YamlNode& root);

// True for names at the top level of a configuration of Sluice.
[[nodiscard]] bool is_own_file(const std::vector<std::string_view>& names);

// The key of Sluice for another trainer's name: "learning_rate" -> "optimizer.lr".
[[nodiscard]] std::optional<std::string_view> key_for_foreign(std::string_view name);

// The option of Sluice's commands for another program's, both without hyphens before them:
// "num_gpus" -> "nproc".
[[nodiscard]] std::optional<std::string_view> option_for_foreign(std::string_view name);

// The word of Sluice for another program's word of a choice: "bfloat16" -> "bf16".
[[nodiscard]] std::optional<std::string_view> word_for_foreign(std::string_view word);

}  // namespace sluice
