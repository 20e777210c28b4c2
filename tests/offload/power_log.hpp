// What a loss of power leaves of a store's files: every transfer between the store and the kernel
// is noted, and put together again as a disk may have it at any instant. What was written and
// flushed is there; of what was not, anything: nothing, all, or some of its sectors.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "offload/io_backend.hpp"

namespace sluice {

class PowerLog {
 public:
  // For NvmeOptions::wrap_backend; the log must outlive the store.
  std::unique_ptr<IoBackend> wrap(std::unique_ptr<IoBackend> inner) {
    return std::make_unique<Backend>(std::move(inner), *this);
  }

  // Instants: before the first event, and after each.
  [[nodiscard]] std::size_t instants() const { return events_.size() + 1; }

  // Makes of `path`, file number `file` as it was before the first event, what is left of it at an
  // instant. `seed` decides about what was not flushed.
  void apply(const std::string& path, int file, std::size_t instant, std::uint64_t seed) const {
    std::mt19937_64 random(seed);
    std::fstream out(path, std::ios::in | std::ios::out | std::ios::binary);
    for (std::size_t begun = 0; begun < instant; ++begun) {
      const Event& event = events_[begun];
      if (event.completes || event.sync || event.file != file) continue;
      const std::size_t ended = completion_of(begun);
      const bool flushed = ended < instant && flushed_by(file, ended, instant);
      const auto fate = random() % 3;  // of what was not: gone, there, torn
      if (!flushed && fate == 0) continue;
      for (std::size_t at = 0; at < event.bytes.size(); at += kSector) {
        if (!flushed && fate == 2 && random() % 2 == 0) continue;
        out.seekp(static_cast<std::streamoff>(event.offset) + static_cast<std::streamoff>(at));
        out.write(event.bytes.data() + at,
                  static_cast<std::streamsize>(std::min(kSector, event.bytes.size() - at)));
      }
    }
  }

  // Whether a record is under way or done at an instant is not asked: only what a store says it
  // has committed by then.
  void note_committed(std::int64_t step) {
    const std::lock_guard lock(mutex_);
    committed_.emplace_back(events_.size(), step);
  }
  [[nodiscard]] std::int64_t committed_by(std::size_t instant) const {
    std::int64_t step = -1;
    for (const auto& [at, committed] : committed_) {
      if (at <= instant) step = committed;
    }
    return step;
  }

 private:
  static constexpr std::size_t kSector = 512;

  struct Event {
    std::uint64_t tag = 0;
    bool completes = false;
    bool sync = false;
    int file = 0;
    std::int64_t offset = 0;
    std::string bytes;
  };

  class Backend final : public IoBackend {
   public:
    Backend(std::unique_ptr<IoBackend> inner, PowerLog& log)
        : inner_(std::move(inner)), log_(log) {}
    [[nodiscard]] std::string name() const override { return inner_->name(); }
    void use_files(std::span<const int> files) override { inner_->use_files(files); }
    void use_memory(std::span<const IoMemory> ranges) override { inner_->use_memory(ranges); }
    void submit(const IoTransfer& transfer) override {
      if (transfer.write) log_.submitted(transfer);
      inner_->submit(transfer);
    }
    void flush() override { inner_->flush(); }
    void wait(std::vector<IoCompletion>& completions, std::int64_t timeout_ms) override {
      const std::size_t first = completions.size();
      inner_->wait(completions, timeout_ms);
      for (std::size_t i = first; i < completions.size(); ++i) log_.completed(completions[i].tag);
    }
    void wake() noexcept override { inner_->wake(); }

   private:
    std::unique_ptr<IoBackend> inner_;
    PowerLog& log_;
  };

  void submitted(const IoTransfer& transfer) {
    const std::lock_guard lock(mutex_);
    Event event{.tag = transfer.tag,
                .sync = transfer.sync,
                .file = transfer.file,
                .offset = transfer.offset,
                .bytes = {}};
    if (!transfer.sync) {
      event.bytes.assign(static_cast<const char*>(transfer.memory),
                         static_cast<std::size_t>(transfer.bytes));
    }
    out_[transfer.tag] = events_.size();
    events_.push_back(std::move(event));
  }
  void completed(std::uint64_t tag) {
    const std::lock_guard lock(mutex_);
    const auto begun = out_.find(tag);
    if (begun == out_.end()) return;  // a read
    Event event{.tag = tag, .completes = true, .file = 0, .offset = 0, .bytes = {}};
    ends_[begun->second] = events_.size();
    out_.erase(begun);
    events_.push_back(std::move(event));
  }

  [[nodiscard]] std::size_t completion_of(std::size_t begun) const {
    const auto end = ends_.find(begun);
    return end == ends_.end() ? events_.size() : end->second;
  }
  // A flush that began after the write had ended, and had ended itself.
  [[nodiscard]] bool flushed_by(int file, std::size_t written, std::size_t instant) const {
    for (std::size_t i = written + 1; i < instant; ++i) {
      if (events_[i].sync && events_[i].file == file && completion_of(i) < instant) return true;
    }
    return false;
  }

  std::mutex mutex_;
  std::vector<Event> events_;
  std::map<std::uint64_t, std::size_t> out_;
  std::map<std::size_t, std::size_t> ends_;
  std::vector<std::pair<std::size_t, std::int64_t>> committed_;
};

}  // namespace sluice
