// Packed rows: each unit on rows of several documents against the same unit on each document alone,
// in double; and the dry run of packed rows against the allocator.
#include "runtime/model/documents.hpp"

#include <ATen/Parallel.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros_like.h>
#include <gtest/gtest.h>

#include <limits>

#include "base/error.hpp"
#include "runtime/model/counting_allocator.hpp"
#include "runtime/model/math/varlen_attention.hpp"
#include "runtime/model/tensor_view.hpp"
#include "tests/runtime/model/block_run.hpp"
#include "tests/runtime/model/golden.hpp"

namespace sluice::testing {
namespace {

struct PackedCase {
  const char* name;
  ModelType type;
  std::int64_t batch, seq, hidden, heads, kv_heads, window;
};
void PrintTo(const PackedCase& c, std::ostream* out) { *out << c.name; }

// Documents of one token, of more than one block of queries, shorter and longer than the window.
const PackedCase kPackedCases[] = {
    {"gpt2", ModelType::kGpt2, 3, 37, 48, 3, 3, 0},
    {"gpt2_long", ModelType::kGpt2, 1, 331, 24, 3, 3, 0},
    {"llama", ModelType::kLlama, 3, 37, 48, 3, 3, 0},
    {"llama_shared", ModelType::kLlama, 2, 150, 40, 10, 5, 0},
    {"one_key_head", ModelType::kLlama, 2, 201, 32, 4, 1, 0},
    {"mistral", ModelType::kMistral, 2, 333, 64, 4, 2, 50},
    {"narrow", ModelType::kMistral, 2, 70, 48, 3, 3, 1},
};

ModelOptions packed_options(const PackedCase& c, bool packed) {
  ModelOptions options{.layers = 1, .hidden = c.hidden, .heads = c.heads, .vocab = 8, .seq = c.seq};
  options.type = c.type;
  options.kv_heads = c.kv_heads;
  options.sliding_window = c.window;
  options.packed_rows = packed;
  return make_model_spec(options).options;
}

// Row 0 is whole, the others end documents at odd places.
Documents some_documents(std::int64_t batch, std::int64_t seq, bool whole = false) {
  const auto end = static_cast<std::int32_t>(seq);
  std::vector<std::vector<std::int32_t>> rows{{0, end}};
  if (batch == 1) rows = {{0, 1, 2, 90, 91, end}};
  if (batch > 1) rows.push_back({0, 1, end / 3, end});
  if (batch > 2) rows.push_back({0, end / 2, end / 2 + 7, end - 1, end});
  if (whole) rows.assign(static_cast<std::size_t>(batch), {0, end});
  return {rows, seq};
}

std::unique_ptr<Unit> block_of(ModelOptions options, bool explicit_units) {
  options.explicit_units = explicit_units;
  Model model = make_model(options);
  return std::move(model.units[1]);
}

// y and dx in their places, and the sum of the documents' gradients.
BlockResult by_document(const PackedCase& c, const BlockData& data, const Documents& documents) {
  BlockResult all;
  for (std::int64_t row = 0; row < documents.rows(); ++row) {
    for (const Documents::Span& span : documents.of_row(row)) {
      const auto of_span = [&](const at::Tensor& x) {
        return x.narrow(0, row, 1).narrow(1, span.first, span.count);
      };
      BlockData one = data;
      one.x = of_span(data.x).clone();
      one.dy = of_span(data.dy).clone();
      PackedCase alone = c;
      alone.seq = span.count;
      alone.window = c.window < span.count ? c.window : 0;
      const BlockResult result = run_block(*block_of(packed_options(alone, false), false), one);
      if (all.tensors.empty()) {
        for (const at::Tensor& t : result.tensors) all.tensors.push_back(at::zeros_like(t));
        for (const std::size_t i : {0U, 1U}) all.tensors[i] = at::zeros_like(data.x);
      }
      for (std::size_t i = 0; i < all.tensors.size(); ++i) {
        at::Tensor to = i < 2 ? of_span(all.tensors[i]) : all.tensors[i];
        to.add_(result.tensors[i]);
      }
    }
  }
  return all;
}

class PackedBlock : public ::testing::TestWithParam<PackedCase> {};

TEST_P(PackedBlock, EqualsItsDocumentsAlone) {
  const PackedCase& c = GetParam();
  const ModelOptions options = packed_options(c, true);
  const BlockData data(options, c.batch, c10::ScalarType::Float, Layout::kFlat);
  const Documents documents = some_documents(c.batch, c.seq);
  const BlockResult want = by_document(c, data.to(c10::ScalarType::Double), documents);
  for (const bool explicit_units : {true, false}) {
    const auto unit = block_of(options, explicit_units);
    const BlockResult ours = run_block(*unit, data, BlockMemory::kSaved, 1, &documents);
    for (std::size_t i = 0; i < want.tensors.size(); ++i) {
      // A key bias has almost no gradient: a small difference of large sums. With a window of 1
      // queries and keys have none.
      const double error = norm_of(ours.tensors[i].to(at::kDouble).sub(want.tensors[i]));
      EXPECT_LE(error, 1e-6 * (norm_of(want.tensors[i]) + norm_of(want.tensors[1])))
          << "explicit " << explicit_units << " tensor " << i;
    }
    const BlockResult again = run_block(*unit, data, BlockMemory::kRecomputed, 1, &documents);
    expect_same_bits(again, ours, "recomputed");
  }
}

// A mask that is a function of the place: both kinds of unit drop the same weights.
TEST_P(PackedBlock, DropsOutAsItsTwin) {
  const PackedCase& c = GetParam();
  ModelOptions options = packed_options(c, true);
  options.dropout = 0.2;
  const BlockData data(options, c.batch, c10::ScalarType::Float, Layout::kFlat);
  const Documents documents = some_documents(c.batch, c.seq);
  const BlockResult ours =
      run_block(*block_of(options, true), data, BlockMemory::kSaved, 1, &documents);
  const BlockResult want = run_block(*block_of(options, false), data.to(c10::ScalarType::Double),
                                     BlockMemory::kSaved, 1, &documents);
  for (std::size_t i = 0; i < 2; ++i) {
    EXPECT_LT(relative_error(ours.tensors[i], want.tensors[i]), 2e-6) << i;
  }
}

TEST_P(PackedBlock, RowsOfOneDocumentHaveTheBitsOfPlainRows) {
  const PackedCase& c = GetParam();
  const Documents whole = some_documents(c.batch, c.seq, true);
  const ModelOptions options = packed_options(c, true);
  const BlockData data(options, c.batch, c10::ScalarType::Float, Layout::kFlat);
  const BlockResult plain = run_block(*block_of(packed_options(c, false), true), data);
  const auto packed = block_of(options, true);
  expect_same_bits(run_block(*packed, data), plain, "no documents");
  expect_same_bits(run_block(*packed, data, BlockMemory::kSaved, 1, &whole), plain, "whole rows");
}

// Explicit blocks: to the byte for any documents. The autograd twin: to the byte for rows of one
// document, which need most.
TEST_P(PackedBlock, DryRunBoundsTheRealRun) {
  install_counting_allocators();
  const PackedCase& c = GetParam();
  const Documents several = some_documents(c.batch, c.seq);
  const Documents whole = some_documents(c.batch, c.seq, true);
  ModelOptions options = packed_options(c, true);
  const BlockData data(options, c.batch, c10::ScalarType::Float, Layout::kFlat);
  for (const bool selective : {false, true}) {
    options.recompute_attention = selective;
    expect_dry_run_is_real(make_model(options), data, "several documents", &several);
  }
  options.recompute_attention = false;
  options.explicit_units = false;
  const Model twin = make_model(options);
  // libtorch's attention keeps a number for each of a thread's 64 (or fewer) queries while the
  // thread works.
  const std::int64_t row_sums = (at::get_num_threads() - 1) * 64 * std::int64_t{sizeof(float)};
  expect_dry_run_is_real(twin, data, "twin, whole rows", &whole, row_sums);
  expect_dry_run_is_real(twin, data, "twin, no documents", nullptr, row_sums);
  constexpr std::int64_t kScalars = 64;  // as expect_dry_run_is_real
  const UnitMemory real = real_memory(*twin.units[1], data, &several);
  const UnitMemory most = profile_unit(twin, 1, {.micro_batch = c.batch, .seq = c.seq});
  EXPECT_EQ(real.kept, most.kept);
  EXPECT_LE(real.forward_peak, most.forward_peak + kScalars);
  EXPECT_LE(real.forward_only_peak, most.forward_only_peak + kScalars);
  EXPECT_LE(real.backward_peak, most.backward_peak + kScalars);
  EXPECT_LE(real.recompute_peak, most.recompute_peak + kScalars);
}

INSTANTIATE_TEST_SUITE_P(Blocks, PackedBlock, ::testing::ValuesIn(kPackedCases),
                         [](const auto& info) { return std::string(info.param.name); });

TEST(PackedEmbedding, LearnedPositionsRestartInEachDocument) {
  ModelOptions options{.layers = 1, .hidden = 8, .heads = 1, .vocab = 5, .seq = 12};
  options.packed_rows = true;
  const auto unit = make_token_embedding(make_model_spec(options).options);
  const at::Tensor table = rule_tensor(1, {5, 8}, 1.0), positions = rule_tensor(2, {12, 8}, 1.0);
  const std::vector<at::Tensor> params{table, positions};
  const at::Tensor tokens = at::empty({2, 12}, c10::ScalarType::Long);
  for (std::int64_t i = 0; i < 24; ++i) host_data<std::int64_t>(tokens)[i] = i * i % 5;
  const std::vector<std::vector<std::int32_t>> bounds{{0, 5, 12}, {0, 1, 2, 12}};
  const Documents documents(bounds, 12);
  UnitCall call;
  call.documents = &documents;
  const at::Tensor y = unit->forward(call, params, tokens, nullptr);
  const at::Tensor dy = rule_tensor(3, {2, 12, 8}, 1.0);
  CollectingSink sink(params);
  (void)unit->backward(call, params, tokens, nullptr, dy, sink);
  const at::Tensor want = at::zeros_like(positions);
  for (std::int64_t row = 0; row < 2; ++row) {
    for (const Documents::Span& span : documents.of_row(row)) {
      for (std::int64_t i = 0; i < span.count; ++i) {
        const std::int64_t t = span.first + i;
        const std::int64_t word = host_data<std::int64_t>(tokens)[row * 12 + t];
        EXPECT_TRUE(
            y.select(0, row).select(0, t).equal(table.select(0, word).add(positions.select(0, i))));
        at::Tensor to = want.select(0, i);
        to.add_(dy.select(0, row).select(0, t));
      }
    }
  }
  EXPECT_TRUE(sink.grad(1).equal(want));
}

// A GPU's memory, by its dry run: twice the tokens, twice the bytes, and more than without
// documents only in the scratch of attention.
TEST(PackedBlockOnAGpu, NeedsMemoryThatIsLinearInSeq) {
  for (const ModelType type : {ModelType::kGpt2, ModelType::kMistral}) {
    for (const DType dtype : {DType::kFloat32, DType::kBFloat16}) {
      ModelOptions options{.layers = 1, .hidden = 128, .heads = 4, .vocab = 8, .seq = 8192};
      options.type = type;
      options.kv_heads = type == ModelType::kGpt2 ? 4 : 2;
      options.sliding_window = type == ModelType::kGpt2 ? 0 : 512;
      options.on_gpu = true;
      options.packed_rows = true;
      const auto of_seq = [&](std::int64_t seq) {
        return profile_unit(make_model(options), 1, {.micro_batch = 2, .seq = seq, .dtype = dtype});
      };
      const UnitMemory half = of_seq(4096), whole = of_seq(8192);
      const auto ratio = [](std::int64_t a, std::int64_t b) {
        return static_cast<double>(a) / static_cast<double>(b);
      };
      EXPECT_NEAR(ratio(whole.kept, half.kept), 2, 0.05);
      // The MLP's chunk is all 8192 tokens of the half, and half of the whole's tokens.
      EXPECT_NEAR(ratio(whole.forward_peak, half.forward_peak), 2, 0.3);
      EXPECT_NEAR(ratio(whole.backward_peak, half.backward_peak), 2, 0.2);
      options.packed_rows = false;
      EXPECT_LT(whole.kept, 1.4 * static_cast<double>(of_seq(8192).kept));
    }
  }
}

TEST(Documents, RefusesEndsThatDoNotIncreaseToSeq) {
  using Rows = std::vector<std::vector<std::int32_t>>;
  for (const std::vector<std::int32_t>& bad :
       Rows{{}, {0}, {0, 7}, {1, 8}, {0, 3, 3, 8}, {0, 9, 8}}) {
    try {
      const Documents documents(Rows{{0, 8}, bad}, 8);
      FAIL() << "ends were taken";
    } catch (const Error& error) {
      EXPECT_STREQ(error.what(),
                   "row 1 of a micro-batch: the ends of its documents do not increase from 0 to "
                   "seq = 8");
    }
  }
}

// Rows of 200 documents of a token and one more, of one document, and of three.
std::vector<std::vector<std::int32_t>> many_ends() {
  std::vector<std::int32_t> short_ones{0};
  for (std::int32_t i = 1; i <= 200; ++i) short_ones.push_back(i);
  short_ones.push_back(509);
  return {short_ones, {0, 509}, {0, 1, 500, 509}};
}

std::vector<std::int32_t> host_ends(const Documents& documents, std::int64_t count) {
  const at::Tensor ends = documents.ends(c10::DeviceType::CPU, 0, count);
  const auto* data = host_data<std::int32_t>(ends);
  return {data, data + ends.numel()};
}

// What recorded kernels read: other documents at the same addresses, behind them empty ones.
TEST(Documents, ReplaceThoseBeforeInAGpusMemory) {
  const at::Tensor memory = Documents::device_memory(2, 5, c10::DeviceType::CPU);
  EXPECT_EQ(memory.nbytes(), static_cast<std::size_t>(Documents::device_bytes(2, 5)));
  const std::vector<std::vector<std::int32_t>> first{{0, 1, 2, 5}, {0, 3, 5}},
      second{{0, 5}, {0, 5}};
  const Documents five(first, 5);
  EXPECT_EQ(five.room(), 8);
  five.put_on(memory);
  using Ends = std::vector<std::int32_t>;
  EXPECT_EQ(host_ends(five, 8), (Ends{0, 1, 2, 5, 8, 10, 10, 10, 10}));
  const void* const positions = five.positions(c10::DeviceType::CPU).data_ptr();
  const void* const ends = five.ends(c10::DeviceType::CPU, 0, 8).data_ptr();
  Documents two(second, 5);
  EXPECT_EQ(two.room(), 2);
  two.widen(five.room());
  EXPECT_EQ(two.room(), 8);
  two.put_on(memory);
  EXPECT_EQ(host_ends(two, 16),
            (Ends{0, 5, 10, 10, 10, 10, 10, 10, 10, 10, 10, 10, 10, 10, 10, 10, 10}));
  EXPECT_EQ(two.positions(c10::DeviceType::CPU).data_ptr(), positions);
  EXPECT_EQ(two.ends(c10::DeviceType::CPU, 0, 8).data_ptr(), ends);
  EXPECT_EQ(two.positions(c10::DeviceType::CPU).select(0, 4).item().toInt(), 4);
  EXPECT_EQ(two.positions(c10::DeviceType::CPU).select(0, 5).item().toInt(), 0);
}

// An operator that writes the tokens of its documents alone: each token is that of the call with
// its document, whatever the number of documents of a call, also where documents are empty.
TEST(Documents, CallsOfSomeDocumentsMakeUpAll) {
  const std::int64_t tokens = 3 * 509;
  for (const std::int64_t widened : {0, 1024}) {
    Documents documents(many_ends(), 509);
    documents.widen(widened);
    for (const std::int64_t of_call : {1, 4, 64, 256, 2048}) {
      std::int64_t written = 0;
      const std::vector<std::int64_t> dims{0, 1};
      const std::vector<at::Tensor> made =
          over_calls(documents, c10::DeviceType::CPU, of_call, dims, [&](const at::Tensor& ends) {
            const double nan = std::numeric_limits<double>::quiet_NaN();
            const std::vector<at::Tensor> out{at::full({tokens, 2}, nan),
                                              at::full({2, tokens}, nan)};
            EXPECT_EQ(ends.numel(), of_call + 1);
            const auto* end = host_data<std::int32_t>(ends);
            for (std::int64_t d = 0; d < of_call; ++d) {
              EXPECT_GE(end[d + 1], end[d]);
              for (std::int64_t t = end[d]; t < end[d + 1]; ++t, ++written) {
                out[0].select(0, t).fill_(t);
                out[1].select(1, t).fill_(t);
              }
            }
            return out;
          });
      EXPECT_EQ(written, tokens);
      const at::Tensor expected = at::arange(tokens, at::kFloat);
      EXPECT_TRUE(made[0].select(1, 1).equal(expected)) << of_call;
      EXPECT_TRUE(made[1].select(0, 1).equal(expected)) << of_call;
    }
  }
}

TEST(Documents, BoundTheScratchOfABackwardsCall) {
  for (const std::int64_t rows : {1, 3, 8}) {
    for (const std::int64_t seq : {1, 61, 1024, 4096}) {
      const std::int64_t most = most_in_backward(rows * seq, seq, false);
      EXPECT_LE(128 * most, std::max<std::int64_t>(2048, 128 + rows * seq / 2));
      EXPECT_LE(most_in_backward(rows * seq, seq, true), std::min(most, 4 * rows));
      EXPECT_GE(most_in_backward(rows * seq, seq, true), 1);
    }
  }
}

}  // namespace
}  // namespace sluice::testing
