#include "runtime/bench/comm_bench.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <exception>
#include <memory>
#include <thread>

#include "base/bytes.hpp"
#include "base/error.hpp"
#include "parallel/comm/host/host_memory.hpp"
#include "runtime/bench/machine_memory.hpp"
#include "runtime/bench/table.hpp"

namespace sluice {
namespace {

constexpr int kWarmUpExchanges = 2;
constexpr DType kDType = DType::kFloat32;

enum class Work { kReduceScatter, kAllGather, kCopy };

// One rank's buffers to send, receive and add in, for messages of `bytes`.
class Buffers {
 public:
  Buffers(std::int64_t bytes, int ranks, std::int64_t staging_bytes, bool mapped)
      : bytes_(static_cast<std::size_t>(bytes)),
        mapped_(mapped ? std::make_unique<HostMemory>(bytes) : nullptr),
        private_(mapped ? 0 : bytes_),
        output_(static_cast<std::size_t>(bytes / ranks)),
        staging_(static_cast<std::size_t>(staging_bytes)) {
    std::memset(input(), 0, bytes_);  // takes the pages
  }

  [[nodiscard]] char* input() { return mapped_ ? mapped_->data() : private_.data(); }
  [[nodiscard]] float* output() { return reinterpret_cast<float*>(output_.data()); }
  [[nodiscard]] char* staging() { return staging_.data(); }
  // A second buffer of the same size, for copies; made when first asked for.
  [[nodiscard]] char* copy() {
    copy_.resize(bytes_);
    return copy_.data();
  }

 private:
  const std::size_t bytes_;
  std::unique_ptr<HostMemory> mapped_;
  std::vector<char> private_, output_, staging_, copy_;
};

void do_work(Communicator& comm, Buffers& buffers, Work work, std::int64_t bytes) {
  const std::int64_t share = bytes / size_of(kDType) / comm.size();
  char* input = buffers.input();
  switch (work) {
    case Work::kReduceScatter:
      comm.reduce_scatter(
              {{.input = input, .output = buffers.output(), .elems = share, .stride = share}},
              kDType, buffers.staging())
          .wait();
      break;
    case Work::kAllGather:
      comm.all_gather({{input + comm.rank() * share * size_of(kDType), input, share, share}},
                      kDType)
          .wait();
      break;
    case Work::kCopy:
      std::memcpy(buffers.copy(), input, static_cast<std::size_t>(bytes));
      break;
  }
}

// Seconds of the slowest rank, the same on every rank.
double seconds_of(Communicator& comm, Buffers& buffers, Work work, std::int64_t bytes) {
  comm.barrier();
  const auto begin = std::chrono::steady_clock::now();
  do_work(comm, buffers, work, bytes);
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
  const std::array<double, 1> mine{took.count()};
  const std::vector<double> all = comm.all_gather_values(mine);
  return *std::max_element(all.begin(), all.end());
}

// A transport as this process takes part in it: one rank, every rank (as threads), or none.
struct Contender {
  std::string name;
  std::vector<Communicator*> comms;
  std::vector<std::shared_ptr<Buffers>> buffers;

