// Saving and loading a checkpoint against the same disk's own rate, in turns, as lines of JSON.
//
//   sluice_checkpoint_bench DIRECTORY [MB [ROUNDS [RANKS]]]      2048, 5, 1
//
// The disk: MB bytes by O_DIRECT, 8 MiB at a time, four threads, then fsync; read back the same
// way. A save: the ranks' threads write their shares of one parameter's states from memory, sync,
// and commit. A load: every rank opens the checkpoint, reads its share back in parts of 4 MiB as
// resuming does, compares checksums and copies each part to where it belongs, the files' pages
// having been dropped. Each round does all four; the next begins with the other of the two. What
// counts is the median of the rounds' ratios. All memory is on huge pages where the kernel has
// them.
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "base/bytes.hpp"
#include "base/error.hpp"
#include "runtime/checkpoint/io/checkpoint_load.hpp"
#include "runtime/checkpoint/io/checkpoint_save.hpp"
#include "runtime/checkpoint/io/page_memory.hpp"
#include "runtime/checkpoint/io/read_ahead.hpp"

namespace {

using namespace sluice;

constexpr std::int64_t kBlock = 8 * kMiB;
constexpr std::int64_t kPart = 4 * kMiB;  // of a resuming rank's staging
constexpr int kThreads = 4;

struct Arguments {
  std::string dir;
  std::int64_t bytes = 2048 * kMiB;
  int rounds = 5;
  int ranks = 1;
};

// Pages that O_DIRECT takes, filled with what does not compress.
class Pages {
 public:
  explicit Pages(std::int64_t bytes) : bytes_(static_cast<std::size_t>(bytes)) {
    void* const at =
        ::mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED) throw Error("no memory of " + format_bytes(bytes));
    (void)::madvise(at, bytes_, MADV_HUGEPAGE);
    data_ = static_cast<std::byte*>(at);
    std::uint64_t state = 88172645463325252U;
    for (std::size_t i = 0; i + 8 <= bytes_; i += 8) {
      state ^= state << 13U;
      state ^= state >> 7U;
      state ^= state << 17U;
      std::memcpy(data_ + i, &state, 8);
    }
  }
  ~Pages() { ::munmap(data_, bytes_); }
  Pages(const Pages&) = delete;
  Pages& operator=(const Pages&) = delete;
  [[nodiscard]] std::span<std::byte> all() const { return {data_, bytes_}; }

 private:
  std::size_t bytes_;
  std::byte* data_ = nullptr;
};

