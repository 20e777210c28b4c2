"""Measures DeepSpeed on the work of the benchmark page, so that our numbers stand beside its numbers.

    python tests/perf/peer_deepspeed.py --stage 1 --dtype fp32 --steps 12
    python tests/perf/peer_deepspeed.py --stage 3 --offload cpu --steps 12
    python tests/perf/peer_deepspeed.py --stage 3 --offload nvme --nvme-path <folder on the disk to measure>

The work: GPT-2 shape, 6 layers, hidden 512, 8 heads, sequence 256, vocabulary 50304 tied (44.8 M parameters), AdamW,
clipping at 1.0, no dropout, micro-batch 4, no accumulation, on 2 ranks of one CPU thread each over Gloo.

It starts its own ranks (torch.distributed.run), and needs torch, transformers 4.x, deepspeed and ninja from PyPI, and a C++
compiler: DeepSpeed builds its CPU Adam in the first run (half a minute, before the first step).  --offload nvme needs libaio
with its headers besides.  What the ranks log goes to stderr; stdout has one line of JSON.

Where oneDNN finds instructions that the machine then refuses (bf16 ends with SIGILL), set ONEDNN_MAX_CPU_ISA to
AVX512_CORE_BF16.
"""

import argparse
import importlib.metadata
import json
import os
import resource
import statistics
import sys
import time

LAYERS, HIDDEN, HEADS, SEQ, VOCAB = 6, 512, 8, 256, 50304
MICRO_BATCH, CLIP, WARMUP_STEPS = 4, 1.0, 2


def arguments():
    parser = argparse.ArgumentParser(description="DeepSpeed on the work of the benchmark page; prints JSON.")
    parser.add_argument("--stage", type=int, choices=range(4), default=1)
    parser.add_argument("--dtype", choices=("fp32", "bf16"), default="fp32")
    parser.add_argument("--steps", type=int, default=12, help=f"the first {WARMUP_STEPS} are left out of the median")
    parser.add_argument("--offload", choices=("none", "cpu", "nvme"), default="none")
    parser.add_argument("--offload-what", choices=("optimizer", "all"), help="default: all at stage 3, else optimizer")
    parser.add_argument("--nvme-path", help="folder for --offload nvme")
    parser.add_argument("--ranks", type=int, default=2)
    args = parser.parse_args()
    args.offload_what = args.offload_what or ("all" if args.stage == 3 else "optimizer")
    if args.steps <= WARMUP_STEPS:
        parser.error(f"--steps {args.steps}: at least {WARMUP_STEPS + 1}, as the first {WARMUP_STEPS} only warm up")
    if args.offload != "none" and args.stage == 0:
        parser.error("--offload needs --stage 1, 2 or 3")
    if args.offload != "none" and args.offload_what == "all" and args.stage != 3:
        parser.error("--offload-what all needs --stage 3: DeepSpeed offloads parameters there only")
    if args.offload == "nvme" and (args.stage != 3 or not args.nvme_path):
        parser.error("--offload nvme needs --stage 3 and --nvme-path")
    return args


def launch(ranks):
    """Becomes torchrun, which starts this file once per rank and ends all when one fails."""
    os.environ |= {"OMP_NUM_THREADS": "1", "DS_ACCELERATOR": "cpu", "CUDA_VISIBLE_DEVICES": ""}
    run = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}"]
    os.execv(sys.executable, [*run, *sys.argv])


def deepspeed_config(args):
    zero = {"stage": args.stage}
    if args.offload != "none":
        target = {"device": args.offload, "nvme_path": args.nvme_path} if args.offload == "nvme" else {"device": "cpu"}
        zero["offload_optimizer"] = target
        if args.offload_what == "all":
            zero["offload_param"] = target
    return {
        "train_micro_batch_size_per_gpu": MICRO_BATCH,
        "gradient_accumulation_steps": 1,
        "gradient_clipping": CLIP,
        "optimizer": {"type": "AdamW", "params": {"lr": 3e-4, "betas": [0.9, 0.95], "eps": 1e-8, "weight_decay": 0.1}},
        "bf16": {"enabled": args.dtype == "bf16"},
        "zero_optimization": zero,
        "steps_per_print": 10**9,
    }


