// The IO thread of an NvmeStore. It cuts requests into transfers of at most one block and completes
// the Tickets of the requests.
//
// clang-format off
//   request    waiting --> ready --> started --> done | failed
//              waiting: an earlier request overlaps this request
//   transfer   [fill -->] move --> slot is free
//              fill: a write that covers only part of a grain reads the grain first
// clang-format on
//
// A slot holds one transfer in flight; there are queue_depth slots. Each slot has an aligned bounce
// buffer of one grain, for ranges that O_DIRECT cannot move or that are no whole grains. Only the
// IO thread touches requests, slots, checksums and the backend. Only the inbox is shared. After the
// first error no transfer starts, transfers in flight are awaited, and all requests fail with that
// error.
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
    bool found = false;  // a former run wrote the files
  };
  // A record states that all writes before it are whole. The IO thread calls `fill` once these
  // writes survive a loss of power. `fill` writes the record to `memory` and returns its length.
  struct Record {
    int extent = 0;
    std::byte* memory = nullptr;  // of the extent's size; in use until the Ticket is done
    std::function<std::int64_t(const Checksums& checksums)> fill;
  };
  // `plan` must outlive the queue. `memory`: ranges that the backend may register.
  IoQueue(const NvmeOptions& options, const ExtentPlan& plan, Files files,
          std::unique_ptr<IoBackend> backend, std::vector<IoMemory> memory);
  ~IoQueue();  // calls stop()
  IoQueue(const IoQueue&) = delete;
  IoQueue& operator=(const IoQueue&) = delete;

  // Thread-safe, except stop() and checksums(). The enqueue functions throw the first error, if
  // any.
  [[nodiscard]] Ticket enqueue(int extent, bool write, std::int64_t offset, std::byte* memory,
                               std::int64_t bytes);
  [[nodiscard]] Ticket enqueue_headers(std::uint64_t version);
  // Flushes the files, writes the record, and flushes the files again. REQUIRES: the Tickets of the
  // writes that the record covers are done.
  [[nodiscard]] Ticket enqueue_record(Record record);
  [[nodiscard]] Ticket enqueue_flush();  // flushes the writes of requests that are done
  void drain();                          // waits for all requests; throws the first error
  void stop() noexcept;                  // waits for all requests and ends the thread
  [[nodiscard]] bool failed() const;
  void rethrow_error() const;
  // REQUIRES: no request is outstanding, and no thread makes a request meanwhile.
  [[nodiscard]] Checksums& checksums() { return checksums_; }
  [[nodiscard]] NvmeStats stats() const;

 private:
  using Slot = IoSlot;
  using RequestPtr = std::shared_ptr<IoRequest>;
  using Lane = std::vector<RequestPtr>;  // unfinished requests on one extent, oldest first

  static constexpr int kHeaders = -1;  // stands for the extent in requests on all files
  static constexpr int kFlush = -2;

  // io_queue.cpp: the thread and its requests.
  [[nodiscard]] Ticket push(std::span<const RequestPtr> requests);
  [[nodiscard]] RequestPtr make_request(int extent, bool write, std::int64_t offset,
                                        std::byte* memory, std::int64_t bytes) const;
  // A request on all files; `kind` is kHeaders or kFlush.
  [[nodiscard]] RequestPtr make_request_of_files(int kind) const;
  [[nodiscard]] Lane& lane_of(const IoRequest& request);
  void run() noexcept;
  bool take_inbox();  // false: stop() was called and no request is outstanding
  void admit(const RequestPtr& request);
  void retire(IoRequest& request);
  void wait_for_completions();
  void watch_for_stall();
  void fail(std::exception_ptr error);     // waits for the transfers in flight
  void abandon(std::exception_ptr error);  // the transfers in flight may never complete
  void fail_requests();

  // io_transfers.cpp: the transfers in the slots.
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
  const std::int64_t unit_;  // ranges of multiples of unit_ need no bounce buffer

  // Touched by the IO thread alone.
  std::unique_ptr<IoBackend> backend_;
  Checksums checksums_;
  HostBlock bounce_, headers_;
  std::vector<Slot> slots_;
  std::vector<Slot*> free_, to_hash_;
  std::vector<Lane> lanes_;  // one for each extent; the last one for requests on all files
  std::deque<IoRequest*> ready_;
  std::vector<RequestPtr> fresh_;
  std::vector<IoCompletion> completions_;
  int in_flight_ = 0;
  std::int64_t last_progress_ns_ = 0, busy_since_ns_ = 0;
  bool slow_logged_ = false, abandoned_ = false;
  std::exception_ptr failure_;  // equals error_
  NvmeStats counts_;            // copied to stats_ when a request is done

  mutable std::mutex mutex_;  // guards the members below
  std::condition_variable idle_;
  std::vector<RequestPtr> inbox_;
  std::int64_t outstanding_ = 0;
  bool stopping_ = false, asleep_ = false;
  std::exception_ptr error_;
  NvmeStats stats_;

  std::thread thread_;
};

}  // namespace sluice
