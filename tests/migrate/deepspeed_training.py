#!/usr/bin/env python3
"""Losses of a small GPT-2 that DeepSpeed trains from its JSON, and those of sluice from the migrated YAML.

Usage: deepspeed_training.py SLUICE.  Ends with 77 (skipped) where a package is missing.
"""
import pathlib
import sys
import tempfile

import gpt2_runs

COMMON = {
    "train_batch_size": 12,
    "train_micro_batch_size_per_gpu": 2,
    "gradient_clipping": 1.0,
    "optimizer": {"type": "AdamW", "params": {"lr": 1e-3, "betas": [0.9, 0.99], "eps": 1e-8, "weight_decay": 0.1}},
    "scheduler": {"type": "WarmupDecayLR", "params": {"total_num_steps": 20, "warmup_max_lr": 1e-3, "warmup_num_steps": 5}},
}
CPU = {"device": "cpu"}
CASES = {
    "fp32-stage2": ("float32", 1e-5, {"zero_optimization": {"stage": 2}}),
    "bf16-stage3-offload": ("bfloat16", 1e-3, {
        "bf16": {"enabled": True},
        "zero_optimization": {"stage": 3, "offload_optimizer": CPU, "offload_param": CPU}}),
    "fp16-overflow": ("float16", 1e-3, {
        "fp16": {"enabled": True, "initial_scale_power": 30, "loss_scale_window": 4, "hysteresis": 1},
        "zero_optimization": {"stage": 2}}),
}
OURS = """
train: {steps: 20, micro_batch: 2, global_batch: 12}
optimizer: {lr: 1e-3, betas: [0.9, 0.99], weight_decay: 0.1, decay: all}
schedule: {type: linear, counting: deepspeed, warmup: log, warmup_steps: 5, decay_steps: 20}
launch: {nproc: 2}
"""
BODY = {"fp32-stage2": OURS + "zero: {stage: 2}\n",
"bf16-stage3-offload": OURS.replace("train: {", "train: {dtype: bf16, ") + "zero: {stage: 3}\noffload: {optimizer: host, parameters: host, gradients: host}\n",
"fp16-overflow": OURS.replace("train: {", "train: {dtype: fp16, ") + "zero: {stage: 2}\nloss_scale: {initial: 1073741824, window: 4, first_window: 5, hysteresis: 1}\n",
}


def check(program, scratch, case):
    dtype, tolerance, settings = CASES[case]
    gpt2_runs.write_inputs(scratch, dtype)
    gpt2_runs.make_tokens(program, scratch)
    theirs = gpt2_runs.train_theirs(scratch, "theirs", COMMON | settings)
    ours = gpt2_runs.train_ours(program, scratch, "ours", BODY[case])
    if len(sys.argv) > 2:
        for a, b in zip(ours, theirs):
            print(a["step"], a["loss"], b["loss"], f"{a['loss']-b['loss']:.2e}", a["lr"], b["lr"], a["loss_scale"], b["loss_scale"], a["skipped"], b["skipped"])
    worst = gpt2_runs.differences(case, ours, theirs, tolerance)
    skipped = [line["step"] for line in ours if line["skipped"]]
    print(f"{case}: {len(ours)} steps, largest difference of a loss {worst:.2g}, skipped steps {skipped}")


def main():
    gpt2_runs.skip_without_packages()
    program = str(pathlib.Path(sys.argv[1]).absolute())
    for case in sys.argv[2:] or CASES:
        with tempfile.TemporaryDirectory() as scratch:
            check(program, pathlib.Path(scratch), case)


if __name__ == "__main__":
    main()
