// Encodes records with a tokenizer: encode_records SPEC <RECORDS. Records end with a zero byte. One
// line of ids a record, and behind a tab the bytes of their text in hexadecimal digits.
#include <cstdio>
#include <iostream>
#include <iterator>
#include <string>
#include <string_view>

#include "base/error.hpp"
#include "runtime/data/tokenizer/tokenizer.hpp"

int main(int count, char** arguments) {
  if (count != 2) return 2;
  try {
    const auto tokenizer = sluice::make_tokenizer(arguments[1]);
    const std::string all(std::istreambuf_iterator<char>(std::cin), {});
    std::string out;
    for (std::string_view rest = all; !rest.empty();) {
      const std::size_t end = std::min(rest.find('\0'), rest.size());
      const auto ids = tokenizer->encode(rest.substr(0, end));
      for (const std::int32_t id : ids) out += std::to_string(id) + " ";
      out += '\t';
      for (const char byte : tokenizer->decode(ids)) {
        constexpr std::string_view kDigits = "0123456789abcdef";
        out += kDigits[static_cast<unsigned char>(byte) >> 4U];
        out += kDigits[static_cast<unsigned char>(byte) & 15U];
      }
      out += '\n';
      rest.remove_prefix(std::min(end + 1, rest.size()));
    }
    std::fwrite(out.data(), 1, out.size(), stdout);
  } catch (const sluice::Error& error) {
    std::cerr << error.what() << '\n';
    return 1;
  }
}
