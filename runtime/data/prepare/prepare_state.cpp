#include "runtime/data/prepare/prepare_state.hpp"

#include <algorithm>
#include <sstream>

#include "runtime/data/hash.hpp"

namespace sluice {
namespace {

constexpr const char* kTitle = "sluice-data-prepare-1";
constexpr std::size_t kMostOutputs = 1000;

std::string checksum_of(const std::string& body) {
  Hasher hasher;
  hasher.add(body);
  return hasher.digest_hex();
}

bool is_sound(const PrepareState& state) {
  return state.file >= 0 && state.items >= 0 &&
         std::all_of(state.outputs.begin(), state.outputs.end(), [](const WriterPosition& at) {
           return at.bin_bytes >= 0 && at.lengths_bytes >= 0 && at.documents >= 0 &&
                  at.open_tokens >= 0;
         });
}

}  // namespace

std::string write_prepare_state(const PrepareState& state) {
  std::ostringstream body;
  body << kTitle << ' ' << state.request << ' ' << state.file << ' ' << state.items << ' '
       << state.input_bytes << ' ' << state.empty << ' ' << (state.finishing ? 1 : 0) << ' '
       << state.outputs.size() << '\n';
  for (const WriterPosition& at : state.outputs) {
    body << at.bin_bytes << ' ' << at.lengths_bytes << ' ' << at.documents << ' ' << at.tokens
         << ' ' << at.open_tokens << '\n';
  }
  return body.str() + checksum_of(body.str()) + '\n';
}

std::optional<PrepareState> read_prepare_state(const std::string& text) {
  constexpr std::size_t kLastLine = 33;  // 32 digits and the line end
  if (text.size() < kLastLine || !text.ends_with('\n')) return std::nullopt;
  const std::string body = text.substr(0, text.size() - kLastLine);
  if (text.substr(body.size()) != checksum_of(body) + '\n') return std::nullopt;
  std::istringstream in(body);
  std::string title;
  PrepareState state;
  std::size_t outputs = 0;
  in >> title >> state.request >> state.file >> state.items >> state.input_bytes >> state.empty >>
      state.finishing >> outputs;
  if (!in || title != kTitle || outputs > kMostOutputs) return std::nullopt;
  for (std::size_t i = 0; i < outputs; ++i) {
    WriterPosition at;
    in >> at.bin_bytes >> at.lengths_bytes >> at.documents >> at.tokens >> at.open_tokens;
    state.outputs.push_back(at);
  }
  // Fields out of their range, or with other spaces between, are not of this program.
  if (!in || !is_sound(state) || write_prepare_state(state) != text) return std::nullopt;
  return state;
}

}  // namespace sluice
