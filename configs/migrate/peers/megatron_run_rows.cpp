// Arguments of the run: data, checkpoints, logs, launch.
#include "configs/migrate/peers/megatron_arguments.hpp"

namespace sluice::migrate {

// clang-format off
const std::string_view kMegatronRunRows = R"(
= mapped train.seed
--seed int 1234
= mapped data.train: prefixes of .bin and .idx files
--data-path text* null; --train-data-path text* null
= mapped data.valid
--valid-data-path text* null
= mapped data.test
--test-data-path text* null
= mapped data.split: shares of training, validation and test
--split text null
= refused_unless_default write the paths as arguments
--data-args-path text null; --per-split-data-args-path text null;
--per-dataset-sequences-path text null
= refused_unless_default no generated data
--mock-data flag; --sft flag
= refused_unless_default a sample is model.seq tokens in a row, documents joined, each token with a loss
--reset-position-ids flag; --reset-attention-mask flag; --dataloader-inter-document-masking flag;
--eod-mask-loss flag; --fim-data flag
= ignored_upstream no effect without --fim-data
--fim-rate float 0.5; --fim-spm-rate float 0.5; --fim-split-sample text null;
--fim-fragment-rate float null; --fim-no-prefix text null; --fim-prefix-token text <fim_prefix>;
--fim-middle-token text <fim_middle>; --fim-suffix-token text <fim_suffix>;
--fim-pad-token text <fim_pad>; --fim-eod-token text <|endoftext|>
= ignored_upstream no effect without --sft
--sft-tokenizer-prompt-format text nemotron-h-aligned
= not_needed .bin files hold tokens: no tokenizer is needed
--vocab-file text null; --merge-file text null; --vocab-extra-ids int 0;
--tokenizer-type text null {BertWordPieceLowerCase,BertWordPieceCase,GPT2BPETokenizer,SentencePieceTokenizer,GPTSentencePieceTokenizer,HuggingFaceTokenizer,Llama2Tokenizer,TikTokenizer,MultimodalTokenizer,NullTokenizer,NullMultimodalTokenizer,SFTTokenizer};
--tokenizer-model text null; --tokenizer-metadata text null; --tokenizer-special-tokens text+ null;
--tiktoken-pattern text null {v1,v2}; --tiktoken-num-special-tokens int 1000;
--tokenizer-sentencepiece-legacy flag;
--no-tokenizer-sentencepiece-ignore-extra-whitespaces|--disable-tokenizer-sentencepiece-ignore-extra-whitespaces flag;
--tokenizer-hf-no-use-fast flag; --tokenizer-hf-no-include-special-tokens flag;
--trust-remote-code flag; --null-tokenizer-eod-id int null; --null-tokenizer-pad-id int -1;
--chat-template text null; --use-gigatoken flag
= not_needed Sluice has its own reader
--dataloader-fast-cache-load flag; --dataloader-defer-npy-index-mmap flag;
--data-cache-path text null; --no-mmap-bin-files flag; --num-workers int 2;
--no-create-attention-mask-in-dataloader flag; --num-dataset-builder-threads int 1;
--object-storage-cache-path text null; --mid-level-dataset-surplus float 0.005;
--allow-ambiguous-pad-tokens flag
= refused_unless_default samples come in one shuffled order
--dataloader-type text null {single,cyclic,external}
= ignored_upstream pretrain_gpt.py never reads the value
--sample-rate float 1.0; --mask-prob float 0.15; --short-seq-prob float 0.1
= mapped checkpoint.dir
--save text null
= mapped checkpoint.every
--save-interval|--persistent-save-interval int null
= refused_unless_default every checkpoint of checkpoint.keep stays
--save-retain-interval int null
= refused_unless_default checkpoints have weights, optimizer and generators
--no-save-optim flag; --no-save-rng flag
= changed a run of Sluice continues with --resume; `sluice checkpoint import` reads Megatron-LM's checkpoints
--load text null
= refused_unless_default `sluice checkpoint import` reads Megatron-LM's checkpoints
--load-main-params-from-ckpt flag; --finetune flag; --pretrained-checkpoint text null;
--ckpt-step int null; --no-load-optim flag; --no-load-rng flag; --override-ckpt-iteration int null
= refused_unless_default write the arguments of the model
--use-checkpoint-args flag; --yaml-cfg text null
= ignored_upstream no effect without --use-checkpoint-args
--use-mp-args-from-checkpoint-args flag;
--no-use-tokenizer-model-from-checkpoint-args|--disable-use-tokenizer-model-from-checkpoint-args flag
= refused_unless_default a run trains
--ckpt-convert-format text null {torch,torch_dist}; --ckpt-convert-save text null;
--ckpt-convert-update-legacy-dist-opt-format flag; --skip-train flag; --test-mode flag
= not_needed Sluice has one form of checkpoint
--save-params-interval int null; --save-activations-interval int null;
--save-tokens-per-expert-interval int null; --save-wgrads-interval int null;
--save-dgrads-interval int null; --non-persistent-save-interval int null;
--non-persistent-ckpt-type text null {global,local,in_memory};
--non-persistent-global-ckpt-dir text null; --non-persistent-local-ckpt-dir text null;
--non-persistent-local-ckpt-algo text fully_parallel {fully_parallel,atomic};
--exit-on-missing-checkpoint flag;
--ckpt-format text torch_dist {torch,torch_dist,torch_dcp,fsdp_dtensor};
--auto-detect-ckpt-format flag; --no-ckpt-fully-parallel-save flag; --async-save flag;
--async-strategy text nvrx {nvrx,mcore}; --use-persistent-ckpt-worker flag;
--async-ckpt-cpu-priority int 10; --async-ckpt-io-priority int 3; --async-ckpt-use-cpu-shm flag;
--ckpt-fully-parallel-load flag;
--ckpt-fully-parallel-load-exchange-algo text broadcast {broadcast,gather_rounds,gather_object};
--ckpt-fully-parallel-load-per-rank-objects flag;
--ckpt-fully-parallel-save-process-group text dp {dp,ep_dp};
--ckpt-fully-parallel-load-process-group text dp {dp,ep_dp}; --ckpt-assume-constant-structure flag;
--ckpt-pg-tensors-cache-path text null; --ckpt-pg-tensors-cache-create flag;
--no-ckpt-load-validate-sharding-integrity|--disable-ckpt-load-validate-sharding-integrity flag;
--dist-ckpt-strictness text assume_ok_unexpected {assume_ok_unexpected,log_unexpected,log_all,raise_unexpected,raise_all,return_unexpected,return_all,ignore_all};
--dist-ckpt-save-pre-mcore-014 flag; --dist-ckpt-optim-fully-reshardable flag;
--distrib-optim-fully-reshardable-mem-efficient flag;
--no-save-tokenizer-assets|--disable-save-tokenizer-assets flag; --replication flag;
--replication-jump int null; --replication-factor int 2; --verify-integrity flag;
--use-dist-ckpt flag; --dist-ckpt-format text null; --dist-ckpt-workers int 1;
--ckpt-fully-parallel-save flag; --ckpt-drop-redundant-extra-state flag
= mapped train.log_every
--log-interval int 100
= mapped train.eval_steps
--eval-iters int 100
= mapped train.eval_every
--eval-interval int null
= refused_unless_default an evaluation has the global batch of training, from step eval_every on
--start-eval-at-iter int null; --eval-global-batch-size int null; --eval-micro-batch-size int null;
--full-validation flag; --multiple-validation-sets flag
= ignored_upstream no effect without --multiple-validation-sets
--validation-set-names text+ null
= changed output.tensorboard: the files are in output.dir
--tensorboard-dir text null
= mapped checkpoint.time_limit
--exit-duration-in-mins int null
= not_needed a run saves and stops at SIGTERM
--exit-signal-handler flag; --exit-signal text SIGTERM; --exit-signal-handler-for-dataloader flag;
--exit-signal-handler-for-training flag
= not_needed Sluice has its own log and trace
--profile flag; --profile-step-start int 10; --profile-step-end int 12;
--use-pytorch-profiler flag; --pytorch-profiler-collect-shapes flag;
--pytorch-profiler-collect-callstack flag; --pytorch-profiler-collect-chakra flag;
--profile-ranks int+ []; --record-memory-history flag; --memory-snapshot-path text snapshot.pickle;
--record-shapes flag; --nvtx-ranges flag; --log-params-norm flag; --log-throughput flag;
--log-progress flag; --timing-log-level int 0 {0,1,2};
--timing-log-option text minmax {max,minmax,all}; --tensorboard-log-interval int 1;
--tensorboard-queue-size int 1000; --log-timers-to-tensorboard flag;
--no-log-loss-scale-to-tensorboard|--disable-log-loss-scale-to-tensorboard flag;
--log-validation-ppl-to-tensorboard flag; --log-memory-to-tensorboard flag;
--log-memory-interval int null; --log-device-memory-used flag; --log-num-zeros-in-grad flag;
--log-max-attention-logit flag; --no-barrier-with-level-1-timing flag;
--log-world-size-to-tensorboard flag; --wandb-project text null; --wandb-exp-name text null;
--wandb-save-dir text null; --wandb-entity text null; --logging-level int null; --log-energy flag;
--otel-enabled flag; --otel-service-name text null; --otel-span-groups text null;
--log-straggler flag; --straggler-ctrlr-port int 65535; --straggler-minmax-count int 1;
--disable-straggler-on-startup flag; --run-workload-inspector-server flag; --no-one-logger flag;
--one-logger-project text megatron-lm; --one-logger-run-name text null; --one-logger-async flag;
--app-tag-run-name text null; --app-tag-run-version text 0.0.0
= mapped launch.timeout
--distributed-timeout-minutes int 10
= mapped launch.backend
--distributed-backend text nccl {nccl,gloo}
= not_needed the launcher of Sluice starts and connects the ranks
--pipeline-model-parallel-comm-backend text null {nccl,ucc}; --local-rank int 0;
--lazy-mpu-init flag; --nccl-communicator-config-path text null; --use-tp-pp-dp-mapping flag;
--disable-gloo-process-groups flag; --use-sharp flag;
--sharp-enabled-group text null {dp,dp_replica}; --high-priority-stream-groups text+ [];
--distributed-timeout-seconds-after-init int null; --flight-recorder-dump-path text null;
--flight-recorder-trace-buffer-size int 2000;
--no-flight-recorder-dump-on-timeout|--disable-flight-recorder-dump-on-timeout flag;
--flight-recorder-include-stack-trace flag;
--no-flight-recorder-include-only-active|--disable-flight-recorder-include-only-active flag;
--no-flight-recorder-extra-dump-on-exec|--disable-flight-recorder-extra-dump-on-exec flag;
--use-nccl-ub flag; --disable-symmetric-registration flag; --fake-process-group flag
= not_needed restarts are launch.max_restarts
--adlr-autoresume flag; --adlr-autoresume-interval int 1000; --inprocess-restart flag;
--inprocess-max-iterations int null; --inprocess-monitor-thread-interval float 1.0;
--inprocess-monitor-process-interval float 1.0; --inprocess-progress-watchdog-interval float 1.0;
--inprocess-heartbeat-interval float 30; --inprocess-soft-timeout float 60;
--inprocess-hard-timeout float 90; --inprocess-heartbeat-timeout float 60;
--inprocess-barrier-timeout float 120; --inprocess-completion-timeout float 120;
--inprocess-last-call-wait float 1; --inprocess-termination-grace-time float 1;
--inprocess-granularity text node {node,rank}; --inprocess-active-world-size int 1;
--inprocess-empty-cuda-cache flag; --enable-ft-package flag; --calc-ft-timeouts flag;
--ft-num-warmup-iters int 5; --error-injection-rate int 0;
--error-injection-type text transient_error {correct_result,transient_error,persistent_error};
--rerun-mode text validate_results {disabled,validate_results,report_stats}; --enable-msc flag;
--disable-msc flag; --fault-injector-ranks text null; --fault-injector-num-ranks int null;
--fault-injector-fault-types text null; --fault-injector-fault-probabilities text null;
--fault-injector-fault-delay float null; --fault-injector-delay-start-iteration int null;
--fault-injector-mtti-seconds float null; --fault-injector-offset-seconds float null;
--fault-injector-seed int null
= not_needed Sluice has no CUDA graphs to set
--enable-cuda-graph flag; --cuda-graph-warmup-steps int 3; --external-cuda-graph flag;
--cuda-graph-impl text none {none,local,transformer_engine,full_iteration}; --moe-paged-stash flag;
--te-rng-tracker flag; --inference-rng-tracker flag
)";
// clang-format on

}  // namespace sluice::migrate
