"""What the peers of compare.py share: a run's configuration, its model, initial weights and rows of tokens, and the measured steps.

A peer's file (peer_deepspeed.py, peer_fsdp.py) starts the ranks with main(), and gives a class of engines:

    class Engine:
        def __init__(self, args): ...   # joins the group of ranks
        def build(self, model): ...     # shards the model, which has its initial weights
        def step(self, ids): ...        # trains on int64[rows, seq + 1]; returns the rank's loss
        def grad_norm(self): ...        # of the step before its clipping, or None
        def about(self): ...            # more keys of the result

torch and transformers are imported within functions: compare.py takes constants from here, and torchrun's parent needs neither.
"""

import importlib.metadata
import json
import os
import pathlib
import resource
import statistics
import sys
import time

import run_rules

WARMUP_STEPS = 2


def add_arguments(parser, stages):
    parser.add_argument("run", type=pathlib.Path, help="the run's output.dir")
    parser.add_argument("--stage", type=int, choices=stages, help="default: the run's")
    parser.add_argument("--dtype", choices=("fp32", "bf16"), help="default: the run's")
    parser.add_argument("--steps", type=int, help=f"default: the run's; the first {WARMUP_STEPS} are not timed")
    parser.add_argument("--weights", type=pathlib.Path, help="initial weights, made where missing; default: in the run")


def parse(parser):
    """The arguments, with `config` and what they take from it."""
    args = parser.parse_args()
    args.config = read_config(parser, args.run)
    if args.stage is None:
        args.stage = args.config["zero"]["stage"]
    args.dtype = args.dtype or args.config["train"]["dtype"]
    args.steps = args.steps or args.config["train"]["steps"]
    args.ranks = args.config["launch"]["nproc"]
    args.weights = args.weights or args.run / "initial.safetensors"
    if args.steps <= WARMUP_STEPS:
        parser.error(f"{args.steps} steps: at least {WARMUP_STEPS + 1}, as the first {WARMUP_STEPS} only warm up")
    return args


def read_config(parser, run):
    """The run's resolved configuration, if it is one that this file repeats exactly."""
    import yaml

    try:
        config = yaml.safe_load((run / "config.yaml").read_text(encoding="utf-8"))
    except OSError as error:
        parser.error(f"{error}; run ./sluice train first, with output.dir={run}")
    model, data, train = config["model"], config["data"], config["train"]
    wanted = [
        ("model.type", model["type"], ("gpt2", "llama")),
        ("model.dropout", float(model["dropout"]), (0.0,)),
        ("model.rope_scaling", model["rope_scaling"], ("none",)),
        ("model.attention_bias", model["attention_bias"], ("auto",)),
        ("data.train", data["train"], ([],)),
        ("data.split", [float(share) for share in data["split"]][1], (0.0,)),
        ("train.global_batch", train["global_batch"], ("auto",)),
        ("train.dtype", train["dtype"], ("fp32", "bf16")),
        ("train.clip > 0", float(train["clip"]) > 0, (True,)),
        ("schedule.type", config["schedule"]["type"], ("constant",)),
        ("schedule.warmup_steps", config["schedule"]["warmup_steps"], (0,)),
        ("launch.threads", config["launch"]["threads"], (1,)),
        ("launch.nproc given", config["launch"]["nproc"] != "auto", (True,)),
    ]
    for key, value, possible in wanted:
        if value not in possible:
            expected = " or ".join(str(p) for p in possible)
            parser.error(f"{run}/config.yaml has {key} = {value}, but the peers are only set up here for {expected}")
    if model["type"] == "gpt2" and model["tie_embeddings"] is not True:
        parser.error(f"{run}/config.yaml: transformers ties the head of a gpt2")
    return config


