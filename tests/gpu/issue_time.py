#!/usr/bin/env python3
"""The host's time for a step on the null GPU, with CUDA graphs and without: what it costs to issue the step.

Usage: issue_time.py [--only TEXT] [--steps N] [--rounds N] [--sluice PROGRAM] [--libraries FOLDER]

Of the models of ceilings.json whose name has TEXT in it, bf16, one sample a micro-batch.  Rounds alternate between the two;
the figure is the median of all steps after the third.  Kernels compute nothing here, so the step is the host's work alone;
the null GPU's own bookkeeping is in it.
"""
import argparse
import json
import statistics
import sys
import tempfile

import training
from ceilings_test import TABLE

WARM = 3  # steps: eager, recorded, first launch


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    training.add_arguments(parser)
    parser.add_argument("--only", default="gpt2", help="models whose name has this in it")
    parser.add_argument("--steps", type=int, default=23, help="steps of a run")
    parser.add_argument("--rounds", type=int, default=3, help="runs of each choice")
    args = training.parse(parser)
    models = json.loads(TABLE.read_text(encoding="ascii"))["models"]
    with tempfile.TemporaryDirectory(prefix="sluice-issue-time-") as folder:
        place = training.Place(args, folder)
        for name in (name for name in models if args.only in name):
            times = {"auto": [], "never": []}
            for choice in list(times) * args.rounds:
                settings = {"train.dtype": "bf16", "train.steps": args.steps, "train.cuda_graphs": choice}
                answer = place.train(f"{name}-{choice}", models[name], settings | {"train.micro_batch": 1})
                if answer.code != 0:
                    print(f"{name}: exit code {answer.code}:\n{training.tail(answer.text)}")
                    return 1
                times[choice] += [step["step_ms"] for step in answer.steps[WARM:]]
            print(f"{name}: " + ", ".join(f"{choice} {statistics.median(t):.2f} ms" for choice, t in times.items()), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
