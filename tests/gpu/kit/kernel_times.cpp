// Writes down the kernels, copies and fills of a process, by CUPTI. The CUDA driver loads this
// library for CUDA_INJECTION64_PATH; LD_PRELOAD is needed too, since a program may end by _exit().
//
// A line of the file KERNEL_TIMES.PID: begin and duration (ns), stream, bytes (0 of a kernel), and
// `copy ...`, `fill` or the kernel's mangled name. make_kit.py compiles it where there is a
// cupti.h.
#include <cupti.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>

namespace {

std::FILE* file = nullptr;

struct Record {
  std::uint64_t begin = 0, end = 0;
  std::uint32_t stream = 0;
  std::uint64_t bytes = 0;
  const char* name = "";
};

void write(const Record& record) {
  std::fprintf(file, "%llu %llu %u %llu %s\n", static_cast<unsigned long long>(record.begin),
               static_cast<unsigned long long>(record.end - record.begin), record.stream,
               static_cast<unsigned long long>(record.bytes), record.name);
}

const char* name_of_copy(std::uint8_t kind) {
  if (kind == CUPTI_ACTIVITY_MEMCPY_KIND_HTOD) return "copy to the device";
  if (kind == CUPTI_ACTIVITY_MEMCPY_KIND_DTOH) return "copy to the host";
  return "copy on the device";
}

void write(const CUpti_Activity* activity) {
  if (activity->kind == CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL) {
    const auto* of = reinterpret_cast<const CUpti_ActivityKernel10*>(activity);
    write({of->start, of->end, of->streamId, 0, of->name});
  } else if (activity->kind == CUPTI_ACTIVITY_KIND_MEMCPY) {
    const auto* of = reinterpret_cast<const CUpti_ActivityMemcpy6*>(activity);
    write({of->start, of->end, of->streamId, of->bytes, name_of_copy(of->copyKind)});
  } else if (activity->kind == CUPTI_ACTIVITY_KIND_MEMSET) {
    const auto* of = reinterpret_cast<const CUpti_ActivityMemset4*>(activity);
    write({of->start, of->end, of->streamId, of->bytes, "fill"});
  }
}

void buffer_requested(std::uint8_t** buffer, std::size_t* size, std::size_t* records) {
  constexpr std::size_t kBytes = std::size_t{8} << 20U, kAlignment = 16;
  *buffer = static_cast<std::uint8_t*>(std::aligned_alloc(kAlignment, kBytes));
  *size = *buffer == nullptr ? 0 : kBytes;
  *records = 0;  // as many as fit
}

void buffer_completed(CUcontext, std::uint32_t, std::uint8_t* buffer, std::size_t, std::size_t n) {
  CUpti_Activity* activity = nullptr;
  while (cuptiActivityGetNextRecord(buffer, n, &activity) == CUPTI_SUCCESS) write(activity);
  std::free(buffer);
}

void finish() {
  if (file == nullptr) return;
  cuptiActivityFlushAll(CUPTI_ACTIVITY_FLAG_FLUSH_FORCED);
  std::fclose(file);
  file = nullptr;
}

}  // namespace

// Called by the driver in each process that uses a GPU.
extern "C" __attribute__((visibility("default"))) int InitializeInjection() {
  const char* path = std::getenv("KERNEL_TIMES");
  if (path == nullptr) return 1;
  file = std::fopen((path + ("." + std::to_string(getpid()))).c_str(), "w");
  if (file == nullptr) return 1;
  cuptiActivityRegisterCallbacks(buffer_requested, buffer_completed);
  constexpr std::array kKinds = {CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL, CUPTI_ACTIVITY_KIND_MEMCPY,
                                 CUPTI_ACTIVITY_KIND_MEMSET};
  for (const CUpti_ActivityKind kind : kKinds) {
    if (cuptiActivityEnable(kind) == CUPTI_SUCCESS) continue;
    std::fprintf(stderr, "kernel_times: CUPTI does not record kind %d\n", static_cast<int>(kind));
  }
  std::atexit(finish);
  return 1;
}

extern "C" __attribute__((visibility("default"))) void _exit(int code) {
  finish();
  for (;;) syscall(SYS_exit_group, code);
}
