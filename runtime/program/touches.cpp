#include "runtime/program/touches.hpp"

namespace sluice {

std::string Touches::touch(OpId now, Place place, bool write, std::int64_t begin,
                           std::int64_t end) {
  std::vector<Access>& past = past_[place];
  std::string fault;
  for (const Access& a : past) {
    const bool meet = a.begin < end && begin < a.end && (write || a.write);
    if (meet && a.op != now && !order_.over(a.op, now) && fault.empty()) {
      fault = std::string(write ? "writes" : "reads") + " what operation " + std::to_string(a.op) +
              " may still " + (a.write ? "write" : "read");
    }
  }
  // Whoever knows this operation over knows those over that it knew over.
  std::erase_if(past, [&](const Access& a) {
    return begin <= a.begin && a.end <= end && (write || !a.write) &&
           (a.op == now || order_.over(a.op, now));
  });
  past.push_back({now, write, begin, end});
  return fault;
}

std::string Touches::fill(OpId now, BufferId slot, Content content) {
  if (slot < 0) return "has nowhere to put what it brings";
  std::string fault = touch(now, {Space::kSlot, slot, 0}, true);
  content_[slot] = {content, false};
  return fault;
}

std::string Touches::take(OpId now, BufferId slot, Content content) {
  if (slot < 0) return "does not say what it takes";
  std::string fault = touch(now, {Space::kSlot, slot, 0}, false);
  const auto there = content_.find(slot);
  if (there == content_.end() || there->second.what != content) {
    return fault.empty() ? "finds something else there" : fault;
  }
  there->second.taken = true;
  return fault;
}

std::string Touches::forget(OpId now, BufferId slot) {
  std::string fault = touch(now, {Space::kSlot, slot, 0}, true);
  const auto there = content_.find(slot);
  if (there == content_.end()) return fault;
  const bool passes_on = std::get<What>(there->second.what) != What::kInput;
  if (passes_on && !there->second.taken && fault.empty()) fault = "frees what nobody took on";
  content_.erase(there);
  return fault;
}

}  // namespace sluice
