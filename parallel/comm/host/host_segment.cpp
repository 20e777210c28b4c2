#include "parallel/comm/host/host_segment.hpp"

#include <fcntl.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <iterator>
#include <new>
#include <sstream>
#include <utility>

#include "base/error.hpp"
#include "base/posix/host_name.hpp"

namespace sluice {
namespace {

constexpr char kSegmentName[] = "sluice-comm";

std::int64_t segment_bytes(int size) {
  return size * (static_cast<std::int64_t>(sizeof(HostSlot)) + kHostBounceBytes);
}

[[noreturn]] void refuse(const std::string& what, const std::string& path) {
  const int error = errno;
  throw IoError("the memory shared by the ranks of this host " + what + ": " +
                    std::strerror(error) + "; SLUICE_COMM=gloo does without it",
                path, error);
}

std::string link_target(const char* path) {
  std::array<char, 256> text{};
  const ssize_t length = readlink(path, text.data(), text.size());
  return {text.data(), length > 0 ? static_cast<std::size_t>(length) : 0U};
}

}  // namespace

HostSegment::HostSegment(Descriptor file, int size)
    : file_(std::move(file)),
      size_(size),
      pages_(MappedPages::shared(file_.get(), segment_bytes(size), /*writable=*/true)) {
  if (!pages_) refuse("cannot be mapped", "memfd");
}

HostSegment HostSegment::create(int size) {
  Descriptor file = make_memfd(kSegmentName, segment_bytes(size));
  if (!file) refuse("cannot be made", "memfd");
  HostSegment made(std::move(file), size);
  for (int r = 0; r < size; ++r) new (&made.slot(r)) HostSlot{};
  return made;
}

HostSegment HostSegment::attach(int process, int fd, int size) {
  Descriptor own = open_memfd_of(process, fd, O_RDWR, kSegmentName, segment_bytes(size));
  if (!own) {
    refuse("cannot be opened", "/proc/" + std::to_string(process) + "/fd/" + std::to_string(fd));
  }
  HostSegment made(std::move(own), size);
  made.close_fd();
  return made;
}

HostSlot& HostSegment::slot(int rank) const {
  return reinterpret_cast<HostSlot*>(pages_.data())[rank];
}

char* HostSegment::bounce(int rank) const {
  return reinterpret_cast<char*>(pages_.data()) +
         static_cast<std::size_t>(size_) * sizeof(HostSlot) + rank * kHostBounceBytes;
}

void futex_sleep(const std::atomic<std::uint32_t>& word, std::uint32_t value,
                 std::chrono::nanoseconds patience) noexcept {
  const timespec limit{.tv_sec = patience.count() / 1'000'000'000,
                       .tv_nsec = patience.count() % 1'000'000'000};
  syscall(SYS_futex, &word, FUTEX_WAIT, value, &limit, nullptr, 0);
}

void futex_wake_all(const std::atomic<std::uint32_t>& word) noexcept {
  syscall(SYS_futex, &word, FUTEX_WAKE, INT32_MAX, nullptr, nullptr, 0);
}

std::uint64_t process_start(int process) {
  std::ifstream file("/proc/" + std::to_string(process) + "/stat");
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  // "<pid> (<name, any characters>) <state> ...": the start time is the 20th field after the name.
  const std::size_t name_end = text.rfind(')');
  if (name_end == std::string::npos) return 0;
  std::istringstream fields(text.substr(name_end + 1));
  std::string field;
  fields >> field;
  if (field == "Z" || field == "X") return 0;
  for (int i = 1; i < 20; ++i) fields >> field;
  return fields ? std::stoull(field) : 0;
}

std::string host_identity() {
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::string boot;
  std::getline(file, boot);
  return host_name() + " " + boot + " " + link_target("/proc/self/ns/pid");
}

}  // namespace sluice
