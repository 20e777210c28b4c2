// Arguments of programs other than pretrain_gpt.py.
#include "configs/migrate/peers/megatron_arguments.hpp"

namespace sluice::migrate {

// clang-format off
const std::string_view kMegatronOtherRows = R"(
= refused_unless_default no reinforcement learning
--perform-rl-step flag
= ignored_upstream no effect without --perform-rl-step
--rl-prompts-per-eval int 32; --grpo-prompts-per-step int 32; --grpo-group-size int 2;
--rl-generation-lag float null; --rl-max-inflight-requests int null;
--rl-submission-granularity text B {R,G,B}; --rl-consumption-granularity text B {R,G,B};
--rl-durable-rollout-bank flag; --rl-rollout-bank-dir text null; --rl-rollout-bank-max-bytes int 0;
--grpo-iterations int 2; --grpo-clamp-eps-lower float 0.01; --grpo-clamp-eps-upper float 0.01;
--grpo-kl-beta float 0.001; --grpo-entropy-term-weight float 0.0;
--grpo-filter-groups-with-same-reward flag; --langrl-env-config text null;
--rl-default-temperature float 1.0; --rl-default-top-p float 0; --rl-default-top-k int -1;
--rl-offload-optimizer-during-inference flag;
--rl-kv-cache-management-mode text persist {persist,offload,recompute};
--rl-persist-cuda-graphs|--no-rl-persist-cuda-graphs switch;
--rl-partial-rollouts|--no-rl-partial-rollouts switch;
--rl-inference-logprobs-is-correction|--no-rl-inference-logprobs-is-correction switch;
--rl-importance-sampling-truncation-coef float null;
--rl-use-sequence-packing|--no-rl-use-sequence-packing switch;
--rl-sequence-packing-max-sequences-per-bin int 50;
--rl-sequence-packing-algo text fifo {fifo,round-robin};
--rl-training-cuda-graphs|--no-rl-training-cuda-graphs switch;
--rl-inference-tensor-model-parallel-size int null;
--rl-inference-pipeline-model-parallel-size int null;
--rl-inference-expert-model-parallel-size int null;
--rl-inference-expert-tensor-model-parallel-size int null;
--rl-inference-model-unified-memory-level int 0 {0,1};
--rl-offload-inference-model-weights-when-idle|--no-rl-offload-inference-model-weights-when-idle switch;
--refit-method text gloo {nccl,gloo,nvshmem};
--rl-verify-model-weights-swap|--no-rl-verify-model-weights-swap switch;
--rl-skip-bos-token|--no-rl-skip-bos-token switch; --rl-profile flag; --rl-profile-dir text null;
--rl-inference-parsers text* []
= refused_unless_default no distillation
--logits-save-dir text null; --logits-load-dir text null
= ignored_upstream no effect without --logits-save-dir and --logits-load-dir
--logits-save-top-k int null; --logits-save-top-p float null; --logits-save-top-p-min-k int 1;
--logits-save-dtype text fp16 {fp16,bf16,fp32}; --logits-load-decode-threads int 4;
--logits-load-prefetch-factor int 3; --logits-load-msc-prefetch-depth int 2;
--logits-load-kd-loss-alpha float 1.0; --logits-load-ignore-errors flag
= ignored_upstream pretrain_gpt.py never reads the value
--inference-cuda-graph-scope text null {none,layer,block}; --flash-decode flag;
--symmetric-ar-type text null {two_shot,one_shot,multimem_all_reduce};
--nccl-all-reduce-for-prefill flag; --inference-fuse-tp-communication flag;
--inference-disable-triton-nvls-kernels flag;
--inference-grouped-gemm-backend text vllm {flashinfer,torch,vllm};
--inference-moe-disable-fused-quant-kernels flag;
--inference-moe-token-dispatcher-type text nvls {nccl,nvls}; --ict-head-size int null;
--biencoder-projection-dim int 0; --biencoder-shared-query-context-model flag;
--ict-load text null; --bert-load text null; --titles-data-path text null;
--query-in-block-prob float 0.1; --use-one-sent-docs flag; --evidence-data-path text null;
--retriever-report-topk-accuracies int+ []; --retriever-score-scaling flag;
--block-data-path text null; --embedding-path text null; --indexer-batch-size int 128;
--indexer-log-interval int 1000; --num-classes int 1000; --img-h int 224; --img-w int 224;
--num-channels int 3; --patch-dim int 16; --classes-fraction float 1.0;
--data-per-class-fraction float 1.0; --no-data-sharding flag; --head-lr-mult float 1.0;
--vision-pretraining flag; --vision-pretraining-type text classify {classify,inpaint,dino};
--vision-backbone-type text vit {vit,mit,swin}; --swin-backbone-type text tiny {tiny,base,h3};
--mask-type text random {random,row}; --mask-factor float 1.0; --iter-per-epoch int 1250;
--dino-local-img-size int 96; --dino-local-crops-number int 10; --dino-head-hidden-size int 2048;
--dino-bottleneck-size int 256; --dino-freeze-last-layer float 1; --dino-norm-last-layer flag;
--dino-warmup-teacher-temp float 0.04; --dino-teacher-temp float 0.07;
--dino-warmup-teacher-temp-epochs int 30; --inference-batch-times-seqlen-threshold int -1;
--max-tokens-to-oom int 12000; --output-bert-embeddings flag;
--bert-embedder-type text megatron {megatron,huggingface}; --cuda-graph-scope text+ null;
--cuda-graph-modules text+ []; --use-legacy-static-engine flag; --inference-max-requests int 8;
--inference-max-seq-length int 2560; --inference-dynamic-batching flag;
--inference-dynamic-batching-buffer-size-gb float 40.0;
--inference-dynamic-batching-paused-buffer-size-gb float null;
--inference-dynamic-batching-mamba-memory-ratio float null;
--inference-dynamic-batching-block-size int 256;
--inference-dynamic-batching-max-requests int null;
--inference-dynamic-batching-max-tokens int null;
--inference-dynamic-batching-num-cuda-graphs int 16;
--inference-dynamic-batching-track-paused-request-events flag;
--inference-dynamic-batching-track-generated-token-events flag; --decode-only-cuda-graphs flag;
--inference-cuda-graph-all-prefills flag; --inference-cuda-graph-max-tokens int 512;
--inference-dynamic-batching-unified-memory-level int 0 {0,1}; --enable-chunked-prefill flag;
--num-speculative-tokens int 0;
--inference-dynamic-batching-prefix-caching|--no-inference-dynamic-batching-prefix-caching switch;
--inference-dynamic-batching-prefix-caching-eviction-policy text ref_zero {ref_zero,lru};
--inference-dynamic-batching-prefix-caching-coordinator-policy text load_balanced {longest_prefix,first_prefix_block,load_balanced};
--inference-dynamic-batching-prefix-caching-routing-alpha float 0.5;
--inference-dynamic-batching-prefix-caching-mamba-gb float null;
--inference-dynamic-batching-cuda-graph-mixed-prefill-count int 16;
--inference-dynamic-batching-cuda-graph-sizing-distribution text exponential {exponential,linear};
--inference-dynamic-batching-sampling-backend text torch {torch,flashinfer};
--use-same-sampling-seed-across-dp-ranks flag;
--inference-dynamic-batching-async-sched-mode text legacy {legacy,async};
--inference-dynamic-batching-logprobs-mode text raw_logprobs {raw_logprobs,processed_logprobs};
--inference-logging-step-interval int 0;
--inference-text-gen-server-logging|--no-inference-text-gen-server-logging switch;
--inference-wandb-logging|--no-inference-wandb-logging switch;
--inference-coordinator-port int null;
--mamba-inference-conv-states-dtype text bf16 {bf16,fp16,fp32};
--mamba-inference-ssm-states-dtype text bf16 {bf16,fp16,fp32};
--inference-use-synchronous-zmq-collectives|--no-inference-use-synchronous-zmq-collectives switch;
--inference-disable-ep-consensus|--no-inference-disable-ep-consensus switch;
--inference-shards text null
= removed_upstream Megatron-LM stops: use the argument that took its place
--batch-size int null; --checkpoint-activations flag; --warmup int null;
--model-parallel-size int null
= removed_upstream no argument of the newest Megatron-LM; its numbers are the same without it
--no-async-tensor-model-parallel-allreduce flag; --delay-grad-reduce flag;
--no-delay-grad-reduce flag; --delay-param-gather flag; --DDP-impl text local;
--data-impl text infer; --no-contiguous-buffers-in-local-ddp flag; --use-legacy-models flag;
--distribute-checkpointed-activations flag; --standalone-embedding-stage flag;
--encoder-tensor-model-parallel-size int 0; --encoder-pipeline-model-parallel-size int 0;
--pipeline-model-parallel-split-rank int null; --no-query-key-layer-scaling flag;
--log-batch-size-to-tensorboard flag; --log-learning-rate-to-tensorboard flag;
--no-log-learnig-rate-to-tensorboard flag
)";
// clang-format on

}  // namespace sluice::migrate
