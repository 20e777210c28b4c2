// The off-device arrays of a rank (host and NVMe), allocated from the table of states.
//
// Every byte on the host is counted by a HostPool under memory.host, every byte on NVMe by the
// NVMe store under memory.nvme. The constructor takes all bytes; reads and writes allocate at most
// a few MiB. Arrays on the device belong to the engine (runtime/engine/group_store).
//
// A row may have two places for its chunks (StateRow::second_elems). One of them is current.
// swap_places() makes the other place current for all NVMe chunks with two places. swap_place()
// does so for one chunk on the host.
//
// read() and write() may be called from several threads, for ranges that do not overlap. All other
// calls belong to the engine's thread while no program runs. ZeRO-Infinity, section 6.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/index.hpp"
#include "base/ticket.hpp"
#include "offload/host_pool.hpp"
#include "offload/nvme_store.hpp"
#include "zero/state_table.hpp"

namespace sluice {

// Which of a chunk's two places a read or write uses.
enum class At { kCurrent, kOther };

struct ShardStoreOptions {
  std::int64_t host_budget = 0;  // bytes of this rank; 0: counted only
  NvmeOptions nvme;
  std::shared_ptr<PageSource> host_pages = make_page_source();
  std::shared_ptr<PageSource> dma_pages;  // pages of blocks that a GPU copies; null: host_pages
  std::int64_t chunk_elems = 0;           // chunks begin at multiples of this number
  // Settings that change the meaning of an image's elements but no size. Empty: no image.
  std::string image_layout;
};

// A row of a ShardStore's table.
using RowId = int;

class ShardStore {
 public:
  // `group_names`: by group, for the names of extents. With an image the caller must then call
  // nvme()->open() or adopt_image(). Throws BudgetError, IoError, ConfigError.
  ShardStore(const StateTable& table, std::span<const std::string> group_names,
             const ShardStoreOptions& options);

  [[nodiscard]] const StateTable& table() const { return table_; }
  [[nodiscard]] const StateRow& row(RowId id) const { return nth(table_.rows, id); }
  // The group's row on the host or on NVMe; -1 where there is none.
  [[nodiscard]] RowId find(int group, StateArray array, int stream = 0) const;
  [[nodiscard]] RowId find(int group, StateKind state) const;
  // The row of an input on NVMe. If a unit has fewer rows than flights, flights share rows in turn.
  [[nodiscard]] RowId input(int unit, int flight) const;

  [[nodiscard]] bool on_nvme(RowId id) const { return row(id).tier == Tier::kNvme; }
  // The row's memory, from element `begin` to the end of its chunk; of a row without a second place
  // to the end of the row. REQUIRES: on the host.
  [[nodiscard]] std::byte* host(RowId id, std::int64_t begin = 0, At at = At::kCurrent) const;
  // The host block of an array, such as the ring or the bounce buffer. Empty if the table has none.
  [[nodiscard]] std::span<std::byte> block(StateArray array) const;

  // Elements [begin, begin + elems) of the row on NVMe. Do not block; a Ticket throws IoError.
  [[nodiscard]] Ticket read(RowId id, std::int64_t begin, std::int64_t elems, void* into,
                            At at = At::kCurrent);
  [[nodiscard]] Ticket write(RowId id, std::int64_t begin, std::int64_t elems, const void* from,
                             At at = At::kCurrent);
  // Blocking access in fp32 on either tier, with a few MiB of memory. put() rounds to nearest. On
  // NVMe with an image, put() also withdraws the image (NvmeStore::withdraw_image).
  // Remainders: put() takes master weights and stores their remainders. get() turns the bf16
  // weights in `values` into master weights.
  void get(RowId id, std::int64_t begin, std::span<float> values);
  void put(RowId id, std::int64_t begin, std::span<const float> values);

  void swap_places();
  // Swaps the places of the chunk that begins at element `begin` of the group's states on the host.
  void swap_place(int group, std::int64_t begin);
  // Bytes of all second places on NVMe, in whole pages.
  [[nodiscard]] std::int64_t second_place_bytes() const;

  // --- an image (offload/nvme_image.hpp) ---
  [[nodiscard]] bool keeps_image() const { return keeps_image_; }
  void adopt_image(const FoundImage& found, std::size_t version);
  // The current places are the states after `step`. REQUIRES: all writes to them have completed.
  [[nodiscard]] Ticket commit(std::int64_t step, std::string state);

  [[nodiscard]] HostPool& pool() { return pool_; }
  [[nodiscard]] const HostPool& pool() const { return pool_; }
  [[nodiscard]] NvmeStore* nvme() const { return nvme_.get(); }
  // Never unmaps the memory, because a GPU may still write to it.
  void leak() noexcept;

 private:
  struct Extents {
    ExtentId first, second;
  };
  // Bytes of one place.
  struct Run {
    bool second = false;
    std::int64_t offset = 0;
    std::int64_t bytes = 0;
  };
  void take_blocks();
  void declare_extents(std::span<const std::string> group_names);
  void declare_image();
  [[nodiscard]] bool uses_second(const StateRow& row, std::int64_t chunk) const;
  [[nodiscard]] ExtentId extent(RowId id, const Run& run) const;
  [[nodiscard]] std::byte* memory(RowId id, const Run& run) const;
  [[nodiscard]] std::vector<Run> runs_of(RowId id, std::int64_t begin, std::int64_t elems,
                                         At at) const;

  const StateTable table_;
  const ShardStoreOptions options_;
  const bool keeps_image_;
  int place_ = 0;  // on NVMe: current place of all chunks with two places
  std::vector<std::vector<char>> host_places_;  // on the host: by group, chunk
  HostPool pool_;
  std::vector<HostBlock> blocks_;    // by block of the table
  std::vector<Extents> extents_;     // by row
  std::unique_ptr<NvmeStore> nvme_;  // declared after the memory of its requests
};

}  // namespace sluice
