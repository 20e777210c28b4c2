#include "runtime/observe/nvtx.hpp"

#include <nvtx3/nvToolsExt.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <map>
#include <mutex>

namespace sluice {

bool nvtx_built() { return true; }

struct NvtxRanges::Impl {
  nvtxDomainHandle_t domain = nvtxDomainCreateA("sluice");
  std::mutex mutex;
  std::map<std::string, nvtxStringHandle_t> registered;  // guarded by mutex

  nvtxStringHandle_t handle_of(const std::string& text) {
    const std::lock_guard lock(mutex);
    const auto [at, is_new] = registered.try_emplace(text, nullptr);
    if (is_new) at->second = nvtxDomainRegisterStringA(domain, text.c_str());
    return at->second;
  }

  nvtxEventAttributes_t attributes_of(const std::string& text) {
    nvtxEventAttributes_t attributes{};
    attributes.version = NVTX_VERSION;
    attributes.size = NVTX_EVENT_ATTRIB_STRUCT_SIZE;
    attributes.messageType = NVTX_MESSAGE_TYPE_REGISTERED;
    attributes.message.registered = handle_of(text);
    return attributes;
  }
};

NvtxRanges::NvtxRanges() : impl_(std::make_unique<Impl>()) {}
NvtxRanges::~NvtxRanges() { nvtxDomainDestroy(impl_->domain); }

void NvtxRanges::push(const std::string& text) {
  const nvtxEventAttributes_t attributes = impl_->attributes_of(text);
  nvtxDomainRangePushEx(impl_->domain, &attributes);
}

void NvtxRanges::push_once(const std::string& text) {
  nvtxEventAttributes_t attributes{};
  attributes.version = NVTX_VERSION;
  attributes.size = NVTX_EVENT_ATTRIB_STRUCT_SIZE;
  attributes.messageType = NVTX_MESSAGE_TYPE_ASCII;
  attributes.message.ascii = text.c_str();
  nvtxDomainRangePushEx(impl_->domain, &attributes);
}

void NvtxRanges::pop() { nvtxDomainRangePop(impl_->domain); }

std::uint64_t NvtxRanges::start(const std::string& text) {
  const nvtxEventAttributes_t attributes = impl_->attributes_of(text);
  return nvtxDomainRangeStartEx(impl_->domain, &attributes);
}

void NvtxRanges::end(std::uint64_t range) { nvtxDomainRangeEnd(impl_->domain, range); }

void NvtxRanges::name_thread(const std::string& name) {
  nvtxNameOsThreadA(static_cast<std::uint32_t>(::syscall(SYS_gettid)), name.c_str());
}

}  // namespace sluice
