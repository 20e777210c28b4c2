// Writes a .bin/.idx pair as Megatron's preprocessing does: one sequence a document.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "tests/runtime/data/data_testing.hpp"

namespace sluice::testing {

template <typename Token>
void write_megatron(const std::string& prefix, std::uint8_t code,
                    const std::vector<std::vector<std::int64_t>>& documents) {
  std::string bin, idx("MMIDIDX\0\0", 9), lengths, offsets, positions;
  const auto put = [](std::string& out, auto value) {
    out.append(reinterpret_cast<const char*>(&value), sizeof value);
  };
  put(positions, std::int64_t{0});
  for (const auto& document : documents) {
    put(lengths, static_cast<std::int32_t>(document.size()));
    put(offsets, static_cast<std::int64_t>(bin.size()));
    for (const std::int64_t token : document) put(bin, static_cast<Token>(token));
    put(positions, static_cast<std::int64_t>(lengths.size() / 4));
  }
  put(idx, std::uint64_t{1});
  put(idx, code);
  put(idx, std::uint64_t{documents.size()});
  put(idx, std::uint64_t{documents.size() + 1});
  write_file(prefix + ".bin", bin);
  write_file(prefix + ".idx", idx + lengths + offsets + positions);
}

}  // namespace sluice::testing
