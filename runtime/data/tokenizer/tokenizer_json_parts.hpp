// The parts of a tokenizer.json around its model. Every part is supported or refused by name,
// because an almost right tokenizer trains a wrong model.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "runtime/data/tokenizer/normalizer.hpp"
#include "runtime/data/tokenizer/piece_decoder.hpp"
#include "runtime/data/tokenizer/pre_tokenizer.hpp"

namespace sluice {

// All throw ConfigError for a part that is not supported, nlohmann's exceptions for a part that is
// no such part, IoError for a damaged table. `path` is the file, for errors.
void read_normalizer(const std::string& path, const nlohmann::json& json, Normalizer& out);
// Returns whether ByteLevel is the last step: words are bytes.
[[nodiscard]] bool read_pre_tokenizer(const std::string& path, const nlohmann::json& json,
                                      PreTokenizer& out);
void read_decoder(const std::string& path, const nlohmann::json& json, bool byte_level,
                  PieceDecoder& out);

// Shared with the reader of the model.
[[noreturn]] void refuse_part(const std::string& path, const std::string& part,
                              const std::string& why);
[[nodiscard]] std::string type_of_part(const nlohmann::json& part);

}  // namespace sluice
