#include "runtime/data/byte_source.hpp"

#include <fcntl.h>
#include <unistd.h>
#include <zlib.h>
#include <zstd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <limits>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "base/posix/descriptor.hpp"
#include "base/posix/io_error.hpp"
#include "runtime/data/parquet/parquet_source.hpp"

namespace sluice {
namespace {

using namespace std::string_view_literals;

class FileSource : public ByteSource {
 public:
  FileSource(const TextFile& file, std::int64_t from)
      : file_(open_descriptor(file.path, O_RDONLY)),
        path_(file.path),
        size_(file.size_bytes),
        used_bytes_(from) {
    if (!file_) throw_io_error("read", path_, errno);
  }

  std::size_t read(std::span<char> out) override {
    const std::size_t wanted = std::min(out.size(), most_left());
    std::size_t done = 0;
    while (done < wanted) {
      const ssize_t count = ::pread(file_.get(), out.data() + done, wanted - done, used_bytes_);
      if (count < 0 && errno == EINTR) continue;
      if (count < 0) throw_io_error("read", path_, errno);
      if (count == 0) {
        throw IoError(path_ + " became shorter while it was read; leave the text alone meanwhile",
                      path_);
      }
      done += static_cast<std::size_t>(count);
      used_bytes_ += count;
    }
    return done;
  }
  [[nodiscard]] std::size_t most_left() const override {
    return static_cast<std::size_t>(size_ - used_bytes_);
  }
  [[nodiscard]] bool at_end() const override { return used_bytes_ == size_; }
  [[nodiscard]] std::int64_t used_bytes() const override { return used_bytes_; }

 private:
  Descriptor file_;
  std::string path_;
  std::int64_t size_;
  std::int64_t used_bytes_;
};

// One or more gzip members, each after the other, as gzip itself unpacks them. Zeros behind the
// last member are padding.
class GzipSource : public ByteSource {
 public:
  GzipSource(std::unique_ptr<FileSource> file, const TextFile& named)
      : file_(std::move(file)), path_(named.path), key_(named.key), packed_(kPackedBytes) {
    constexpr int kGzipWindow = 15 + 16;  // zlib: the largest window, gzip's header
    if (inflateInit2(&zlib_, kGzipWindow) != Z_OK) throw Error("zlib cannot start: out of memory");
  }
  ~GzipSource() override { inflateEnd(&zlib_); }
  GzipSource(const GzipSource&) = delete;
  GzipSource& operator=(const GzipSource&) = delete;

  std::size_t read(std::span<char> out) override {
    std::size_t done = 0;
    while (done < out.size() && !ended_) {
      if (zlib_.avail_in == 0) refill();
      const auto room = std::min<std::size_t>(out.size() - done, kMostAtOnce);
      zlib_.next_out = reinterpret_cast<Bytef*>(out.data() + done);
      zlib_.avail_out = static_cast<uInt>(room);
      const int result = inflate(&zlib_, Z_NO_FLUSH);
      done += room - zlib_.avail_out;
      if (result == Z_STREAM_END) {
        next_member();
      } else if (result != Z_OK && result != Z_BUF_ERROR) {
        fail(zlib_.msg != nullptr ? zlib_.msg : "inflate fails");
      }
    }
    return done;
  }
  [[nodiscard]] std::size_t most_left() const override {
    return std::numeric_limits<std::size_t>::max();
  }
  [[nodiscard]] bool at_end() const override { return ended_; }
  [[nodiscard]] std::int64_t used_bytes() const override {
    return file_->used_bytes() - static_cast<std::int64_t>(zlib_.avail_in);
  }

 private:
  static constexpr std::size_t kPackedBytes = 256U << 10U;
  static constexpr std::size_t kMostAtOnce = 1U << 30U;  // zlib counts in 32 bits

  [[noreturn]] void fail(const std::string& why) const {
    throw IoError(key_ + ": " + path_ + " is a damaged gzip file: " + why + ", at byte " +
                      std::to_string(used_bytes()) + "; unpack or fetch it again",
                  path_);
  }
  void refill() {
    if (file_->at_end()) fail("it ends in the middle of its data");
    zlib_.next_in = reinterpret_cast<Bytef*>(packed_.data());
    zlib_.avail_in = static_cast<uInt>(file_->read(packed_));
  }
  void next_member() {
    for (;;) {
      if (zlib_.avail_in == 0 && file_->at_end()) {
        ended_ = true;
        return;
      }
      if (zlib_.avail_in == 0) refill();
      if (*zlib_.next_in != 0) break;
      ++zlib_.next_in;
      --zlib_.avail_in;
    }
    if (inflateReset(&zlib_) != Z_OK) fail("the next member cannot be read");
  }

