#include "tests/gpu/null/record.hpp"

#include <cxxabi.h>
#include <library_types.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <mutex>
#include <set>
#include <sstream>
#include <string_view>
#include <tuple>
#include <vector>

#include "tests/gpu/null/graphs.hpp"
#include "tests/gpu/null/memory.hpp"
#include "tests/gpu/null/nccl/channels.hpp"
#include "tests/gpu/null/queue.hpp"

namespace null_gpu {
namespace {

constexpr std::array kWorkNames{"launches", "copies", "memsets", "products", "messages"};
constexpr std::array kWaitNames{"stream", "event", "device", "blocking_copy"};
constexpr std::array kDirectionNames{"host_to_device", "device_to_host", "device_to_device",
                                     "host_to_host"};
constexpr std::size_t kMostFaults = 100;
constexpr char kGraph = 0;
const void* const kGraphStream = &kGraph;  // not the default stream

struct CopySum {
  std::int64_t copies = 0, bytes = 0, pageable_copies = 0, pageable_bytes = 0, behind_copies = 0;
};
struct MessageSum {
  std::int64_t messages = 0, bytes = 0;
};
using Shape = std::tuple<std::int64_t, std::int64_t, std::int64_t, std::int64_t, std::int64_t,
                         std::int64_t, std::int64_t, int, int, bool>;

struct Record {
  std::mutex mutex;
  std::map<std::string, std::int64_t> launches, graph_kernels, stubs;
  std::map<Shape, std::int64_t> products;
  std::array<std::int64_t, kWorkNames.size()> work{}, default_stream{};
  std::array<std::int64_t, kWaitNames.size()> waits{};
  std::array<CopySum, kDirectionNames.size()> copies{};
  std::map<std::string, MessageSum> messages;
  std::vector<std::string> faults;
  std::set<int> contexts;
  std::int64_t queries = 0, stream_waits = 0, rounded_sums = 0, communicators = 0, fault_count = 0,
               graph_launches = 0;
  // The last kernel or graph of each stream by number, where the host has not waited for it.
  std::map<const void*, std::int64_t> open;
  std::int64_t work_number = 0;
  std::size_t device_peak = 0, pinned_peak = 0;
  bool used = false;
};

// Never destroyed: libraries call the runtime while the process ends.
Record& record() {
  static auto* const all = new Record;
  return *all;
}

template <typename Body>
void with_record(const Body& body) {
  Record& all = record();
  const std::lock_guard lock(all.mutex);
  all.used = true;
  body(all);
}

template <typename Enum>
constexpr std::size_t index_of(Enum value) {
  return static_cast<std::size_t>(value);
}

std::string quoted(const std::string& text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    out += static_cast<unsigned char>(c) < ' ' ? ' ' : c;
  }
  return out + '"';
}

// The parts of a JSON list or object, with commas between.
class Joined {
 public:
  explicit Joined(std::ostream& out) : out_(out) {}
  std::ostream& next() {
    if (!first_) out_ << ", ";
    first_ = false;
    return out_;
  }

