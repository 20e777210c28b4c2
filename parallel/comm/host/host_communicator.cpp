// Communicator over shared memory. An operation has five steps on each rank:
//
//   publish the addresses of the pieces --> phase: all ranks have called --> compare the calls
//     --> read from the memory of the other ranks --> phase: owners may write their memory again
//
// Ranks send nothing, so shares that ReduceDtype rounds are rounded where they are added.
#include "parallel/comm/host/host_communicator.hpp"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <numeric>
#include <utility>

#include "base/error.hpp"
#include "base/failpoint.hpp"
#include "base/index.hpp"
#include "parallel/comm/exchange_plan.hpp"
#include "parallel/comm/host/host_plan.hpp"
#include "parallel/comm/host/host_record.hpp"
#include "parallel/comm/host/host_transfer.hpp"
#include "parallel/comm/op_queue.hpp"
#include "parallel/comm/ordered_add.hpp"
#include "parallel/comm/stream_store.hpp"
#include "parallel/comm/transfer.hpp"

namespace sluice {
namespace {

template <typename Piece>
std::vector<std::int64_t> sizes_of(const std::vector<Piece>& pieces) {
  std::vector<std::int64_t> sizes;
  for (const Piece& piece : pieces) sizes.push_back(piece.elems);
  return sizes;
}

// Elements from the begin of the input to the end of the range that other ranks read.
std::int64_t extent(const ReduceScatterPiece& piece, int size) {
  return (size - 1) * piece.stride + piece.elems;
}
std::int64_t extent(const AllGatherPiece& piece, int /*size*/) { return piece.elems; }

template <typename Piece>
std::vector<HostPiece> table_of(const std::vector<Piece>& pieces, DType dtype, int size) {
  std::vector<HostPiece> table;
  for (const Piece& piece : pieces) {
    HostPiece& entry = table.emplace_back();
    if (piece.elems == 0) continue;
    const std::int64_t width = size_of(dtype);
    entry = {static_cast<const char*>(piece.input), piece.stride * width,
             host_region_of(piece.input, extent(piece, size) * width)};
  }
  return table;
}

// The elements of one rank that this rank adds: either at the pieces of `table`, or packed batch
// after batch at `packed`.
struct Source {
  std::vector<HostPiece> table;
  char* packed = nullptr;
};

class HostCommunicator final : public Communicator {
 public:
  HostCommunicator(const CommOptions& options, HostRendezvous rendezvous, HostCopy copy)
      : name_{options.group, options.rank, options.size},
        peers_(options, std::move(rendezvous), copy),
        queue_(name_, OpQueue::Hooks{.interrupt = [this] { peers_.interrupt(); },
                                     .broken = [this] { peers_.fail("it aborted the group"); }}) {}

  [[nodiscard]] int rank() const override { return name_.rank; }
  [[nodiscard]] int size() const override { return name_.size; }
  [[nodiscard]] std::int64_t reduce_scatter_staging_bytes(std::int64_t total_elems,
                                                          ReduceDtype dtype) const override {
    return host_staging_bytes(size(), total_elems, dtype.input);
  }
  [[nodiscard]] bool maps_host_memory() const override { return peers_.direct(); }

  [[nodiscard]] Ticket reduce_scatter(std::vector<ReduceScatterPiece> pieces, ReduceDtype asked,
                                      void* staging) override {
    const ReduceDtype dtype = asked.in_group_of(size());
    return start(HostOp::kReduceScatter, [this, pieces = std::move(pieces), dtype, staging] {
      const std::vector<std::int64_t> sizes = sizes_of(pieces);
      const std::vector<HostPiece>& table =
          open(HostOp::kReduceScatter, dtype, sizes, table_of(pieces, dtype.input, size()));
      if (peers_.direct()) {
        reduce_direct(pieces, dtype, table, static_cast<char*>(staging));
      } else {
        const ExchangePlan plan = plan_exchange(sizes, host_bounce_elems(size() - 1, dtype.input));
        reduce_bounced({pieces, dtype, table, plan});
      }
    });
  }

