#include "configs/migrate/deepspeed/deepspeed_source.hpp"

#include <cerrno>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <system_error>

#include "base/error.hpp"
#include "configs/migrate/hjson_reader.hpp"
#include "configs/yaml_tree.hpp"

namespace sluice::migrate {
namespace {

int sextet(char c) {
  if (c >= 'A' && c <= 'Z') return c - 'A';
  if (c >= 'a' && c <= 'z') return c - 'a' + 26;
  if (c >= '0' && c <= '9') return c - '0' + 52;
  if (c == '-' || c == '+') return 62;
  return c == '_' || c == '/' ? 63 : -1;
}

std::string read_text(const std::string& path) {
  std::ifstream stream(path, std::ios::binary);
  if (!stream) {
    const int error = errno;
    throw IoError("cannot open the DeepSpeed configuration " + path + ": " +
                      std::generic_category().message(error) + "; check the path",
                  path, error);
  }
  // One byte above the limit, so that the reader refuses a larger file.
  std::string text(kMaxHjsonBytes + 1, '\0');
  stream.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<std::size_t>(stream.gcount()));
  if (stream.bad()) {
    throw IoError("cannot read the DeepSpeed configuration " + path + "; check the drive", path);
  }
  return text;
}

}  // namespace

std::optional<std::string> decode_base64(std::string_view text) {
  if (text.empty() || text.size() % 4 != 0) return std::nullopt;
  std::size_t padding = 0;
  while (padding < 2 && text.ends_with('=')) {
    text.remove_suffix(1);
    ++padding;
  }
  std::string bytes;
  std::uint32_t bits = 0;
  int held = 0;
  for (const char c : text) {
    const int value = sextet(c);
    if (value < 0) return std::nullopt;
    bits = bits << 6 | static_cast<std::uint32_t>(value);
    held += 6;
    if (held < 8) continue;
    held -= 8;
    bytes += static_cast<char>(bits >> held & 0xff);
  }
  return bytes;
}

DeepSpeedSource load_deepspeed_source(const std::string& argument) {
  std::error_code error;
  if (std::filesystem::is_directory(argument, error)) {
    throw IoError("cannot read the DeepSpeed configuration " + argument +
                      ": the path is a folder; name the file",
                  argument);
  }
  if (std::filesystem::exists(argument, error)) return {argument, read_text(argument)};
  if (auto bytes = decode_base64(argument); bytes && is_clean_text(*bytes, true)) {
    return {"base64", std::move(*bytes)};
  }
  throw ConfigError("no file " + in_quotes(argument) +
                    ", and the text is no base64 of a configuration; name a DeepSpeed "
                    "configuration, or give its JSON in urlsafe base64");
}

}  // namespace sluice::migrate