  std::unique_ptr<FileSource> file_;
  std::string path_, key_;
  std::vector<char> packed_;
  z_stream zlib_{};
  bool ended_ = false;
};

// One or more zstd frames, each after the other. Skippable frames hold no text.
class ZstdSource : public ByteSource {
 public:
  ZstdSource(std::unique_ptr<FileSource> file, const TextFile& named)
      : file_(std::move(file)),
        path_(named.path),
        key_(named.key),
        packed_(ZSTD_DStreamInSize()),
        zstd_(ZSTD_createDCtx()) {
    if (!zstd_) throw Error("zstd cannot start: out of memory");
    ZSTD_DCtx_setParameter(zstd_.get(), ZSTD_d_windowLogMax, kLargestWindowLog);
  }

  std::size_t read(std::span<char> out) override {
    ZSTD_outBuffer to{out.data(), out.size(), 0};
    while (to.pos < to.size && !ended_) {
      if (from_.pos == from_.size && !file_->at_end()) {
        from_ = {packed_.data(), file_->read(packed_), 0};
      }
      const std::size_t before = to.pos;
      const bool starved = from_.pos == from_.size;
      const std::size_t result = ZSTD_decompressStream(zstd_.get(), &to, &from_);
      if (ZSTD_isError(result) != 0U) fail(ZSTD_getErrorName(result));
      if (result == 0) {
        ended_ = from_.pos == from_.size && file_->at_end();
      } else if (starved && to.pos == before) {
        fail("it ends in the middle of its data");
      }
    }
    return to.pos;
  }
  [[nodiscard]] std::size_t most_left() const override {
    return std::numeric_limits<std::size_t>::max();
  }
  [[nodiscard]] bool at_end() const override { return ended_; }
  [[nodiscard]] std::int64_t used_bytes() const override {
    return file_->used_bytes() - static_cast<std::int64_t>(from_.size - from_.pos);
  }

 private:
  static constexpr int kLargestWindowLog = 27;  // 128 MiB: what `zstd -d` accepts unasked

  struct Free {
    void operator()(ZSTD_DCtx* context) const { ZSTD_freeDCtx(context); }
  };
  [[noreturn]] void fail(const std::string& why) const {
    throw IoError(key_ + ": " + path_ + " is a damaged zstd file: " + why + ", at byte " +
                      std::to_string(used_bytes()) + "; unpack or fetch it again",
                  path_);
  }

