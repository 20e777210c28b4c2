// One file of the NVMe tier: its header, its space, its removal. docs/formats/swap_file.md.
// Every call into the kernel passes a failpoint: nvme.open, nvme.open.direct (error: no O_DIRECT),
// nvme.fallocate (error: ENOSPC), nvme.header.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

namespace sluice {

inline constexpr std::uint32_t kSwapFormat = 1;
inline constexpr std::int64_t kSwapHeaderBytes = 4096;

struct SwapHeader {
  std::string run_id;
  std::string host;
  std::uint32_t pid = 0, rank = 0;
  std::uint32_t file = 0, files = 1;  // which of the rank's files
  std::uint64_t layout_hash = 0;
  std::uint64_t data_version = 0;  // 0: nothing was committed
  std::uint64_t file_bytes = 0;
  bool image = false;  // a step was committed: a run may go on from it
};

// kSwapHeaderBytes at `block`. Texts are cut to their fields (127 and 63 bytes).
void encode_header(const SwapHeader& header, std::byte* block);
// nullopt where the block is not a whole header of this format.
[[nodiscard]] std::optional<SwapHeader> decode_header(const std::byte* block);

enum class SwapKind {
  kOurs,       // begins with a whole header
  kUnwritten,  // is empty, or begins with zeros and has nothing behind them: a run died, or the
               // power went, before its header was written
  kDamaged,    // had a header: begins with the magic, or with zeros and has something behind them
  kForeign,    // anything else
};
// What lies at `path`; `header` is set where it decodes. Throws IoError when it cannot be read.
[[nodiscard]] SwapKind inspect_swap_file(const std::string& path,
                                         std::optional<SwapHeader>* header);

class SwapFile {
 public:
  enum class Open { kCreate, kFound };
  // Creates the file, which must not exist, or opens one that a former run left. Throws IoError;
  // for a file system without O_DIRECT (`direct`), with error_number EINVAL.
  SwapFile(std::string path, bool direct, Open how = Open::kCreate);
  ~SwapFile();  // closes; the file stays
  SwapFile(SwapFile&& other) noexcept;
  SwapFile& operator=(SwapFile&&) = delete;

  // Writes the header, then reserves `bytes` in all. Where the file system cannot reserve, the file
  // is only sized and the log says so.
  void prepare(const SwapHeader& header, std::int64_t bytes);
  void write_header(const SwapHeader& header);
  // Of a file that was found. Throws IoError where there is no whole one.
  [[nodiscard]] SwapHeader read_header() const;
  [[nodiscard]] std::int64_t bytes() const;
  void remove() noexcept;

  [[nodiscard]] int descriptor() const { return descriptor_; }
  [[nodiscard]] const std::string& path() const { return path_; }
  [[nodiscard]] bool direct() const { return direct_; }

 private:
  std::string path_;
  bool direct_ = false;
  int descriptor_ = -1;
};

}  // namespace sluice
