#include "runtime/checkpoint/hf/hf_export.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <exception>
#include <map>

#include "base/error.hpp"
#include "base/format.hpp"
#include "base/log.hpp"
#include "kernels/cpu/cast.hpp"
#include "runtime/checkpoint/hf/hf_config.hpp"
#include "runtime/checkpoint/hf/hf_weights.hpp"
#include "runtime/checkpoint/io/file_system.hpp"

namespace sluice {
namespace {

constexpr std::int64_t kPieceElems = std::int64_t{1} << 20;
constexpr std::int64_t kMostCompanionBytes = std::int64_t{512} << 20;

struct Export {
  HfPlacement placement;
  const ParamSpec* param = nullptr;
};

std::int64_t elems_of(const Export& tensor) {
  std::int64_t count = 1;
  for (const std::int64_t dim : tensor.placement.shape) count *= dim;
  return count;
}

std::vector<Export> exports_of(const ModelSpec& spec) {
  const std::vector<HfPlacement> placements = hf_placements(spec);
  std::vector<Export> exports;
  for (const ParamGroup& group : spec.groups) {
    for (const ParamSpec& param : group.params) {
      exports.push_back({placements[exports.size()], &param});
    }
  }
  return exports;
}

// Cuts the tensors into runs of consecutive tensors, one run per file.
std::vector<std::vector<Export>> cut_shards(std::vector<Export> exports, std::int64_t elem_bytes,
                                            std::int64_t shard_bytes) {
  std::vector<std::vector<Export>> shards;
  std::int64_t filled = 0;
  for (Export& tensor : exports) {
    const std::int64_t bytes = elems_of(tensor) * elem_bytes;
    if (shards.empty() || filled + bytes > shard_bytes) {
      shards.emplace_back();
      filled = 0;
    }
    filled += bytes;
    shards.back().push_back(std::move(tensor));
  }
  return shards;
}

std::string shard_name(std::size_t index, std::size_t count) {
  if (count == 1) return "model.safetensors";
  std::array<char, 64> name{};
  std::snprintf(name.data(), name.size(), "model-%05zu-of-%05zu.safetensors", index + 1, count);
  return name.data();
}

// The smallest value that rounds to infinity: half a step above the largest finite number.
float overflow_of(DType dtype) {
  return dtype == DType::kFloat16 ? 65520.0F : dtype == DType::kBFloat16 ? 0x1.FFp127F : INFINITY;
}

// Converts values to the file's dtype and writes them piece by piece.
class TensorSink {
 public:
  TensorSink(SafetensorsWriter& writer, std::size_t tensor, DType dtype)
      : writer_(writer), tensor_(tensor), dtype_(dtype), overflow_(overflow_of(dtype)) {}
  void write(std::span<const float> values) {
    for (const float value : values) {
      if (std::abs(value) < overflow_ || !std::isfinite(value)) continue;
      throw ConfigError(format_text("{} holds {:f}, more than {} can: export with another --dtype",
                                    writer_.layout().tensors[tensor_].name, value,
                                    torch_name(dtype_)));
    }
    narrow_.resize(values.size() * static_cast<std::size_t>(size_of(dtype_)));
    convert(narrow_.data(), dtype_, values.data(), DType::kFloat32,
            static_cast<std::int64_t>(values.size()));
    writer_.write(tensor_, offset_, narrow_);
    offset_ += static_cast<std::int64_t>(narrow_.size());
  }

 private:
  SafetensorsWriter& writer_;
  std::size_t tensor_;
  DType dtype_;
  float overflow_;
  std::int64_t offset_ = 0;
  std::vector<std::byte> narrow_;
};

void write_straight(const Export& tensor, const ParamReader& read, TensorSink& sink) {
  const std::int64_t elems = elems_of(tensor);
  std::vector<float> piece;
  for (std::int64_t begin = 0; begin < elems; begin += kPieceElems) {
    piece.resize(static_cast<std::size_t>(std::min(kPieceElems, elems - begin)));
    read(*tensor.param, begin, piece);
    sink.write(piece);
  }
}

void write_transposed(const Export& tensor, const ParamReader& read, TensorSink& sink) {
  const auto rows = static_cast<std::size_t>(tensor.placement.shape[0]);
  const auto cols = static_cast<std::size_t>(tensor.placement.shape[1]);
  std::vector<float> whole(rows * cols);
  read(*tensor.param, 0, whole);
  const std::size_t together =
      std::max<std::size_t>(1, static_cast<std::size_t>(kPieceElems) / rows);
  std::vector<float> piece;
  for (std::size_t col = 0; col < cols; col += together) {
    const std::size_t end = std::min(cols, col + together);
    piece.resize((end - col) * rows);
    for (std::size_t row = 0; row < rows; ++row) {
      for (std::size_t c = col; c < end; ++c) piece[(c - col) * rows + row] = whole[row * cols + c];
    }
    sink.write(piece);
  }
}

void write_shard(FileSystem& files, const std::string& path, std::span<const Export> tensors,
                 DType dtype, const ParamReader& read) {
  std::vector<TensorDecl> decls;
  for (const Export& tensor : tensors) {
    decls.push_back(
        {tensor.placement.tensor, tensor_dtype(dtype), tensor.placement.stored_shape()});
  }
  SafetensorsWriter writer(files, path, decls, {{"format", "pt"}});
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    TensorSink sink(writer, i, dtype);
    if (tensors[i].placement.transposed) {
      write_transposed(tensors[i], read, sink);
    } else {
      write_straight(tensors[i], read, sink);
    }
  }
  writer.finish();
}

void open_folder(FileSystem& files, const std::string& dir) {
  make_dirs_durably(files, dir);
  if (!files.list(dir).empty()) {
    throw ConfigError(dir + " is not empty; name a folder that does not exist, or empty it");
  }
}

}  // namespace

