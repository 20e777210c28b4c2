#include "runtime/data/parquet/parquet_source.hpp"

#include <dlfcn.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <limits>
#include <mutex>
#include <set>
#include <system_error>

#include "base/error.hpp"
#include "base/log.hpp"
#include "base/posix/module_file.hpp"
#include "runtime/data/parquet/parquet_module.hpp"

namespace sluice {
namespace {

const ParquetModule* load_module(const TextFile& file) {
  const std::filesystem::path path =
      module_file("SLUICE_PARQUET_MODULE", "libsluice_parquet.so", SLUICE_MODULE_BUILD_DIR);
  const auto fail = [&](const std::string& why) {
    throw ConfigError(file.key + ": " + file.path + " is a Parquet file, and " + why +
                      "; run ./sluice parquet, which fetches Arrow and builds the reader, or write "
                      "the rows as JSON lines");
  };
  std::error_code error;
  if (!std::filesystem::is_regular_file(path, error)) {
    fail("the reader " + path.string() + " is not there");
  }
  void* module = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (module == nullptr) fail(std::string("the reader cannot be loaded: ") + dlerror());
  const auto function =
      reinterpret_cast<ParquetModuleFunction*>(dlsym(module, kParquetModuleSymbol));
  if (function == nullptr || function()->version != kParquetModuleVersion) {
    fail("the reader " + path.string() + " is of another build than this program");
  }
  return function();
}

// Loaded once, never unloaded.
const ParquetModule& parquet_module(const TextFile& file) {
  static std::mutex mutex;
  static const ParquetModule* module = nullptr;  // guarded by mutex
  const std::lock_guard lock(mutex);
  if (module == nullptr) module = load_module(file);
  return *module;
}

void warn_once(const TextFile& file, const std::string& left_out) {
  static std::mutex mutex;
  static std::set<std::string> warned;  // paths; guarded by mutex
  const std::lock_guard lock(mutex);
  if (left_out.empty() || !warned.insert(file.path).second) return;
  log_warning(file.path + ": left out the columns that JSON cannot hold: " + left_out);
}

class ParquetSource : public ByteSource {
 public:
  ParquetSource(const TextFile& file, const std::vector<std::string>& columns)
      : module_(parquet_module(file)), file_(file) {
    std::vector<const char*> names;
    names.reserve(columns.size());
    for (const std::string& column : columns) names.push_back(column.c_str());
    rows_ = module_.open(file.path.c_str(), names.data(), names.size());
    if (const std::string why = module_.error(rows_); !why.empty()) {
      module_.close(rows_);
      fail(why);
    }
    warn_once(file, module_.left_out(rows_));
  }
  ~ParquetSource() override { module_.close(rows_); }
  ParquetSource(const ParquetSource&) = delete;
  ParquetSource& operator=(const ParquetSource&) = delete;

  std::size_t read(std::span<char> out) override {
    std::size_t done = 0;
    while (done < out.size() && !ended_) {
      if (size_ == 0) refill();
      const std::size_t count = std::min(size_, out.size() - done);
      std::memcpy(out.data() + done, text_, count);
      text_ += count;
      size_ -= count;
      done += count;
    }
    return done;
  }
  [[nodiscard]] std::size_t most_left() const override {
    return std::numeric_limits<std::size_t>::max();
  }
  [[nodiscard]] bool at_end() const override { return ended_; }
  [[nodiscard]] std::int64_t used_bytes() const override {
    return static_cast<std::int64_t>(module_.done(rows_) * static_cast<double>(file_.size_bytes));
  }

 private:
  void refill() {
    module_.next(rows_, &text_, &size_);
    if (const std::string why = module_.error(rows_); !why.empty()) fail(why);
    ended_ = size_ == 0;
  }
  [[noreturn]] void fail(const std::string& why) const {
    throw IoError(file_.key + ": cannot read the Parquet file " + file_.path + ": " + why +
                      "; name another column, or fetch or write the file again",
                  file_.path);
  }

  const ParquetModule& module_;
  const TextFile file_;
  ParquetRows* rows_ = nullptr;
  const char* text_ = nullptr;
  std::size_t size_ = 0;
  bool ended_ = false;
};

}  // namespace

std::unique_ptr<ByteSource> open_parquet(const TextFile& file,
                                         const std::vector<std::string>& columns) {
  return std::make_unique<ParquetSource>(file, columns);
}

}  // namespace sluice
