#include "offload/nvme_store.hpp"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <map>

#include "base/error.hpp"
#include "base/log.hpp"
#include "base/posix/host_name.hpp"
#include "offload/image_size.hpp"
#include "offload/nvme_store_impl.hpp"

namespace sluice {
namespace {

constexpr std::int64_t kLargestBlock = 256 * kMiB;
constexpr int kDeepest = 4096;
constexpr std::size_t kTagsNamed = 4;

void require(bool condition, const std::string& what) {
  if (!condition) throw ConfigError("NVMe store: " + what);
}

void check_options(const NvmeOptions& o) {
  require(!o.paths.empty(), "offload.nvme_path names no directory");
  require(!o.run_id.empty() && o.run_id.find('\n') == std::string::npos, "run id of one line");
  require(o.rank >= 0, "rank is negative");
  require(o.capacity_bytes >= 0, "memory.nvme is negative");
  require(o.block_bytes >= kIoAlignment && o.block_bytes <= kLargestBlock &&
              o.block_bytes % kIoAlignment == 0,
          "block size is not a multiple of 4 KiB from 4 KiB to 256 MiB");
  require(o.checksum_bytes >= kIoAlignment && o.checksum_bytes % kIoAlignment == 0 &&
              o.block_bytes % o.checksum_bytes == 0,
          "checksum_bytes is not a multiple of 4 KiB that divides the block size");
  require(o.queue_depth >= 1 && o.queue_depth <= kDeepest, "queue depth is not from 1 to 4096");
  require(o.stall_timeout_s > 0, "stall timeout is not positive");
}

NvmeOptions with_grain(NvmeOptions options) {
  // If a block is smaller than the default grain, the grain is the block.
  options.checksum_bytes = std::min(options.checksum_bytes, options.block_bytes);
  return options;
}

std::unique_ptr<IoBackend> make_backend(const NvmeOptions& options) {
  if (options.engine != IoEngine::kThreads) {
    try {
      return make_faulty_backend(make_uring_backend(options.queue_depth));
    } catch (const IoError& error) {
      if (options.engine == IoEngine::kUring) throw;
      log_warning(std::string(error.what()) + "; the NVMe tier uses threads with pread and pwrite");
    }
  }
  return make_faulty_backend(make_thread_backend(options.queue_depth));
}

std::string named_tags(const std::vector<std::pair<std::string, std::int64_t>>& tags) {
  std::string text;
  for (std::size_t i = 0; i < std::min(tags.size(), kTagsNamed); ++i) {
    text += (i == 0 ? "" : ", ") + tags[i].first + " " + format_bytes(tags[i].second);
  }
  return text;
}

}  // namespace

void NvmeStore::Impl::check_capacity() const {
  const std::int64_t need = plan.total_bytes();
  if (options.capacity_bytes == 0 || need <= options.capacity_bytes) return;
  throw BudgetError("memory.nvme is " + format_bytes(options.capacity_bytes) + " a rank and " +
                    format_bytes(need) + " are needed, " +
                    format_bytes(need - options.capacity_bytes) + " more (" +
                    named_tags(plan.bytes_by_tag()) +
                    "): raise memory.nvme or put less of it on nvme");
}

void NvmeStore::Impl::lock_directories() {
  std::vector<SwapDirectory*> order;
  for (SwapDirectory& directory : directories) order.push_back(&directory);
  const auto identity = [](const SwapDirectory* d) { return std::pair(d->device(), d->inode()); };
  std::sort(order.begin(), order.end(),
            [&](const auto* a, const auto* b) { return identity(a) < identity(b); });
  for (std::size_t i = 1; i < order.size(); ++i) {
    require(identity(order[i]) != identity(order[i - 1]),
            "offload.nvme_path names " + order[i]->path() + " twice");
  }
  for (SwapDirectory* directory : order) directory->lock();
}

void NvmeStore::Impl::unlock_directories() noexcept {
  for (SwapDirectory& directory : directories) directory.unlock();
}

void NvmeStore::Impl::take_directories(const Leftovers& leftovers) {
  for (const std::string& path : options.paths) directories.emplace_back(path);
  lock_directories();
  for (SwapDirectory& directory : directories) {
    directory.claim(options.run_id, options.rank, leftovers);
  }
}

void NvmeStore::Impl::check_free_space() const {
  std::map<std::uint64_t, std::int64_t> need, promised;  // by device, which paths may share
  for (const SwapDirectory& directory : directories) {
    promised[directory.device()] += directory.promised_bytes();
  }
  for (std::size_t i = 0; i < directories.size(); ++i) {
    std::int64_t& sum = need[directories[i].device()];
    sum += plan.file_bytes(static_cast<int>(i));
    const std::int64_t others = promised[directories[i].device()];
    const std::int64_t free = std::max<std::int64_t>(0, directories[i].free_bytes() - others);
    if (sum <= free) continue;
    throw BudgetError(
        "rank " + std::to_string(options.rank) + " needs " + format_bytes(sum) +
        " on the file system of " + directories[i].path() + " (" + named_tags(plan.bytes_by_tag()) +
        "), " + format_bytes(free) + " are free" +
        (others > 0 ? " beside the " + format_bytes(others) + " of other ranks" : "") + ": " +
        format_bytes(sum - free) +
        " are missing: free them, name other folders in offload.nvme_path, or put "
        "less on nvme");
  }
}

std::uint64_t NvmeStore::Impl::layout_hash() const {
  return options.image ? plan.layout_hash(image_layout) : plan.layout_hash();
}

SwapHeader NvmeStore::Impl::header(std::size_t file) const {
  SwapHeader result{options.image ? image_id : options.run_id, host_name()};
  result.pid = static_cast<std::uint32_t>(::getpid());
  result.rank = static_cast<std::uint32_t>(options.rank);
  result.file = static_cast<std::uint32_t>(file);
  result.files = static_cast<std::uint32_t>(plan.files());
  result.layout_hash = layout_hash();
  result.file_bytes = static_cast<std::uint64_t>(plan.file_bytes(static_cast<int>(file)));
  result.image = options.image && committed;
  return result;
}

SwapFile NvmeStore::Impl::open_file(std::size_t index, SwapFile::Open how) {
  const std::string path = directories[index].swap_path(options.rank);
  if (options.cache == IoCache::kBuffered) return {path, false, how};
  try {
    return {path, true, how};
  } catch (const IoError& error) {
    if (options.cache == IoCache::kDirect || error.error_number() != EINVAL) throw;
    log_warning(std::string(error.what()) +
                "; the store uses the page cache, which no budget counts");
  }
  return {path, false, how};
}

void NvmeStore::Impl::create_files() {
  for (std::size_t i = 0; i < directories.size(); ++i) {
    files.push_back(open_file(i, SwapFile::Open::kCreate));
    buffered = buffered || !files.back().direct();
    files.back().prepare(header(i), plan.file_bytes(static_cast<int>(i)));
    if (options.image) directories[i].flush();
  }
}

void NvmeStore::Impl::start_queue(bool found) {
  IoQueue::Files for_queue;
  for_queue.found = found;
  for (const SwapFile& file : files) {
    for_queue.descriptors.push_back(file.descriptor());
    for_queue.paths.push_back(file.path());
  }
  std::unique_ptr<IoBackend> backend = make_backend(options);
  if (options.wrap_backend) backend = options.wrap_backend(std::move(backend));
  backend_name = backend->name();
  queue =
      std::make_unique<IoQueue>(options, plan, std::move(for_queue), std::move(backend), memory);
}

void NvmeStore::Impl::clean_up() noexcept {
  if (queue) queue->stop();
  const bool stays = options.image && committed;
  for (SwapFile& file : files) {
    if (!stays) file.remove();
  }
  for (SwapDirectory& directory : directories) directory.release();
  files.clear();
  directories.clear();
}

NvmeStore::NvmeStore(NvmeOptions options) {
  options = with_grain(std::move(options));
  check_options(options);
  impl_ = std::make_unique<Impl>(std::move(options));
}

NvmeStore::~NvmeStore() {
  try {
    close();
  } catch (const std::exception& error) {
    log_error("NVMe store: " + error_chain(error));
  }
}

ExtentId NvmeStore::add(std::string tag, std::string name, std::int64_t bytes) {
  check(impl_->state == Impl::State::kDeclaring, "extents are added before open()");
  return {impl_->plan.add(std::move(tag), std::move(name), bytes)};
}

void NvmeStore::register_buffer(void* memory, std::int64_t bytes) {
  check(impl_->state == Impl::State::kDeclaring, "buffers are registered before open()");
  if (bytes > 0) impl_->memory.push_back({memory, bytes});
}

void NvmeStore::open() {
  check(impl_->state == Impl::State::kDeclaring, "a store is opened once");
  impl_->check_capacity();
  try {
    if (impl_->directories.empty()) {
      impl_->take_directories({.spares_images = impl_->options.spares_images});
    } else {
      impl_->remove_found();
    }
    impl_->check_free_space();
    impl_->image_id = impl_->options.run_id;
    impl_->create_files();
    impl_->unlock_directories();
    impl_->start_queue(false);
  } catch (...) {
    impl_->clean_up();
    impl_->state = Impl::State::kClosed;
    throw;
  }
  impl_->state = Impl::State::kOpen;
  impl_->log_open();
}

Ticket NvmeStore::read(ExtentId extent, std::int64_t offset, void* into, std::int64_t bytes) {
  return impl_->request(extent, false, offset, static_cast<std::byte*>(into), bytes);
}

Ticket NvmeStore::write(ExtentId extent, std::int64_t offset, const void* from,
                        std::int64_t bytes) {
  // Requests of both directions share one pointer type. A write does not change the memory.
  auto* memory = const_cast<std::byte*>(static_cast<const std::byte*>(from));
  return impl_->request(extent, true, offset, memory, bytes);
}

void NvmeStore::drain() { impl_->open_queue().drain(); }

void NvmeStore::close() {
  const bool was_open = impl_->state == Impl::State::kOpen;
  impl_->state = Impl::State::kClosed;
  impl_->clean_up();
  if (was_open) impl_->queue->rethrow_error();
}

std::int64_t NvmeStore::size_of(ExtentId extent) const {
  return impl_->plan.extent(extent.index).bytes;
}
std::int64_t NvmeStore::padded_bytes(std::int64_t bytes) { return round_up(bytes, kIoAlignment); }
std::int64_t NvmeStore::grain_bytes() const {
  return impl_->options.checksums ? impl_->options.checksum_bytes : kIoAlignment;
}
std::int64_t NvmeStore::total_bytes() const { return impl_->plan.total_bytes(); }

std::vector<std::pair<std::string, std::int64_t>> NvmeStore::bytes_by_tag() const {
  return impl_->plan.bytes_by_tag();
}
bool NvmeStore::failed() const { return impl_->queue && impl_->queue->failed(); }
NvmeStats NvmeStore::stats() const { return impl_->queue ? impl_->queue->stats() : NvmeStats{}; }

void NvmeStore::Impl::log_open() const {
  log_info("NVMe store of rank " + std::to_string(options.rank) + ": " +
           format_bytes(plan.total_bytes()) + ", " + description());
}

std::string NvmeStore::description() const { return impl_->description(); }

std::string NvmeStore::Impl::description() const {
  const NvmeOptions& o = options;
  return backend_name + (buffered ? ", page cache" : ", O_DIRECT") + ", " +
         std::to_string(o.paths.size()) + (o.paths.size() == 1 ? " path, " : " paths, ") +
         format_bytes(o.block_bytes) + " x " + std::to_string(o.queue_depth) +
         (o.checksums ? "" : ", no checksums");
}

}  // namespace sluice
