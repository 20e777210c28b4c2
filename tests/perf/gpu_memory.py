"""Planned and reserved memory of a GPU, side by side: a few steps of models that fill a card.

    python tests/perf/gpu_memory.py                  # every shape
    python tests/perf/gpu_memory.py --only gpt2-345m --json result.json

Reserved is the CUDA caching allocator's own statistic (metrics.jsonl, memory.device_peak).  Prints a line a shape; exit
codes: 0; 1 where a shape's ratio is further from 1 than --tolerance or a run fails; 2 usage.  Needs one GPU of 80 GB.
"""

import argparse
import json
import os
import pathlib
import random
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
STEPS = 3  # by the third every lazy allocation has been made

GPT2_345M = {"type": "gpt2", "layers": 24, "hidden": 1024, "heads": 16, "vocab": 50304}
GPT2_1558M = {"type": "gpt2", "layers": 48, "hidden": 1600, "heads": 25, "vocab": 50304}
LLAMA = {"type": "llama", "layers": 16, "hidden": 2048, "heads": 32, "kv_heads": 8, "ffn": 8192, "vocab": 128256}
RECOMPUTED = {"recompute.mode": "full"}

# Name, keys of model, dtype, other settings.
SHAPES = [
    ("gpt2-345m fp32", GPT2_345M, "fp32", {}),
    ("gpt2-345m bf16", GPT2_345M, "bf16", {}),
    ("gpt2-345m bf16, recomputed", GPT2_345M, "bf16", RECOMPUTED),
    ("gpt2-345m bf16, stage 3", GPT2_345M, "bf16", {"zero.stage": 3}),
    ("gpt2-1558m bf16", GPT2_1558M, "bf16", {}),
    ("gpt2-1558m bf16, recomputed", GPT2_1558M, "bf16", RECOMPUTED),
    ("llama-1.24b bf16", LLAMA, "bf16", {}),
    ("llama-1.24b bf16, recomputed", LLAMA, "bf16", RECOMPUTED),
]


class Failed(Exception):
    """A run that did not end well."""


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--sluice", type=pathlib.Path, default=ROOT / "sluice", help="the program")
    parser.add_argument("--only", default="", help="shapes whose name has this in it")
    parser.add_argument("--exact", help="the shape of this name")
    parser.add_argument("--micro-batch", type=int, default=8)
    parser.add_argument("--tolerance", type=float, default=0.03, help="of the ratio, from 1")
    parser.add_argument("--json", type=pathlib.Path, help="also write every number")
    args = parser.parse_args()
    if not os.access(args.sluice, os.X_OK):
        parser.error(f"--sluice {args.sluice}: no such program; build it, ./sluice at the root does")
    args.shapes = [s for s in SHAPES if (s[0] == args.exact if args.exact else args.only in s[0])]
    if not args.shapes:
        parser.error("no shape has that name; there are " + ", ".join(name for name, *_ in SHAPES))
    return args


def write_config(folder, model, dtype, micro_batch):
    letters = random.Random(1)
    text = "".join(letters.choice("abcdefghijklmnopqrstuvwxyz  \n") for _ in range(1 << 18))
    (folder / "text.txt").write_text(text, encoding="ascii")
    keys = ", ".join(f"{key}: {value}" for key, value in model.items())
    config = folder / "config.yaml"
    config.write_text(
        f"model: {{{keys}, seq: 1024}}\n"
        f'data: {{text: ["{folder}/text.txt"], split: [1, 0], cache_dir: {folder}/tokens}}\n'
        f"train: {{steps: {STEPS}, micro_batch: {micro_batch}, dtype: {dtype}, eval_steps: 0, sample_tokens: 0}}\n"
        "optimizer: {lr: 1.0e-4}\n"
        "schedule: {type: constant}\n"
        "launch: {nproc: 1, backend: nccl}\n",
        encoding="ascii",
    )
    return config


def measure(args, folder, model, dtype, settings):
    """Planned and reserved bytes of one run."""
    out = folder / "run"
    command = [str(args.sluice), "train", str(write_config(folder, model, dtype, args.micro_batch)), "--resume", "never"]
    for key, value in (settings | {"output.dir": out}).items():
        command += ["--set", f"{key}={value}"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=600)
    if done.returncode != 0:
        tail = "\n".join((done.stdout + done.stderr).splitlines()[-15:])
        raise Failed(f"{' '.join(command)} ended with {done.returncode}:\n{tail}")
    plan = json.loads((out / "plan.json").read_text(encoding="utf-8"))
    steps = [json.loads(line) for line in (out / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
    reserved = max(step["memory"]["device_peak"] for step in steps)
    return {"planned": plan["tiers"]["device"]["peak"], "reserved": reserved}


def main():
    args = arguments()
    results = []
    print(f"{'shape':32s} {'planned GiB':>12s} {'reserved GiB':>13s} {'reserved / planned':>19s}")
    for name, model, dtype, settings in args.shapes:
        with tempfile.TemporaryDirectory(prefix="sluice-gpu-") as folder:
            try:
                result = measure(args, pathlib.Path(folder), model, dtype, settings)
            except Failed as failed:
                print(failed, file=sys.stderr)
                return 1
        ratio = result["reserved"] / result["planned"]
        results.append({"name": name, "ratio": ratio} | result)
        print(f"{name:32s} {result['planned'] / 2**30:12.2f} {result['reserved'] / 2**30:13.2f} {ratio:19.3f}", flush=True)
    within = [abs(r["ratio"] - 1) <= args.tolerance for r in results]
    print(f"{sum(within)} of {len(within)} within {100 * args.tolerance:.0f} %")
    if args.json:
        args.json.write_text(json.dumps(results, indent=1), encoding="utf-8")
    return 0 if all(within) else 1


if __name__ == "__main__":
    sys.exit(main())