 private:
  std::ostream& out_;
  bool first_ = true;
};

template <typename Names, typename Counts>
void write_counts(std::ostream& out, const char* key, const Names& names, const Counts& counts) {
  out << ",\n  " << quoted(key) << ": {";
  Joined parts(out);
  for (std::size_t i = 0; i < names.size(); ++i) {
    parts.next() << quoted(names[i]) << ": " << counts[i];
  }
  out << '}';
}

void write_map(std::ostream& out, const char* key,
               const std::map<std::string, std::int64_t>& counts) {
  out << ",\n  " << quoted(key) << ": {";
  Joined parts(out);
  for (const auto& [name, count] : counts) parts.next() << quoted(name) << ": " << count;
  out << '}';
}

// Kernels by their names, as one reads them.
void write_kernels(std::ostream& out, const char* key,
                   const std::map<std::string, std::int64_t>& counts) {
  std::map<std::string, std::int64_t> kernels;
  for (const auto& [name, count] : counts) kernels[demangled(name)] += count;
  write_map(out, key, kernels);
}

void write_copies(std::ostream& out, const Record& all) {
  out << ",\n  \"copies\": {";
  Joined parts(out);
  for (std::size_t i = 0; i < kDirectionNames.size(); ++i) {
    const CopySum& sum = all.copies[i];
    parts.next() << quoted(kDirectionNames[i]) << ": {\"copies\": " << sum.copies
                 << ", \"bytes\": " << sum.bytes << ", \"pageable_copies\": " << sum.pageable_copies
                 << ", \"pageable_bytes\": " << sum.pageable_bytes
                 << ", \"behind_copies\": " << sum.behind_copies << '}';
  }
  out << '}';
}

void write_messages(std::ostream& out, const Record& all) {
  out << ",\n  \"messages\": {";
  Joined parts(out);
  for (const auto& [kind, sum] : all.messages) {
    parts.next() << quoted(kind) << ": {\"messages\": " << sum.messages
                 << ", \"bytes\": " << sum.bytes << '}';
  }
  out << '}';
}

void write_products(std::ostream& out, const Record& all) {
  out << ",\n  \"products\": [";
  Joined parts(out);
  for (const auto& [shape, count] : all.products) {
    const auto& [m, n, k, lda, ldb, ldc, batch, in, type, aligned] = shape;
    parts.next() << "{\"m\": " << m << ", \"n\": " << n << ", \"k\": " << k << ", \"ld\": [" << lda
                 << ", " << ldb << ", " << ldc << "], \"batch\": " << batch << ", \"types\": ["
                 << in << ", " << type << "], \"aligned\": " << (aligned ? "true" : "false")
                 << ", \"count\": " << count << '}';
  }
  out << ']';
}

std::string as_json(const Record& all) {
  std::ostringstream out;
  out << "{\n  \"device_peak_bytes\": " << all.device_peak
      << ",\n  \"pinned_peak_bytes\": " << all.pinned_peak << ",\n  \"queries\": " << all.queries
      << ",\n  \"stream_waits\": " << all.stream_waits << ",\n  \"most_tasks\": " << most_tasks()
      << ",\n  \"rounded_sums\": " << all.rounded_sums
      << ",\n  \"fault_count\": " << all.fault_count << ",\n  \"faults\": [";
  Joined faults(out);
  for (const std::string& what : all.faults) faults.next() << quoted(what);
  out << ']';
  out << ",\n  \"contexts\": [";
  Joined contexts(out);
  for (const int device : all.contexts) contexts.next() << device;
  out << ']';
  write_counts(out, "work", kWorkNames, all.work);
  write_counts(out, "default_stream", kWorkNames, all.default_stream);
  write_counts(out, "host_waits", kWaitNames, all.waits);
  write_copies(out, all);
  out << ",\n  \"communicators\": " << all.communicators;
  write_messages(out, all);
  write_channels(out);
  out << ",\n  \"graph_launches\": " << all.graph_launches;
  write_kernels(out, "kernels", all.launches);
  write_kernels(out, "graph_kernels", all.graph_kernels);
  write_map(out, "stubs", all.stubs);
  write_products(out, all);
  out << "\n}\n";
  return out.str();
}

// Whether a function, by its name, leaves the content of memory alone.
bool only_manages(std::string_view name) {
  constexpr std::array<std::string_view, 11> kWords{"Create",   "Destroy",  "Set",        "Get",
                                                    "Init",     "Register", "Unregister", "Enable",
                                                    "Profiler", "Exchange", "Callback"};
  return std::any_of(kWords.begin(), kWords.end(), [&](std::string_view word) {
    return name.find(word) != std::string_view::npos;
  });
}

}  // namespace

void count_work(Work work, const void* stream) {
  with_record([&](Record& all) {
    ++all.work[index_of(work)];
    if (stream == nullptr) ++all.default_stream[index_of(work)];
  });
}

void count_launch(const std::string& kernel, const void* stream) {
  count_work(Work::kLaunch, stream);
  with_record([&](Record& all) {
    ++all.launches[kernel];
    all.open[stream] = ++all.work_number;
  });
}

bool is_fp8(int type) { return type == CUDA_R_8F_E4M3 || type == CUDA_R_8F_E5M2; }

std::int64_t bytes_of_type(int type) {
  switch (type) {
    case CUDA_R_64F:
      return 8;
    case CUDA_R_32F:
      return 4;
    case CUDA_R_16F:
    case CUDA_R_16BF:
      return 2;
    default:
      return is_fp8(type) ? 1 : 0;
  }
}

// A vector has no leading dimension.
bool is_aligned(const Product& p) {
  constexpr std::int64_t kNeeded = 16;
  const std::int64_t in = bytes_of_type(p.type_in), out = bytes_of_type(p.type_out);
  constexpr std::int64_t kMost = 4;  // of a type that needs it
  if (in == 0 || out == 0 || in > kMost || out > kMost) return true;
  const auto whole = [](std::int64_t bytes) { return bytes % kNeeded == 0; };
  const auto address = [&](const void* at) {
    return whole(static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(at)));
  };
  return address(p.a) && address(p.b) && address(p.c) && (p.m == 1 || whole(p.lda * in)) &&
         (p.n == 1 || whole(p.ldb * in)) && (p.m == 1 || p.n == 1 || whole(p.ldc * out));
}