double seconds_of(const std::function<void()>& work) {
  const auto begin = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

// f(i) on `threads` threads; the first exception is thrown.
void on_threads(int threads, const std::function<void(int)>& f) {
  std::vector<std::exception_ptr> errors(static_cast<std::size_t>(threads));
  std::vector<std::thread> all;
  for (int i = 0; i < threads; ++i) {
    all.emplace_back([&, i] {
      try {
        f(i);
      } catch (...) {
        errors[static_cast<std::size_t>(i)] = std::current_exception();
      }
    });
  }
  for (std::thread& thread : all) thread.join();
  for (const std::exception_ptr& error : errors) {
    if (error) std::rethrow_exception(error);
  }
}

double disk_seconds(const std::string& path, std::span<std::byte> bytes, bool write) {
  const int flags = write ? O_WRONLY | O_CREAT | O_TRUNC : O_RDONLY;
  const int fd = ::open(path.c_str(), flags | O_DIRECT | O_CLOEXEC, 0666);
  if (fd < 0) throw IoError("cannot open " + path + " with O_DIRECT", path, errno);
  const double seconds = seconds_of([&] {
    std::atomic<std::int64_t> next{0};
    on_threads(kThreads, [&](int) {
      for (;;) {
        const std::int64_t at = next.fetch_add(kBlock);
        if (at >= static_cast<std::int64_t>(bytes.size())) return;
        std::byte* const from = bytes.data() + at;
        const auto block = static_cast<std::size_t>(kBlock);
        const ssize_t done = write ? ::pwrite(fd, from, block, at) : ::pread(fd, from, block, at);
        if (done != static_cast<ssize_t>(kBlock)) throw IoError("cannot move a block", path, errno);
      }
    });
    if (write && ::fsync(fd) != 0) throw IoError("cannot sync", path, errno);
  });
  ::close(fd);
  return seconds;
}

// Each rank has an equal run of elements of one parameter's master weights.
std::vector<StateRange> ranges_of(const Arguments& args) {
  const std::int64_t elems = args.bytes / 4;
  std::vector<StateRange> ranges;
  for (std::int64_t rank = 0; rank < args.ranks; ++rank) {
    StateRange range = whole_range("x", StateKind::kMaster, TensorDType::kF32, {elems});
    range.begin = elems * rank / args.ranks;
    range.end = elems * (rank + 1) / args.ranks;
    ranges.push_back(range);
  }
  return ranges;
}

std::span<std::byte> share(std::span<std::byte> bytes, const StateRange& range) {
  return bytes.subspan(static_cast<std::size_t>(range.begin * 4),
                       static_cast<std::size_t>(range.elems() * 4));
}

double save_seconds(const Arguments& args, std::int64_t step, std::span<std::byte> bytes) {
  FileSystem& files = local_file_system();
  const std::vector<StateRange> ranges = ranges_of(args);
  return seconds_of([&] {
    const SaveTarget target = begin_save(files, args.dir + "/checkpoints", step);
    std::vector<std::string> records(ranges.size());
    on_threads(args.ranks, [&](int rank) {
      const auto i = static_cast<std::size_t>(rank);
      RankWriter writer(files, target, rank, {&ranges[i], 1});
      writer.write(0, share(bytes, ranges[i]));
      records[i] = writer.seal();
    });
    RunState run;
    run.step = step;
    commit(files, target, records, run);
  });
}

void drop_pages(const Checkpoint& checkpoint) {
  for (const FileRecord& file : checkpoint.manifest().files) {
    const int fd = ::open((checkpoint.path() + "/" + file.name).c_str(), O_RDONLY | O_CLOEXEC);
    if (fd < 0) continue;
    (void)::posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
    ::close(fd);
  }
}

void load_share(const StateRange& range, std::span<std::byte> bytes, const std::string& dir) {
  const PageMemory part(kPart);
  const PageMemory ahead(read_ahead_bytes(kChecksumBlockBytes));
  const std::span<std::byte> to = share(bytes, range);
  open_checkpoint(local_file_system(), dir)
      .read_in_parts({&range, 1}, part.all(), ahead.all(), [&](const StatePart& got) {
        std::memcpy(to.data() + got.first * 4, got.bytes.data(), got.bytes.size());
      });
}

double load_seconds(const Arguments& args, std::span<std::byte> bytes) {
  FileSystem& files = local_file_system();
  const std::string dir = args.dir + "/checkpoints";
  drop_pages(open_checkpoint(files, dir));
  const std::vector<StateRange> ranges = ranges_of(args);
  return seconds_of([&] {
    on_threads(args.ranks,
               [&](int rank) { load_share(ranges[static_cast<std::size_t>(rank)], bytes, dir); });
  });
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const std::size_t half = values.size() / 2;
  return values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2;
}

void report(const char* what, const Arguments& args, const std::vector<double>& ours,
            const std::vector<double>& disk) {
  std::vector<double> ratios;
  for (std::size_t i = 0; i < ours.size(); ++i) ratios.push_back(disk[i] / ours[i]);
  std::array<double, 3> load{};
  (void)::getloadavg(load.data(), 3);
  const auto mb = static_cast<double>(args.bytes) / 1e6;
  std::printf(
      "{\"what\":\"%s\",\"bytes\":%lld,\"ranks\":%d,\"rounds\":%d,\"mb_per_s\":%.0f,"
      "\"disk_mb_per_s\":%.0f,\"ratio\":%.3f,\"lowest\":%.3f,\"highest\":%.3f,\"load\":%.1f}\n",
      what, static_cast<long long>(args.bytes), args.ranks, args.rounds, mb / median(ours),
      mb / median(disk), median(ratios), *std::min_element(ratios.begin(), ratios.end()),
      *std::max_element(ratios.begin(), ratios.end()), load[0]);
  std::fflush(stdout);
}

int run(const Arguments& args) {
  const Pages pages(args.bytes);
  const std::string raw = args.dir + "/disk.dat";
  std::vector<double> save;
  std::vector<double> load;
  std::vector<double> write;
  std::vector<double> read;
  const auto ours = [&](int round) {
    save.push_back(save_seconds(args, round, pages.all()));
    load.push_back(load_seconds(args, pages.all()));
    (void)purge(local_file_system(), args.dir + "/checkpoints", {.keep = 1, .known_bad = {}});
  };
  const auto disk = [&] {
    ::unlink(raw.c_str());
    write.push_back(disk_seconds(raw, pages.all(), true));
    read.push_back(disk_seconds(raw, pages.all(), false));
  };
  for (int round = 0; round < args.rounds; ++round) {
    if (round % 2 == 0) disk();
    ours(round);
    if (round % 2 == 1) disk();
  }
  ::unlink(raw.c_str());
  report("save", args, save, write);
  report("load", args, load, read);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2 || argc > 5) {
    std::fprintf(stderr, "usage: sluice_checkpoint_bench DIRECTORY [MB [ROUNDS [RANKS]]]\n");
    return 2;
  }
  Arguments args;
  args.dir = argv[1];
  if (argc > 2)
    args.bytes = std::max<std::int64_t>(std::atoll(argv[2]) * kMiB / kBlock, 1) * kBlock;
  if (argc > 3) args.rounds = std::max(std::atoi(argv[3]), 1);
  if (argc > 4) args.ranks = std::max(std::atoi(argv[4]), 1);
  try {
    make_dirs_durably(local_file_system(), args.dir);
    return run(args);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "sluice_checkpoint_bench: %s\n", error.what());
    return 1;
  }
}
