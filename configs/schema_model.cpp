// The sections on the model and on states: model, zero, offload and memory.
#include <limits>

#include "configs/offload_rules.hpp"
#include "configs/schema_table.hpp"

namespace sluice::schema_table {

namespace {

// The config.json of model.from may set rope_scaling.
bool may_scale_rope(const RunConfig& run) {
  return run.model.rope_scaling == RopeScaling::kLlama3 || !run.model.from.empty();
}
bool shards_weights(const RunConfig& run) { return run.zero.stage == 3; }
bool fetches_ahead(const RunConfig& run) {
  return shards_weights(run) || run.offload.activations != Tier::kDevice;
}
bool has_offloaded_optimizer(const RunConfig& run) {
  return run.offload.optimizer != Tier::kDevice;
}
bool uses_nvme(const RunConfig& run) { return is_on_nvme(run.offload); }

}  // namespace

Section model_section() {
  using O = ModelOptions;
  return SectionMaker("model", &RunConfig::model, "The model to train.")
      .key("type", &O::type, one_of({"gpt2", "llama", "mistral", "qwen2"}), "Architecture.")
      .key("layers", &O::layers, count(1), "Transformer blocks.")
      .key("hidden", &O::hidden, count(1), "Width of the residual stream.")
      .key("heads", &O::heads, count(1), "Attention heads.")
      .key("kv_heads", &O::kv_heads, count(0).or_word("auto"),
           "Key and value heads; auto: as many as heads.")
      .when("model.type is not gpt2")
      .example("8")
      .key("head_dim", &O::head_dim, count(0).or_word("auto"),
           "Width of an attention head; auto: hidden / heads. Not for gpt2.")
      .when("model.type is not gpt2")
      .example("128")
      .key("ffn", &O::ffn, count(0).or_word("auto"),
           "Width inside the feed-forward part; auto: 4 x hidden of a gpt2, else 8/3 x hidden "
           "rounded "
           "up to a multiple of 64.")
      .example("11008")
      .key("vocab", &O::vocab, count(0).or_word("auto"),
           "Size of the vocabulary; auto: what the tokenizer has.")
      .example("50304")
      .key("seq", &O::seq, count(1), "Tokens of one sample.")
      .key("tie_embeddings", &O::tie_embeddings, boolean(),
           "Whether the output head is the token embedding.")
      .key("explicit_units", &O::explicit_units, boolean(),
           "Blocks with a written-out backward; false: libtorch's autograd.")
      .key("dropout", &O::dropout, number(kBelowOne), "Embedding, attention and residual dropout.")
      .example("0.1")
      .key("norm_eps", &O::norm_eps, number(kAboveZero).or_word("auto"),
           "Added to the variance in a norm; auto: 1e-5, or 1e-6 of a qwen2.")
      .example("1e-6")
      .key("init_std", &O::init_std, number(kAtLeastZero), "Standard deviation of initial weights.")
      .key("attention_bias", &O::attention_bias, one_of({"auto", "none", "qkv", "qkvo"}),
           "Which projections of attention have biases; auto: qkv of a qwen2, all of a gpt2, else "
           "none.")
      .when("model.type is not gpt2")
      .key("sliding_window", &O::sliding_window, count(0).or_word("none"),
           "mistral: keys that a query sees, itself included; none: all before it.")
      .when("model.type is mistral")
      .example("4096")
      .key("rope_theta", &O::rope_theta, number(kAboveZero),
           "Base of the rotary frequencies. Not for gpt2, as all rope_ keys.")
      .when("model.type is not gpt2")
      .example("5e5")
      .key("rope_scaling", &O::rope_scaling, one_of({"none", "llama3"}),
           "Scaling of rotary frequencies for long samples.")
      .when("model.type is not gpt2")
      .key("rope_factor", &O::rope_factor, number({.min = 1}),
           "llama3: what slow frequencies are divided by.")
      .when("model.rope_scaling is llama3", may_scale_rope)
      .key("rope_low_freq_factor", &O::rope_low_freq_factor, number(kAboveZero),
           "llama3: turns over rope_original_seq below which a frequency is slow.")
      .when("model.rope_scaling is llama3", may_scale_rope)
      .key("rope_high_freq_factor", &O::rope_high_freq_factor, number(kAboveZero),
           "llama3: turns over rope_original_seq above which a frequency is kept.")
      .when("model.rope_scaling is llama3", may_scale_rope)
      .key("rope_original_seq", &O::rope_original_seq, count(1),
           "llama3: tokens of a sample before the stretching.")
      .when("model.rope_scaling is llama3", may_scale_rope)
      .key("from", &O::from, path(),
           "A Hugging Face folder to start from: its config.json fills in the model's other keys; "
           "empty: fresh weights.")
      .example("hf/gpt2");
}

Section zero_section() {
  using O = ZeroOptions;
  return SectionMaker("zero", &RunConfig::zero, "States that data-parallel ranks shard.")
      .key("stage", &O::stage, count(0, 3),
           "0: nothing, 1: optimizer state, 2: and gradients, 3: and weights.")
      .key("bucket_bytes", &O::bucket_bytes, bytes(1), "Gradient bytes of one reduction.")
      .key("prefetch_units", &O::prefetch_units, count(0),
           "Units ahead of the one that runs whose weights are gathered (stage 3) and whose "
           "off-device activations are fetched.")
      .when("zero.stage is 3, or offload.activations is host or nvme", fetches_ahead)
      .example("2")
      .key("persist_below", &O::persist_below, count(0, std::numeric_limits<double>::infinity()),
           "Stage 3: groups of fewer elements stay gathered.")
      .when("zero.stage is 3", shards_weights)
      .example("100k")
      .key("reduce_every", &O::reduce_every, one_of({"micro_batch", "step"}),
           "When gradients cross the wire, and leave the device; step: stages 0 and 1, or layer "
           "order. A rank alone on a GPU takes step wherever it can, and bf16 gradients "
           "take it.")
      .when("a step has several micro-batches")
      .key("reduce_dtype", &O::reduce_dtype, one_of({"fp32", "bf16"}),
           "Type in which ranks send gradients to their reduction, which adds in fp32; bf16 halves "
           "the bytes on the wire: not the bits of fp32.")
      .when("several data-parallel ranks train");
}

Section offload_section() {
  using O = OffloadOptions;
  const Rules tier = one_of({"device", "host", "nvme"});
  return SectionMaker("offload", &RunConfig::offload, "The tier on which each kind of state lives.")
      .key("optimizer", &O::optimizer, tier, "Master weights and moments.")
      .key("parameters", &O::parameters, tier,
           "Shards of weights; off the device: zero.stage 3, and the optimizer off it too.")
      .when("zero.stage is 3 and offload.optimizer is host or nvme")
      .key("gradients", &O::gradients, tier,
           "Shards of gradients; off the device: zero.stage 2 or 3, and the optimizer off it too.")
      .when("zero.stage is 2 or 3 and offload.optimizer is host or nvme")
      .key("activations", &O::activations, tier,
           "Tensors for backward: units' inputs with recompute.mode full, else all kept tensors.")
      .when("recompute.mode is full, or model.explicit_units is true")
      .key("nvme_path", &O::nvme_path, paths(),
           "Folders on the NVMe drives, over which blocks are striped; one run at a time in each.")
      .when("a state lives on nvme", uses_nvme)
      .example("[/nvme0/swap, /nvme1/swap]")
      .key("device_fraction", &O::device_fraction, number(kZeroToOne),
           "Share of an offloaded optimizer that stays on the device and is updated there.")
      .when("offload.optimizer is host or nvme, with parameters and gradients on the device")
      .example("0.25")
      .key("host_fraction", &O::host_fraction, number(kZeroToOne),
           "Share of an optimizer on nvme that is on the host, in whole groups of parameters.")
      .when("offload.optimizer is nvme, and offload.image is false")
      .example("0.3")
      .key("states_dtype", &O::states_dtype, one_of({"fp32", "bf16"}),
           "Type of moments, on every tier; bf16 is rounded stochastically: not the bits of fp32.")
      .key("gradients_dtype", &O::gradients_dtype, one_of({"fp32", "bf16"}),
           "Type of gradients off the device, and of blocks on it; summed in fp32, bf16 is rounded "
           "once a step. fp32 for parameters that tensor-parallel ranks or stages hold alike.")
      .when(
          "train.dtype is bf16, a step has one micro-batch or train.accumulation_order is layer, "
          "and gradients are off the device, or on it with the optimizer of one data rank")
      .key("chunk_bytes", &O::chunk_bytes, bytes(kSmallestChunk, kLargestChunk),
           "Optimizer states pass through the host in chunks: bytes of each fp32 array of one.")
      .when("offload.optimizer is host or nvme", has_offloaded_optimizer)
      .key("chunks", &O::chunks, count(1, 1024), "Chunks on the host at a time.")
      .when("offload.optimizer is host or nvme", has_offloaded_optimizer)
      .key("speculate", &O::speculate, one_of({"never", "auto"}),
           "auto: an optimizer off the device is updated in part under the last backward, before "
           "the norm is known, while steps are not clipped; the same bits, up to twice the room, "
           "on the host within memory.host.")
      .when("offload.optimizer is host or nvme, and parallel.pipeline is 1")
      .key("image", &O::image, boolean(),
           "Whether each step of an optimizer on nvme is committed there, so that --resume auto "
           "goes on from nvme_path after a kill or a loss of power; twice the room, a flush a "
           "step.")
      .when("offload.optimizer is nvme")
      .key("direct", &O::direct, boolean(),
           "Whether a file system without O_DIRECT is refused; false: its page cache is used, "
           "whose memory no budget counts.")
      .when("a state lives on nvme", uses_nvme)
      .key("checksums", &O::checksums, boolean(),
           "Whether every block read from NVMe is compared with what was written.")
      .when("a state lives on nvme", uses_nvme)
      .key("queue_depth", &O::queue_depth, count(1, 4096), "NVMe transfers under way at a time.")
      .when("a state lives on nvme", uses_nvme)
      .key("block_bytes", &O::block_bytes, bytes(kSmallestBlock, kLargestBlock),
           "Largest NVMe transfer, and the stripe of several nvme_path.")
      .when("a state lives on nvme", uses_nvme);
}

Section memory_section() {
  using O = MemoryOptions;
  return SectionMaker("memory", &RunConfig::memory,
                      "Budgets, never exceeded: of a rank's device, and of a host's memory and "
                      "NVMe, in equal shares of its ranks.")
      .key("device", &O::device, bytes(1).or_word("none"),
           "Memory of one rank's device; none: no limit but that of a GPU's memory.")
      .example("24GiB")
      .key("host", &O::host, bytes(1).or_word("none"),
           "One host's memory for what is offloaded, of all its ranks; none: no limit, 1: no use.")
      .example("64GiB")
      .key("nvme", &O::nvme, bytes(1).or_word("none"),
           "One host's space on NVMe, over all its ranks; none: no limit, 1: no use.")
      .example("1TiB");
}

}  // namespace sluice::schema_table
