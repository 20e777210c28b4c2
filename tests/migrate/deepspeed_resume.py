#!/usr/bin/env python3
"""A run that DeepSpeed stops in the middle and that sluice goes on with: its default checkpoint of two ranks (ZeRO-3), imported,
on three ranks.  The losses are those of DeepSpeed's uninterrupted run.

Usage: deepspeed_resume.py SLUICE.  Ends with 77 (skipped) where a package is missing.
"""
import pathlib
import sys
import tempfile

import deepspeed_training
import gpt2_runs

STOPPED_AT = 10
CASES = {
    "fp32": ("float32", 1e-5, {"zero_optimization": {"stage": 3}}),
    "bf16": ("bfloat16", 1e-3, {"zero_optimization": {"stage": 3}, "bf16": {"enabled": True}}),
}


def check(program, scratch, case):
    dtype, tolerance, settings = CASES[case]
    settings = deepspeed_training.COMMON | settings
    gpt2_runs.write_inputs(scratch, dtype)
    gpt2_runs.make_tokens(program, scratch)
    theirs = gpt2_runs.train_theirs(scratch, "theirs", settings, save_at=STOPPED_AT)
    body = gpt2_runs.migrated(program, scratch, "theirs")
    run = gpt2_runs.run_yaml(scratch, "ours", body)
    gpt2_runs.sluice(program, scratch, "checkpoint", "import", "theirs", "-o", "imported", "--config", *run)
    ours = gpt2_runs.train_ours(program, scratch, "ours", body, "--resume", "imported", "--set=launch.nproc=3")
    worst = gpt2_runs.differences(f"{case} resumed", ours, theirs[STOPPED_AT:], tolerance)
    print(f"{case}: steps {ours[0]['step']} to {ours[-1]['step']} on 3 ranks, largest difference of a loss {worst:.2g}")


def main():
    program = str(pathlib.Path(sys.argv[1]).absolute())
    for case in sys.argv[2:] or CASES:
        with tempfile.TemporaryDirectory() as scratch:
            check(program, pathlib.Path(scratch), case)


if __name__ == "__main__":
    main()
