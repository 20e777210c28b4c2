// The values of a torchtitan file and their mapping. Only for torchtitan.cpp and
// torchtitan_map.cpp.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>

#include "configs/migrate/hjson_reader.hpp"
#include "configs/migrate/peers/peer_map.hpp"

namespace sluice::migrate {

// Every key of the table, written or default. REQUIRES of all: the path is the table's, and the
// type is the key's.
class TorchtitanValues {
 public:
  void put(std::string_view path, HjsonNode value) {
    values_[std::string(path)] = std::move(value);
  }
  void mark_written(std::string_view path) { written_[std::string(path)] = true; }
  [[nodiscard]] bool is_written(std::string_view path) const;
  [[nodiscard]] bool flag(std::string_view path) const { return at(path).boolean; }
  [[nodiscard]] std::int64_t count(std::string_view path) const;
  [[nodiscard]] double number(std::string_view path) const { return at(path).number; }
  [[nodiscard]] const std::string& text(std::string_view path) const { return at(path).text; }
  [[nodiscard]] bool is_null(std::string_view path) const;
  [[nodiscard]] const std::map<std::string, HjsonNode, std::less<>>& all() const { return values_; }

 private:
  [[nodiscard]] const HjsonNode& at(std::string_view path) const;

  std::map<std::string, HjsonNode, std::less<>> values_;
  std::map<std::string, bool, std::less<>> written_;
};

// `has_model`: a folder gives the sizes of the model.
void map_torchtitan(const TorchtitanValues& values, PeerMap& map, int world, bool has_model);

}  // namespace sluice::migrate