void count_graph(const std::map<std::string, std::int64_t>& kernels, const void* stream) {
  with_record([&](Record& all) {
    all.open[stream] = ++all.work_number;
    ++all.graph_launches;
    for (const auto& [name, count] : kernels) all.graph_kernels[name] += count;
  });
}

void count_product(const Product& p, const void* stream) {
  const auto again = [p](const void*) {
    for (const void* matrix : {p.a, p.b, p.c}) {
      if (place_of(matrix) != Place::kDevice)
        fault("a graph's product takes memory that was freed");
    }
    count_product(p, kGraphStream);
  };
  if (recorded(stream, again)) return;
  count_work(Work::kProduct, stream);
  with_record([&](Record& all) {
    ++all.products[{p.m, p.n, p.k, p.lda, p.ldb, p.ldc, p.batch, p.type_in, p.type_out,
                    is_aligned(p)}];
  });
}

void count_rounded_sums() {
  with_record([](Record& all) { ++all.rounded_sums; });
}

void count_copy(const Copy& copy) {
  with_record([&](Record& all) {
    CopySum& sum = all.copies[index_of(copy.direction)];
    const auto bytes = static_cast<std::int64_t>(copy.bytes);
    ++sum.copies;
    sum.bytes += bytes;
    if (copy.behind) ++sum.behind_copies;
    if (!copy.pageable) return;
    ++sum.pageable_copies;
    sum.pageable_bytes += bytes;
  });
}

std::int64_t work_number() {
  std::int64_t number = 0;
  with_record([&](Record& all) { number = all.work_number; });
  return number;
}

void count_wait(Wait wait, std::int64_t upto) {
  with_record([&](Record& all) {
    ++all.waits[index_of(wait)];
    std::erase_if(all.open, [upto](const auto& last) { return last.second <= upto; });
  });
}

bool has_open_work(const void* stream) {
  bool open = false;
  with_record([&](Record& all) { open = all.open.count(stream) > 0; });
  return open;
}

void count_stream_wait() {
  with_record([](Record& all) { ++all.stream_waits; });
}

void count_query() {
  with_record([](Record& all) { ++all.queries; });
}

void count_communicator() {
  with_record([](Record& all) { ++all.communicators; });
}

void note_context(int device) {
  const std::lock_guard lock(record().mutex);
  record().contexts.insert(device);
}

bool has_context(int device) {
  const std::lock_guard lock(record().mutex);
  return record().contexts.count(device) > 0;
}

void count_message(const char* kind, std::size_t bytes) {
  with_record([&](Record& all) {
    MessageSum& sum = all.messages[kind];
    ++sum.messages;
    sum.bytes += static_cast<std::int64_t>(bytes);
  });
}

void count_stub(const char* name) {
  bool first = false;
  with_record([&](Record& all) { first = ++all.stubs[name] == 1; });
  if (first && computes() && !only_manages(name)) {
    fault(std::string(name) + " has no body and is not computed");
  }
}

void fault(const std::string& what) {
  std::fprintf(stderr, "null GPU: %s\n", what.c_str());
  with_record([&](Record& all) {
    ++all.fault_count;
    if (all.faults.size() < kMostFaults) all.faults.push_back(what);
  });
}

void note_device_bytes(std::size_t used) {
  with_record([&](Record& all) { all.device_peak = std::max(all.device_peak, used); });
}

void note_pinned_bytes(std::size_t used) {
  with_record([&](Record& all) { all.pinned_peak = std::max(all.pinned_peak, used); });
}

void write_report() {
  const char* folder = std::getenv("NULL_GPU_REPORT");
  if (folder == nullptr) return;
  const std::lock_guard lock(record().mutex);
  if (!record().used) return;
  const std::string path = std::string(folder) + "/" + std::to_string(::getpid()) + ".json";
  std::FILE* file = std::fopen(path.c_str(), "w");
  if (file == nullptr) {
    std::fprintf(stderr, "null GPU: cannot write the report %s; name a folder in NULL_GPU_REPORT\n",
                 path.c_str());
    return;
  }
  const std::string text = as_json(record());
  std::fwrite(text.data(), 1, text.size(), file);
  std::fclose(file);
}

std::string demangled(const std::string& name) {
  int status = 0;
  char* text = abi::__cxa_demangle(name.c_str(), nullptr, nullptr, &status);
  std::string out = status == 0 ? text : name;
  std::free(text);
  return out;
}

std::uint64_t setting(const char* name, std::uint64_t otherwise) {
  const char* text = std::getenv(name);
  return text == nullptr || *text == '\0' ? otherwise : std::strtoull(text, nullptr, 10);
}

}  // namespace null_gpu
