#include "configs/schema.hpp"

#include <limits>

#include "configs/schema_table.hpp"

namespace sluice {
namespace schema_table {
namespace {

bool is_16_bit(const RunConfig& run) { return run.train.dtype != DType::kFloat32; }

Section train_section() {
  using O = TrainOptions;
  return SectionMaker("train", &RunConfig::train, "The training loop.")
      .key("steps", &O::steps, count(0), "Optimizer steps.")
      .key("micro_batch", &O::micro_batch, count(1), "Samples of one forward on one rank.")
      .key("global_batch", &O::global_batch, count(0).or_word("auto"),
           "Samples of one optimizer step over all ranks; auto: micro_batch x data ranks.")
      .example("256")
      .key("accumulation_order", &O::accumulation_order, one_of({"micro", "layer"}),
           "Whether each micro-batch crosses all units first, or each unit all micro-batches.")
      .when("a step has several micro-batches, and parallel.pipeline is 1")
      .key("dtype", &O::dtype, one_of({"fp32", "bf16", "fp16"}), "Type of weights in compute.")
      .key("matmul", &O::matmul, one_of({"auto", "native", "fp32", "fp8"}),
           "Type in which 16-bit matrices are multiplied: their own, or on a CPU fp32; auto: on a "
           "CPU the faster of these, on a GPU their own. fp8: the linear layers of blocks multiply "
           "8-bit operands (docs/gpu.md); a CPU only computes with the same values, more slowly.")
      .when("train.dtype is bf16 or fp16", is_16_bit)
      .key("seed", &O::seed, count(0, std::numeric_limits<double>::infinity()),
           "Seed of initial weights, dropout and the order of samples.")
      .key("clip", &O::clip, number(kAtLeastZero),
           "Largest global gradient norm; 0: no clipping, and a GPU may need less memory.")
      .example("0.5")
      .key("attention", &O::attention, one_of({"auto", "flash", "cudnn"}),
           "Operator of 16-bit attention on a GPU: flash attention, or cuDNN's; auto: cuDNN's on a "
           "Hopper GPU, where it is faster, if it takes the model's attention, else flash "
           "attention. cuDNN's takes head_dims that are multiples of 8 up to 128, no "
           "sliding_window, no rows of several documents, and is not deterministic.")
      .when("train.dtype is bf16 or fp16 and ranks run on GPUs")
      .key("deterministic", &O::deterministic, boolean(),
           "Whether the backward of attention on a GPU gives the same bits from run to run. In 16 "
           "bits it then takes multiprocessors / (samples x heads), rounded up, fp32 copies of a "
           "block's dq, which the plan counts; a Hopper GPU then takes flash attention, not "
           "cuDNN's. CPUs always do.")
      .when("ranks run on GPUs")
      .key("cuda_graphs", &O::cuda_graphs, one_of({"auto", "never"}),
           "Whether a GPU records the compute of a step once and launches it as graphs: the same "
           "bits, less time of the host. auto: where a step repeats itself; `sluice plan` says "
           "where it does not.")
      .when("ranks run on GPUs")
      .key("freeze", &O::freeze, patterns(),
           "Parameters that are not trained, by name: no gradients, no optimizer states. A pattern "
           "has components between points: names with * and ?, or ranges of numbers; it names all "
           "parameters below it.")
      .example("[wte, h.0-3.*]")
      .key("eval_every", &O::eval_every, count(0), "Steps between evaluations; 0: only at the end.")
      .when("train.eval_steps is above 0",
            [](const RunConfig& run) { return run.train.eval_steps > 0; })
      .example("200")
      .key("eval_steps", &O::eval_steps, count(0), "Global batches of an evaluation; 0: none.")
      .key("log_every", &O::log_every, count(1), "Steps between progress lines.")
      .key("sample_tokens", &O::sample_tokens, count(0),
           "Tokens generated from the trained model at the end; 0: none.")
      .example("160");
}

Section optimizer_section() {
  using O = OptimizerOptions;
  return SectionMaker("optimizer", &RunConfig::optimizer, "How weights are updated.")
      .key("type", &O::type, one_of({"adamw", "lion", "sgd"}), "Update rule.")
      .key("lr", &O::lr, number(kAtLeastZero), "Highest learning rate.")
      .key("betas", &O::betas, numbers(2, kBelowOne),
           "adamw: decay of the first and second moment; lion: of the mix whose sign is the step, "
           "and of the moment ([0.9, 0.99] where not given).")
      .when("optimizer.type is adamw or lion")
      .key("eps", &O::eps, number(kAboveZero), "Added to the root of the second moment.")
      .when("optimizer.type is adamw")
      .key("momentum", &O::momentum, number(kBelowOne), "Share of the moment that a step keeps.")
      .when("optimizer.type is sgd")
      .key("weight_decay", &O::weight_decay, number(kAtLeastZero),
           "Weight decay; adamw and lion: decoupled, sgd: part of the gradient.")
      .key(
          "decay", &O::decay, one_of({"matrices", "all"}),
          "Parameters that weight_decay applies to; all: vectors and biases too, as in a DeepSpeed "
          "run without parameter groups.")
      .when("optimizer.weight_decay is above 0",
            [](const RunConfig& run) { return run.optimizer.weight_decay > 0; })
      .key("decoupled", &O::decoupled, boolean(),
           "Whether weight_decay shrinks the weights (AdamW); false: it is part of the gradient "
           "(Adam with L2 regularisation).")
      .when("optimizer.type is adamw")
      .key("bias_correction", &O::bias_correction, boolean(),
           "Whether both moments are divided by 1 - beta^step.")
      .when("optimizer.type is adamw");
}

bool warms_up(const RunConfig& run) { return run.schedule.warmup_of(run.train.steps) > 0; }
bool decays(const RunConfig& run) { return run.schedule.type != ScheduleType::kConstant; }

Section schedule_section() {
  using O = ScheduleOptions;
  return SectionMaker("schedule", &RunConfig::schedule, "The learning rate over the steps.")
      .key("type", &O::type, one_of({"constant", "linear", "cosine", "wsd"}),
           "Shape after the warm-up; wsd: constant, then a final fall.")
      .key("warmup", &O::warmup, one_of({"linear", "log"}),
           "Shape of the warm-up at its step i of n: i / n, or log(i) / log(n).")
      .when("schedule.warmup_steps is above 0", warms_up)
      .key("warmup_steps", &O::warmup_steps, steps(),
           "Steps of the rise to lr, or their share of train.steps.")
      .example("5%")
      .key("warmup_min_lr", &O::warmup_min_lr, rate(),
           "Learning rate from which the warm-up rises, or its share of optimizer.lr.")
      .when("schedule.warmup_steps is above 0", warms_up)
      .example("1e-6")
      .key("min_lr", &O::min_lr, rate(),
           "Learning rate reached at decay_steps, or its share of optimizer.lr.")
      .when("schedule.type is not constant", decays)
      .example("3e-5")
      .key("decay_steps", &O::decay_steps, steps().or_word("auto"),
           "Step at which min_lr is reached, or its share of train.steps; auto: train.steps.")
      .when("schedule.type is not constant", decays)
      .example("90%")
      .key("wsd_decay", &O::wsd_decay, steps().or_word("auto"),
           "wsd: steps of the final fall, or their share of train.steps; auto: a tenth of "
           "decay_steps.")
      .when("schedule.type is wsd",
            [](const RunConfig& run) { return run.schedule.type == ScheduleType::kWsd; })
      .example("10%")
      .key("counting", &O::counting, one_of({"from_one", "from_zero", "deepspeed"}),
           "Number of the first step in the schedule: 1; 0, as in PyTorch and Hugging Face; or the "
           "learning rates of DeepSpeed's WarmupLR (type constant), WarmupDecayLR (linear) and "
           "WarmupCosineLR (cosine) for its warmup_num_steps and total_num_steps.");
}

Section recompute_section() {
  return SectionMaker("recompute", &RunConfig::recompute, "Activations computed twice.")
      .key("mode", &RecomputeOptions::mode, one_of({"none", "full", "selective"}),
           "full: every unit's forward again in its backward; selective: attention alone, from the "
           "q, k and v that are kept (needs model.explicit_units).");
}

Section parallel_section() {
  using O = ParallelOptions;
  return SectionMaker("parallel", &RunConfig::parallel,
                      "The mesh: world = tensor x pipeline x data.")
      .key("tensor", &O::tensor, count(1), "Ranks that share each matrix.")
      .example("2")
      .key("sequence", &O::sequence, boolean(),
           "Whether tensor ranks share the sequence outside of attention and feed-forward.")
      .when("parallel.tensor is above 1")
      .key("pipeline", &O::pipeline, count(1), "Stages of consecutive units.")
      .example("4")
      .key("virtual_stages", &O::virtual_stages, count(1), "Pieces of the model per stage.")
      .when("parallel.schedule is interleaved")
      .example("2")
      .key("schedule", &O::schedule, one_of({"gpipe", "1f1b", "interleaved", "zero_bubble"}),
           "Order of micro-batches in the pipeline.")
      .when("parallel.pipeline is above 1")
      .key("data", &O::data, count(0).or_word("auto"),
           "Data-parallel ranks; auto: the world divided by tensor x pipeline.")
      .example("8")
      .key("stage_layers", &O::stage_layers, counts(1, kMaxDim),
           "Blocks of each stage, of each piece in the model's order where there are virtual "
           "stages; the embedding is with the first, the loss head with the last; []: cut by "
           "FLOP.")
      .when("parallel.pipeline is above 1")
      .example("[3, 4, 4, 3]");
}

constexpr std::string_view kDynamicScale = "train.dtype is fp16 and loss_scale.static is none";

bool is_fp16(const RunConfig& run) { return run.train.dtype == DType::kFloat16; }
bool scales_dynamically(const RunConfig& run) { return is_fp16(run) && run.loss_scale.fixed == 0; }

Section loss_scale_section() {
  using O = LossScaleOptions;
  return SectionMaker("loss_scale", &RunConfig::loss_scale, "Loss scaling; fp16 only.")
      .key("static", &O::fixed, number(kAtLeastZero).or_word("none"),
           "A scale that never changes; a step that overflows is skipped. none: a dynamic scale.")
      .when("train.dtype is fp16", is_fp16)
      .example("1024")
      .key("initial", &O::initial, number(kAboveZero), "First scale.")
      .when(kDynamicScale, scales_dynamically)
      .key("window", &O::window, count(1), "Steps without overflow before the scale doubles.")
      .when(kDynamicScale, scales_dynamically)
      .key("first_window", &O::first_window, count(0).or_word("auto"),
           "The same for the first doubling after the start and after an overflow; auto: window. "
           "DeepSpeed's is window + 1.")
      .when(kDynamicScale, scales_dynamically)
      .example("1001")
      .key("hysteresis", &O::hysteresis, count(1), "Overflows before the scale is halved.")
      .when(kDynamicScale, scales_dynamically)
      .key("consecutive_hysteresis", &O::consecutive_hysteresis, boolean(),
           "Whether the overflows before a halving must be of consecutive steps.")
      .when(kDynamicScale, scales_dynamically)
      .key("min", &O::min, number(kAboveZero), "Lowest scale.")
      .when(kDynamicScale, scales_dynamically);
}

Section checkpoint_section() {
  using O = CheckpointOptions;
  return SectionMaker("checkpoint", &RunConfig::checkpoint, "Saving a run to go on later.")
      .key("dir", &O::dir, path(), "Folder; empty: checkpoints in output.dir.")
      .example("/data/run7")
      .key("at_end", &O::at_end, boolean(),
           "Whether the run is saved after its last step. false, without every and time_limit: it "
           "saves nothing unless save-now asks for it.")
      .key("every", &O::every, {.type = KeyType::kInterval},
           "Steps (500) or time (30min) between checkpoints; 0: only at the end.")
      .example("30min")
      .key("keep", &O::keep, count(0), "Number of newest checkpoints that stay; 0: all.")
      .when("the run saves checkpoints")
      .example("3")
      .key("async", &O::async, boolean(),
           "Whether writing overlaps with the next steps, from a copy that memory.host has to have "
           "room for.")
      .when("the run saves checkpoints")
      .key("time_limit", &O::time_limit_seconds,
           {.type = KeyType::kSeconds, .range = {.min = 0, .max = kMaxSeconds}},
           "The run saves and stops before it has run so long (30m, 4h); 0: no limit.")
      .example("4h");
}

Section launch_section() {
  using O = LaunchOptions;
  return SectionMaker("launch", &RunConfig::launch, "How ranks are started.")
      .key("nproc", &O::nproc, count(0).or_word("auto"),
           "Ranks on this host; auto: one a GPU, or 1 without GPUs.")
      .example("8")
      .key("hostfile", &O::hostfile, path(),
           "File of the hosts, one a line: name slots=N; they are reached by ssh.")
      .example("hosts.txt")
      .key("backend", &O::backend, one_of({"auto", "nccl", "gloo", "local"}),
           "Transport of collectives; auto: nccl on GPUs, else a host's memory, and gloo between "
           "hosts; local: ranks are threads of one process.")
      .key("max_restarts", &O::max_restarts, count(0),
           "Restarts from the newest checkpoint after a rank crashed, hung or lost its peers.")
      .when("the run saves checkpoints, or offload.image is true")
      .example("3")
      .key("timeout", &O::timeout_seconds, seconds(),
           "Longest wait for one collective, and for all ranks to start.")
      .key("threads", &O::threads, count(0).or_word("auto"),
           "Compute threads of a rank; auto: the cores divided by nproc.")
      .when("ranks run on CPUs")
      .example("4");
}

Section output_section() {
  using O = OutputOptions;
  return SectionMaker("output", &RunConfig::output, "Files that a run writes.")
      .key("dir", &O::dir, path(), "Folder of the run; empty: runs/ and the configuration's name.")
      .example("runs/small")
      .key("tensorboard", &O::tensorboard, boolean(),
           "Whether to write tensorboard/, event files of what metrics.jsonl has.")
      .key("timers", &O::timers, boolean(),
           "Whether the log has the timers of every train.log_every steps: forward, backward, "
           "comm, optimizer, io and data, of the fastest and the slowest rank.")
      .key("mlflow", &O::mlflow, path(),
           "Folder of MLflow's file store that gets the run, with what metrics.jsonl has; empty: "
           "none.")
      .example("mlruns")
      .key("trace", &O::trace, boolean(), "Whether to write trace.json of the last step.")
      .key("nvtx", &O::nvtx, boolean(),
           "Whether each operation is an NVTX range on the thread of its lane, for Nsight "
           "Systems.")
      .key(
          "memory_snapshot", &O::memory_snapshot, counts(1, kMaxDim),
          "Steps after which each rank writes its memory by tag to memory/: a page, and a file for "
          "PyTorch's memory viewer.")
      .example("[2, 100]");
}

std::vector<Section> make_schema() {
  return {model_section(),    data_section(),   train_section(),      optimizer_section(),
          schedule_section(), zero_section(),   offload_section(),    recompute_section(),
          parallel_section(), memory_section(), loss_scale_section(), checkpoint_section(),
          launch_section(),   output_section()};
}

}  // namespace
}  // namespace schema_table

const std::vector<Section>& schema() {
  static const std::vector<Section> sections = schema_table::make_schema();
  return sections;
}

const Section* find_section(std::string_view name) {
  for (const Section& section : schema()) {
    if (section.name == name) return &section;
  }
  return nullptr;
}

const Key* find_key(std::string_view section, std::string_view name) {
  const Section* found = find_section(section);
  if (found == nullptr) return nullptr;
  for (const Key& key : found->keys) {
    if (key.name == name) return &key;
  }
  return nullptr;
}

const Key* find_key(std::string_view path) {
  const std::size_t dot = path.find('.');
  if (dot == std::string_view::npos) return nullptr;
  return find_key(path.substr(0, dot), path.substr(dot + 1));
}

}  // namespace sluice