std::string_view torch_name(DType dtype) {
  switch (dtype) {
    case DType::kFloat32:
      return "float32";
    case DType::kBFloat16:
      return "bfloat16";
    case DType::kFloat16:
      break;
  }
  return "float16";
}

namespace {

// Writes all files but config.json.
void write_files(FileSystem& files, const std::string& dir, const ModelSpec& spec,
                 const ParamReader& read, const HfExportOptions& options, HfExportResult& result) {
  std::map<std::string, std::string> weight_map;
  const auto shards = cut_shards(exports_of(spec), size_of(options.dtype), options.shard_bytes);
  for (std::size_t i = 0; i < shards.size(); ++i) {
    const std::string name = shard_name(i, shards.size());
    write_shard(files, join_path(dir, name), shards[i], options.dtype, read);
    result.files.push_back(name);
    for (const Export& tensor : shards[i]) {
      weight_map.emplace(tensor.placement.tensor, name);
      result.bytes += elems_of(tensor) * size_of(options.dtype);
    }
  }
  if (shards.size() > 1) {
    result.files.emplace_back("model.safetensors.index.json");
    replace_durably(files, join_path(dir, result.files.back()),
                    write_hf_index(weight_map, result.bytes));
  }
  const auto write = [&](const HfFile& file) {
    const std::string path = join_path(dir, file.name);
    if (files.stat(path)) return;
    replace_durably(files, path, file.text);
    result.files.push_back(file.name);
    ++result.companions;
  };
  std::for_each(options.changed.begin(), options.changed.end(), write);
  for (const std::string& folder : options.companions) {
    for (const std::string& name : copy_hf_companions(files, folder, dir)) {
      result.files.push_back(name);
      ++result.companions;
    }
  }
  std::for_each(options.made.begin(), options.made.end(), write);
}

// Removes all files of the folder. It was empty before, so the export has made all of them.
void remove_files(FileSystem& files, const std::string& dir) noexcept {
  try {
    for (const std::string& name : files.list(dir)) files.unlink(join_path(dir, name));
  } catch (const std::exception& error) {
    log_warning("what a failed export had written stays: " + std::string(error.what()));
  }
}

}  // namespace

HfExportResult export_hf(FileSystem& files, const std::string& dir, const ModelSpec& spec,
                         const ParamReader& read, const HfExportOptions& options) {
  const std::string config = write_hf_config(spec.options, torch_name(options.dtype),
                                             options.carried_config, options.tokens);
  open_folder(files, dir);
  HfExportResult result;
  try {
    write_files(files, dir, spec, read, options, result);
    result.files.emplace_back("config.json");
    replace_durably(files, join_path(dir, "config.json"), config);
  } catch (const std::exception&) {
    remove_files(files, dir);
    throw;
  }
  return result;
}

std::vector<std::string> copy_hf_companions(FileSystem& files, const std::string& from,
                                            const std::string& to) {
  const std::vector<std::string> tokenizer{"tokenizer.json",
                                           "tokenizer_config.json",
                                           "special_tokens_map.json",
                                           "added_tokens.json",
                                           "vocab.json",
                                           "merges.txt",
                                           "tokenizer.model",
                                           "chat_template.jinja",
                                           "chat_template.json"};
  const std::string generation = "generation_config.json";
  const auto exists = [&](const std::string& name) {
    return files.stat(join_path(to, name)).has_value();
  };
  std::vector<std::string> names;
  if (std::none_of(tokenizer.begin(), tokenizer.end(), exists)) names = tokenizer;
  if (!exists(generation)) names.push_back(generation);
  std::vector<std::string> copied;
  for (const std::string& name : names) {
    const std::string source = join_path(from, name);
    const auto stat = files.stat(source);
    if (!stat || stat->directory) continue;
    replace_durably(files, join_path(to, name), read_text(files, source, kMostCompanionBytes));
    copied.push_back(name);
  }
  return copied;
}

}  // namespace sluice
