#include "tests/gpu/null/schedule.hpp"

#include <array>
#include <charconv>
#include <stdexcept>

namespace null_gpu {

Schedule::Schedule(const std::string& text) {
  if (text == "early" || text == "late") {
    kind_ = text == "early" ? Kind::kEarly : Kind::kLate;
    return;
  }
  const char* const end = text.data() + text.size();
  const auto [read, error] = std::from_chars(text.data(), end, seed_);
  if (text.empty() || read != end || error != std::errc{}) {
    throw std::invalid_argument("NULL_GPU_COMPUTES is \"" + text +
                                "\", which is no schedule; set early, late or a whole number");
  }
  numbers_.seed(seed_);
}

int Schedule::tasks_now() {
  constexpr std::array kTasks{0, 0, 0, 0, 1, 1, 2, 3};
  return kTasks[numbers_() % kTasks.size()];
}

const void* Schedule::chosen(const std::vector<const void*>& streams) {
  std::uint64_t sum = 0;
  for (const void* stream : streams) sum += weight(stream);
  std::uint64_t at = numbers_() % sum;
  for (const void* stream : streams) {
    if (at < weight(stream)) return stream;
    at -= weight(stream);
  }
  return streams.back();
}

// 1, 4 or 16, as the seed says: with one seed copies are slow, with another messages.
std::uint64_t Schedule::weight(const void* stream) const {
  constexpr std::uint64_t kGolden = 0x9E3779B97F4A7C15;
  const std::uint64_t mixed = (reinterpret_cast<std::uintptr_t>(stream) + seed_ + 1) * kGolden;
  return std::uint64_t{1} << (2 * ((mixed >> 32) % 3));
}

}  // namespace null_gpu
