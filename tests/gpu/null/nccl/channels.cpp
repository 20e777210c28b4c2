#include "tests/gpu/null/nccl/channels.hpp"

#include <algorithm>
#include <map>
#include <mutex>
#include <utility>
#include <vector>

namespace null_gpu {
namespace {

struct Log {
  Channel channel;
  std::vector<std::string> groups;  // each once: "send 1 4096; receive 1 4096"
  std::vector<std::size_t> order;
};

struct Logs {
  std::mutex mutex;
  std::map<std::string, Log> of_channel;
};

// Never destroyed: libraries send while the process ends.
Logs& logs() {
  static auto* const all = new Logs;
  return *all;
}

// The group that a thread has open, by communicator.
using Open = std::map<std::string, std::pair<Channel, std::string>>;

Open& open_of_thread() {
  thread_local Open open;
  return open;
}

template <typename Items, typename Write>
void write_list(std::ostream& out, const Items& items, const Write& write) {
  out << '[';
  bool first = true;
  for (const auto& item : items) {
    out << (first ? "" : ", ");
    write(item);
    first = false;
  }
  out << ']';
}

}  // namespace

void note_message(const Channel& channel, const char* kind, int peer, std::size_t bytes) {
  auto& [copy, text] = open_of_thread()[channel.id];
  copy = channel;
  if (!text.empty()) text += "; ";
  text += std::string(kind) + " " + std::to_string(peer) + " " + std::to_string(bytes);
}

void note_group() {
  Open& open = open_of_thread();
  Logs& all = logs();
  const std::lock_guard lock(all.mutex);
  for (auto& [id, of_channel] : open) {
    auto& [channel, text] = of_channel;
    Log& log = all.of_channel[id];
    log.channel = channel;
    const auto found = std::find(log.groups.begin(), log.groups.end(), text);
    log.order.push_back(static_cast<std::size_t>(found - log.groups.begin()));
    if (found == log.groups.end()) log.groups.push_back(std::move(text));
  }
  open.clear();
}

void write_channels(std::ostream& out) {
  Logs& all = logs();
  const std::lock_guard lock(all.mutex);
  out << ",\n  \"channels\": ";
  write_list(out, all.of_channel, [&](const auto& entry) {
    const Log& log = entry.second;
    out << "{\"id\": \"" << entry.first << "\", \"rank\": " << log.channel.rank
        << ", \"size\": " << log.channel.size << ", \"groups\": ";
    write_list(out, log.groups, [&](const std::string& text) { out << '"' << text << '"'; });
    out << ", \"order\": ";
    write_list(out, log.order, [&](std::size_t index) { out << index; });
    out << '}';
  });
}

}  // namespace null_gpu
