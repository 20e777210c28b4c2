#include "runtime/run/memory/memory_snapshots.hpp"

#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <utility>

#include "base/error.hpp"
#include "base/index.hpp"
#include "base/posix/atomic_file.hpp"
#include "base/posix/io_error.hpp"
#include "runtime/run/memory/memory_page.hpp"

namespace sluice {
namespace {

constexpr std::chrono::milliseconds kBetweenRequestLooks{200};  // as save-now

}  // namespace

MemorySnapshots::MemorySnapshots(std::vector<std::int64_t> steps, std::string output_dir, int rank)
    : steps_(std::move(steps)), output_dir_(std::move(output_dir)), rank_(rank) {}

bool MemorySnapshots::takes(std::int64_t step) {
  const bool asked = requested();  // also at a step of the list, so that the file asks once
  return asked || std::find(steps_.begin(), steps_.end(), step) != steps_.end();
}

bool MemorySnapshots::requested() {
  const auto now = std::chrono::steady_clock::now();
  if (rank_ != 0 || now < next_look_) return false;
  next_look_ = now + kBetweenRequestLooks;
  // A file that cannot be removed would ask at every step.
  return ::unlink((output_dir_ + "/snapshot-now").c_str()) == 0;
}

MemorySnapshots::Result MemorySnapshots::write(const Step& step) const {
  const std::string folder = output_dir_ + "/memory";
  const std::string path =
      folder + "/step-" + std::to_string(step.record.step) + "-rank-" + std::to_string(rank_);
  try {
    std::error_code failed;
    std::filesystem::create_directories(folder, failed);
    if (failed) {
      throw_io_error("create", folder, failed.value(), write_remedy(failed.value(), "output.dir"));
    }
    TierMemories tiers;
    for (int tier = 0; tier < kTierCount; ++tier) {
      nth(tiers, tier) =
          tier_memory(step.program, step.timings, step.group_names, static_cast<Tier>(tier));
    }
    write_file_atomically(path + ".pickle", torch_snapshot(tiers, step.program));
    write_file_atomically(path + ".html", memory_page({.program = step.program,
                                                       .plan = step.plan,
                                                       .timings = step.timings,
                                                       .record = step.record,
                                                       .run = output_dir_,
                                                       .rank = rank_},
                                                      tiers));
  } catch (const std::exception& error) {
    return {path + ".html", error.what()};
  }
  return {path + ".html", ""};
}

}  // namespace sluice
