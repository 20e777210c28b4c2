// Finding, adopting and committing the image of an NvmeStore.
#include <algorithm>
#include <filesystem>
#include <utility>

#include "base/error.hpp"
#include "base/index.hpp"
#include "base/log.hpp"
#include "offload/image_size.hpp"
#include "offload/nvme_store_impl.hpp"

namespace sluice {

namespace {

// Summary of the first blocks of a rank's files.
struct FirstBlocks {
  bool any = false;        // at least one file exists
  std::string missing;     // path of a file that does not exist
  std::string damaged;     // path of a file that has lost its header or never had one
  bool committed = false;  // at least one header says that a step was committed
};

FirstBlocks read_first_blocks(const std::vector<SwapDirectory>& directories, int rank) {
  FirstBlocks found;
  for (const SwapDirectory& directory : directories) {
    const std::string path = directory.swap_path(rank);
    if (!std::filesystem::exists(path)) {
      found.missing = path;
      continue;
    }
    found.any = true;
    std::optional<SwapHeader> header;
    const SwapKind kind = inspect_swap_file(path, &header);
    if (kind == SwapKind::kDamaged || kind == SwapKind::kForeign) found.damaged = path;
    found.committed = found.committed || (header && header->image);
  }
  return found;
}

}  // namespace

std::string run_of(const std::string& id) { return id.substr(0, id.rfind(" of ")); }

FoundImage NvmeStore::Impl::look_for_image() {
  FoundImage found;
  const FirstBlocks blocks = read_first_blocks(directories, options.rank);
  if (!blocks.any) return found;
  try {
    if (!blocks.missing.empty()) throw IoError(blocks.missing + " is missing", blocks.missing);
    committed = true;  // keeps the files until their contents are known
    for (std::size_t i = 0; i < directories.size(); ++i) {
      files.push_back(open_file(i, SwapFile::Open::kFound));
      buffered = buffered || !files.back().direct();
    }
    if (!blocks.damaged.empty()) {
      found.begun = has_blank_records();
      if (found.begun) return found;
      throw IoError(blocks.damaged + " does not begin with a whole header", blocks.damaged);
    }
    found.id = files.front().read_header().run_id;
    check_found_files();
    start_queue(true);
    read_records();
    found.begun = versions.empty();
    for (const DecodedImage& version : versions) {
      found.versions.push_back({.step = version.image.step,
                                .place = static_cast<int>(version.image.place),
                                .state = version.image.state,
                                .commits = version.image.sequence});
    }
    return found;
  } catch (const std::exception& error) {
    // No header is damaged or says "committed": the former run was killed while it created the
    // files, or it kept no image.
    found.begun = !blocks.committed && blocks.damaged.empty();
    if (!found.begun) found.problem = error_chain(error);
  }
  queue.reset();
  files.clear();
  return found;
}

// True if the files have this layout's sizes and both records are blank, so nothing was committed.
// A missing header then means that the power was lost before the header reached the disk. It does
// not mean that the header was damaged later.
bool NvmeStore::Impl::has_blank_records() {
  for (std::size_t i = 0; i < files.size(); ++i) {
    if (files[i].bytes() != plan.file_bytes(static_cast<int>(i))) return false;
  }
  start_queue(true);
  return std::all_of(records.begin(), records.end(), [this](ExtentId extent) {
    request(extent, false, 0, record.data(), record_bytes).wait();
    return std::all_of(record.data(), record.data() + record_bytes,
                       [](std::byte b) { return b == std::byte{0}; });
  });
}

void NvmeStore::Impl::check_found_files() const {
  for (std::size_t i = 0; i < files.size(); ++i) {
    const SwapFile& file = files[i];
    const SwapHeader found = file.read_header();
    const auto refuse = [&](const std::string& why) {
      throw IoError(file.path() + " " + why, file.path());
    };
    if (i > 0 && found.run_id != files.front().read_header().run_id) {
      refuse("is of another run than " + files.front().path());
    }
    if (static_cast<int>(found.rank) != options.rank || found.file != i ||
        found.files != files.size() || found.layout_hash != layout_hash()) {
      refuse("has another layout: it is of another model, mesh, zero.stage or offload section");
    }
    if (file.bytes() != plan.file_bytes(static_cast<int>(i))) {
      refuse("is of " + std::to_string(file.bytes()) + " bytes and should have " +
             std::to_string(plan.file_bytes(static_cast<int>(i))));
    }
  }
}

void NvmeStore::Impl::read_records() {
  image_id = files.front().read_header().run_id;
  std::size_t expected = 0;
  for (const ImagePair& pair : places) {
    const std::int64_t bytes = plan.extent(pair[0].index).bytes;
    expected +=
        static_cast<std::size_t>(round_up(bytes, options.checksum_bytes) / options.checksum_bytes);
  }
  std::string trouble;
  bool blank = false;  // a record was never written, so a damaged other record is the first commit
  for (const ExtentId extent : records) {
    request(extent, false, 0, record.data(), record_bytes).wait();
    std::string why;
    std::optional<DecodedImage> decoded =
        decode_image_record({record.data(), static_cast<std::size_t>(record_bytes)}, why);
    if (!why.empty()) trouble = why;
    blank = blank || (!decoded && why.empty());
    if (!decoded) continue;
    const ImageRecord& image = decoded->image;
    const std::size_t sums = decoded->checksums.size();
    if (image.id != image_id || static_cast<int>(image.rank) != options.rank ||
        image.layout_hash != layout_hash() || (sums != 0 && sums != expected) ||
        record_extent(image.sequence).index != extent.index) {
      trouble = "a record is of another image";
      continue;
    }
    versions.push_back(std::move(*decoded));
  }
  if (versions.empty() && !blank) {
    throw IoError(files.front().path() + ": " + trouble, files.front().path());
  }
  std::sort(versions.begin(), versions.end(), [](const DecodedImage& a, const DecodedImage& b) {
    return a.image.sequence > b.image.sequence;
  });
}

void NvmeStore::Impl::take_version(const DecodedImage& version) {
  next_sequence = version.image.sequence + 1;
  // A newer version must go: its record would still be whole while the run overwrites its places.
  void_record(static_cast<int>(next_sequence % 2));
  if (!options.checksums || version.checksums.empty()) return;
  auto from = version.checksums.begin();
  for (const ImagePair& pair : places) {
    const auto to = queue->checksums().of_extent(pair[version.image.place].index);
    std::copy_n(from, to.size(), to.begin());
    from += std::ssize(to);
  }
}

void NvmeStore::Impl::void_record(int index) {
  std::fill_n(record.data(), kIoAlignment, std::byte{0});
  request(nth(records, index), true, 0, record.data(), kIoAlignment).wait();
  queue->enqueue_flush().wait();
}

// Removes the found files, so that new ones can be created. Leaves the directories locked.
void NvmeStore::Impl::remove_found() {
  queue.reset();
  files.clear();
  versions.clear();
  buffered = committed = false;
  lock_directories();
  for (const SwapDirectory& directory : directories) directory.remove_leftovers(options.run_id);
}

void NvmeStore::add_image(std::vector<ImagePair> places, const std::string& layout) {
  Impl& impl = *impl_;
  check(impl.state == Impl::State::kDeclaring && impl.options.image && impl.record_bytes == 0,
        "an image is declared once, before open()");
  const std::int64_t grain = impl.options.checksum_bytes;
  std::int64_t grains = 0;
  for (const ImagePair& pair : places) {
    check(size_of(pair[0]) == size_of(pair[1]), "both places of an image are of one size");
    grains += round_up(size_of(pair[0]), grain) / grain;
  }
  impl.places = std::move(places);
  impl.image_layout = layout;
  impl.record_bytes = image_record_bytes(grains);
  for (std::size_t r = 0; r < impl.records.size(); ++r) {
    impl.records[r] = add("image", "image." + std::to_string(r), impl.record_bytes);
  }
  HostPool pool;
  impl.record = pool.allocate("image", impl.record_bytes);
  register_buffer(impl.record.data(), impl.record_bytes);
}

FoundImage NvmeStore::find_image() {
  Impl& impl = *impl_;
  check(impl.state == Impl::State::kDeclaring && impl.record_bytes > 0 && impl.directories.empty(),
        "an image is looked for once, before open()");
  impl.check_capacity();
  try {
    impl.take_directories({.kept_ranks = Leftovers::kAll});
    FoundImage found = impl.look_for_image();
    impl.unlock_directories();
    return found;
  } catch (...) {
    impl.clean_up();
    impl.state = Impl::State::kClosed;
    throw;
  }
}

void NvmeStore::remove_found_image() {
  impl_->remove_found();
  impl_->unlock_directories();
}

void NvmeStore::adopt(std::size_t version) {
  Impl& impl = *impl_;
  check(impl.state == Impl::State::kDeclaring && version < impl.versions.size(),
        "an image that was found is adopted");
  impl.lock_directories();
  for (const SwapDirectory& directory : impl.directories) {
    directory.remove_leftovers(impl.options.run_id, {.kept_ranks = impl.options.ranks});
  }
  impl.unlock_directories();
  impl.take_version(impl.versions[version]);
  impl.versions.clear();
  impl.state = Impl::State::kOpen;
  impl.log_open();
}

// Marks the headers before the first record is written.
void NvmeStore::Impl::mark_committed() {
  if (std::exchange(committed, true)) return;
  for (std::size_t i = 0; i < files.size(); ++i) files[i].write_header(header(i));
}

Ticket NvmeStore::commit_image(std::int64_t step, int place, std::string state) {
  Impl& impl = *impl_;
  check(impl.state == Impl::State::kOpen && impl.record_bytes > 0 && (place == 0 || place == 1),
        "the image of an open store is committed");
  check(std::ssize(state) <= kImageStateBytes, "the image's text is at most kImageStateBytes");
  ImageRecord image{.id = impl.image_id,
                    .rank = static_cast<std::uint32_t>(impl.options.rank),
                    .layout_hash = impl.layout_hash(),
                    .sequence = impl.next_sequence++,
                    .step = step,
                    .place = static_cast<std::uint32_t>(place),
                    .state = std::move(state)};
  impl.mark_committed();
  const auto fill = [&impl, image = std::move(image)](const Checksums& checksums) {
    std::vector<std::span<const std::uint64_t>> parts;
    for (const ImagePair& pair : impl.places) {
      if (impl.options.checksums) parts.push_back(checksums.of_extent(pair[image.place].index));
    }
    return encode_image_record(image, parts,
                               {impl.record.data(), static_cast<std::size_t>(impl.record_bytes)});
  };
  return impl.open_queue().enqueue_record(
      {impl.record_extent(impl.next_sequence - 1).index, impl.record.data(), fill});
}

void NvmeStore::withdraw_image() {
  if (!impl_->committed) return;
  for (int r = 0; r < 2; ++r) impl_->void_record(r);
  impl_->committed = false;
}

void NvmeStore::end_image() { impl_->committed = false; }

}  // namespace sluice
