#!/usr/bin/env python3
"""Step times of two programs in turn, alone and with a busy neighbour on each core.

    python tests/perf/busy_neighbour.py before=/tmp/base-sluice after=build/release/runtime/cli/sluice

A neighbour is a process that never sleeps, bound to one core.  Each round runs every program once, the first program
first in even rounds and last in odd ones.  The table has the median step (in brackets the fastest) of all rounds,
without the first steps of a run, and the ratios of both to the first program's.
"""

import argparse
import contextlib
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

CONFIG = """
model: {{type: gpt2, layers: {layers}, hidden: {hidden}, heads: 4, seq: 128, dropout: 0}}
data: {{text: ["{text}"], tokenizer: bytes}}
train: {{steps: {steps}, micro_batch: 4, global_batch: {batch}, dtype: fp32, log_every: 1000, seed: 1}}
optimizer: {{type: adamw, lr: 1e-3}}
schedule: {{type: constant, warmup_steps: 0}}
zero: {{stage: 1}}
launch: {{threads: {threads}}}
output: {{dir: "{out}"}}
"""


@contextlib.contextmanager
def neighbours(per_core):
    """Processes that compute for as long as the body runs."""
    started = []
    try:
        for core in sorted(os.sched_getaffinity(0)):
            for _ in range(per_core):
                started.append(subprocess.Popen(
                    [sys.executable, "-c", f"import os\nos.sched_setaffinity(0, {{{core}}})\nwhile True: pass"]))
        yield
    finally:
        for process in started:
            process.kill()
        for process in started:
            process.wait()


def step_ms(program, folder, args, ranks, threads):
    """The steps of one run that count, in milliseconds."""
    out = folder / "run"
    config = folder / "config.yaml"
    config.write_text(CONFIG.format(text=folder / "text.txt", out=out, threads=threads, steps=args.steps,
                                    batch=4 * ranks, layers=args.layers, hidden=args.hidden))
    done = subprocess.run([program, "train", str(config), "--nproc", str(ranks)], capture_output=True, text=True)
    if done.returncode != 0:
        raise SystemExit(f"{program} ended with {done.returncode}:\n{done.stderr}")
    steps = [json.loads(line)["step_ms"] for line in (out / "metrics.jsonl").read_text().splitlines()]
    (out / "metrics.jsonl").unlink()
    return steps[args.warmup:]


def shape(text):
    ranks, threads = text.split("x")
    return int(ranks), int(threads)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("programs", nargs="+", metavar="NAME=PATH", help="two or more; ratios are to the first")
    parser.add_argument("--shapes", nargs="+", type=shape, default=[(1, 2), (2, 1)], metavar="RANKSxTHREADS")
    parser.add_argument("--neighbours", nargs="+", type=int, default=[0, 1], help="of each core")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--warmup", type=int, default=2, help="first steps of a run that do not count")
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--hidden", type=int, default=256)
    args = parser.parse_args()
    programs = dict(word.split("=", 1) for word in args.programs)
    names = list(programs)
    cells = [f"{name}, ms" for name in names] + [f"{name} / {names[0]}" for name in names[1:]]
    print("| ranks x threads | neighbours of a core | " + " | ".join(cells) + " |")
    print("| --- " * (2 + len(cells)) + "|", flush=True)
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        (folder / "text.txt").write_text("All happy families are alike; each unhappy family is unhappy in its own way.\n" * 2000)
        for ranks, threads in args.shapes:
            for per_core in args.neighbours:
                times = {name: [] for name in names}
                with neighbours(per_core):
                    for turn in range(args.rounds):
                        for name in names if turn % 2 == 0 else reversed(names):
                            times[name] += step_ms(programs[name], folder, args, ranks, threads)
                median = {name: statistics.median(times[name]) for name in names}
                best = {name: min(times[name]) for name in names}
                row = [f"{median[name]:.1f} ({best[name]:.1f})" for name in names]
                for name in names[1:]:
                    row.append(f"{median[name] / median[names[0]]:.3f} ({best[name] / best[names[0]]:.3f})")
                print(f"| {ranks} x {threads} | {per_core} | " + " | ".join(row) + " |", flush=True)


if __name__ == "__main__":
    main()
