// Arguments of the training: batch, schedule, optimizer, precision, memory, ranks.
#include "configs/migrate/peers/megatron_arguments.hpp"

namespace sluice::migrate {

// clang-format off
const std::string_view kMegatronTrainingRows = R"(
= mapped train.micro_batch
--micro-batch-size int null
= mapped train.global_batch: micro batch x data-parallel ranks
--global-batch-size int null
= refused_unless_default the global batch has one size
--rampup-batch-size int3 null; --step-batch-size-schedule text null;
--decrease-batch-size-if-needed flag
= mapped train.steps
--train-iters int null
= mapped train.steps: samples / global batch, rounded down
--train-samples int null
= changed train.steps: the run ends at the first multiple of the value
--exit-interval int null
= mapped optimizer.lr
--lr float null
= mapped schedule.min_lr
--min-lr float 0.0
= mapped schedule.type
--lr-decay-style text linear {constant,linear,cosine,inverse-square-root,WSD};
--lr-wsd-decay-style text exponential {exponential,linear,cosine,minus_sqrt}
= mapped schedule.decay_steps: the steps of the run
--lr-decay-iters int null; --lr-decay-samples int null
= mapped schedule.wsd_decay
--lr-wsd-decay-iters int null; --lr-wsd-decay-samples int null
= mapped schedule.warmup_steps
--lr-warmup-iters int 0; --lr-warmup-samples int 0
= mapped schedule.warmup_steps: a share of the steps of the decay
--lr-warmup-fraction float null
= mapped schedule.warmup_min_lr
--lr-warmup-init float 0.0
= not_needed a run of Sluice continues with its own schedule
--override-opt_param-scheduler|--override-opt-param-scheduler flag;
--use-checkpoint-opt_param-scheduler|--use-checkpoint-opt-param-scheduler flag
= refused_unless_default one learning rate for all parameters
--decoupled-lr float null; --decoupled-min-lr float null
= mapped optimizer.weight_decay of matrices; biases and vectors do not decay
--weight-decay float 0.01
= refused_unless_default weight decay has one value and the rule decay: matrices
--apply-wd-to-qk-layernorm flag; --no-weight-decay-cond-type text null {apply_wd_to_qk_layernorm};
--start-weight-decay float null; --end-weight-decay float null;
--weight-decay-incr-style text constant {constant,linear,cosine}
= mapped optimizer.type
--optimizer text adam {adam,sgd,muon,dist_muon,lion,soap,adaptive_muon}
= mapped optimizer.betas
--adam-beta1 float 0.9; --adam-beta2 float 0.999; --lion-beta1 float 0.95; --lion-beta2 float 0.98
= mapped optimizer.eps
--adam-eps float 1e-08
= mapped optimizer.momentum
--sgd-momentum float 0.9
= ignored_upstream no effect without --optimizer muon, which Sluice does not have
--muon-momentum float 0.9; --muon-no-split-qkv flag; --muon-nesterov flag;
--muon-scale-mode text spectral {spectral,unit_rms_norm,shape_scaling};
--muon-fp32-matmul-prec text medium {low,medium,high}; --muon-coefficient-type text quintic;
--muon-num-ns-steps int 5; --muon-tp-mode text duplicated {blockwise,duplicated,distributed};
--muon-use-syrk flag; --muon-extra-scale-factor float 1.0;
--muon-scalar-optimizer text adam {adam,lion}
= mapped train.clip
--clip-grad float 1.0
= mapped train.dtype
--fp16 flag; --bf16 flag
= mapped loss_scale.static
--loss-scale float null
= mapped loss_scale.initial
--initial-loss-scale float 4294967296
= mapped loss_scale.min
--min-loss-scale float 1.0
= mapped loss_scale.window
--loss-scale-window float 1000
= mapped loss_scale.hysteresis
--hysteresis int 2
= changed gradients are reduced and accumulated in fp32
--grad-reduce-in-bf16 flag; --accumulate-allreduce-grads-in-fp32 flag;
--ddp-reduce-scatter-with-fp32-accumulation flag;
--gtp-remat-reduce-scatter-with-fp32-accumulation flag;
--ddp-param-name-patterns-for-fp32-local-accumulation text+ [];
--main-grads-dtype text fp32 {fp32,bf16}
= not_needed softmax, its scale and the loss are computed in fp32
--apply-query-key-layer-scaling flag; --attention-softmax-in-fp32 flag
= refused_unless_default the residual stream and the loss have one type each
--fp32-residual-connection flag; --fp16-lm-cross-entropy flag;
--output-logit-dtype text null {bf16,fp32}
= mapped offload.optimizer host
--optimizer-cpu-offload flag
= mapped offload.device_fraction: 1 - the value
--optimizer-offload-fraction float 1.0
= changed offload.states_dtype
--exp-avg-dtype text fp32 {fp32,fp16,bf16,fp8}; --exp-avg-sq-dtype text fp32 {fp32,fp16,bf16,fp8}
= not_needed masters are fp32 and the types of moments are keys of their own
--use-precision-aware-optimizer flag
= refused_unless_default masters are fp32
--main-params-dtype text fp32 {fp32,fp16}
= changed offload.activations host, for all units
--cpu-offloading-num-layers int 0; --fine-grained-activation-offloading flag
= not_needed tuning of the offload there
--cpu-offloading-retain-pinned-cpu-buffers flag; --offload-modules text+ [];
--min-offloaded-tensor-size int 1048576; --delay-offload-until-cuda-graph flag;
--delta-offload-bytes-across-pp-ranks int 0; --activation-offload-fraction float 1.0;
--fine-grained-offloading-max-inflight-offloads int null;
--use-torch-optimizer-for-cpu-offload flag; --overlap-cpu-optimizer-d2h-h2d flag;
--no-pin-cpu-grads flag; --no-pin-cpu-params flag
= mapped recompute.mode selective
--recompute-activations flag
= mapped recompute.mode
--recompute-granularity text null {full,selective}
= changed recompute.mode full computes every unit again
--recompute-method text null {uniform,block}; --recompute-num-layers int null
= changed recompute.mode selective computes attention alone again
--recompute-modules text+ null
= not_needed inputs of units are kept as they are
--distribute-saved-activations flag
= mapped parallel.tensor
--tensor-model-parallel-size int 1
= mapped parallel.pipeline
--pipeline-model-parallel-size int 1
= mapped parallel.virtual_stages
--num-layers-per-virtual-pipeline-stage int null; --num-virtual-stages-per-pipeline-rank int null
= mapped parallel.stage_layers
--account-for-embedding-in-pipeline-split flag; --account-for-loss-in-pipeline-split flag;
--decoder-first-pipeline-num-layers int null; --decoder-last-pipeline-num-layers int null
= mapped parallel.sequence
--sequence-parallel flag
= refused_unless_default the mesh is tensor x pipeline x data, and stages are even or have --decoder-first-pipeline-num-layers
--tensor-parallel-num-weight-shards int null; --context-parallel-size int 1;
--hierarchical-context-parallel-sizes int+ null; --hybrid-context-parallel flag;
--expert-model-parallel-size int 1; --pipeline-model-parallel-layout text null;
--num-distributed-optimizer-instances int 1
= ignored_upstream no effect without experts or context parallelism
--max-seqlen-per-dp-cp-rank int null; --expert-tensor-parallel-size int null;
--expert-tensor-parallel-num-weight-shards int null; --gtp-remat-opt-in-modules text+ [];
--gtp-remat-nccl-ub flag; --gtp-expert-remat-nccl-ub flag; --cp-comm-type text+ [p2p]
= mapped zero.stage 1
--use-distributed-optimizer flag
= mapped zero.stage of --use-megatron-fsdp
--use-megatron-fsdp flag;
--data-parallel-sharding-strategy text optim_grads_params {no_shard,optim,optim_grads,optim_grads_params}
= mapped zero.stage 3
--use-torch-fsdp2 flag
= changed zero.stage 2: weights stay gathered after the forward
--torch-fsdp2-no-reshard-after-forward flag
= refused_unless_default data-parallel ranks shard as one group
--outer-dp-sharding-strategy text no_shard {no_shard,optim}; --enable-full-sharding-in-hsdp flag
= changed zero.bucket_bytes: 4 bytes an element
--ddp-bucket-size int null
= not_needed Sluice has its own buckets and overlap
--tp-comm-overlap flag; --no-tp-comm-bulk-wgrad|--disable-tp-comm-bulk-wgrad flag;
--no-tp-comm-bulk-dgrad|--disable-tp-comm-bulk-dgrad flag;
--no-tp-comm-overlap-ag|--disable-tp-comm-overlap-ag flag;
--no-tp-comm-overlap-rs|--disable-tp-comm-overlap-rs flag; --tp-comm-overlap-rs-dgrad flag;
--no-tp-comm-split-ag|--disable-tp-comm-split-ag flag;
--no-tp-comm-split-rs|--disable-tp-comm-split-rs flag;
--tp-comm-bootstrap-backend text nccl {nccl,mpi,gloo}; --delay-wgrad-compute flag;
--use-ring-exchange-p2p flag; --defer-embedding-wgrad-compute flag; --wgrad-deferral-limit int 0;
--overlap-p2p-communication-warmup-flush flag;
--microbatch-group-size-per-virtual-pipeline-stage int null; --tp-comm-overlap-cfg text null;
--no-strict-fsdp-dtensor-load|--disable-strict-fsdp-dtensor-load flag;
--no-align-grad-reduce|--disable-align-grad-reduce flag; --no-overlap-p2p-communication flag;
--overlap-grad-reduce flag; --ddp-num-buckets int null; --ddp-pad-buckets-for-high-nccl-busbw flag;
--ddp-average-in-collective flag; --overlap-param-gather flag;
--overlap-param-gather-with-optimizer-step flag; --no-align-param-gather flag;
--megatron-fsdp-version int 1 {1,2}; --no-use-layer-wise-param-layout flag;
--fsdp-manual-registration flag; --create-all-gather-group flag;
--no-gradient-reduce-div-fusion flag; --fsdp-double-buffer flag;
--suggested-communication-unit-size int null;
--megatron-fsdp-main-params-dtype text fp32 {fp32,bf16,fp16,auto};
--megatron-fsdp-main-grads-dtype text auto {fp32,bf16,fp16,auto};
--megatron-fsdp-grad-comm-dtype text auto {fp32,fp16,bf16,auto};
--megatron-fsdp-enable-fine-grained-param-gather flag; --megatron-fsdp-max-pool-double-buffer flag;
--fsdp-db-use-persist-buf-on-alloc-fail flag
= not_needed checks and counters of one rank
--empty-unused-memory-level int 0 {0,1,2};
--check-weight-hash-across-dp-replicas-interval int null; --gpu-sniff-test-interval int null;
--train-sync-interval int null; --manual-gc flag; --manual-gc-interval int 0;
--no-manual-gc-eval|--disable-manual-gc-eval flag; --no-check-for-nan-in-loss-and-grad flag;
--check-for-large-grads flag; --result-rejected-tracker-filename text null;
--optimizer-cuda-graph flag; --dump-param-to-param-group-map text null;
--check-for-spiky-loss flag
= refused_unless_default every step is run, and every parameter is trained
--iterations-to-skip int+ []; --freeze-all-layers flag; --phase-transition-iterations text null
= not_needed the loss is the mean over tokens, and every sample has model.seq tokens
--calculate-per-token-loss flag
)";
// clang-format on

}  // namespace sluice::migrate
