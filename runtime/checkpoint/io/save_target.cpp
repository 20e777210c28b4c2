#include <array>
#include <charconv>

#include "base/error.hpp"
#include "base/format.hpp"
#include "runtime/checkpoint/format/step_name.hpp"
#include "runtime/checkpoint/io/checkpoint_save.hpp"

namespace sluice {

std::string SaveTarget::path() const { return join_path(dir, name); }

// One line per field. The directory is last, because its name may contain any byte.
std::string encode_target(const SaveTarget& target) {
  return format_text("{}\n{}\n{}\n{}", target.generation, target.save_id, target.name, target.dir);
}

SaveTarget decode_target(std::string_view text) {
  std::array<std::string_view, 3> lines;
  for (std::string_view& line : lines) {
    const std::size_t end = text.find('\n');
    if (end == std::string_view::npos) throw Error("a save's target came without all its lines");
    line = text.substr(0, end);
    text.remove_prefix(end + 1);
  }
  SaveTarget target{std::string(text), std::string(lines[2]), 0, 0, std::string(lines[1])};
  const std::string generation(lines[0]);
  const char* const end = generation.data() + generation.size();
  const auto parsed = std::from_chars(generation.data(), end, target.generation);
  const auto name = parse_step_name(target.name);
  if (parsed.ec != std::errc() || parsed.ptr != end || !name) {
    throw Error("a save's target is not one: " + target.name);
  }
  target.step = name->step;
  return target;
}

}  // namespace sluice