  [[nodiscard]] Ticket all_gather(std::vector<AllGatherPiece> pieces, DType dtype) override {
    return start(HostOp::kAllGather, [this, pieces = std::move(pieces), dtype] {
      const std::vector<std::int64_t> sizes = sizes_of(pieces);
      const std::vector<HostPiece>& table =
          open(HostOp::kAllGather, dtype, sizes, table_of(pieces, dtype, size()));
      if (peers_.direct()) {
        gather_direct(pieces, dtype, table);
      } else {
        gather_bounced(pieces, dtype, plan_exchange(sizes, host_bounce_elems(1, dtype)));
      }
      for (const AllGatherPiece& piece : pieces) keep_own(piece, dtype);
    });
  }

  [[nodiscard]] Ticket send(int peer, const void* data, std::int64_t bytes) override {
    check_transfer(name_, "send", peer, bytes);
    return start(HostOp::kSend, [this, from = static_cast<const char*>(data), bytes] {
      const HostPiece piece{from, 0, bytes > 0 ? host_region_of(from, bytes) : HostRegion{}};
      meet_peer(HostOp::kSend, bytes, {piece});
      send_bytes(peers_, rank(), from, bytes);
    });
  }
  [[nodiscard]] Ticket receive(int peer, void* data, std::int64_t bytes) override {
    check_transfer(name_, "receive", peer, bytes);
    return start(HostOp::kReceive, [this, peer, to = static_cast<char*>(data), bytes] {
      meet_peer(HostOp::kReceive, bytes, {});
      receive_bytes(peers_, peer, to, bytes);
    });
  }

  [[nodiscard]] std::vector<std::byte> all_gather_bytes(std::span<const std::byte> bytes) override {
    std::vector<std::byte> all(bytes.size() * static_cast<std::size_t>(size()));
    start(HostOp::kBytes, [&] { exchange(bytes, all); }).wait();
    return all;
  }
  void barrier() override {
    start(HostOp::kBarrier, [this] { meet(new_record(HostOp::kBarrier)); }).wait();
  }
  void abort() noexcept override { queue_.abort(); }

 private:
  template <typename Piece>
  struct Operation {
    const std::vector<Piece>& pieces;
    ReduceDtype dtype;
    const std::vector<HostPiece>& table;
    const ExchangePlan& plan;
  };
  using Reduction = Operation<ReduceScatterPiece>;

  Ticket start(HostOp op, std::function<void()> body) {
    failpoint(std::string("comm.") + name_of(op));
    const std::uint64_t seq = ++seq_;
    return queue_.submit([this, op, seq, body = std::move(body)] {
      try {
        peers_.begin_operation();
        body();
      } catch (const std::exception& error) {
        peers_.fail(error.what());
        throw CommError(describe_failure(name_, name_of(op), seq, error.what()),
                        /*secondary=*/true);
      }
    });
  }

  HostRecord& new_record(HostOp op) {
    HostRecord& record = peers_.next_record();
    record.op = op;
    record.dtype = DType::kFloat32;
    record.pieces = record.elems = 0;
    record.cut = 0;
    return record;
  }

  // Waits until all ranks have called, and checks that their calls match.
  void meet(const HostRecord& record) {
    peers_.advance();
    for (int r = 0; r < size(); ++r) {
      const HostRecord& other = peers_.record_of(r);
      if (r == rank() || fits(record, other)) continue;
      throw HostError("rank " + std::to_string(r) + " called " + describe(other) + ", this rank " +
                      describe(record) +
                      (describe(other) == describe(record) ? ", cut otherwise" : "") +
                      "; all ranks of a group have to make the same calls in the same order");
    }
  }

  void meet_peer(HostOp op, std::int64_t bytes, std::vector<HostPiece> sent) {
    HostRecord& record = new_record(op);
    record.elems = bytes;
    peers_.publish(record, std::move(sent));
    meet(record);
  }

  // Returns `table`, at its place until the next operation.
  const std::vector<HostPiece>& open(HostOp op, ReduceDtype dtype,
                                     const std::vector<std::int64_t>& sizes,
                                     std::vector<HostPiece> table) {
    HostRecord& record = new_record(op);
    record.dtype = dtype;
    record.pieces = static_cast<std::int64_t>(sizes.size());
    for (const std::int64_t elems : sizes) {
      record.elems += elems;
      record.cut = (record.cut ^ static_cast<std::uint64_t>(elems)) * 0x100000001b3ULL;
    }
    const std::vector<HostPiece>& published = peers_.publish(record, std::move(table));
    meet(record);
    return published;
  }

