// Which operator computes attention on a GPU.
#include "runtime/model/attention_choice.hpp"

#include <gtest/gtest.h>

namespace sluice {
namespace {

ModelOptions gpt2_on_gpu() {
  ModelOptions options{.type = ModelType::kGpt2, .layers = 2, .hidden = 1024, .heads = 16};
  options.on_gpu = true;
  return options;
}

TEST(AttentionChoice, IsCudnnsOnHopperAlone) {
  ModelOptions options = gpt2_on_gpu();
  const auto settled = [&](AttentionChoice choice, DType dtype = DType::kBFloat16) {
    return settled_attention(choice, options, dtype);
  };
  EXPECT_EQ(settled(AttentionChoice::kAuto), AttentionBackend::kCudnn);
  EXPECT_EQ(settled(AttentionChoice::kFlash), AttentionBackend::kFlash);
  EXPECT_EQ(settled(AttentionChoice::kAuto, DType::kFloat32), AttentionBackend::kFlash);
  for (const int capability : {80, 86, 89, 100, 120}) {
    options.gpu.compute_capability = capability;
    EXPECT_EQ(settled(AttentionChoice::kAuto), AttentionBackend::kFlash);
    EXPECT_EQ(settled(AttentionChoice::kCudnn), AttentionBackend::kCudnn);
  }
  options.gpu.compute_capability = 90;
  options.deterministic = true;
  EXPECT_EQ(settled(AttentionChoice::kAuto), AttentionBackend::kFlash);
  options.deterministic = false;
  options.on_gpu = false;
  EXPECT_EQ(settled(AttentionChoice::kAuto), AttentionBackend::kFlash);
}

TEST(AttentionChoice, CudnnIsRefusedForWhatItDoesNotTake) {
  const ModelOptions gpt2 = gpt2_on_gpu();
  EXPECT_EQ(why_no_cudnn(gpt2, DType::kBFloat16), "");
  const auto refused = [&](auto change, DType dtype = DType::kFloat16) {
    ModelOptions options = gpt2;
    change(options);
    return !why_no_cudnn(options, dtype).empty();
  };
  EXPECT_TRUE(refused([](ModelOptions&) {}, DType::kFloat32));
  EXPECT_TRUE(refused([](ModelOptions& o) { o.dropout = 0.1; }));
  EXPECT_TRUE(refused([](ModelOptions& o) { o.explicit_units = false; }));
  EXPECT_TRUE(refused([](ModelOptions& o) { o.head_dim = 136; }));
  EXPECT_TRUE(refused([](ModelOptions& o) { o.sliding_window = o.seq - 1; }));
  EXPECT_FALSE(refused([](ModelOptions& o) { o.sliding_window = o.seq; }));
  EXPECT_TRUE(refused([](ModelOptions& o) { o.packed_rows = true; }));
  EXPECT_TRUE(refused([](ModelOptions& o) { o.deterministic = true; }));
}

}  // namespace
}  // namespace sluice
