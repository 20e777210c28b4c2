// The thread behind an NvmeStore: requests in, transfers of at most a block out, Tickets done.
//
// request: waiting (for overlapping ones made before it) -> ready -> started -> done | failed
// transfer: fill (a write that covers part of a grain first reads it) -> move -> free slot
//
// Slots are the transfers in flight, queue_depth of them, each with an aligned bounce buffer of one
// grain for what O_DIRECT cannot move or a hash cannot judge by itself. Only the thread touches
// requests, slots, checksums and the backend; the inbox is shared. After the first error nothing is
// started any more, what is in flight is awaited, and all requests fail with that error.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "base/ticket.hpp"
#include "offload/checksums.hpp"
#include "offload/extent_plan.hpp"
#include "offload/host_pool.hpp"
#include "offload/io_backend.hpp"
#include "offload/nvme_store.hpp"

namespace sluice {

struct IoRequest;
struct IoSlot;

class IoQueue {
 public:
  struct Files {
    std::vector<int> descriptors;
    std::vector<std::string> paths;
    // Fills the header blocks (one of 4096 bytes for each file) for a data version.
    std::function<void(std::uint64_t version, std::byte* blocks)> encode_headers;
    bool found = false;  // what is in them was written by a former run
  };
  // What says that all writes before it are whole. `fill` puts it into `memory` and gives its
  // length; it is called on the queue's thread, when these writes survive a loss of power.
  struct Record {
    int extent = 0;
    std::byte* memory = nullptr;  // as long as the extent, until the Ticket is done
    std::function<std::int64_t(const Checksums& checksums)> fill;
  };
  // `plan` must outlive the queue. `memory`: ranges to register with the backend.
  IoQueue(const NvmeOptions& options, const ExtentPlan& plan, Files files,
          std::unique_ptr<IoBackend> backend, std::vector<IoMemory> memory);
  ~IoQueue();  // stop()
  IoQueue(const IoQueue&) = delete;
  IoQueue& operator=(const IoQueue&) = delete;

  // Thread-safe. Both throw the first error where there was one.
  [[nodiscard]] Ticket enqueue(int extent, bool write, std::int64_t offset, std::byte* memory,
                               std::int64_t bytes);
  [[nodiscard]] Ticket enqueue_headers(std::uint64_t version);
  // Flushes the files, writes the record and flushes them again. REQUIRES: the Tickets of the
  // writes it is about are done.
  [[nodiscard]] Ticket enqueue_record(Record record);
  [[nodiscard]] Ticket enqueue_flush();  // of what was written by requests that are done
  void drain();                          // until nothing is out; throws the first error
  void stop() noexcept;                  // drains and ends the thread
  [[nodiscard]] bool failed() const;
  void rethrow_error() const;
  // REQUIRES: nothing is out, and nobody makes requests meanwhile.
  [[nodiscard]] Checksums& checksums() { return checksums_; }
  [[nodiscard]] NvmeStats stats() const;

 private:
  using Slot = IoSlot;
  using RequestPtr = std::shared_ptr<IoRequest>;
  using Lane = std::vector<RequestPtr>;  // requests on one extent that are not done, oldest first

  static constexpr int kHeaders = -1;  // in place of an extent
  static constexpr int kFlush = -2;

  // io_queue.cpp: the thread and its requests.
  [[nodiscard]] Ticket push(std::span<const RequestPtr> requests);
  [[nodiscard]] RequestPtr make_request(int extent, bool write, std::int64_t offset,
                                        std::byte* memory, std::int64_t bytes) const;
  // Of all files: of headers, or a flush.
  [[nodiscard]] RequestPtr make_request_of_files(int what) const;
  [[nodiscard]] Lane& lane_of(const IoRequest& request);
  void run() noexcept;
  bool take_inbox();  // false: stopping and nothing left
  void admit(const RequestPtr& request);
  void retire(IoRequest& request);
  void wait_for_completions();
  void watch_for_stall();
  void fail(std::exception_ptr error);     // what is in flight may end
  void abandon(std::exception_ptr error);  // it will not
  void fail_requests();

  // io_transfers.cpp: what the slots do.
  void start_transfers();
  void cut(IoRequest& request, Slot& slot) const;
  void cut_header(IoRequest& request, Slot& slot) const;
  static void cut_flush(IoRequest& request, Slot& slot);
  void submit(Slot& slot);
  void hash_submitted();
  void complete(const IoCompletion& completion);
  void advance(Slot& slot, std::int64_t result);
  void finish(Slot& slot);
  void verify(const Slot& slot) const;
  void release(Slot& slot);
  [[noreturn]] void fail_transfer(const Slot& slot, int error, const std::string& why) const;

  // Constant.
  const NvmeOptions options_;
  const ExtentPlan& plan_;
  const Files files_;
  const std::int64_t unit_;  // ranges that are multiples of it move without a bounce

  // The thread's own.
  std::unique_ptr<IoBackend> backend_;
  Checksums checksums_;
  HostBlock bounce_, headers_;
  std::vector<Slot> slots_;
  std::vector<Slot*> free_, to_hash_;
  std::vector<Lane> lanes_;  // one an extent, the last one for the headers
  std::deque<IoRequest*> ready_;
  std::vector<RequestPtr> fresh_;
  std::vector<IoCompletion> completions_;
  int in_flight_ = 0;
  std::int64_t last_progress_ns_ = 0, busy_since_ns_ = 0;
  bool slow_logged_ = false, abandoned_ = false;
  std::exception_ptr failure_;  // equals error_
  NvmeStats counts_;            // copied to stats_ whenever a request ends

  mutable std::mutex mutex_;  // guards all below
  std::condition_variable idle_;
  std::vector<RequestPtr> inbox_;
  std::int64_t outstanding_ = 0;
  bool stopping_ = false, asleep_ = false;
  std::exception_ptr error_;
  NvmeStats stats_;

  std::thread thread_;
};

}  // namespace sluice