  [[nodiscard]] static int slot_of(int peer, int own) { return peer < own ? peer : peer - 1; }
  [[nodiscard]] int peer_at(int step) const { return (rank() + step) % size(); }
  [[nodiscard]] static const char* share(const Reduction& reduction, const HostPiece& piece,
                                         const ExchangeSegment& segment, int rank) {
    return piece.input + rank * piece.stride_bytes +
           segment.offset * size_of(reduction.dtype.input);
  }

  // Reads a block of all peers into the staging memory and adds it while it is in the cache. The
  // sum reads mapped memory of peers in place. If all peers are mapped, blocks are large, and only
  // bound the time to react to an abort.
  void reduce_direct(const std::vector<ReduceScatterPiece>& pieces, ReduceDtype dtype,
                     const std::vector<HostPiece>& own, char* staging) {
    const std::vector<std::int64_t> sizes = sizes_of(pieces);
    const std::int64_t total = std::accumulate(sizes.begin(), sizes.end(), std::int64_t{0});
    std::int64_t block = std::min(total, host_block_elems(size(), dtype.input));
    bool staged = false;
    std::vector<Source> sources(static_cast<std::size_t>(size()));
    for (int step = 1; step < size(); ++step) {
      const int peer = peer_at(step);
      Source& source = nth(sources, peer);
      source.table = peers_.table_of(peer, pieces.size());
      if (peers_.map(peer, source.table)) continue;
      source.packed = staging + slot_of(peer, rank()) * block * size_of(dtype.input);
      staged = true;
    }
    if (!staged) block = std::min(total, kHostStretchBytes / size_of(dtype.input));
    const ExchangePlan plan = plan_exchange(sizes, std::max<std::int64_t>(1, block));
    const Reduction reduction{pieces, dtype, own, plan};
    for (const ExchangeBatch& batch : plan.batches) {
      peers_.check_interrupted();
      for (int step = 1; step < size(); ++step) {
        Source& source = nth(sources, peer_at(step));
        if (source.packed != nullptr) read_batch(reduction, batch, source, peer_at(step));
      }
      add_batch(reduction, batch, sources);
    }
    peers_.advance();
  }

  void read_batch(const Reduction& reduction, const ExchangeBatch& batch, const Source& source,
                  int peer) {
    std::vector<iovec> remote;
    for (const ExchangeSegment& segment : batch) {
      remote.push_back(
          {const_cast<char*>(share(reduction, source.table[segment.piece], segment, rank())),
           static_cast<std::size_t>(segment.elems * size_of(reduction.dtype.input))});
    }
    peers_.read(peer, source.packed, remote);
  }

  void add_batch(const Reduction& reduction, const ExchangeBatch& batch,
                 const std::vector<Source>& sources) {
    std::vector<const void*> shares(static_cast<std::size_t>(size()));
    std::int64_t at = 0;
    for (const ExchangeSegment& segment : batch) {
      for (int r = 0; r < size(); ++r) {
        const auto place = static_cast<std::size_t>(r);
        const Source& source = sources[place];
        const auto& table = r == rank() ? reduction.table : source.table;
        shares[place] = r != rank() && source.packed != nullptr
                            ? source.packed + at
                            : share(reduction, table[segment.piece], segment, rank());
      }
      const ReduceScatterPiece& piece = reduction.pieces[segment.piece];
      ordered_add(shares, reduction.dtype, segment.elems, piece.output + segment.offset,
                  piece.accumulate);
      at += segment.elems * size_of(reduction.dtype.input);
    }
  }

  // One phase per batch. One half of the buffers is written while peers may still read the other.
  void reduce_bounced(const Reduction& reduction) {
    const std::int64_t width = size_of(reduction.dtype.input);
    const std::int64_t ring = reduction.plan.ring_elems * width;  // bytes for one reader
    std::vector<Source> sources(static_cast<std::size_t>(size()));
    for (const ExchangeBatch& batch : reduction.plan.batches) {
      const std::int64_t half = batch.front().ring * width;
      for (int step = 1; step < size(); ++step) {
        const int peer = peer_at(step);
        char* to = peers_.segment().bounce(rank()) + slot_of(peer, rank()) * ring + half;
        for (const ExchangeSegment& segment : batch) {
          const auto bytes = static_cast<std::size_t>(segment.elems * width);
          std::memcpy(to, share(reduction, reduction.table[segment.piece], segment, peer), bytes);
          to += bytes;
        }
        nth(sources, peer).packed =
            peers_.segment().bounce(peer) + slot_of(rank(), peer) * ring + half;
      }
      peers_.advance();
      add_batch(reduction, batch, sources);
    }
  }

