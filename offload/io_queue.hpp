// The IO thread of an NvmeStore. The IO thread orders the requests and completes their Tickets.
// IoTransfers cuts a request into transfers of at most one block.
//
// clang-format off
//   request    waiting --> ready --> started --> done | failed
//              waiting: an earlier request overlaps this request
// clang-format on
//
// Only the IO thread touches requests, transfers and the backend. Only the IoInbox is shared. After
// the first error no transfer starts, transfers in flight are awaited, and all requests fail with
// that error. After a stall or an error of the backend, transfers in flight are abandoned instead:
// the kernel may still write to their memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "offload/io_inbox.hpp"
#include "offload/io_transfers.hpp"

namespace sluice {

class IoQueue {
 public:
  using Files = IoFiles;
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
  // Flushes the files, writes the record, and flushes the files again. REQUIRES: the Tickets of the
  // writes that the record covers are done.
  [[nodiscard]] Ticket enqueue_record(Record record);
  [[nodiscard]] Ticket enqueue_flush();  // flushes the writes of requests that are done
  void drain() { inbox_.drain(); }       // waits for all requests; throws the first error
  void stop() noexcept;                  // waits for all requests and ends the thread
  [[nodiscard]] bool failed() const { return inbox_.error() != nullptr; }
  void rethrow_error() const {
    if (const std::exception_ptr error = inbox_.error()) std::rethrow_exception(error);
  }
  // REQUIRES: no request is outstanding, and no thread makes a request meanwhile.
  [[nodiscard]] Checksums& checksums() { return transfers_.checksums(); }
  [[nodiscard]] NvmeStats stats() const { return inbox_.stats(); }

 private:
  using RequestPtr = IoInbox::RequestPtr;
  using Lane = std::vector<RequestPtr>;  // unfinished requests on one extent, oldest first

  [[nodiscard]] RequestPtr make_request(int extent, bool write, std::int64_t offset,
                                        std::byte* memory, std::int64_t bytes) const;
  [[nodiscard]] RequestPtr make_flush() const;
  [[nodiscard]] Lane& lane_of(const IoRequest& request);
  void run() noexcept;
  void admit(const RequestPtr& request);
  void start_transfers();
  void complete(const IoCompletion& completion);
  void retire(IoRequest& request);
  void fail(std::exception_ptr error);  // the transfers in flight are awaited
  void fail_requests();

  const ExtentPlan& plan_;
  const std::unique_ptr<IoBackend> backend_;  // used by the inbox and the transfers
  IoInbox inbox_;
  // The IO thread alone touches the members below.
  IoTransfers transfers_;
  std::vector<Lane> lanes_;  // one for each extent; the last one for flushes
  std::deque<IoRequest*> ready_;
  std::vector<RequestPtr> fresh_;
  bool failed_ = false;

  std::thread thread_;
};

}  // namespace sluice