  std::unique_ptr<FileSource> file_;
  std::string path_, key_;
  std::vector<char> packed_;
  std::unique_ptr<ZSTD_DCtx, Free> zstd_;
  ZSTD_inBuffer from_{nullptr, 0, 0};
  bool ended_ = false;
};

struct Kind {
  std::string_view magic;
  std::string_view name;  // and what to do
};

constexpr std::array kKinds{
    Kind{"PAR1"sv, "a Parquet file; give it a name that ends in .parquet, unpacked"sv},
    Kind{"ARROW1"sv,
         "an Arrow file; write its text as JSON lines, e.g. with pandas: "
         "read_feather(FILE).to_json(\"text.jsonl\", orient=\"records\", lines=True)"sv},
    Kind{"\x28\xB5\x2F\xFD"sv, "packed twice, by zstd inside; unpack it once"sv},
    Kind{"\xFD\x37zXZ\0"sv, "packed by xz; unpack it (xz -dk) or pack it by gzip"sv},
    Kind{"BZh"sv, "packed by bzip2; unpack it (bzip2 -dk) or pack it by gzip"sv},
    Kind{"\x04\x22\x4D\x18"sv, "packed by lz4; unpack it (lz4 -d) or pack it by gzip"sv},
    Kind{"PK\x03\x04"sv, "a zip archive; unpack it"sv},
    Kind{"7z\xBC\xAF\x27\x1C"sv, "a 7z archive; unpack it"sv},
    Kind{"%PDF-"sv, "a PDF; take the text out of it (pdftotext)"sv},
    Kind{"MMIDIDX\0"sv, "a Megatron index; give its prefix as data.train"sv},
    Kind{"SQLite format 3\0"sv, "an SQLite database; export the text"sv},
    Kind{"\xFF\xFE"sv, "UTF-16; convert it (iconv -f UTF-16 -t UTF-8)"sv},
    Kind{"\xFE\xFF"sv, "UTF-16; convert it (iconv -f UTF-16 -t UTF-8)"sv},
};

// "BZh" alone may begin a text: bzip2 goes on with the size and the digits of pi.
bool is_bzip2(std::string_view beginning) {
  return beginning.size() >= 10 && beginning.substr(4, 6) == "1AY&SY";
}

// Eight bytes of length, then a JSON object.
bool is_safetensors(std::string_view beginning) {
  return beginning.size() >= 10 && beginning.substr(5, 3) == "\0\0\0"sv &&
         beginning.substr(8, 2) == "{\""sv;
}

bool is_gzip(std::string_view beginning) { return beginning.starts_with("\x1F\x8B"sv); }
bool is_zstd(std::string_view beginning) { return beginning.starts_with("\x28\xB5\x2F\xFD"sv); }

}  // namespace

Packing packing_of(const TextFile& file) {
  if (file.format == TextFormat::kParquet) return Packing::kParquet;
  FileSource source(file, 0);
  std::array<char, 4> beginning{};
  const std::string_view read{beginning.data(), source.read(beginning)};
  return is_gzip(read) ? Packing::kGzip : is_zstd(read) ? Packing::kZstd : Packing::kNone;
}

std::unique_ptr<ByteSource> open_bytes(const TextFile& file,
                                       const std::vector<std::string>& columns) {
  const Packing packing = packing_of(file);
  if (packing == Packing::kParquet) return open_parquet(file, columns);
  auto source = std::make_unique<FileSource>(file, 0);
  if (packing == Packing::kGzip) {
    return std::make_unique<GzipSource>(std::move(source), file);
  }
  if (packing == Packing::kZstd) {
    return std::make_unique<ZstdSource>(std::move(source), file);
  }
  return source;
}

std::unique_ptr<ByteSource> open_plain_bytes(const TextFile& file, std::int64_t from) {
  return std::make_unique<FileSource>(file, from);
}

std::string kind_of_magic(std::string_view beginning) {
  for (const Kind& kind : kKinds) {
    if (!beginning.starts_with(kind.magic)) continue;
    if (kind.magic == "BZh"sv && !is_bzip2(beginning)) continue;
    return std::string(kind.name);
  }
  if (is_gzip(beginning)) return "packed by gzip twice; unpack it once";
  if (is_safetensors(beginning)) return "a safetensors file: weights, not text";
  if (beginning.size() > 262 && beginning.substr(257, 5) == "ustar") {
    return "a tar archive; unpack it";
  }
  return "";
}

std::string binary_kind(std::string_view beginning) {
  std::string kind = kind_of_magic(beginning);
  if (!kind.empty()) return kind;
  const std::size_t zero = beginning.find('\0');
  if (zero == std::string_view::npos) return "";
  return "binary: byte " + std::to_string(zero) + " is zero";
}

std::string kind_without_text(const TextFile& file, std::string_view beginning) {
  std::string kind = binary_kind(beginning);
  if (!kind.empty()) return kind;
  const auto by_python = [](const std::string& modules, const std::string& rows) {
    return "; write it as JSON lines: python3 -c 'import json, sys" + modules +
           "; [print(json.dumps(r)) for r in " + rows + "]' < FILE > FILE.jsonl";
  };
  if (file.format == TextFormat::kTable) {
    const bool tabs = file.path.find(".tsv") != std::string::npos;
    return "a table" + by_python(", csv", tabs ? "csv.DictReader(sys.stdin, dialect=\"excel-tab\")"
                                               : "csv.DictReader(sys.stdin)");
  }
  if (file.format != TextFormat::kJson) return "";
  if (beginning.starts_with("\xEF\xBB\xBF")) beginning.remove_prefix(3);
  const std::size_t first = beginning.find_first_not_of(" \t\r\n");
  if (first == std::string_view::npos || beginning[first] != '[') return "";
  return "a JSON list" + by_python("", "json.load(sys.stdin)");
}

}  // namespace sluice