  void gather_direct(const std::vector<AllGatherPiece>& pieces, DType dtype,
                     const std::vector<HostPiece>& own) {
    for (int step = 1; step < size(); ++step) {
      const int peer = peer_at(step);
      std::vector<HostPiece> table = peers_.table_of(peer, pieces.size());
      const bool mapped = peers_.map(peer, table);
      for (std::size_t i = 0; i < pieces.size(); ++i) {
        char* place = static_cast<char*>(pieces[i].output) + peer * own[i].stride_bytes;
        const std::int64_t bytes = pieces[i].elems * size_of(dtype);
        if (mapped) {
          peers_.copy_mapped(place, table[i].input, bytes);
        } else {
          peers_.read(peer, place, table[i].input, bytes);
        }
      }
    }
    peers_.advance();
  }

  void gather_bounced(const std::vector<AllGatherPiece>& pieces, DType dtype,
                      const ExchangePlan& plan) {
    const std::int64_t width = size_of(dtype);
    for (const ExchangeBatch& batch : plan.batches) {
      for (const ExchangeSegment& segment : batch) {
        std::memcpy(peers_.segment().bounce(rank()) + segment.ring * width,
                    static_cast<const char*>(pieces[segment.piece].input) + segment.offset * width,
                    static_cast<std::size_t>(segment.elems * width));
      }
      peers_.advance();
      for (int step = 1; step < size(); ++step) {
        const int peer = peer_at(step);
        for (const ExchangeSegment& segment : batch) {
          const AllGatherPiece& piece = pieces[segment.piece];
          std::memcpy(
              static_cast<char*>(piece.output) + (peer * piece.stride + segment.offset) * width,
              peers_.segment().bounce(peer) + segment.ring * width,
              static_cast<std::size_t>(segment.elems * width));
        }
      }
    }
  }

  void keep_own(const AllGatherPiece& piece, DType dtype) const {
    const std::int64_t width = size_of(dtype);
    char* place = static_cast<char*>(piece.output) + rank() * piece.stride * width;
    if (piece.elems == 0 || place == piece.input) return;
    stream_copy(place, piece.input, piece.elems * width);
  }

  // Needs one phase for each kHostControlBytes bytes, and at least one.
  void exchange(std::span<const std::byte> bytes, std::vector<std::byte>& all) {
    std::size_t at = 0;
    do {
      const std::size_t n = std::min(kHostControlBytes, bytes.size() - at);
      HostRecord& record = new_record(HostOp::kBytes);
      record.elems = static_cast<std::int64_t>(bytes.size());
      std::copy_n(bytes.begin() + static_cast<std::ptrdiff_t>(at), n, record.bytes);
      meet(record);
      for (int r = 0; r < size(); ++r) {
        std::copy_n(peers_.record_of(r).bytes, n,
                    all.data() + static_cast<std::size_t>(r) * bytes.size() + at);
      }
      at += n;
    } while (at < bytes.size());
  }

  const GroupName name_;
  std::uint64_t seq_ = 0;  // used by the caller's thread
  HostPeers peers_;        // used by the queue's thread, except interrupt()
  OpQueue queue_;          // last, because its thread uses the peers
};

}  // namespace

std::unique_ptr<Communicator> make_host_communicator(const CommOptions& options,
                                                     HostRendezvous rendezvous, HostCopy copy) {
  try {
    return std::make_unique<HostCommunicator>(options, std::move(rendezvous), copy);
  } catch (const HostError& error) {
    throw CommError("group " + options.group + ", rank " + std::to_string(options.rank) + " of " +
                        std::to_string(options.size) +
                        ": connecting to the other ranks failed: " + error.what(),
                    /*secondary=*/true);
  }
}

HostCopy host_copy_from_environment() {
  const char* text = std::getenv("SLUICE_HOST_COPY");
  const std::string_view copy = text == nullptr ? "" : text;
  if (copy.empty() || copy == "auto") return HostCopy::kAuto;
  if (copy == "bounce") return HostCopy::kBounce;
  throw ConfigError("SLUICE_HOST_COPY is " + std::string(copy) + "; it can be auto or bounce");
}

}  // namespace sluice
