#!/usr/bin/env python3
"""Runs Sluice on a machine with a GPU: correctness first, then memory, tiers, speed.

Usage: run_kit.py [--build FOLDER] [--backend auto|nccl|gloo] [--out FOLDER] [--jobs N] [--seconds N] [--only TEXT]... [STEP ... | all]

Beside a kit.tar.xz (make_kit.py) the kit runs, with the libtorch of this Python's torch; with --build a build folder of a checkout runs.
docs/gpu.md names the steps; without names the first seven run.  Each step has a log in OUT (./gpu-out); the exit code is the number of
steps that failed.  --jobs trains N runs of parity, stages, nccl and mesh side by side.  After --seconds nothing more begins, and what
runs then is ended.  --only 1558m --only 8b-layer leaves out all runs but those with one of these texts in their names; env,
kernels, module, commands and doctor run whole.
"""
import argparse
import contextlib
import io
import math
import pathlib
import shutil
import sys
import time
import traceback

import correctness
import measurements
from programs import Failed, Kit
from results import note


def step_env(kit):
    if kit.backend != "gloo":
        kit.call(["nvidia-smi"])
    for path in [kit.sluice, *kit.tests.values()]:
        if "not found" in kit.call(["ldd", path]):
            raise Failed(f"{path} lacks libraries (the log names them)")
    note("every library is found")


def step_kernels(kit):
    kit.test("cuda_kernels")
    checker = shutil.which("compute-sanitizer")
    if checker:
        kit.call([checker, "--tool", "memcheck", "--error-exitcode", "9", kit.tests["cuda_kernels"], "--gtest_brief=1"])
    note("the CPU's bits" + (", and memcheck" if checker else "; compute-sanitizer is not installed"))


def step_module(kit):
    kit.test("parallel", "--gtest_filter=CudaModule*")
    for test in ("runtime_doctor", "engine_device_access", "engine_gpu_tiers"):
        kit.test(test)


STEPS = {f.__name__.removeprefix("step_"): f for f in (
    step_env, step_kernels, step_module, correctness.step_parity, correctness.step_stages, correctness.step_nccl, correctness.step_mesh,
    correctness.step_commands, measurements.step_memory, measurements.step_tiers, measurements.step_doctor, measurements.step_speed,
    measurements.step_profile, measurements.step_peers, measurements.step_big)}


def run_step(kit, name, out):
    """(failed, seconds) of a step; its log is OUT/NAME.txt."""
    begin, log, failure = time.monotonic(), io.StringIO(), None
    kit.wanted = kit.left_out = 0
    try:
        with contextlib.redirect_stdout(log):
            STEPS[name](kit)
        if kit.left_out and not kit.wanted:
            raise Failed(f"no compared or measured run has a text of --only in its name: {', '.join(kit.only)}")
    except Failed as failed:
        failure = failed
    except Exception as error:  # a fault of the kit; the other steps may run
        log.write(traceback.format_exc())
        failure = f"{type(error).__name__}: {error}"
    text = log.getvalue() + (f"FAILED: {failure}\n" if failure else "")
    (out / f"{name}.txt").write_text(text, encoding="utf-8")
    print(f"\n==== {name}", *(line for line in text.splitlines() if line.startswith(("=>", "FAILED"))), sep="\n", flush=True)
    return failure is not None, time.monotonic() - begin


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--build", type=pathlib.Path, help="a build folder in place of a kit")
    parser.add_argument("--backend", default="auto", choices=("auto", "nccl", "gloo"), help="of the runs; gloo: a rehearsal on the CPU")
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("gpu-out"), help="logs and runs")
    parser.add_argument("--jobs", type=int, default=1, help="runs side by side in parity, stages, nccl and mesh")
    parser.add_argument("--seconds", type=float, default=math.inf, help="for all steps together; what they do not do then counts as failed")
    parser.add_argument("--only", action="append", default=[], metavar="TEXT", help="only runs with TEXT in their names; repeat for more")
    parser.add_argument("steps", nargs="*", help=f"of {', '.join(STEPS)}; all: every one")
    args = parser.parse_args()
    args.out = args.out.resolve()
    unknown = [name for name in args.steps if name not in STEPS and name != "all"]
    if unknown:
        parser.error(f"there is no step {unknown[0]}; there are {', '.join(STEPS)}")
    steps = list(STEPS) if "all" in args.steps else args.steps or list(STEPS)[:7]
    try:
        kit = Kit(args)
    except Failed as failed:
        parser.error(str(failed))
    results = {name: run_step(kit, name, args.out) for name in steps}
    print("", *(f"{name:9s} {'FAILED' if failed else 'ok':7s} {seconds:4.0f} s" for name, (failed, seconds) in results.items()), sep="\n")
    return sum(failed for failed, _ in results.values())


if __name__ == "__main__":
    sys.exit(main())