def tokens(step, rank, ranks):
    """[MICRO_BATCH, SEQ + 1] by the token rule of tests/golden; row b counts on over ranks and steps."""
    import torch

    first = (step * ranks + rank) * MICRO_BATCH
    b = torch.arange(first, first + MICRO_BATCH)[:, None]
    s = torch.arange(SEQ + 1)[None, :]
    u = ((b * 7919 + s * 104729 + 17) * 2654435761) & 0xFFFFFFFF
    return (u >> 7) % VOCAB


def build_engine(args):
    import deepspeed
    import torch
    import transformers

    torch.manual_seed(1234)  # the same weights on every rank
    shape = transformers.GPT2Config(
        n_layer=LAYERS,
        n_embd=HIDDEN,
        n_head=HEADS,
        n_positions=SEQ,
        vocab_size=VOCAB,
        resid_pdrop=0.0,
        embd_pdrop=0.0,
        attn_pdrop=0.0,
        use_cache=False,
        attn_implementation="sdpa",
    )
    model = transformers.GPT2LMHeadModel(shape)
    groups = [
        {"params": [p for p in model.parameters() if p.dim() > 1], "weight_decay": 0.1},
        {"params": [p for p in model.parameters() if p.dim() == 1], "weight_decay": 0.0},
    ]
    count = sum(p.numel() for p in model.parameters())
    engine, *_ = deepspeed.initialize(model=model, model_parameters=groups, config=deepspeed_config(args))
    return engine, count


def train_step(engine, ids):
    import torch.nn.functional as F

    logits = engine(input_ids=ids[:, :-1]).logits
    loss = F.cross_entropy(logits.flatten(0, 1).float(), ids[:, 1:].flatten())
    engine.backward(loss)
    engine.step()
    return loss.detach()


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


def measure(args):
    """One rank.  Returns what rank 0 prints; a step's time is rank 0's, from barrier to barrier."""
    import deepspeed
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    deepspeed.init_distributed(dist_backend="gloo")
    rank, ranks = dist.get_rank(), dist.get_world_size()
    engine, parameters = build_engine(args)
    losses, norms, step_ms, step_cpu_ms = [], [], [], []
    preempted = preemptions()
    for step in range(args.steps):
        ids = tokens(step, rank, ranks)
        dist.barrier()
        start, cpu_start = time.perf_counter(), time.process_time()
        loss = train_step(engine, ids)
        dist.barrier()
        step_ms.append(1000 * (time.perf_counter() - start))
        step_cpu_ms.append(1000 * (time.process_time() - cpu_start))
        dist.all_reduce(loss)
        losses.append(loss.item() / ranks)
        norms.append(float(engine.get_global_grad_norm()))
    preempted = preemptions() - preempted
    peaks = [None] * ranks
    dist.all_gather_object(peaks, peak_rss_bytes())
    dist.destroy_process_group()
    timed = step_ms[WARMUP_STEPS:]
    median = statistics.median(timed)
    result = {"peer": "deepspeed", "stage": args.stage, "dtype": args.dtype, "offload": args.offload}
    if args.offload != "none":
        result["offload_what"] = args.offload_what
    return rank, result | {
        "ranks": ranks,
        "threads_per_rank": torch.get_num_threads(),
        "micro_batch": MICRO_BATCH,
        "parameters": parameters,
        "step_ms_median": round(median, 1),
        "step_ms_mad": round(statistics.median(abs(t - median) for t in timed), 1),
        "tokens_per_s": round(1000 * ranks * MICRO_BATCH * SEQ / median, 1),
        "peak_rss_bytes": peaks,
        "step_ms": [round(t, 1) for t in step_ms],
        "step_cpu_ms": [round(t, 1) for t in step_cpu_ms],
        "preemptions": preempted,
        "loss": losses,
        "grad_norm": norms,
        "optimizer": type(getattr(engine.optimizer, "optimizer", engine.optimizer)).__name__,
        "cpu": cpu_model(),
        "cpus": os.cpu_count(),
        "versions": {name: importlib.metadata.version(name) for name in ("torch", "transformers", "deepspeed")},
    }


def main():
    args = arguments()
    if "RANK" not in os.environ:
        launch(args.ranks)
    json_out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # DeepSpeed logs to stdout, its compiler too
    rank, result = measure(args)
    if rank == 0:
        print(json.dumps(result), file=json_out, flush=True)


if __name__ == "__main__":
    main()
