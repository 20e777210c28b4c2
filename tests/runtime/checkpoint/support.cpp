#include "tests/runtime/checkpoint/support.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <stdexcept>

#include "kernels/cpu/cast.hpp"
#include "runtime/checkpoint/io/page_memory.hpp"
#include "runtime/checkpoint/io/tokenizer_files.hpp"

namespace sluice::testing {
namespace {

std::uint64_t mix(std::uint64_t x) {
  x = (x ^ (x >> 31U)) * 0x9E3779B97F4A7C15U;
  return x ^ (x >> 29U);
}

// `parts` cuts of [0, total), none empty. REQUIRES: parts <= total.
std::vector<std::int64_t> cuts(std::int64_t total, std::int64_t parts, bool uneven,
                               std::mt19937& random) {
  std::vector<std::int64_t> at{0};
  for (std::int64_t i = 1; i < parts; ++i) {
    const std::int64_t least = at.back() + 1, most = total - (parts - i);
    const std::int64_t even = std::clamp(total * i / parts, least, most);
    at.push_back(uneven ? std::uniform_int_distribution(least, most)(random) : even);
  }
  at.push_back(total);
  return at;
}

void put(std::vector<std::byte>& bytes, TensorDType dtype, float value) {
  const std::size_t at = bytes.size();
  bytes.resize(at + static_cast<std::size_t>(size_of(dtype)));
  const std::uint16_t half = dtype == TensorDType::kF16 ? fp16_bits(value) : bf16_bits(value);
  if (dtype == TensorDType::kF32) {
    std::memcpy(&bytes[at], &value, sizeof(value));
  } else {
    std::memcpy(&bytes[at], &half, sizeof(half));
  }
}

}  // namespace

TempDir::TempDir(Place place) {
  // In memory where there is such a place: these tests sync thousands of times.
  const std::filesystem::path memory = "/dev/shm";
  const bool use_memory = place == Place::kMemory && ::access(memory.c_str(), W_OK) == 0;
  const std::filesystem::path disk = place == Place::kMemory
                                         ? std::filesystem::temp_directory_path()
                                         : std::filesystem::current_path();
  std::string name = ((use_memory ? memory : disk) / "sluice-ckpt-XXXXXX").string();
  if (mkdtemp(name.data()) == nullptr) throw std::runtime_error("mkdtemp failed");
  path_ = name;
}

TempDir::~TempDir() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

const std::vector<TestParam>& test_model() {
  static const std::vector<TestParam> model{
      {"wte.weight", {257, 7}},   {"h.0.ln.weight", {7}},       {"h.0.fc.weight", {29, 7}},
      {"h.0.conv", {3, 2, 5, 4}}, {"h.0.proj.weight", {7, 29}}, {"temperature", {}}};
  return model;
}

const std::vector<TestParam>& small_model() {
  static const std::vector<TestParam> model{{"wte.weight", {17, 7}}, {"h.0.ln.weight", {5}}};
  return model;
}

float value_at(const std::string& param, StateKind kind, std::int64_t step, std::int64_t index) {
  const auto salt = std::hash<std::string>{}(param) + static_cast<std::uint64_t>(kind) * 977U +
                    static_cast<std::uint64_t>(step) * 7919U;
  const std::uint64_t bits = mix(salt + static_cast<std::uint64_t>(index) * 0xD1B54A32D192ED03U);
  return static_cast<float>(static_cast<int>(bits % 255U) - 127) / 64.0F;
}

Layout make_layout(const std::vector<TestParam>& model, const LayoutOptions& options,
                   std::mt19937& random) {
  Layout layout(static_cast<std::size_t>(options.dp * options.tp));
  for (const TestParam& param : model) {
    const std::size_t dims = param.shape.size();
    const std::size_t dim = dims == 0 ? 0 : random() % dims;
    const std::int64_t tp = dims == 0 ? 1 : std::min<std::int64_t>(options.tp, param.shape[dim]);
    const auto slices = cuts(dims == 0 ? 1 : param.shape[dim], tp, options.uneven, random);
    for (std::int64_t t = 0; t < tp; ++t) {
      Box box = whole_box(param.shape);
      const auto s = static_cast<std::size_t>(t);
      if (dims > 0) {
        box.offset[dim] = slices[s];
        box.length[dim] = slices[s + 1] - slices[s];
      }
      const std::int64_t elems = element_count(box.length);
      const std::int64_t dp = std::min<std::int64_t>(options.dp, elems);
      const auto shards = cuts(elems, dp, options.uneven, random);
      for (std::int64_t d = 0; d < dp; ++d) {
        const auto rank = static_cast<std::size_t>(t * options.dp + d);
        for (const StateKind kind : kStateKinds) {
          layout[rank].push_back({param.name, kind,
                                  kind == StateKind::kMaster ? TensorDType::kF32 : options.moments,
                                  param.shape, box, shards[static_cast<std::size_t>(d)],
                                  shards[static_cast<std::size_t>(d) + 1]});
        }
      }
    }
  }
  return layout;
}

std::vector<std::int64_t> elements(const StateRange& range) {
  std::vector<std::int64_t> result;
  for (std::int64_t e = range.begin; e < range.end; ++e) {
    std::int64_t rest = e, index = 0, stride = 1;
    for (std::size_t d = range.shape.size(); d-- > 0;) {
      index += (range.box.offset[d] + rest % range.box.length[d]) * stride;
      rest /= range.box.length[d];
      stride *= range.shape[d];
    }
    result.push_back(index);
  }
  return result;
}

std::vector<std::byte> expected_bytes(const StateRange& range, std::int64_t step) {
  std::vector<std::byte> bytes;
  for (const std::int64_t index : elements(range)) {
    put(bytes, range.dtype, value_at(range.param, range.kind, step, index));
  }
  return bytes;
}

RunState test_run_state(std::int64_t step) {
  RunState run;
  run.step = step;
  run.updates = step > 0 ? step - 1 : 0;
  run.seed = 0xFFFF'FFFF'FFFF'FFF1U;
  run.samples = step * 24;
  run.tokens = step * 24 * 129;
  run.learning_rate = 0.1 / 3;
  run.loss_scale = 1.0 / 3;
  run.skipped_steps = 1;
  run.config = "train: {steps: 5}\n# \"quoted\", tab\t, \xC3\xA9\n";
  run.layout = {6, 3, 2, 1, 1, 3};
  run.tokenizer = {.fingerprint = "gpt2:0123",
                   .vocab = 258,
                   .end_tokens = {7, 257},
                   .files = {tokenizer_file("merges.txt", "#version: 0.2\na b\n")}};
  run.more = {{"best", "0.5"}};
  return run;
}

SaveTarget save(FileSystem& files, const std::string& dir, std::int64_t step, const Layout& layout,
                std::int64_t block_bytes) {
  const SaveTarget target = decode_target(encode_target(begin_save(files, dir, step)));
  std::vector<std::string> records;
  for (std::size_t rank = 0; rank < layout.size(); ++rank) {
    RankWriter writer(files, target, static_cast<int>(rank), layout[rank], {block_bytes, 256, 512});
    for (std::size_t i = 0; i < layout[rank].size(); ++i) {
      const std::vector<std::byte> bytes = expected_bytes(layout[rank][i], step);
      const std::span<const std::byte> all(bytes);
      writer.write(i, all.first(all.size() / 3));
      writer.write(i, all.subspan(all.size() / 3));
    }
    records.push_back(writer.seal());
  }
  std::reverse(records.begin(), records.end());
  commit(files, target, records, test_run_state(step));
  return target;
}

void expect_loads(FileSystem& files, const std::string& path, std::int64_t step,
                  const Layout& layout) {
  Checkpoint checkpoint = open_checkpoint(files, path);
  EXPECT_EQ(checkpoint.manifest().run, test_run_state(step));
  for (const std::vector<StateRange>& ranges : layout) {
    std::vector<std::vector<std::byte>> memory;
    std::vector<std::span<std::byte>> destinations;
    for (const StateRange& range : ranges) {
      memory.emplace_back(static_cast<std::size_t>(range.bytes()));
    }
    for (std::vector<std::byte>& bytes : memory) destinations.emplace_back(bytes);
    const std::vector<ReadPiece> pieces = checkpoint.plan_reads(ranges);
    checkpoint.read(pieces, ranges, destinations);
    for (std::size_t i = 0; i < ranges.size(); ++i) {
      EXPECT_EQ(memory[i], expected_bytes(ranges[i], step)) << tensor_name(ranges[i]);
    }
    EXPECT_EQ(read_in_small_parts(checkpoint, ranges), memory);
  }
}

std::vector<std::vector<std::byte>> read_in_small_parts(Checkpoint& checkpoint,
                                                        std::span<const StateRange> ranges) {
  std::vector<std::vector<std::byte>> memory(ranges.size());
  std::vector<std::byte> part(1000);
  const PageMemory ahead(7 * kPageBytes);  // two slots
  checkpoint.read_in_parts(ranges, part, ahead.all(), [&](const StatePart& got) {
    std::vector<std::byte>& to = memory[got.wanted];
    const std::int64_t size = size_of(ranges[got.wanted].dtype);
    EXPECT_EQ(static_cast<std::int64_t>(to.size()), got.first * size);
    EXPECT_EQ(static_cast<std::int64_t>(got.bytes.size()), got.elems * size);
    to.insert(to.end(), got.bytes.begin(), got.bytes.end());
  });
  return memory;
}

void flip_bit(const std::string& path, std::int64_t byte, int bit) {
  std::fstream file(path, std::ios::binary | std::ios::in | std::ios::out);
  file.seekg(byte);
  const int value = file.get();
  file.seekp(byte);
  file.put(static_cast<char>(value ^ (1 << bit)));
  if (!file) throw std::runtime_error("cannot change " + path);
}

}  // namespace sluice::testing
