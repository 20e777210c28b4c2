// Prints the bytes that the program reads from a text file: json_rows FILE [COLUMN...]. Of a
// Parquet file these are JSON lines.
#include <array>
#include <cstdio>
#include <iostream>

#include "base/error.hpp"
#include "runtime/data/byte_source.hpp"

int main(int count, char** arguments) {
  if (count < 2) return 2;
  try {
    const auto file = sluice::find_text_files({arguments[1]}, "data.train").at(0);
    const auto source = sluice::open_bytes(file, {arguments + 2, arguments + count});
    std::array<char, 65536> chunk{};
    while (!source->at_end()) {
      std::fwrite(chunk.data(), 1, source->read(chunk), stdout);
    }
  } catch (const sluice::ConfigError& error) {
    std::cerr << error.what() << '\n';
    return 77;  // no reader
  } catch (const sluice::Error& error) {
    std::cerr << error.what() << '\n';
    return 1;
  }
}