  double seconds(Work work, std::int64_t bytes) {
    if (comms.empty()) return 0;
    if (comms.size() == 1) return seconds_of(*comms[0], *buffers[0], work, bytes);
    std::vector<double> seconds(comms.size());
    std::vector<std::exception_ptr> errors(comms.size());
    std::vector<std::thread> threads;
    for (std::size_t rank = 0; rank < comms.size(); ++rank) {
      threads.emplace_back([&, rank] {
        try {
          seconds[rank] = seconds_of(*comms[rank], *buffers[rank], work, bytes);
        } catch (...) {
          errors[rank] = std::current_exception();
          comms[rank]->abort();
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    for (const std::exception_ptr& error : errors) {
      if (error) std::rethrow_exception(error);
    }
    return seconds[0];
  }
};

// Everything that lives while it is measured.
class Contest {
 public:
  Contest(const CommBenchOptions& options, const CommOptions& rendezvous) : options_(options) {
    for (const Transport transport : options.transports) {
      if (transport != Transport::kLocal) add_processes(transport, rendezvous);
    }
    for (const Transport transport : options.transports) {
      if (transport == Transport::kLocal) add_threads(rendezvous.rank == 0);
    }
  }

  std::vector<Contender> contenders;
  // Who copies: all ranks at once, over whatever joins them.
  [[nodiscard]] Contender& copier() { return contenders.front(); }
  // Ranks that did not take part wait for the others.
  void meet() {
    if (!owned_.empty() && options_.processes() > 1) owned_.front()->barrier();
  }

 private:
  [[nodiscard]] std::int64_t largest() const {
    return *std::max_element(options_.bytes.begin(), options_.bytes.end());
  }
  [[nodiscard]] std::shared_ptr<Buffers> make_buffers(Communicator& comm, bool mapped) const {
    const std::int64_t share = largest() / size_of(kDType) / options_.ranks;
    return std::make_shared<Buffers>(largest(), options_.ranks,
                                     comm.reduce_scatter_staging_bytes(share, kDType), mapped);
  }

  void add_processes(Transport transport, const CommOptions& rendezvous) {
    const bool is_gloo = transport == Transport::kGloo;
    Communicator*& comm = is_gloo ? gloo_ : host_;
    if (comm == nullptr) {
      CommOptions options = rendezvous;
      options.group = is_gloo ? "gloo" : "host";
      if (!owned_.empty()) options.serves_rendezvous = false;  // a job has one server
      owned_.push_back(is_gloo ? make_gloo_communicator(options) : make_host_communicator(options));
      comm = owned_.back().get();
    }
    contenders.push_back(
        {name_of(transport), {comm}, {make_buffers(*comm, transport == Transport::kMapped)}});
  }

  void add_threads(bool here) {
    Contender contender{name_of(Transport::kLocal), {}, {}};
    if (here) {
      local_ = make_local_communicators(options_.ranks);
      for (const auto& comm : local_) {
        contender.comms.push_back(comm.get());
        contender.buffers.push_back(make_buffers(*comm, false));
      }
    }
    contenders.push_back(std::move(contender));
  }

  const CommBenchOptions options_;
  // Ended from the back: the first one serves the rendezvous of the others.
  struct Owned : std::vector<std::unique_ptr<Communicator>> {
    Owned() = default;
    Owned(const Owned&) = delete;
    Owned& operator=(const Owned&) = delete;
    ~Owned() {
      while (!empty()) pop_back();
    }
  };
  Owned owned_;
  std::vector<std::unique_ptr<Communicator>> local_;
  Communicator* gloo_ = nullptr;
  Communicator* host_ = nullptr;
};

struct Measured {
  std::vector<std::vector<double>> seconds;  // [contender][round]
};

// In every round each contender has its turn, so that all see the same machine.
Measured take_turns(Contest& contest, Work work, std::int64_t bytes, int rounds) {
  Measured measured{std::vector<std::vector<double>>(contest.contenders.size())};
  for (int round = -kWarmUpExchanges; round < rounds; ++round) {
    for (std::size_t i = 0; i < contest.contenders.size(); ++i) {
      const double seconds = contest.contenders[i].seconds(work, bytes);
      contest.meet();
      if (round >= 0) measured.seconds[i].push_back(seconds);
    }
  }
  return measured;
}

double ratio_to(const std::vector<double>& reference, const std::vector<double>& seconds) {
  std::vector<double> ratios;
  for (std::size_t i = 0; i < seconds.size(); ++i) ratios.push_back(reference[i] / seconds[i]);
  return summarize(std::move(ratios)).median;
}

CopyRow measure_copy(Contest& contest, std::int64_t bytes, int rounds) {
  std::vector<double> seconds;
  for (int round = -kWarmUpExchanges; round < rounds; ++round) {
    const double took = contest.copier().seconds(Work::kCopy, bytes);
    contest.meet();
    if (round >= 0) seconds.push_back(took);
  }
  CopyRow row{bytes, summarize(seconds), 0};
  row.bytes_per_s = static_cast<double>(bytes) / row.seconds.median;
  return row;
}

void add_rows(CommBenchResult& result, const Contest& contest, const char* operation,
              const Measured& measured, const CopyRow& copy) {
  const std::vector<double>* gloo = nullptr;
  for (std::size_t i = 0; i < contest.contenders.size(); ++i) {
    if (contest.contenders[i].name == name_of(Transport::kGloo)) gloo = &measured.seconds[i];
  }
  const double from_others = (result.options.ranks - 1.0) / result.options.ranks;
  for (std::size_t i = 0; i < contest.contenders.size(); ++i) {
    CommRow row{
        operation, contest.contenders[i].name, copy.bytes, summarize(measured.seconds[i]), 0, 0, 0,
        0};
    row.bytes_per_s = static_cast<double>(copy.bytes) / row.seconds.median;
    row.received_per_s = row.bytes_per_s * from_others;
    row.of_copy = row.received_per_s / copy.bytes_per_s;
    row.to_gloo = gloo == nullptr ? 0 : ratio_to(*gloo, measured.seconds[i]);
    result.rows.push_back(std::move(row));
  }
}

// Share of the copy rate from which memory limits the ranks.
constexpr double kMemoryBoundExchange = 0.8;

std::string limit_of(const CommBenchResult& result) {
  const auto largest = *std::max_element(result.options.bytes.begin(), result.options.bytes.end());
  const CommRow* best = nullptr;
  for (const CommRow& row : result.rows) {
    if (row.bytes != largest || row.operation != "all_gather") continue;
    if (best == nullptr || row.of_copy > best->of_copy) best = &row;
  }
  const std::string what = "the fastest all-gather of " + format_bytes(largest) + " (" +
                           best->transport + ") receives at " + format_percent(best->of_copy) +
                           " of the rate at which the same ranks copy memory";
  if (best->of_copy >= kMemoryBoundExchange) return "memory: " + what;
  if (best->transport == name_of(Transport::kGloo)) return "loopback TCP: " + what;
  return "meeting of the ranks and transport, not memory: " + what;
}

}  // namespace

const char* name_of(Transport transport) {
  switch (transport) {
    case Transport::kGloo:
      return "gloo";
    case Transport::kHost:
      return "host";
    case Transport::kMapped:
      return "mapped";
    case Transport::kLocal:
      return "local";
  }
  return "?";
}

Transport transport_of(const std::string& name) {
  for (const Transport transport :
       {Transport::kGloo, Transport::kHost, Transport::kMapped, Transport::kLocal}) {
    if (name == name_of(transport)) return transport;
  }
  throw ConfigError("--transports: there is no '" + name +
                    "'; give some of gloo, host, mapped, local");
}

int CommBenchOptions::processes() const {
  const bool threads_only = std::all_of(transports.begin(), transports.end(),
                                        [](Transport t) { return t == Transport::kLocal; });
  return threads_only ? 1 : ranks;
}

CommBenchOptions checked(CommBenchOptions options) {
  check(options.ranks >= 2 && options.rounds > 0, "a collective needs two ranks and a round");
  check(!options.transports.empty() && !options.bytes.empty(), "there is something to measure");
  const std::int64_t whole = options.ranks * size_of(kDType);
  for (std::int64_t& bytes : options.bytes) {
    // Input, output, received data and a copy, of the four transports.
    check_machine_memory(std::int64_t{4} * 4 * options.ranks, bytes, "--bytes");
    bytes = std::max(bytes / whole * whole, whole);
  }
  return options;
}

CommBenchResult run_comm_bench(const CommBenchOptions& options, const CommOptions& rendezvous) {
  CommBenchResult result;
  result.options = checked(options);
  Contest contest(result.options, rendezvous);
  for (const std::int64_t bytes : result.options.bytes) {
    const CopyRow copy = measure_copy(contest, bytes, options.rounds);
    result.copies.push_back(copy);
    add_rows(result, contest, "reduce_scatter",
             take_turns(contest, Work::kReduceScatter, bytes, options.rounds), copy);
    add_rows(result, contest, "all_gather",
             take_turns(contest, Work::kAllGather, bytes, options.rounds), copy);
  }
  if (rendezvous.rank == 0) result.limit = limit_of(result);
  return result;
}

std::string describe(const CommBenchResult& result) {
  std::string text = wrap("collectives between " + std::to_string(result.options.ranks) +
                          " ranks of this host, fp32, " + std::to_string(result.options.rounds) +
                          " rounds; seconds are those of the slowest rank");
  for (const CopyRow& copy : result.copies) {
    std::vector<std::vector<std::string>> rows{
        {format_bytes(copy.bytes), "median", "mad", "rate", "x gloo", "of copy"}};
    for (const CommRow& row : result.rows) {
      if (row.bytes != copy.bytes) continue;
      const std::string operation = row.operation == "all_gather" ? "all-gather" : "reduce-scatter";
      char ratio[32] = "";
      if (row.to_gloo > 0) std::snprintf(ratio, sizeof ratio, "%.2f", row.to_gloo);
      rows.push_back({operation + " " + row.transport, format_seconds(row.seconds.median),
                      format_seconds(row.seconds.mad), format_byte_rate(row.bytes_per_s), ratio,
                      format_percent(row.of_copy)});
    }
    rows.push_back({"memory copy, all at once", format_seconds(copy.seconds.median),
                    format_seconds(copy.seconds.mad), format_byte_rate(copy.bytes_per_s), "", ""});
    text += "\n" + format_table(rows);
  }
  return text + "\n" + wrap("limit: " + result.limit);
}

}  // namespace sluice
