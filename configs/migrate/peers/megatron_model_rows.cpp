// Arguments of the model: architecture, activations, experts, number formats.
#include "configs/migrate/peers/megatron_arguments.hpp"

namespace sluice::migrate {

// clang-format off
const std::string_view kMegatronModelRows = R"(
= mapped model.layers
--num-layers int null; --encoder-num-layers int null
= mapped model.hidden
--hidden-size int null
= mapped model.heads
--num-attention-heads int null
= mapped model.ffn: 4 x hidden, with --swiglu 8/3 x hidden rounded down to a multiple of 64
--ffn-hidden-size int null
= mapped model.head_dim
--kv-channels int null
= mapped model.kv_heads: --num-query-groups has an effect only with --group-query-attention
--num-query-groups int 1; --group-query-attention flag
= mapped model.seq
--seq-length int null; --encoder-seq-length int null
= changed model.seq: the position table of a gpt2 has model.seq rows
--max-position-embeddings int null
= mapped model.type
--disable-bias-linear flag; --normalization text LayerNorm {LayerNorm,RMSNorm};
--position-embedding-type text learned_absolute {learned_absolute,rope,yarn,mrope,relative,none};
--use-rotary-position-embeddings flag; --swiglu flag
= mapped model.type qwen2: biases of q, k and v alone
--add-qkv-bias flag
= mapped model.sliding_window: (left, right) keys there, left + 1 keys with the query here
--window-size text null
= mapped model.tie_embeddings
--untie-embeddings-and-output-weights flag
= mapped model.norm_eps
--norm-epsilon float 1e-05
= mapped model.init_std
--init-method-std float 0.02
= mapped model.dropout: one value for embeddings, attention and residuals
--hidden-dropout float 0.1; --attention-dropout float 0.1
= mapped model.rope_theta
--rotary-base int 10000
= mapped model.rope_scaling llama3
--use-rope-scaling flag
= mapped model.rope_factor
--rope-scaling-factor float 8.0
= changed model.vocab: the rows of the table there, padding included
--make-vocab-size-divisible-by int 128; --vocab-size int null; --padded-vocab-size int null;
--no-pad-vocab-size|--disable-pad-vocab-size flag
= refused_unless_default gelu of a gpt2 is the tanh form, which the fused kernel computes
--no-bias-gelu-fusion flag
= refused_unless_default activations are gelu and SwiGLU
--glu-linear-offset float 0.0; --activation-func-clamp-value float null; --squared-relu flag;
--quick-geglu flag
= refused_unless_default norms are LayerNorm and RMSNorm before each part of a block
--apply-residual-connection-post-layernorm flag; --apply-layernorm-1p flag; --qk-layernorm flag;
--qk-l2-norm flag
= refused_unless_default rotary embeddings turn all of each head, half against half
--rotary-interleaved flag; --mrope-section int+ null; --rotary-percent float 1.0;
--rotary-seq-len-interpolation-factor int null; --no-rope-freq text null
= refused_unless_default no such form of attention
--softmax-type text vanilla {vanilla,off-by-one,learnable}; --qk-clip flag;
--attention-output-gate flag; --multi-latent-attention flag;
--experimental-attention-variant text null {gdn,gdn2,dsa,gated_delta_net};
--window-attn-skip-freq text null; --linear-attention-freq text null
= ignored_upstream no effect without --qk-clip
--qk-clip-alpha float 0.5; --qk-clip-threshold float 100
= refused_unless_default weights start from one normal distribution
--no-initialization flag; --embedding-init-method-std float null; --use-mup flag;
--data-parallel-random-init flag; --init-method-xavier-uniform flag
= ignored_upstream no effect without --use-mup
--mup-width-mult float 1.0; --mup-base-hidden-size int null; --mup-embedding-mult float 1.0;
--mup-output-mult float 1.0; --mup-base-head-dim float null; --mup-attn-scale-power float 1.0
= refused_unless_default no state-space or hybrid layers, and no other block layout
--enable-mhc-connections flag; --is-hybrid-model flag; --decoder-num-layers int null;
--decoder-seq-length int null; --heterogeneous-layers-config-path text null;
--heterogeneous-layers-config-encoded-json text null; --spec text* null;
--hybrid-layer-pattern text null; --hybrid-override-pattern text null
= ignored_upstream no effect without --enable-mhc-connections
--mhc-num-residual-streams int 4; --mhc-sinkhorn-iterations int 20;
--mhc-init-gating-factor float 0.01; --mhc-recompute-layer-num int null
= refused_unless_default no multi-token prediction
--mtp-num-layers int null
= ignored_upstream no effect without --mtp-num-layers
--mtp-standalone flag; --mtp-loss-scaling-factor float 0.1; --mtp-use-repeated-layer flag;
--mtp-detach-heads flag; --mtp-hsm flag; --mtp-hybrid-override-pattern text null
= ignored_upstream no effect without hybrid layers
--linear-conv-kernel-dim int 4; --linear-key-head-dim int 128; --linear-value-head-dim int 128;
--linear-num-key-heads int 16; --linear-num-value-heads int 32; --mamba-state-dim int 128;
--mamba-head-dim int 64; --mamba-num-groups int 8; --mamba-num-heads int null;
--gdp-num-householder int 3; --disable-mamba-mem-eff-path flag; --gdp-cutedsl-kernel flag;
--gdp-num-chunk-states-to-recompute int 2; --mamba-training-ssm-states-dtype text null {fp32,bf16}
= ignored_upstream no effect without --experimental-attention-variant
--dsa-indexer-n-heads int null; --dsa-indexer-head-dim int null; --dsa-indexer-topk int null;
--dsa-indexer-topk-freq int 1; --dsa-indexer-skip-topk-offset int 0;
--dsa-indexer-loss-coeff float null; --dsa-indexer-use-sparse-loss flag;
--dsa-kernel-backend text none {none,tilelang,cudnn}; --dsa-indexer-rope-interleaved flag;
--no-dsa-indexer-rotate-activation|--disable-dsa-indexer-rotate-activation flag;
--no-dsa-indexer-scoring-relu|--disable-dsa-indexer-scoring-relu flag;
--dsa-indexer-k-norm-epsilon float null; --dsa-indexer-k-norm-fp32 flag
= ignored_upstream no effect without --multi-latent-attention
--q-lora-rank int null; --kv-lora-rank int 32; --qk-head-dim int 128; --qk-pos-emb-head-dim int 64;
--v-head-dim int 128; --rotary-scaling-factor float 1.0; --mscale float 1.0;
--mscale-all-dim float 0.0; --cache-mla-latents flag; --mla-down-proj-fusion flag
= ignored_upstream no effect without another --position-embedding-type, which is refused
--yarn-original-max-position-embeddings int null; --yarn-beta-fast float null;
--yarn-beta-slow float null; --yarn-correction-range-round-to-int flag;
--no-yarn-correction-range-round-to-int flag; --relative-attention-num-buckets int 32;
--relative-attention-max-distance int 128
= refused_unless_default no mixture of experts
--num-experts int null
= ignored_upstream no effect without --num-experts
--overlap-moe-expert-parallel-comm flag; --overlap-dispatch-backward-with-experts-wgrad flag;
--ep-overlap-early-attn-memory-release flag; --high-priority-a2a-comm-stream flag;
--moe-shared-expert-intermediate-size int null; --moe-shared-expert-gate flag;
--moe-shared-expert-overlap flag; --use-grouped-gemm-for-shared-expert flag;
--moe-shared-expert-glu-interleave-size int null; --moe-ffn-hidden-size int null;
--moe-router-topk int 2; --moe-enable-routing-replay flag;
--moe-router-padding-for-quantization flag; --moe-router-padding-for-fp8 flag;
--moe-router-num-groups int null; --moe-router-group-topk int null; --moe-router-pre-softmax flag;
--moe-router-topk-scaling-factor float null;
--moe-router-score-function text softmax {softmax,sigmoid,sqrtsoftplus};
--moe-router-dtype text null {fp32,fp64}; --moe-router-enable-expert-bias flag;
--moe-router-bias-update-rate float 0.001; --moe-router-quantile-balancing-ema float 0.0;
--moe-router-force-load-balancing flag; --moe-router-force-biased float null;
--use-grouped-gemm-for-dense-mlp flag; --moe-grouped-gemm flag; --moe-use-grouped-tensor flag;
--moe-single-grouped-weight flag; --moe-single-grouped-bias flag; --moe-z-loss-coeff float null;
--moe-input-jitter-eps float null;
--moe-token-dispatcher-type text allgather {allgather,alltoall,flex}; --moe-enable-deepep flag;
--moe-flex-dispatcher-backend text deepep {deepep,hybridep,ncclep};
--moe-permute-fusion-into-hybridep flag; --moe-hybridep-pad-uneven-dispatch-inputs flag;
--moe-per-layer-logging flag; --moe-expert-capacity-factor float null;
--moe-pad-expert-input-to-capacity flag; --moe-pad-experts-for-cuda-graph-inference flag;
--moe-token-drop-policy text probs {probs,position}; --moe-layer-recompute flag;
--moe-permute-fusion flag; --moe-router-fusion flag; --moe-apply-probs-on-input flag;
--moe-latent-size int null; --moe-flex-dispatcher-num-sms int null; --moe-deepep-num-sms int null;
--moe-hybridep-num-sms int null; --moe-hybridep-num-blocks-permute int null;
--moe-hybridep-num-blocks-unpermute int null; --moe-hybridep-num-sms-preprocessing int 108;
--moe-ncclep-zero-copy flag; --moe-dispatch-fwd-dtype text bf16 {bf16,mxfp8};
--moe-combine-bwd-dtype text bf16 {bf16,mxfp8}; --moe-mlp-glu-interleave-size int null;
--moe-expert-rank-capacity-factor float null; --moe-paged-stash-page-size int 64;
--moe-paged-stash-buffer-size-factor-cuda float 1.1;
--moe-paged-stash-buffer-size-factor-cpu float 0.0; --moe-layer-freq text 1;
--moe-use-upcycling flag;
--moe-router-load-balancing-type text+ aux_loss {aux_loss,seq_aux_loss,global_aux_loss,sinkhorn,quantile_balancing,none};
--moe-aux-loss-coeff float+ 0.0; --moe-upcycling-granularity int 1;
--moe-routing-trace-path text null; --moe-routing-trace-max-training-iters int null;
--moe-routing-trace-capture-logits flag; --moe-routing-trace-capture-hidden-states flag;
--moe-routing-trace-dump-weights flag
= refused_unless_default leave it out and set train.matmul: fp8 in the result (there is no FP4)
--fp8-format text null {e4m3,hybrid}; --fp4-format text null {e2m1}
= ignored_upstream no effect without --fp8-format or --fp4-format
--fp8-recipe text delayed {tensorwise,delayed,mxfp8,blockwise,custom};
--fp8-quantizer-factory text null; --fp8-margin int 0; --fp8-interval int 1;
--fp8-amax-history-len int 1; --fp8-amax-compute-algo text most_recent {most_recent,max};
--no-fp8-wgrad|--disable-fp8-wgrad flag; --fp8-output-proj flag; --first-last-layers-bf16 flag;
--num-layers-at-start-in-bf16 int 1; --num-layers-at-end-in-bf16 int 1;
--fp4-recipe text nvfp4 {nvfp4,custom}; --fp4-quantizer-factory text null;
--reuse-grad-buf-for-mxfp8-param-ag flag; --keep-fp8-transpose-cache flag; --fp4-param-gather flag;
--fp8-param-gather flag
= ignored_upstream Megatron-LM never reads the value of a GPT model
--no-position-embedding flag; --openai-gelu flag; --onnx-safe text null;
--bert-no-binary-head flag
= not_needed Sluice has one implementation of each block
--use-cpu-initialization flag; --deterministic-mode flag; --cross-entropy-loss-fusion flag;
--cross-entropy-fusion-impl text native {native,te};
--attention-backend text auto {flash,fused,unfused,local,auto};
--flash-attention-version int null {2,3,4}; --init-model-with-meta-device flag;
--disable-bf16-reduced-precision-matmul flag; --use-fused-weighted-squared-relu flag;
--fused-residual-rmsnorm flag; --use-transformer-engine-op-fuser flag;
--use-kitchen-attention flag; --kitchen-attention-backend text sdpa {sdpa,fa};
--no-clone-scatter-output-in-embedding|--disable-clone-scatter-output-in-embedding flag;
--config-logger-dir text ""; --batch-invariant-mode flag;
--batch-invariant-backend text te_native {te_native,deepgemm,triton};
--use-te-activation-func flag; --mlp-chunks-for-prefill int 1; --mlp-chunks-for-training int 1;
--transformer-impl text transformer_engine {local,transformer_engine,inference_optimized};
--no-masked-softmax-fusion flag; --no-bias-swiglu-fusion flag; --no-bias-dropout-fusion flag;
--no-rope-fusion flag; --rope-type text null {rope,yarn}; --use-flash-attn flag;
--no-persist-layer-norm flag; --no-gradient-accumulation-fusion flag; --use-mcore-models flag;
--disable-jit-fuser flag; --te-precision-config-file text null; --enable-experimental flag
)";
// clang-format on

}  // namespace sluice::migrate
