// A tool as NVTX sees one: the program loads this library by NVTX_INJECTION64_PATH, as it loads
// Nsight Systems. Each call is a line of the file NVTX_TOOL_LOG:
//
//   <thread> push <text> | <thread> pop | <thread> start <range> <text> | <thread> end <range>
//   <thread> name <text>
#include <nvtx3/nvToolsExt.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <mutex>
#include <string>

namespace {

std::mutex mutex;
std::FILE* tool_log = nullptr;
std::deque<std::string> registered;  // never moves its strings, whose addresses are the handles

void say(const std::string& line) {
  const std::lock_guard lock(mutex);
  std::fprintf(tool_log, "%ld %s\n", ::syscall(SYS_gettid), line.c_str());
  std::fflush(tool_log);
}

std::string text_of(const nvtxEventAttributes_t* attributes) {
  if (attributes->messageType == NVTX_MESSAGE_TYPE_REGISTERED) {
    return *reinterpret_cast<const std::string*>(attributes->message.registered);
  }
  return attributes->message.ascii;
}

nvtxDomainHandle_t create_domain(const char* /*name*/) {
  static int domain = 0;
  return reinterpret_cast<nvtxDomainHandle_t>(&domain);
}
nvtxStringHandle_t register_string(nvtxDomainHandle_t /*domain*/, const char* text) {
  const std::lock_guard lock(mutex);
  return reinterpret_cast<nvtxStringHandle_t>(&registered.emplace_back(text));
}
int push(nvtxDomainHandle_t /*domain*/, const nvtxEventAttributes_t* attributes) {
  say("push " + text_of(attributes));
  return 0;
}
int pop(nvtxDomainHandle_t /*domain*/) {
  say("pop");
  return 0;
}
nvtxRangeId_t start(nvtxDomainHandle_t /*domain*/, const nvtxEventAttributes_t* attributes) {
  static std::atomic<nvtxRangeId_t> last{0};
  const nvtxRangeId_t range = ++last;
  say("start " + std::to_string(range) + " " + text_of(attributes));
  return range;
}
void end(nvtxDomainHandle_t /*domain*/, nvtxRangeId_t range) {
  say("end " + std::to_string(range));
}
void name_thread(std::uint32_t /*thread*/, const char* name) { say(std::string("name ") + name); }

template <class Function>
void set(NvtxFunctionTable table, int id, Function* function) {
  *table[id] = reinterpret_cast<NvtxFunctionPointer>(function);
}

}  // namespace

extern "C" __attribute__((visibility("default"))) int InitializeInjectionNvtx2(
    NvtxGetExportTableFunc_t get_table) {
  const char* const path = std::getenv("NVTX_TOOL_LOG");
  tool_log = path == nullptr ? nullptr : std::fopen(path, "a");
  const auto* callbacks =
      static_cast<const NvtxExportTableCallbacks*>(get_table(NVTX_ETID_CALLBACKS));
  NvtxFunctionTable core = nullptr;
  NvtxFunctionTable domains = nullptr;
  unsigned size = 0;
  if (tool_log == nullptr || callbacks == nullptr ||
      callbacks->GetModuleFunctionTable(NVTX_CB_MODULE_CORE, &core, &size) == 0 ||
      callbacks->GetModuleFunctionTable(NVTX_CB_MODULE_CORE2, &domains, &size) == 0) {
    return 0;
  }
  set(core, NVTX_CBID_CORE_NameOsThreadA, &name_thread);
  set(domains, NVTX_CBID_CORE2_DomainCreateA, &create_domain);
  set(domains, NVTX_CBID_CORE2_DomainRegisterStringA, &register_string);
  set(domains, NVTX_CBID_CORE2_DomainRangePushEx, &push);
  set(domains, NVTX_CBID_CORE2_DomainRangePop, &pop);
  set(domains, NVTX_CBID_CORE2_DomainRangeStartEx, &start);
  set(domains, NVTX_CBID_CORE2_DomainRangeEnd, &end);
  return 1;
}
