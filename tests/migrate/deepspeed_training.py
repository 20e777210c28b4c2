#!/usr/bin/env python3
"""Losses of a small GPT-2 that DeepSpeed trains from its JSON, and those of sluice from the migrated YAML.

Usage: deepspeed_training.py SLUICE.  Ends with 77 (skipped) where a package is missing.
"""
import pathlib
import sys
import tempfile

import gpt2_runs

COMMON = {
    "train_batch_size": gpt2_runs.BATCH,
    "train_micro_batch_size_per_gpu": 2,
    "gradient_clipping": 1.0,
    "optimizer": {"type": "AdamW", "params": {"lr": 1e-3, "betas": [0.9, 0.99], "eps": 1e-8, "weight_decay": 0.1}},
    "scheduler": {"type": "WarmupDecayLR", "params": {"total_num_steps": 20, "warmup_max_lr": 1e-3, "warmup_num_steps": 5}},
}
CPU = {"device": "cpu"}
OVERFLOWS = 3
CASES = {
    "fp32-stage2": ("float32", 1e-5, {"zero_optimization": {"stage": 2}}),
    "bf16-stage3-offload": ("bfloat16", 1e-3, {
        "bf16": {"enabled": True},
        "scheduler": {"type": "WarmupCosineLR", "params": {"total_num_steps": 20, "warmup_num_steps": 5, "cos_min_ratio": 0.1}},
        "zero_optimization": {"stage": 3, "offload_optimizer": CPU, "offload_param": CPU}}),
    # DeepSpeed divides the gradients of a step after which the scale doubles by the doubled scale: half of the gradients, unless
    # half of their norm is above gradient_clipping, as here.
    "fp16-overflow": ("float16", 1e-3, {
        "gradient_clipping": 0.5,
        "scheduler": {"type": "WarmupLR", "params": {"warmup_max_lr": 1e-3, "warmup_num_steps": 5, "warmup_type": "linear"}},
        "fp16": {"enabled": True, "initial_scale_power": 15, "loss_scale_window": 4, "hysteresis": 1},
        "zero_optimization": {"stage": 2}}),
}


def check(program, scratch, case):
    dtype, tolerance, settings = CASES[case]
    gpt2_runs.write_inputs(scratch, dtype, OVERFLOWS if dtype == "float16" else 0)
    gpt2_runs.make_tokens(program, scratch)
    theirs = gpt2_runs.train_theirs(scratch, "theirs", COMMON | settings)
    ours = gpt2_runs.train_ours(program, scratch, "ours", gpt2_runs.migrated(program, scratch, "theirs"))
    worst = gpt2_runs.differences(case, ours, theirs, tolerance)
    skipped = [line["step"] for line in ours if line["skipped"]]
    print(f"{case}: {len(ours)} steps, largest difference of a loss {worst:.2g}, skipped steps {skipped}")


def main():
    program = str(pathlib.Path(sys.argv[1]).absolute())
    for case in sys.argv[2:] or CASES:
        with tempfile.TemporaryDirectory() as scratch:
            check(program, pathlib.Path(scratch), case)


if __name__ == "__main__":
    main()
