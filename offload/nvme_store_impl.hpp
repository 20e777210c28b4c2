// The members of an NvmeStore. Private to nvme_store.cpp and nvme_image.cpp.
#pragma once

#include <array>
#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "offload/extent_plan.hpp"
#include "offload/host_pool.hpp"
#include "offload/image_record.hpp"
#include "offload/io_queue.hpp"
#include "offload/nvme_store.hpp"
#include "offload/swap_directory.hpp"
#include "offload/swap_file.hpp"

namespace sluice {

struct NvmeStore::Impl {
  enum class State { kDeclaring, kOpen, kClosed };

  explicit Impl(NvmeOptions o)
      : options(std::move(o)), plan(static_cast<int>(options.paths.size()), options.block_bytes) {}
  ~Impl() { clean_up(); }
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  // nvme_store.cpp
  void check_capacity() const;
  void take_directories(const Leftovers& leftovers);
  // Locks all directories in an order that all processes share, which excludes a deadlock.
  void lock_directories();
  void unlock_directories() noexcept;
  void check_free_space() const;
  void create_files();
  [[nodiscard]] SwapFile open_file(std::size_t index, SwapFile::Open how);
  [[nodiscard]] std::uint64_t layout_hash() const;
  [[nodiscard]] SwapHeader header(std::size_t file) const;
  void start_queue(bool found);
  void clean_up() noexcept;
  void log_open() const;
  [[nodiscard]] std::string description() const;

  // nvme_image.cpp
  [[nodiscard]] FoundImage look_for_image();
  [[nodiscard]] bool has_blank_records();
  void check_found_files() const;
  void read_records();
  void take_version(const DecodedImage& version);
  void void_record(int record);
  void mark_committed();
  void remove_found();
  [[nodiscard]] ExtentId record_extent(std::uint64_t sequence) const {
    return records[sequence % 2];
  }

  [[nodiscard]] IoQueue& open_queue() const {
    check(queue != nullptr, "the NVMe store is open");
    return *queue;
  }
  [[nodiscard]] Ticket request(ExtentId id, bool write, std::int64_t offset, std::byte* memory,
                               std::int64_t bytes) const {
    const std::int64_t padded = plan.extent(id.index).padded;
    check(offset >= 0 && bytes >= 0 && offset + bytes <= padded, "range inside its NVMe extent");
    if (bytes == 0) return {};
    return open_queue().enqueue(id.index, write, offset, memory, bytes);
  }

  const NvmeOptions options;
  ExtentPlan plan;
  State state = State::kDeclaring;
  bool buffered = false;
  std::vector<IoMemory> memory;
  std::vector<SwapDirectory> directories;  // in the order of options.paths
  std::vector<SwapFile> files;
  std::string backend_name;

  // Used only with an image.
  std::vector<ImagePair> places;
  std::array<ExtentId, 2> records{};
  std::int64_t record_bytes = 0;
  HostBlock record;          // the record that is being written or was read
  std::string image_layout;  // argument of add_image()
  std::string image_id;      // id of the run that began the image
  std::uint64_t next_sequence = 1;
  bool committed = false;  // a run can, or may be able to, resume from the files: they stay
  std::vector<DecodedImage> versions;  // found whole versions, newest first

  std::unique_ptr<IoQueue> queue;  // kept after close() for its error and counters
};

}  // namespace sluice