def launch(args, variables):
    """Becomes torchrun, which starts the file once per rank and ends all when one fails."""
    os.environ |= {"OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""} | variables
    run = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={args.ranks}"]
    os.execv(sys.executable, [*run, *sys.argv])


def given(value, default):
    return default if value == "auto" else value


def make_model(m):
    """The section `model` as transformers builds it."""
    import transformers

    eps = float(given(m["norm_eps"], 1e-5))
    if m["type"] == "gpt2":
        shape = transformers.GPT2Config(
            n_layer=m["layers"], n_embd=m["hidden"], n_head=m["heads"], n_inner=given(m["ffn"], None),
            n_positions=m["seq"], vocab_size=m["vocab"], layer_norm_epsilon=eps, use_cache=False,
            resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0, attn_implementation="sdpa",
        )  # fmt: skip
        return transformers.GPT2LMHeadModel(shape)
    shape = transformers.LlamaConfig(
        num_hidden_layers=m["layers"], hidden_size=m["hidden"], num_attention_heads=m["heads"],
        num_key_value_heads=given(m["kv_heads"], m["heads"]), head_dim=given(m["head_dim"], m["hidden"] // m["heads"]),
        intermediate_size=given(m["ffn"], (8 * m["hidden"] // 3 + 63) // 64 * 64), vocab_size=m["vocab"],
        max_position_embeddings=m["seq"], rms_norm_eps=eps, rope_theta=float(m["rope_theta"]),
        tie_word_embeddings=m["tie_embeddings"], use_cache=False, attn_implementation="sdpa",
    )  # fmt: skip
    return transformers.LlamaForCausalLM(shape)


def initial_weights(model, config):
    """name -> tensor, as runtime/model/model_spec.cpp draws them."""
    import torch
    from transformers.pytorch_utils import Conv1D

    std = float(config["model"]["init_std"])
    residual_std = std / (2.0 * config["model"]["layers"]) ** 0.5
    turned = {f"{name}.weight" for name, module in model.named_modules() if isinstance(module, Conv1D)}
    weights = {}
    for name, parameter in model.named_parameters():
        if parameter.dim() == 1:
            weights[name] = torch.full_like(parameter, 0.0 if name.endswith("bias") else 1.0).detach()
            continue
        into_stream = name.endswith(("c_proj.weight", "o_proj.weight", "down_proj.weight"))
        ours = name.removeprefix("transformer.")
        drawn = run_rules.normal(config["train"]["seed"], ours, parameter.numel(), residual_std if into_stream else std)
        drawn = torch.from_numpy(drawn)
        # Ours are [out, in] throughout, a Conv1D's [in, out].
        rows, columns = parameter.shape
        weights[name] = drawn.view(columns, rows).t().contiguous() if name in turned else drawn.view(rows, columns)
    return weights


def load_initial_weights(model, args, rank):
    """Rank 0 draws them (some seconds) unless the file is there."""
    import safetensors.torch
    import torch.distributed as dist

    if rank == 0 and not args.weights.exists():
        unfinished = args.weights.with_suffix(".unfinished")
        safetensors.torch.save_file(initial_weights(model, args.config), unfinished)
        unfinished.rename(args.weights)
    dist.barrier()
    left = model.load_state_dict(safetensors.torch.load_file(args.weights), strict=False)
    tied = set(dict(model.named_parameters(remove_duplicate=False))) - set(dict(model.named_parameters()))
    if left.unexpected_keys or set(left.missing_keys) - tied:
        raise SystemExit(f"{args.weights} is of another model: {left}; remove it")


def decayed_groups(model, decay):
    """The optimizer's groups: weight decay of matrices alone."""
    return [
        {"params": [p for p in model.parameters() if p.dim() > 1], "weight_decay": decay},
        {"params": [p for p in model.parameters() if p.dim() == 1], "weight_decay": 0.0},
    ]


def loss_of(model, ids):
    """The mean loss of predicting each next token, in fp32."""
    import torch.nn.functional as F

    logits = model(input_ids=ids[:, :-1]).logits
    return F.cross_entropy(logits.flatten(0, 1).float(), ids[:, 1:].flatten())


def peak_rss_bytes():
    with open("/proc/self/status", encoding="ascii") as status:
        return next(int(line.split()[1]) * 1024 for line in status if line.startswith("VmHWM:"))


def preemptions():
    """How often the kernel took the CPU away from this process: large when the machine is shared, and then no
    time is worth keeping."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_nivcsw


def cpu_model():
    with open("/proc/cpuinfo", encoding="utf-8") as info:
        return next((line.split(":", 1)[1].strip() for line in info if line.startswith("model name")), "unknown")


def train(args, engine, rank):
    """Losses, gradient norms and times of the steps; a step's time is rank 0's, from barrier to barrier."""
    import torch
    import torch.distributed as dist

    model, settings = args.config["model"], args.config["train"]
    source = run_rules.TokenRows(args.config["data"]["cache_dir"], model["seq"], settings["seed"])
    batch = settings["micro_batch"]
    losses, norms, step_ms, step_cpu_ms = [], [], [], []
    for step in range(1, args.steps + 1):
        ids = torch.from_numpy(source.rows(step, args.ranks * batch, rank * batch, batch))
        dist.barrier()
        start, cpu_start = time.perf_counter(), time.process_time()
        loss = engine.step(ids)
        dist.barrier()
        step_ms.append(round(1000 * (time.perf_counter() - start), 1))
        step_cpu_ms.append(round(1000 * (time.process_time() - cpu_start), 1))
        loss = loss.float()
        dist.all_reduce(loss)
        losses.append(loss.item() / args.ranks)
        norms.append(engine.grad_norm())
    return {"loss": losses, "grad_norm": norms, "step_ms": step_ms, "step_cpu_ms": step_cpu_ms}


def measure(args, make_engine):
    """One rank.  Returns its number and what rank 0 prints."""
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    engine = make_engine(args)
    rank = dist.get_rank()
    model = make_model(args.config["model"])
    load_initial_weights(model, args, rank)
    parameters = sum(p.numel() for p in model.parameters())
    engine.build(model)
    preempted = preemptions()
    trained = train(args, engine, rank)
    preempted = preemptions() - preempted
    peaks = [None] * args.ranks
    dist.all_gather_object(peaks, peak_rss_bytes())
    dist.destroy_process_group()
    timed = trained["step_ms"][WARMUP_STEPS:]
    median = statistics.median(timed)
    tokens = args.ranks * args.config["train"]["micro_batch"] * args.config["model"]["seq"]
    return rank, {
        "stage": args.stage,
        "dtype": args.dtype,
        "ranks": args.ranks,
        "threads_per_rank": torch.get_num_threads(),
        "parameters": parameters,
        "step_ms_median": median,
        "step_ms_mad": round(statistics.median(abs(t - median) for t in timed), 1),
        "tokens_per_s": round(1000 * tokens / median, 1),
        "peak_rss_bytes": peaks,
        **trained,
        "preemptions": preempted,
        "cpu": cpu_model(),
        "cpus": os.cpu_count(),
        "versions": {name: importlib.metadata.version(name) for name in ("torch", "transformers")},
        **engine.about(),
    }


def main(args, make_engine, variables):
    """Starts the ranks, with `variables` in their environment; as a rank, measures, and rank 0 prints the result."""
    if "RANK" not in os.environ:
        launch(args, variables)
    json_out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # libraries log to stdout, and so do the compilers that they start
    rank, result = measure(args, make_engine)
    if rank == 0:
        print(json.dumps(result), file=json_out, flush=True)
