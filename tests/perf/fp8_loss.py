#!/usr/bin/env python3
"""Losses of train.matmul: fp8 beside those of bf16: the same models, text, seed and steps, on a CPU.

Usage: fp8_loss.py PROGRAM [--steps 300] [--text 'GLOB'] [--work FOLDER] [--models gpt2 llama] [--set KEY=VALUE ...]

A CPU rounds the operands to the values that a GPU's 8-bit products read and multiplies these, so the losses are those of
the arithmetic; the time is not. Both sides multiply in fp32 and round results to bf16 once (train.matmul: fp32 and fp8), so
the operands' rounding is all that differs. Prints a table of the training loss (mean of the steps up to each row since the row
before), of the validation loss at the end, and of fp8's difference. It takes ten CPU-minutes.
"""
import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
# Sizes of every linear layer are multiples of 16. The llama shares key heads.
MODELS = {
    "gpt2": "{type: gpt2, layers: 4, hidden: 128, heads: 4, seq: 128}",
    "llama": "{type: llama, layers: 4, hidden: 128, heads: 4, kv_heads: 2, ffn: 352, seq: 128}",
}
MATMULS = ("fp32", "fp8")
CONFIG = """model: {model}
data: {{text: ["{text}"], tokenizer: "bpe:4096"}}
train: {{steps: {steps}, micro_batch: 8, dtype: bf16, matmul: {matmul}, eval_steps: 20, log_every: 100}}
optimizer: {{type: adamw, lr: 1e-3, betas: [0.9, 0.95], weight_decay: 0.1}}
schedule: {{type: cosine, warmup_steps: 5%}}
launch: {{nproc: 1, backend: gloo}}
output: {{dir: {out}}}
"""


def train(args, work, name, matmul):
    """Losses of the steps, and the validation loss at the end."""
    out = work / f"{name}-{matmul}"
    config = work / f"{name}-{matmul}.yaml"
    config.write_text(CONFIG.format(model=MODELS[name], text=args.text, steps=args.steps, matmul=matmul, out=out))
    command = [args.program, "train", config, "--resume", "never"]
    for item in args.set:
        command += ["--set", item]
    run = subprocess.run(command, cwd=work, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if run.returncode != 0:
        sys.exit(run.stdout + f"\n{name} with train.matmul: {matmul} ended with code {run.returncode}")
    records = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    losses = [record["loss"] for record in records if "loss" in record]
    valid = [record["eval_loss"] for record in records if "eval_loss" in record]
    return losses, valid[-1]


def mean(values):
    return sum(values) / len(values)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("program", type=os.path.abspath)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--rows", type=int, default=6, help="of the table")
    parser.add_argument("--text", default=str(ROOT / "third_party/torch-2.11.0/torch/**/*.py"))
    parser.add_argument("--models", nargs="+", choices=sorted(MODELS), default=sorted(MODELS))
    parser.add_argument("--work", type=pathlib.Path, help="keep the runs in this folder")
    parser.add_argument("--set", nargs="*", default=[], metavar="KEY=VALUE", help="further keys of every run")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        work = (args.work or pathlib.Path(scratch)).resolve()
        work.mkdir(parents=True, exist_ok=True)
        runs = {(name, matmul): train(args, work, name, matmul) for name in args.models for matmul in MATMULS}
    print("| steps |" + "".join(f" {name}, bf16 | {name}, fp8 | difference |" for name in args.models))
    print("| --- |" + " --- | --- | --- |" * len(args.models))
    step = max(1, args.steps // args.rows)
    rows = [(f"{begin + 1} to {min(begin + step, args.steps)}", lambda run, b=begin: mean(run[0][b:b + step]))
            for begin in range(0, args.steps, step)]
    for title, value in [*rows, ("validation", lambda run: run[1])]:
        cells = ""
        for name in args.models:
            wide, narrow = (value(runs[name, matmul]) for matmul in MATMULS)
            cells += f" {wide:.4f} | {narrow:.4f} | {100 * (narrow / wide - 1):+.2f} % |"
        print(f"| {title} |{cells}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
